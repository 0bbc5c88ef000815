// One figure of every method against one varied field; the other fields are averaged over or held
// at a value. Cells are in the order of combinations (the last field varies fastest), methods, seeds.

const view = { x: 0, y: 0, held: data.fields.map(() => null), hidden: new Set(), at: null };
const DASH = ["", "9 5", "3 3", "12 4 3 4"];
const ink = (place) => `var(--m${place % 8})`;
const dash = (place) => DASH[place % DASH.length];
const seeds = data.seeds.length, methods = data.methods.length;

function combinationsAt(field, value) {
  let found = [0];
  data.fields.forEach((one, j) => {
    const held = j === field ? value : view.held[j];
    const places = held === null ? one.values.map((_, k) => k) : [held];
    found = found.flatMap((base) => places.map((k) => base * one.values.length + k));
  });
  return found;
}

const cell = (figure, combination, method, seed) => data.cells[figure][(combination * methods + method) * seeds + seed];

// A figure of every seed that ran: a mean over those that reached a target would flatter.
function isKnown(figure, combination, method) {
  let any = false;
  for (let s = 0; s < seeds; s++) {
    const there = cell(figure, combination, method, s) !== null;
    if (there) any = true;
    else if (cell(0, combination, method, s) !== null) return false;
  }
  return any;
}

// Mean and half the width of its 95 % interval over seeds, by Student's t.
function estimate(values) {
  const kept = values.filter((v) => v !== null), n = kept.length;
  if (!n) return { mean: null, half: null };
  const mean = kept.reduce((a, b) => a + b, 0) / n;
  if (n < 2) return { mean, half: 0 };
  const spread = Math.sqrt(kept.reduce((a, v) => a + (v - mean) ** 2, 0) / (n - 1));
  return { mean, half: (data.quantile[n] * spread) / Math.sqrt(n) };
}

// The same settings of the other fields at every value: those in which all methods have figures.
function linesOf(field, figure) {
  const count = data.fields[field].values.length;
  const grid = Array.from({ length: count }, (_, v) => combinationsAt(field, v)); // [value][setting]
  const settings = grid[0].map((_, o) => o);
  const shown = [], balanced = new Map();
  for (let m = 0; m < methods; m++) {
    const known = grid.map((row) => row.map((c) => isKnown(figure, c, m)));
    const there = known.filter((row) => row.some(Boolean));
    if (!there.length) continue;
    shown.push(m);
    balanced.set(m, settings.filter((o) => there.every((row) => row[o])));
  }
  const common = settings.filter((o) => shown.every((m) => balanced.get(m).includes(o)));
  const lines = shown.map((m) => {
    const over = common.length ? common : balanced.get(m);
    const points = grid.map((row) => {
      if (!over.length || !over.every((o) => isKnown(figure, row[o], m))) return { mean: null, half: null };
      return estimate(data.seeds.map((_, s) => {
        const own = over.map((o) => cell(figure, row[o], m, s));
        return own.includes(null) ? null : own.reduce((a, b) => a + b, 0) / own.length;
      }));
    });
    return { place: m, name: data.methods[m], points, settings: over.length };
  });
  return { lines, settings: settings.length };
}

function acrossOf(field, box) {
  const numbers = field.numbers;
  if (!numbers) {
    const inner = linear(-0.6, field.values.length - 0.4, box.left, box.right);
    return { at: field.values.map((_, k) => k), scale: inner, ordered: field.values.map((_, k) => k) };
  }
  const low = Math.min(...numbers), high = Math.max(...numbers), room = (high - low) * 0.06 || Math.abs(low) * 0.1 || 1;
  const scale = field.log ? logarithmic(low / 1.15, high * 1.15, box.left, box.right) : linear(low - room, high + room, box.left, box.right);
  return { at: numbers, scale, ordered: numbers.map((_, k) => k).sort((a, b) => numbers[a] - numbers[b]) };
}

