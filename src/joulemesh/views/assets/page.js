// What every page does: draws, and again when the width, the theme or the medium changes; opens parts
// that are closed for paper; shows and hides the tip.

// `draw` draws all charts. Where elements carry their tip (data-tip), `tipped` selects those that
// show one by themselves.
function page(draw, tipped) {
  for (const one of document.querySelectorAll(".lead, .answer, .why, .tiles li > *")) if (!one.children.length) one.textContent = unbroken(one.textContent);
  draw();
  let drawnWidth = document.documentElement.clientWidth, waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      const width = document.documentElement.clientWidth;
      if (width !== drawnWidth && !still.printing) { drawnWidth = width; draw(); }
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const opened = [];
  addEventListener("beforeprint", () => {
    still.printing = true;
    for (const part of document.querySelectorAll("details:not([open], .long, .tools *)")) { part.open = true; opened.push(part); }
    draw();
  });
  addEventListener("afterprint", () => {
    still.printing = false;
    for (const part of opened.splice(0)) part.open = false;
    draw();
  });

  for (const kind of tipped ? ["pointermove", "pointerdown"] : [])
    document.addEventListener(kind, (event) => {
      const marked = event.target.closest?.("[data-tip]");
      if (marked) tip.show(marked.dataset.tip, event.clientX, event.clientY);
      else if (!event.target.closest?.(tipped)) tip.hide();
    });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hide(); });
  addEventListener("scroll", () => tip.hide(), { passive: true });
}
