// Curves with bands, read by pointer or by arrow keys; each curve has its own points.

const DASH = ["", "9 5", "3 3", "12 4 3 4"];
const NEAR_LINE = 40; // pixels within which a curve comes forward

// Times of a run, in the unit that suits its length.
function clockOf(span) {
  if (span < 180) return { scale: 1, unit: "s" };
  if (span < 3 * 3600) return { scale: 60, unit: "min" };
  if (span < 3 * 86400) return { scale: 3600, unit: "h" };
  return { scale: 86400, unit: "days" };
}

// From the lowest to the highest value, with room; from zero where that is near.
function rangeOf(values, { share = false, zero = false } = {}) {
  if (!values.length) return [0, 1];
  const low = Math.min(...values), high = Math.max(...values);
  if (share) return [Math.max(0, Math.floor(low * 10 - 0.01) / 10), Math.min(1, Math.ceil(high * 10 + 0.01) / 10)];
  if (zero || low >= 0 && low < high / 2) return [Math.min(0, low), high * 1.06 || 1];
  const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

// The first intervals of few seeds are so wide that curves would be left little room, and may reach
// below 0 where the figures themselves cannot.
function rangeOfMeans(means, ends, share) {
  if (!means.length) return [0, 1];
  const least = Math.min(...means), floor = least < 0 ? -Infinity : 0;
  const low = share ? least : Math.max(floor, Math.min(...ends)), high = Math.min(share ? 1 : Infinity, Math.max(...ends));
  const room = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [Math.max(floor, low - room), Math.min(share ? 1 : Infinity, high + room)];
}

// What a horizontal axis shows without a scale of its own: from 0 to the last point.
function across(spec, lines, box) {
  if (spec.x.scale) return spec.x.scale(box);
  const last = Math.max(...numbers(lines.flatMap((line) => line.xs)), 0) || 1, { scale, unit } = spec.x.unit ? unitOf(last, spec.x.unit) : { scale: 1, unit: "" };
  const x = linear(0, last, box.left, box.right);
  x.drawn = Object.assign((v) => x(v * scale), { ticks: spec.x.whole ? wholeTicks(0, last) : (count) => evenTicks(0, last / scale, count) });
  x.named = unit ? `${spec.x.name} [${unit}]` : spec.x.name;
  return x;
}

// lineChart(container, spec, height). spec: label, title (of its files), notes, target,
// x { name, unit, whole, write, scale, stops }, y { name, unit, share, zero, log, intervals, write },
// lines [{ key, text, legend, ink, dash, xs, ys, low, high, among, counts, band, dots }], and `hidden`, a set
// of keys, where the legend is the switch of each line (`redraw` follows).
function lineChart(container, spec, height = 340) {
  const chart = part(container, "chart"), along = spec.y;
  const lines = spec.lines.filter((line) => !spec.hidden?.has(line.key));
  const { svg, width } = sheet(chart, height, `${spec.label}. Arrow keys read the values.`);
  svg.setAttribute("tabindex", "0");
  const box = { left: 62, right: width - 16, top: 30, bottom: height - 46 };
  const means = numbers(lines.flatMap((line) => line.ys ?? [])), ends = numbers(lines.flatMap((line) => [...(line.ys ?? []), ...(line.low ?? []), ...(line.high ?? [])]));
  let [low, high] = along.intervals ? rangeOfMeans(means, ends, along.share) : rangeOf(ends, along);
  const log = along.log && Math.min(...ends) > 0 && Math.max(...ends) > 30 * Math.min(...ends);
  if (log) [low, high] = [Math.min(...ends) / 1.2, Math.max(...ends) * 1.2];
  const x = across(spec, lines, box), y = (log ? logarithmic : linear)(low, high, box.bottom, box.top);
  const { scale, unit } = along.unit ? unitOf(high, along.unit) : { scale: 1, unit: "" };
  const steps = scale === 1 ? y : Object.assign((v) => y(v * scale), { ticks: (count) => evenTicks(low / scale, high / scale, count) });
  const name = `${along.name}${unit ? ` [${unit}]` : ""}${log ? " (logarithmic)" : ""}`;
  axes(svg, box, x.drawn ?? x, steps, { x: x.named ?? spec.x.name, y: name }, {}, { y: along.share ? percentTick : plain, ...(x.labels ? { x: x.labels } : {}) });
  const at = (v) => (v === null || v === undefined || (log && v <= 0) ? NaN : Math.min(box.bottom, Math.max(box.top, y(v))));
  // Dashes over the solid curve: where curves agree, all of them can be seen.
  for (const line of spec.hidden ? lines : [...lines].sort((a, b) => Boolean(a.dash) - Boolean(b.dash))) drawCurve(svg, line, line.xs.map((v) => (v === null ? NaN : x(v))), at);
  if (spec.target !== undefined && spec.target !== null && spec.target >= low && spec.target <= high) {
    svg.append(node("line", { class: "target", x1: box.left, x2: box.right, y1: y(spec.target), y2: y(spec.target) }));
    // Below the line: in the end the best curve is above it.
    svg.append(node("text", { class: "over", x: box.right, y: y(spec.target) + 15, "text-anchor": "end" }, `target ${along.share ? percent(spec.target) : plain(spec.target)}`));
  }
  keysOf(container, spec);
  readLines(svg, spec, lines, box, x, at);
  exports(container, spec.title ?? spec.label, () => lineFigures(spec));
}

function drawCurve(svg, line, xs, at) {
  const up = (list) => list.map(at), marked = { "data-line": line.key ?? line.text };
  const points = line.ys ? up(line.ys) : [], known = points.filter(Number.isFinite).length;
  if (line.dots) {
    xs.forEach((v, k) => {
      if (!Number.isFinite(points[k])) return;
      if (line.whiskers) svg.append(node("path", { class: "whisker", ...marked, stroke: line.ink, d: `M${v.toFixed(1)},${at(line.low[k]).toFixed(1)}V${at(line.high[k]).toFixed(1)}` }));
      svg.append(node("circle", { class: "dot", ...marked, r: line.whiskers ? 5 : 4, fill: line.ink, cx: v, cy: points[k] }));
    });
    if (line.apart) return;
  }
  if (line.low) svg.append(node("path", { class: "band", ...marked, fill: line.ink, d: area(xs, up(line.low), up(line.high)) }));
  if (!line.ys) return;
  svg.append(node("path", { class: line.dash ? "line" : "line solid", ...marked, stroke: line.ink, d: path(xs, points), ...(line.dash ? { "stroke-dasharray": line.dash } : {}) }));
  if (known === 1 && !line.dots) xs.forEach((v, k) => Number.isFinite(points[k]) && svg.append(node("circle", { class: "alone", r: 4, fill: line.ink, cx: v, cy: points[k] })));
}

// The legend; where lines can be hidden, a button for each.
function keysOf(container, spec) {
  const notes = (spec.notes ?? []).map((text) => ({ text, colour: "none" }));
  if (!spec.hidden) {
    const kind = (line) => (!line.ys ? "veil" : line.dash ? "dashes" : "stroke");
    legend(container, [...spec.lines.flatMap((line) => [
      { text: line.legend ?? line.text, colour: line.ink, kind: kind(line) },
      ...(line.band ? [{ text: line.band, colour: line.ink, kind: "veil" }] : [])]), ...notes]);
    return;
  }
  const list = part(container, "legend", "ul"), focused = list.contains(document.activeElement) ? document.activeElement.dataset.line : null;
  list.replaceChildren(...spec.lines.map((line) => {
    const mark = node("svg", { viewBox: "0 0 30 10", "aria-hidden": "true" },
      node("path", { d: "M1,5H29", fill: "none", stroke: line.ink, "stroke-width": 3, "stroke-dasharray": line.dash ?? "" }));
    const button = dom("button", { type: "button" }, mark, line.text);
    button.dataset.line = line.key;
    button.setAttribute("aria-pressed", String(!spec.hidden.has(line.key)));
    button.addEventListener("click", () => {
      if (!spec.hidden.delete(line.key)) spec.hidden.add(line.key);
      spec.redraw();
    });
    return dom("li", {}, button);
  }));
  if (spec.lines.length > 1) list.append(dom("li", { className: "note act", textContent: "click or tap a method to hide or show it" }));
  list.append(...notes.map(({ text }) => dom("li", { className: "note", textContent: text })));
  if (focused !== null) [...list.querySelectorAll("button")].find((button) => button.dataset.line === focused)?.focus();
}

// One row for each point of each line.
function lineFigures(spec) {
  const banded = spec.lines.some((line) => line.low);
  return {
    columns: ["line", spec.x.name, spec.y.name, ...(banded ? ["low", "high"] : [])],
    rows: spec.lines.flatMap((line) => line.xs.map((x, k) => [line.text, spec.x.texts?.[k] ?? x, line.ys?.[k], ...(banded ? [line.low?.[k], line.high?.[k]] : [])])),
  };
}

const MOST_STOPS = 60; // for arrow keys, where curves differ in their points

function readLines(svg, spec, lines, box, x, at) {
  const cursor = node("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const dots = lines.map((line) => node("circle", { r: 4, fill: line.ink, visibility: "hidden" }));
  svg.append(cursor, ...dots);
  const along = spec.y, write = along.write ?? ((v) => (along.share ? percent(v) : along.unit ? si(v, along.unit) : plain(v)));
  const clipped = (v) => (along.share ? Math.min(1, Math.max(0, v)) : v), between = (line, k) => span(clipped(line.low[k]), clipped(line.high[k]), write);
  let stops = spec.x.stops ?? [...new Set(numbers(lines.flatMap((line) => line.xs)))].sort((a, b) => a - b);
  if (stops.length > 4 * MOST_STOPS && new Set(lines.map((line) => line.xs)).size > 1) stops = [...Array(MOST_STOPS + 1).keys()].map((k) => stops[Math.round((k * (stops.length - 1)) / MOST_STOPS)]);
  const kept = placeOf(svg);
  const nearest = (list, v) => {
    let best = -1;
    list.forEach((u, k) => { if (u !== null && (best < 0 || Math.abs(u - v) < Math.abs(list[best] - v))) best = k; });
    return best;
  };
  // The curve nearest to the pointer comes forward, with its band.
  const bring = (key) => {
    for (const drawn of spec.hidden ? svg.querySelectorAll("[data-line]") : []) {
      drawn.classList.toggle("near", drawn.dataset.line === key);
      drawn.classList.toggle("far", Boolean(key) && drawn.dataset.line !== key);
    }
  };
  const text = (line, k, v) => {
    const banded = line.low && line.low[k] !== null && line.low[k] !== undefined;
    if (!line.ys) return `${line.text}: ${k >= 0 && banded ? between(line, k) : "–"}`;
    if (k < 0 || line.ys[k] === null) return `${line.text}: –`;
    const differ = banded && (line.low[k] !== line.high[k] || line.counts);
    const within = differ || line.counts ? ` (${[line.counts ? `${line.counts[k]} ${line.among}, ` : line.among ? `${line.among} ` : "", banded ? between(line, k) : ""].join("").replace(/, $/, "")})` : "";
    const last = line.xs.at(-1), ended = spec.hidden && !spec.x.stops && v > last * 1.001 ? ", ended" : "";
    return `${line.text}: ${write(line.ys[k])}${within}${ended}`;
  };
  const read = (v, clientX, clientY, height) => {
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(v));
    cursor.setAttribute("visibility", "visible");
    let near = "", away = NEAR_LINE;
    const rows = lines.map((line, i) => {
      const k = nearest(line.xs, v), found = k >= 0 && line.ys ? at(line.ys[k]) : NaN;
      dots[i].setAttribute("visibility", Number.isFinite(found) ? "visible" : "hidden");
      if (Number.isFinite(found)) {
        dots[i].setAttribute("cx", x(line.xs[k]));
        dots[i].setAttribute("cy", found);
        if (Math.abs(found - height) < away) [near, away] = [line.key, Math.abs(found - height)];
      }
      return text(line, k, v);
    });
    bring(near);
    tip.show([spec.x.write(v), ...rows].join("\n"), clientX, clientY);
  };
  const clear = () => { tip.hide(); bring(""); [cursor, ...dots].forEach((mark) => mark.setAttribute("visibility", "hidden")); };
  const follow = (event) => {
    const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
    const px = (event.clientX - frame.left) * scale;
    kept.at = nearest(stops.map(x), px);
    if (kept.at >= 0) read(stops[kept.at], event.clientX, event.clientY, (event.clientY - frame.top) * scale);
  };
  for (const kind of ["pointermove", "pointerdown"]) svg.addEventListener(kind, follow);
  for (const kind of ["pointerleave", "blur"]) svg.addEventListener(kind, clear);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !stops.length) return;
    event.preventDefault();
    const v = stops[kept.step(step, stops.length)], frame = svg.getBoundingClientRect();
    read(v, frame.left + (x(v) * frame.width) / svg.viewBox.baseVal.width, frame.top + 40);
  });
}

