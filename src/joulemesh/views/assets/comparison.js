// Every method's curve with its band; axes and methods can be switched.

const view = { x: "joules", y: data.score, hidden: new Set(), at: null };
const DASH = ["", "9 5", "3 3", "12 4 3 4"];
const ink = (method) => `var(--m${method.place % 8})`;
const dash = (method) => DASH[method.place % DASH.length];

const ACROSS = {
  iterations: { name: () => "iteration", unit: "" },
  joules: { name: (unit) => `energy spent by all devices [${unit}]`, unit: "J" },
  seconds: { name: (unit) => `simulated time [${unit}]`, unit: "s" },
};
const ALONG = data.curves;

// Ends of an interval; a share is nowhere below 0 or above 1.
const within = (along, low, high) => (along.share ? [Math.max(0, low), Math.min(1, high)] : [low, high]);
const finite = (values) => values.filter((v) => v !== null);

function drawCurves() {
  tip.hide();
  const chart = document.querySelector("#curves .chart");
  const height = innerWidth < 600 ? 320 : 420;
  const across = ACROSS[view.x], along = ALONG[view.y];
  const { svg, width } = sheet(chart, height, `${along.name} against ${view.x}, by method. Arrow keys read the values.`);
  svg.setAttribute("tabindex", "0");
  const shown = data.methods.filter((method) => !view.hidden.has(method.name));
  const box = { left: 56, right: width - 14, top: 30, bottom: height - 46 };
  const right = Math.max(...shown.map((method) => Math.max(...finite(method[view.x]))), 1e-12);
  const ends = shown.flatMap((method) => finite([...method[view.y].low, ...method[view.y].high]));
  const means = shown.flatMap((method) => finite(method[view.y].mean));
  // The first intervals of a few seeds are so wide that curves would be left little room.
  let low = Math.min(...(along.share ? means : ends)), high = Math.max(...ends);
  // Intervals may reach below 0 where the figures themselves cannot.
  const floor = shown.some((method) => finite(method[view.y].mean).some((v) => v < 0)) ? -Infinity : 0;
  low = Math.max(floor, low);
  if (along.share) high = Math.min(1, high);
  if (!ends.length) { low = 0; high = 1; }
  const room = 0.04 * (high - low || 1);
  const x = linear(0, right, box.left, box.right);
  const y = linear(Math.max(floor, low - room), along.share ? Math.min(1, high + room) : high + room, box.bottom, box.top);
  const { scale, unit } = across.unit ? unitOf(right, across.unit) : { scale: 1, unit: "" };
  axes(svg, box, Object.assign((v) => x(v * scale), { ticks: (n) => evenTicks(0, right / scale, n) }), y,
    { x: across.name(unit), y: along.name }, {}, along.share ? { y: percentTick } : {});
  const clip = (v) => Math.min(box.bottom, Math.max(box.top, y(v)));
  const up = (values) => values.map((v) => (v === null ? null : clip(v)));
  for (const method of shown) {
    const xs = method[view.x].map((v) => (v === null ? NaN : x(v))), c = method[view.y];
    const nan = (values) => up(values).map((v) => (v === null ? NaN : v));
    if (data.seeds > 1) svg.append(node("path", { class: "band", "data-method": method.name, fill: ink(method), d: area(xs, nan(c.low), nan(c.high)) }));
    svg.append(node("path", { class: "line", "data-method": method.name, stroke: ink(method), "stroke-dasharray": dash(method), d: path(xs, up(c.mean)) }));
  }
  if (view.y === data.score && data.target !== null && data.target >= low - room && data.target <= high + room) {
    const at = y(data.target);
    svg.append(node("line", { class: "target", x1: box.left, x2: box.right, y1: at, y2: at }));
    // Below the line: in the end the best curve is above it.
    svg.append(node("text", { class: "over", x: box.right, y: at + 15, "text-anchor": "end" }, `target ${percent(data.target)}`));
  }
  keys();
  reader(svg, { box, x, y, shown, across, along });
  exports("curves", `${along.name} against ${view.x}`, () => ({
    columns: ["method", view.x, along.name, "low", "high"],
    rows: data.methods.flatMap((method) => method[view.x].map((v, k) => [method.name, v, method[view.y].mean[k], method[view.y].low[k], method[view.y].high[k]])),
  }));
}

