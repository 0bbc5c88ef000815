// Small tools for drawing: elements, scales, ticks, axes, colours, the tooltip.
//
// Components are functions (container, data, options). A container is any element: its children
// with the classes "chart" and "legend" are used, or made if there are none. Text of the data is only
// ever set as text.

const data = JSON.parse(document.getElementById("data")?.textContent || "{}");
const still = { printing: false };
const named = (names) => (i) => (names?.length ? `device ${i} (${names[i]})` : `device ${i}`);
const numbers = (list) => list.filter((v) => v !== null && Number.isFinite(v));
// Names often differ at their ends only, so what does not fit is left out of the middle.
function clip(name, most) {
  if (name.length <= most) return name;
  const kept = Math.max(1, most - 1), tail = Math.floor(kept / 2);
  return `${name.slice(0, kept - tail)}…${tail ? name.slice(-tail) : ""}`;
}
// A figure and its unit stay on one line.
const unbroken = (text) => text.replace(/(\d) (?=(?:%|[pnµmkMG]?(?:J|Wh|s|W|m|Hz|bit)(?![\w-])))/g, "$1\u00a0");
const whole = (n) => Math.round(n).toLocaleString("en");
const isDark = () => !still.printing && matchMedia("(prefers-color-scheme: dark)").matches;

function node(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function dom(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// The part of a container that has a class; made where it is missing.
function part(container, name, kind = "div") {
  const host = typeof container === "string" ? document.getElementById(container) : container;
  let found = host.querySelector(`.${name}`);
  if (!found) host.append((found = dom(kind, { className: name })));
  return found;
}

// On paper two charts stand side by side, whatever the screen's width.
function widthOf(chart) {
  if (still.printing) return chart.closest(".wide") && !chart.closest(".pair") ? 800 : 400;
  return Math.max(240, Math.floor(chart.clientWidth || 500));
}

function sheet(chart, height, label) {
  const width = widthOf(chart);
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const focused = chart.contains(document.activeElement);
  chart.replaceChildren(svg);
  if (focused) queueMicrotask(() => svg.focus({ preventScroll: true })); // once it has its keys
  return { svg, width };
}

function linear(d0, d1, r0, r1) {
  const span = d1 - d0 || 1;
  const scale = (v) => r0 + ((v - d0) / span) * (r1 - r0);
  scale.invert = (r) => d0 + ((r - r0) / (r1 - r0)) * span;
  scale.ticks = (count) => evenTicks(d0, d1, count);
  return scale;
}

function logarithmic(d0, d1, r0, r1) {
  const inner = linear(Math.log10(d0), Math.log10(d1), r0, r1);
  const scale = (v) => inner(Math.log10(v));
  scale.ticks = () => decades(d0, d1);
  return scale;
}

function evenTicks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  // Of round steps the one that comes nearest to as many ticks.
  const many = (step) => Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  const away = (m) => Math.abs(many(m * power) - count);
  const step = [10, 5, 2, 1].reduce((best, m) => (away(m) < away(best) ? m : best)) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

const wholeTicks = (low, high) => (count) => evenTicks(low, high, count).filter((v) => v === Math.round(v));

function decades(low, high) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const skip = Math.max(1, Math.ceil((to - from) / 6));
  const multiples = to - from <= 3 ? [1, 2, 5] : [1];
  const found = [];
  for (let p = from; p <= to; p += skip)
    for (const m of multiples) {
      const v = m * 10 ** p;
      if (v >= low * 0.999 && v <= high * 1.001) found.push(v);
    }
  return found;
}

const plain = (v) => {
  const size = Math.abs(v);
  if (size < 1e-12) return "0";
  if (size < 1e-3 || size >= 1e6) return v.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return size >= 1e4 && Number.isInteger(v) ? whole(v) : String(Number(v.toPrecision(4)));
};

const percent = (v) => `${(100 * v).toFixed(1)} %`;
const percentTick = (v) => `${plain(100 * v)} %`;
// From the lower figure to the higher; the unit once.
function span(low, high, write) {
  const texts = [write(low), write(high)];
  return texts[0] === texts[1] ? texts[0] : `${texts[0].replace(/ %$/, "")} to ${texts[1]}`;
}

const PREFIX = ["p", "n", "µ", "m", "", "k", "M", "G"];
function unitOf(top, unit) {
  const power = top > 0 ? Math.min(3, Math.max(-4, Math.floor(Math.log10(top) / 3 + 1e-9))) : 0;
  return { scale: 1000 ** power, unit: PREFIX[power + 4] + unit };
}
function si(v, unit) {
  const found = unitOf(Math.abs(v), unit);
  return `${Number((v / found.scale).toPrecision(3))} ${found.unit}`;
}

// Viridis, without the end that would vanish on the page's ground.
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]];
function shade(fraction, night = isDark()) {
  const [from, to] = night ? [0.22, 1] : [0, 0.9];
  const place = (from + Math.min(1, Math.max(0, fraction)) * (to - from)) * (VIRIDIS.length - 1);
  const k = Math.min(VIRIDIS.length - 2, Math.floor(place));
  return VIRIDIS[k].map((c, i) => Math.round(c + (place - k) * (VIRIDIS[k + 1][i] - c)));
}
const colour = (fraction, night) => `rgb(${shade(fraction, night).join(",")})`;