function draw() {
  tip.hide();
  const field = data.fields[view.x], figure = data.figures[view.y];
  const chart = document.querySelector("#curves .chart"), height = innerWidth < 600 ? 320 : 400;
  const { svg, width } = sheet(chart, height, `${figure.words} against ${field.name}, by method. Arrow keys read the values.`);
  svg.setAttribute("tabindex", "0");
  const box = { left: 62, right: width - 16, top: 30, bottom: height - 46 };
  const { lines, settings } = linesOf(view.x, view.y);
  const shown = lines.filter((line) => !view.hidden.has(line.place));
  const ends = shown.flatMap((line) => line.points.filter((p) => p.mean !== null).flatMap((p) => [p.mean - p.half, p.mean + p.half]));
  // Intervals may reach below 0 where the figures themselves cannot.
  const floor = shown.some((line) => line.points.some((p) => p.mean !== null && p.mean < 0)) ? -Infinity : 0;
  let low = Math.max(floor, Math.min(...ends)), high = Math.max(...ends);
  if (!ends.length) { low = 0; high = 1; }
  if (figure.share) high = Math.min(1, high);
  const room = 0.06 * (high - low) || 0.05 * Math.abs(high) || 1;
  const top = figure.share ? Math.min(1, high + room) : high + room;
  const { scale, unit } = figure.unit ? unitOf(top, figure.unit) : { scale: 1, unit: "" };
  const y = linear(Math.max(floor, low - room), top, box.bottom, box.top);
  const across = acrossOf(field, box);
  const labels = new Map(across.at.map((v, k) => [v, field.values[k]]));
  // Labels that would run into one another are left out.
  const fit = Math.max(1, Math.ceil((field.values.length * 9 * Math.max(...field.values.map((t) => t.length))) / (box.right - box.left)));
  const ticked = across.ordered.filter((_, k) => k % fit === 0).map((k) => across.at[k]);
  const x = Object.assign((v) => across.scale(v), { ticks: () => ticked });
  const steps = Object.assign((v) => y(v * scale), { ticks: (n) => evenTicks(Math.max(floor, low - room) / scale, top / scale, n) });
  axes(svg, box, x, steps, { x: field.name, y: unit ? `${figure.words} [${unit}]` : figure.words }, {},
    { x: (v) => labels.get(v), ...(figure.share ? { y: percentTick } : {}) });
  shown.forEach((line, i) => drawLine(svg, line, across, y, box, field.numbers ? null : (i + 0.5) / shown.length - 0.5));
  keys(lines, settings);
  reader(svg, { box, across, y, shown, figure, field });
  exports("curves", `${figure.words} against ${field.name}`, () => ({
    columns: ["method", field.name, figure.words, "half_interval"],
    rows: lines.flatMap((line) => line.points.map(({ mean, half }, k) => [line.name, field.values[k], mean, half])),
  }));
}

function drawLine(svg, line, across, y, box, aside) {
  const clip = (v) => Math.min(box.bottom, Math.max(box.top, y(v)));
  const places = across.ordered.map((k) => across.scale(across.at[k] + (aside ?? 0) * 0.5));
  const points = across.ordered.map((k) => line.points[k]);
  const up = (of) => points.map((p) => (p.mean === null ? NaN : clip(of(p))));
  const marked = { "data-method": line.name };
  if (aside === null) {
    if (seeds > 1) svg.append(node("path", { class: "band", ...marked, fill: ink(line.place), d: area(places, up((p) => p.mean - p.half), up((p) => p.mean + p.half)) }));
    svg.append(node("path", { class: "line", ...marked, stroke: ink(line.place), "stroke-dasharray": dash(line.place), d: path(places, up((p) => p.mean)) }));
  }
  points.forEach((p, k) => {
    if (p.mean === null) return;
    if (aside !== null && seeds > 1) svg.append(node("path", { class: "whisker", ...marked, stroke: ink(line.place), d: `M${places[k].toFixed(1)},${clip(p.mean - p.half).toFixed(1)}V${clip(p.mean + p.half).toFixed(1)}` }));
    svg.append(node("circle", { class: "dot", ...marked, r: aside === null ? 4 : 5, fill: ink(line.place), cx: places[k], cy: clip(p.mean) }));
  });
}