// The legend is also the switch of each method.
function keys() {
  const list = document.querySelector("#curves .legend");
  const focused = document.activeElement?.dataset?.method;
  list.replaceChildren(...data.methods.map((method) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.dataset.method = method.name;
    button.setAttribute("aria-pressed", String(!view.hidden.has(method.name)));
    const mark = node("svg", { viewBox: "0 0 30 10", "aria-hidden": "true" },
      node("path", { d: "M1,5H29", fill: "none", stroke: ink(method), "stroke-width": 3, "stroke-dasharray": dash(method) }));
    button.append(mark, method.name);
    button.addEventListener("click", () => {
      if (!view.hidden.delete(method.name)) view.hidden.add(method.name);
      drawCurves();
    });
    item.append(button);
    return item;
  }));
  const notes = [data.methods.length > 1 ? "click or tap a method to hide or show it" : "", data.seeds > 1 ? `bands: 95 % intervals over ${data.unit}s` : ""];
  for (const note of notes.filter(Boolean)) {
    const item = document.createElement("li");
    item.className = note.startsWith("click") ? "note act" : "note";
    item.textContent = note;
    list.append(item);
  }
  if (focused) [...list.querySelectorAll("button")].find((b) => b.dataset.method === focused)?.focus();
}

// Reads all methods at one place of the horizontal axis, by pointer or by arrow keys.
function reader(svg, c) {
  const cursor = node("line", { class: "cursor", y1: c.box.top, y2: c.box.bottom, visibility: "hidden" });
  svg.append(cursor);
  const write = (v) => (c.along.share ? percent(v) : plain(v));
  const frame = () => svg.getBoundingClientRect();
  // The method nearest to the pointer comes forward, with its band.
  const bring = (name) => {
    for (const drawn of svg.querySelectorAll("[data-method]")) {
      drawn.classList.toggle("near", drawn.dataset.method === name);
      drawn.classList.toggle("far", Boolean(name) && drawn.dataset.method !== name);
    }
  };
  const read = (place, clientX, clientY, height) => {
    view.at = Math.min(c.box.right, Math.max(c.box.left, place));
    const value = c.x.invert(view.at);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, view.at);
    cursor.setAttribute("visibility", "visible");
    const head = c.across.unit ? si(value, c.across.unit) : `iteration ${Math.round(value)}`;
    let near = "", nearest = 40;
    const rows = c.shown.map((method) => {
      const xs = method[view.x], curve = method[view.y];
      let k = -1;
      xs.forEach((v, j) => { if (v !== null && v <= value * (1 + 1e-9)) k = j; });
      const found = k < 0 ? null : curve.mean[k];
      if (found === null) return `${method.name}: –`;
      const away = Math.abs(c.y(found) - height);
      if (away < nearest) [near, nearest] = [method.name, away];
      const over = k === xs.length - 1 && value > xs[k] * 1.001 ? ", ended" : "";
      const known = data.seeds > 1 && curve.low[k] !== null && curve.high[k] !== null;
      const between = known ? ` (${span(...within(c.along, curve.low[k], curve.high[k]), write)})` : "";
      return `${method.name}: ${write(found)}${between}${over}`;
    });
    bring(near);
    tip.show([head, ...rows].join("\n"), clientX, clientY);
  };
  const follow = (event) => {
    const { left, top, width } = frame(), scale = svg.viewBox.baseVal.width / width;
    read((event.clientX - left) * scale, event.clientX, event.clientY, (event.clientY - top) * scale);
  };
  const clear = () => { tip.hide(); bring(""); cursor.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const span = c.box.right - c.box.left;
    const step = { ArrowLeft: -span / 40, ArrowRight: span / 40, Home: -span, End: span }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const place = (view.at ?? c.box.left) + step, { left, top, width } = frame();
    read(place, left + (place * width) / svg.viewBox.baseVal.width, top + 40);
  });
}

for (const axis of ["x", "y"]) {
  const buttons = [...document.querySelectorAll(`#curves button[data-${axis}]`)];
  for (const button of buttons)
    button.addEventListener("click", () => {
      view[axis] = button.dataset[axis];
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      drawCurves();
    });
}
document.getElementById("curves").hidden = !data.methods.length;
page(() => {
  if (data.methods.length) drawCurves();
  if (data.flow) flowChart("flow", data.flow, { from: "methods", apart: true });
}, "#curves svg");
