// Curves with bands, read by pointer or by arrow keys; each curve has its own points.

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

// lineChart(container, spec, height); spec: label, title of its files, x { name, whole, write }, y { name, write, tick, share, zero }, lines [{ text, ink, dash, xs, ys, low, high, note }]
function lineChart(container, spec, height = 340) {
  const chart = part(container, "chart");
  const { svg, width } = sheet(chart, height, `${spec.label}. Arrow keys read the values.`);
  svg.setAttribute("tabindex", "0");
  const box = { left: 62, right: width - 16, top: 30, bottom: height - 46 };
  const [low, high] = rangeOf(numbers(spec.lines.flatMap((l) => [...l.ys, ...(l.low ?? []), ...(l.high ?? [])])), spec.y);
  const last = Math.max(...numbers(spec.lines.flatMap((l) => l.xs)), spec.x.least ?? 0);
  const x = linear(0, last || 1, box.left, box.right), y = linear(low, high, box.bottom, box.top);
  if (spec.x.whole) x.ticks = wholeTicks(0, last);
  axes(svg, box, x, y, { x: spec.x.name, y: spec.y.name }, {}, { y: spec.y.tick ?? plain });
  const up = (list) => list.map((v) => (v === null ? NaN : y(v)));
  const across = (list) => list.map((v) => (v === null ? NaN : x(v)));
  // Dashes over the solid curve: where curves agree, all of them can be seen.
  for (const line of [...spec.lines].sort((a, b) => Boolean(a.dash) - Boolean(b.dash))) {
    const xs = across(line.xs);
    if (line.low) svg.append(node("path", { class: "band", fill: line.ink, d: area(xs, up(line.low), up(line.high)) }));
    svg.append(node("path", { class: line.dash ? "line" : "line solid", "data-line": line.text, stroke: line.ink, d: path(xs, up(line.ys)), ...(line.dash ? { "stroke-dasharray": line.dash } : {}) }));
    if (numbers(line.ys).length === 1) xs.forEach((at, k) => line.ys[k] !== null && svg.append(node("circle", { r: 4, fill: line.ink, cx: at, cy: y(line.ys[k]) })));
  }
  legend(container, spec.lines.flatMap((line) => [
    { text: line.text, colour: line.ink, kind: line.dash ? "dashes" : "stroke" },
    ...(line.band ? [{ text: line.band, colour: line.ink, kind: "veil" }] : []),
  ]).concat((spec.notes ?? []).map((text) => ({ text, colour: "none" }))));
  readLines(svg, spec, box, x, y);
  exports(container, spec.title ?? spec.label, () => lineFigures(spec));
}

// One row for each point of each line.
function lineFigures(spec) {
  const banded = spec.lines.some((line) => line.low);
  return {
    columns: ["line", spec.x.name, spec.y.name, ...(banded ? ["low", "high"] : [])],
    rows: spec.lines.flatMap((line) => line.xs.map((x, k) => [line.text, x, line.ys[k], ...(banded ? [line.low?.[k], line.high?.[k]] : [])])),
  };
}

function readLines(svg, spec, box, x, y) {
  const cursor = node("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const dots = spec.lines.map((line) => node("circle", { r: 4, fill: line.ink, visibility: "hidden" }));
  svg.append(cursor, ...dots);
  const stops = [...new Set(numbers(spec.lines.flatMap((l) => l.xs)))].sort((a, b) => a - b);
  const kept = placeOf(svg);
  const nearest = (list, v) => {
    let best = -1;
    list.forEach((u, k) => { if (u !== null && (best < 0 || Math.abs(u - v) < Math.abs(list[best] - v))) best = k; });
    return best;
  };
  const read = (v, clientX, clientY) => {
    cursor.setAttribute("x1", x(v));
    cursor.setAttribute("x2", x(v));
    cursor.setAttribute("visibility", "visible");
    const rows = spec.lines.map((line, i) => {
      const k = nearest(line.xs, v), found = k >= 0 ? line.ys[k] : null;
      dots[i].setAttribute("visibility", found === null ? "hidden" : "visible");
      if (found === null) return `${line.text}: –`;
      dots[i].setAttribute("cx", x(line.xs[k]));
      dots[i].setAttribute("cy", y(found));
      return `${line.text}: ${spec.y.write(found)}${line.note ? line.note(k) : ""}`;
    });
    tip.show([spec.x.write(v), ...rows].join("\n"), clientX, clientY);
  };
  const clear = () => { tip.hide(); [cursor, ...dots].forEach((mark) => mark.setAttribute("visibility", "hidden")); };
  const follow = (event) => {
    const frame = svg.getBoundingClientRect();
    const v = x.invert(((event.clientX - frame.left) * svg.viewBox.baseVal.width) / frame.width);
    kept.at = nearest(stops, v);
    if (kept.at >= 0) read(stops[kept.at], event.clientX, event.clientY);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !stops.length) return;
    event.preventDefault();
    const at = kept.step(step, stops.length);
    const frame = svg.getBoundingClientRect();
    read(stops[at], frame.left + (x(stops[at]) * frame.width) / svg.viewBox.baseVal.width, frame.top + 40);
  });
}

// Buttons of one group: the pressed one decides what is drawn.
function switches(attribute, choose) {
  const buttons = [...document.querySelectorAll(`button[data-${attribute}]`)];
  for (const button of buttons)
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose(button.dataset[attribute]);
    });
}
