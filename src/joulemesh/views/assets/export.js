// Every chart as a file: its drawing as SVG, its figures as CSV, and a table that can be read aloud.

const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
  "opacity", "visibility", "font-family", "font-size", "font-weight", "text-anchor", "shape-rendering", "image-rendering", "filter"];
const MOST_CELLS = 4000, MOST_COLUMNS = 40; // of a table on the page; the file has them all

const csvCell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csvText = ({ columns, rows }) => `${[columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\n")}\n`;

// A drawing that needs no page: every style that counts is written into its elements.
function svgText(svg) {
  const copy = svg.cloneNode(true), { width, height } = svg.viewBox.baseVal;
  const ground = getComputedStyle(svg.closest(".card") ?? document.body).backgroundColor;
  const copies = [copy, ...copy.querySelectorAll("*")];
  for (const [k, from] of [svg, ...svg.querySelectorAll("*")].entries()) {
    const to = copies[k], style = getComputedStyle(from);
    to.removeAttribute("style");
    for (const name of DRAWN) {
      const value = style.getPropertyValue(name);
      if (value && !(name === "filter" && value === "none")) to.setAttribute(name, value);
    }
    for (const name of ["class", "data-tip", "tabindex"]) to.removeAttribute(name);
  }
  svg.exported?.(copy); // what is drawn beside it, on a canvas
  copy.prepend(node("rect", { width, height, fill: ground }));
  for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height })) copy.setAttribute(name, value);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

function download(name, type, text) {
  const link = dom("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A table that goes on to the right says so by a shadow on that side.
const sized = new ResizeObserver((entries) => { for (const { target } of entries) cue(target.closest(".scroll")); });
const cue = (box) => box?.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
function cueScroll(box) {
  for (const one of [box, ...box.children]) sized.observe(one);
  box.addEventListener("scroll", () => cue(box), { passive: true });
}
document.querySelectorAll(".scroll").forEach(cueScroll);

function fillTable(table, { columns, rows }) {
  const write = (v) => (typeof v === "number" ? plain(v) : v === null || v === undefined ? "–" : String(v));
  const line = (cells, kind) => dom("tr", {}, ...cells.map((cell) => {
    const made = dom(kind, { textContent: write(cell), className: typeof cell === "number" ? "n" : "" });
    if (kind === "th") made.scope = "col";
    return made;
  }));
  const wide = Math.min(columns.length, MOST_COLUMNS), shown = rows.slice(0, Math.floor(MOST_CELLS / wide));
  table.replaceChildren(dom("thead", {}, line(columns.slice(0, wide), "th")), dom("tbody", {}, ...shown.map((row) => line(row.slice(0, wide), "td"))));
  const some = (count, all, what) => (count < all ? [`${whole(count)} of ${whole(all)} ${what}`] : []);
  const left = [...some(shown.length, rows.length, "rows"), ...some(wide, columns.length, "columns")];
  if (left.length) table.createCaption().textContent = `The first ${left.join(" and ")}; the CSV file has all.`;
}

// Where arrow keys have come to in a chart. It outlives a drawing: a page that is alive draws anew often.
function placeOf(svg) {
  const kept = ((svg.parentNode ?? svg).place ??= { at: null });
  kept.step = (by, count) => (kept.at = Math.max(0, Math.min(count - 1, (kept.at ?? (by > 0 ? -1 : count)) + by)));
  return kept;
}

// Arrow keys go from mark to mark of a chart that has no keys of its own.
function readTips(svg) {
  if (!svg || svg.hasAttribute("tabindex")) return;
  const marks = [...svg.querySelectorAll("[data-tip]")];
  if (!marks.length) return;
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("aria-label", `${svg.getAttribute("aria-label")} Arrow keys read it.`);
  const kept = placeOf(svg);
  const leave = () => { marks[kept.at]?.classList.remove("near"); tip.hide(); };
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    leave();
    const at = marks[kept.step(step, marks.length)];
    at.classList.add("near");
    const frame = at.getBoundingClientRect();
    tip.show(at.dataset.tip, frame.left + frame.width / 2, frame.top + Math.min(frame.height / 2, 30));
  });
}

// Buttons and a table under a chart. `figures` gives { columns, rows } when it is asked.
function exports(container, name, figures) {
  const host = typeof container === "string" ? document.getElementById(container) : container;
  Object.assign(host, { figures, titled: name });
  readTips(host.querySelector(".chart svg"));
  if (host.querySelector(".tools")) {
    const open = host.querySelector(".tools details");
    if (open?.open) fillTable(open.querySelector("table"), figures());
    return;
  }
  const button = (text, label, act) => {
    const made = dom("button", { type: "button", textContent: text });
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  };
  const table = dom("table"), scroll = dom("div", { className: "scroll", tabIndex: 0 }, table);
  scroll.setAttribute("role", "region");
  cueScroll(scroll);
  scroll.setAttribute("aria-label", `Table of ${name}`);
  const details = dom("details", {}, dom("summary", { textContent: "Table" }), scroll);
  details.addEventListener("toggle", () => { if (details.open) fillTable(table, host.figures()); });
  const file = () => host.titled.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  host.append(dom("div", { className: "tools" },
    button("SVG", `Save the chart of ${name} as SVG`, () => download(`${file()}.svg`, "image/svg+xml", svgText(host.querySelector(".chart svg")))),
    button("CSV", `Save the figures of ${name} as CSV`, () => download(`${file()}.csv`, "text/csv", csvText(host.figures()))),
    details));
}