// The legend is also the switch of each method.
function keys(lines, settings) {
  const list = document.querySelector("#curves .legend");
  const focused = document.activeElement?.dataset?.place;
  list.replaceChildren(...lines.map((line) => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.dataset.place = line.place;
    button.setAttribute("aria-pressed", String(!view.hidden.has(line.place)));
    const mark = node("svg", { viewBox: "0 0 30 10", "aria-hidden": "true" },
      node("path", { d: "M1,5H29", fill: "none", stroke: ink(line.place), "stroke-width": 3, "stroke-dasharray": dash(line.place) }));
    button.append(mark, line.name);
    button.addEventListener("click", () => {
      if (!view.hidden.delete(line.place)) view.hidden.add(line.place);
      draw();
    });
    item.append(button);
    return item;
  }));
  const counts = [...new Set(lines.map((line) => line.settings))].sort((a, b) => a - b);
  const some = counts.length && (counts.length > 1 || counts[0] !== settings);
  const notes = [
    settings > 1 && lines.length ? `mean over ${counts.join(" or ")}${some ? ` of ${settings}` : ""} settings of the other fields${some ? ", the same at every value" : ""}` : "",
    seeds > 1 ? "95 % intervals over seeds" : "",
    lines.length ? "" : "no method has this figure here",
  ];
  for (const note of notes.filter(Boolean)) {
    const item = document.createElement("li");
    item.className = "note";
    item.textContent = note;
    list.append(item);
  }
  if (focused !== undefined) [...list.querySelectorAll("button")].find((b) => b.dataset.place === focused)?.focus();
}

// Reads all methods at one value of the field, by pointer or by arrow keys.
function reader(svg, c) {
  const cursor = node("line", { class: "cursor", y1: c.box.top, y2: c.box.bottom, visibility: "hidden" });
  svg.append(cursor);
  const write = (v) => (c.figure.share ? percent(v) : c.figure.unit ? si(v, c.figure.unit) : plain(v));
  const places = c.across.ordered.map((k) => c.across.scale(c.across.at[k]));
  const read = (i, clientX, clientY) => {
    view.at = i;
    const k = c.across.ordered[i];
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, places[i]);
    cursor.setAttribute("visibility", "visible");
    const rows = c.shown.map((line) => {
      const { mean, half } = line.points[k];
      if (mean === null) return `${line.name}: –`;
      const low = c.figure.share ? Math.max(0, mean - half) : mean - half, high = c.figure.share ? Math.min(1, mean + half) : mean + half;
      return `${line.name}: ${write(mean)}${seeds > 1 ? ` (${span(low, high, write)})` : ""}`;
    });
    tip.show([`${c.field.name} ${c.field.values[k]}`, ...rows].join("\n"), clientX, clientY);
  };
  const frame = () => svg.getBoundingClientRect();
  const follow = (event) => {
    const { left, width } = frame(), at = ((event.clientX - left) * svg.viewBox.baseVal.width) / width;
    let near = 0;
    places.forEach((p, i) => { if (Math.abs(p - at) < Math.abs(places[near] - at)) near = i; });
    read(near, event.clientX, event.clientY);
  };
  const clear = () => { tip.hide(); cursor.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const i = Math.max(0, Math.min(places.length - 1, (view.at ?? (step > 0 ? -1 : places.length)) + step));
    const { left, top, width } = frame();
    read(i, left + (places[i] * width) / svg.viewBox.baseVal.width, top + 40);
  });
}

// The field on the horizontal axis is not among those that are held.
function choose() {
  view.at = null;
  document.querySelectorAll(".others label").forEach((label, j) => { label.hidden = j === view.x; });
  draw();
}
document.querySelectorAll(".others select").forEach((select, j) =>
  select.addEventListener("change", () => { view.held[j] = select.value === "" ? null : Number(select.value); choose(); }));
for (const axis of ["x", "y"]) {
  const buttons = [...document.querySelectorAll(`#curves button[data-${axis}]`)];
  for (const button of buttons)
    button.addEventListener("click", () => {
      view[axis] = Number(button.dataset[axis]);
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose();
    });
}
page(choose);