// Buttons of which one is pressed; `options` have a key and a short name.
function switchOf(host, label, axis, options, pressed, choose) {
  const group = dom("div", { className: "switch" });
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  for (const { key, short } of options) {
    const button = dom("button", { type: "button", textContent: short });
    button.dataset[axis] = key;
    button.setAttribute("aria-pressed", String(key === pressed));
    button.addEventListener("click", () => {
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
      choose(key);
    });
    group.append(button);
  }
  host.append(group);
}

// curves(id, chart) draws what `joulemesh.views.charts.curves` describes: one of `along` against one of
// `across`, which the reader chooses.
const chosen = {};
function curves(id, chart, height) {
  const host = part(id, "switches"), redraw = () => curves(id, chosen[id].chart, height);
  chosen[id] ??= { x: chart.x ?? chart.across[0].key, y: chart.along[0].key, hidden: chart.hides ? new Set() : null };
  const view = Object.assign(chosen[id], { chart });
  if (!host.children.length) {
    if (chart.along.length > 1) switchOf(host, "Vertical axis", "y", chart.along, view.y, (key) => { view.y = key; redraw(); });
    if (chart.across.length > 1) {
      host.append(dom("span", { textContent: "against" }));
      switchOf(host, "Horizontal axis", "x", chart.across, view.x, (key) => { view.x = key; redraw(); });
    }
  }
  const along = chart.along.find((one) => one.key === view.y), over = chart.across.find((one) => one.key === view.x);
  const lines = along.lines.map((line) => ({ ...line, ink: `var(--${line.ink})`, xs: chart.points[line.points][view.x], ys: line.mean }));
  lineChart(id, {
    label: `${along.name} against ${over.name}`, title: `${along.name} against ${over.short}`, lines, notes: along.notes, target: along.target, hidden: view.hidden, redraw,
    x: { name: over.name, unit: over.unit, whole: !over.unit, write: (v) => (over.unit ? si(v, over.unit) : `iteration ${whole(v)}`) },
    y: { ...along, intervals: chart.intervals },
  }, height ?? (innerWidth < 600 ? 320 : 380));
}

// Buttons of one group of the page: the pressed one decides what is drawn.
function switches(attribute, choose) {
  const buttons = [...document.querySelectorAll(`button[data-${attribute}]`)];
  for (const button of buttons)
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose(button.dataset[attribute]);
    });
}