// As many ticks as have room for what is written at them.
function fitting(scale, write, room, most) {
  for (let count = most; ; count--) {
    const ticks = scale.ticks(count), widest = Math.max(...ticks.map((v) => write(v).length));
    if (count <= 2 || ticks.length * (7.5 * widest + 14) <= room) return ticks;
  }
}

function axes(svg, box, x, y, names, counts = {}, format = {}) {
  const { left, right, top, bottom } = box;
  const write = { x: plain, y: plain, ...format };
  for (const v of y.ticks(counts.y ?? 5)) {
    const at = Math.round(y(v)) + 0.5;
    if (!counts.bare) svg.append(node("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }));
    svg.append(node("text", { x: left - 7, y: at + 4, "text-anchor": "end" }, write.y(v)));
  }
  for (const v of fitting(x, write.x, right - left, counts.x ?? Math.max(5, Math.floor((right - left) / 90)))) {
    const at = Math.round(x(v)) + 0.5;
    svg.append(node("line", { class: "frame", x1: at, x2: at, y1: bottom, y2: bottom + 5 }));
    svg.append(node("text", { x: at, y: bottom + 18, "text-anchor": "middle" }, write.x(v)));
  }
  svg.append(node("path", { class: "frame", d: `M${left + 0.5},${top}V${bottom + 0.5}H${right}` }));
  const middle = (left + right) / 2;
  svg.append(node("text", { class: "name x-label", x: middle, y: bottom + 36, "text-anchor": "middle" }, names.x));
  svg.append(node("text", { class: "name y-label", x: left, y: top - 11, "text-anchor": "start" }, names.y));
}

// A path through the points; a missing value breaks it.
function path(xs, ys) {
  let d = "", pen = "M";
  xs.forEach((x, k) => {
    if (ys[k] === null || !Number.isFinite(ys[k]) || !Number.isFinite(x)) { pen = "M"; return; }
    d += `${pen}${x.toFixed(1)},${ys[k].toFixed(1)}`;
    pen = "L";
  });
  return d;
}

function area(xs, lows, highs) {
  const kept = xs.map((_, k) => k).filter((k) => Number.isFinite(lows[k]) && Number.isFinite(highs[k]));
  const up = kept.map((k) => `${xs[k].toFixed(1)},${highs[k].toFixed(1)}`);
  const down = kept.reverse().map((k) => `${xs[k].toFixed(1)},${lows[k].toFixed(1)}`);
  return kept.length ? `M${up.join("L")}L${down.join("L")}Z` : "";
}

// A strip of colour with its figures, above a chart.
function colourBar(svg, left, right, y, label, texts, night) {
  const steps = 48, width = Math.min(190, (right - left) * 0.45), from = right - width;
  for (let k = 0; k < steps; k++)
    svg.append(node("rect", { ...(night === false ? { class: "flip" } : {}), x: from + (k * width) / steps, y, width: width / steps + 0.6, height: 9, fill: colour((k + 0.5) / steps, night) }));
  svg.append(node("text", { x: from, y: y + 22, "text-anchor": "start" }, texts[0]));
  svg.append(node("text", { x: right, y: y + 22, "text-anchor": "end" }, texts[1]));
  label.forEach((line, k) => svg.append(node("text", { class: "name", x: left, y: y + 9 + 14 * k }, line)));
}

function legend(container, entries) {
  const list = part(container, "legend", "ul");
  list.replaceChildren(...entries.map(({ text, colour: ink, kind = "" }) => {
    const item = document.createElement("li"), mark = document.createElement("i");
    mark.className = kind;
    if (kind === "dashes") mark.style.borderColor = ink; else mark.style.background = ink;
    if (kind === "hollow") Object.assign(mark.style, { background: "none", border: `2px solid ${ink}`, height: "12px", width: "12px", borderRadius: "50%" });
    item.append(mark, text);
    return item;
  }));
}

const tip = {
  get box() {
    this.made ??= document.getElementById("tip") ?? document.body.appendChild(dom("div", { id: "tip", hidden: true }));
    this.made.setAttribute("role", "status");
    return this.made;
  },
  show(text, x, y) {
    const box = this.box;
    if (box.textContent !== text) box.textContent = text;
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = Math.max(6, Math.min(x + 14, innerWidth - width - 6));
    const top = y + 18 + height > innerHeight ? y - height - 12 : y + 18;
    box.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(6, top))}px)`;
  },
  hide() { this.box.hidden = true; },
};
