// One figure of every method against one varied field; the other fields are averaged over or held
// at a value. Cells are in the order of combinations (the last field varies fastest), methods, seeds.

const view = { x: 0, y: 0, held: data.fields.map(() => null), hidden: new Set() };
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

// Where values stand: numbers by what they are, words beside each other.
function places(field) {
  const numbers = field.numbers, order = field.values.map((_, k) => k);
  const at = numbers ?? order;
  if (numbers) order.sort((a, b) => numbers[a] - numbers[b]);
  const scale = (box) => {
    const low = Math.min(...at), high = Math.max(...at), room = (high - low) * 0.06 || Math.abs(low) * 0.1 || 1;
    const x = !numbers ? linear(-0.6, at.length - 0.4, box.left, box.right)
      : field.log ? logarithmic(low / 1.15, high * 1.15, box.left, box.right) : linear(low - room, high + room, box.left, box.right);
    // Labels that would run into one another are left out.
    const fit = Math.max(1, Math.ceil((at.length * 9 * Math.max(...field.values.map((text) => text.length))) / (box.right - box.left)));
    return Object.assign((v) => x(v), { ticks: () => order.filter((_, k) => k % fit === 0).map((k) => at[k]), labels: (v) => field.values[at.indexOf(v)] });
  };
  return { at, order, scale };
}

function draw() {
  const field = data.fields[view.x], figure = data.figures[view.y], { lines, settings } = linesOf(view.x, view.y);
  const { at, order, scale } = places(field), shown = lines.filter((line) => !view.hidden.has(String(line.place)));
  const bounded = (v) => (figure.share && v !== null ? Math.min(1, Math.max(0, v)) : v);
  const drawn = lines.map((line) => {
    const points = order.map((k) => line.points[k]), aside = field.numbers ? 0 : 0.5 * ((shown.indexOf(line) + 0.5) / shown.length - 0.5);
    const end = (sign) => points.map(({ mean, half }) => (mean === null ? null : bounded(mean + sign * half)));
    return { key: String(line.place), text: line.name, ink: `var(--m${line.place % 8})`, dash: DASH[line.place % DASH.length], dots: true, whiskers: !field.numbers && seeds > 1,
      xs: order.map((k) => at[k] + aside), ys: points.map((p) => p.mean), ...(seeds > 1 ? { low: end(-1), high: end(1) } : {}), ...(field.numbers ? {} : { apart: true }) };
  });
  const counts = [...new Set(lines.map((line) => line.settings))].sort((a, b) => a - b), some = counts.length && (counts.length > 1 || counts[0] !== settings);
  const notes = [
    settings > 1 && lines.length ? `mean over ${counts.join(" or ")}${some ? ` of ${settings}` : ""} settings of the other fields${some ? ", the same at every value" : ""}` : "",
    seeds > 1 ? "95 % intervals over seeds" : "",
    lines.length ? "" : "no method has this figure here",
  ].filter(Boolean);
  lineChart("curves", { label: `${figure.words} against ${field.name}, by method`, title: `${figure.words} against ${field.name}`, lines: drawn, notes, hidden: view.hidden, redraw: draw,
    x: { name: field.name, scale, stops: order.map((k) => at[k]), texts: order.map((k) => field.values[k]), write: (v) => `${field.name} ${field.values[at.indexOf(v)]}` },
    y: { name: figure.words, unit: figure.unit, share: figure.share, intervals: true } }, innerWidth < 600 ? 320 : 400);
}

// The field on the horizontal axis is not among those that are held.
function choose() {
  document.querySelectorAll(".others label").forEach((label, j) => { label.hidden = j === view.x; });
  tip.hide();
  draw();
}
document.querySelectorAll(".others select").forEach((select, j) =>
  select.addEventListener("change", () => { view.held[j] = select.value === "" ? null : Number(select.value); choose(); }));
for (const axis of ["x", "y"]) switches(axis, (value) => { view[axis] = Number(value); choose(); });
page(choose);
