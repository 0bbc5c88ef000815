// Every candidate in every rung over joules and over seconds, and how far each of them came.

const UNITS = { joules: ["J", "energy spent by all devices"], seconds: ["s", "simulated time"] };
const last = data.shares.length - 1;
const ink = (rung) => ["var(--m0)", "var(--m5)", "var(--left)"][Math.min(last - rung, 2)];
const judged = data.points.filter((p) => p.accuracy !== null);
const ends = [data.winner, ...(data.given && data.given.candidate !== data.winner.candidate ? [data.given] : [])]
  .filter((end) => end.accuracy !== null);

const { label, share, better } = data.metric;
const written = (v) => (share ? percent(v) : plain(v));
const tick = share ? percentTick : plain;

// A few candidates that learn nothing must not flatten the rest: those far below lie on the edge.
function range() {
  const all = [...judged.map((p) => p.accuracy), ...ends.flatMap((e) => [e.accuracy - (e.half ?? 0), e.accuracy + (e.half ?? 0)])].sort((a, b) => a - b);
  if (better === "lower") {
    const least = all[0], half = all[Math.floor(all.length / 2)], most = Math.min(all[all.length - 1], half + 2 * (half - least) + 0.02 * Math.abs(half));
    const space = 0.06 * (most - least || 0.1);
    return [least - space, most + space];
  }
  const top = all[all.length - 1], middle = all[Math.floor(all.length / 2)];
  const low = Math.max(all[0], middle - 2 * (top - middle) - 0.02);
  const room = 0.06 * (top - low || 0.1);
  return share ? [Math.max(0, low - room), Math.min(1, top + room)] : [low - room, top + room];
}

const beyond = (p, bottom, top) => (better === "lower" ? p.accuracy > top : p.accuracy < bottom);
const shareText = (rung) => `${plain(Math.round(100 * data.shares[rung]))} % of the budget`;
const described = (p) => [`${p.candidate}: ${data.names[p.candidate]}`,
  `${shareText(p.rung)}: ${written(p.accuracy)}${p.score.includes(written(p.accuracy)) ? "" : `, ${p.score}`}`,
  `${p.iterations} iterations, ${si(p.joules, "J")}, ${si(p.seconds, "s")}`].join("\n");

function hover(mark, text) {
  mark.said = text;
  const show = (event) => { mark.classList.add("near"); tip.show(text, event.clientX, event.clientY); };
  mark.addEventListener("pointermove", show);
  mark.addEventListener("pointerdown", show);
  mark.addEventListener("pointerleave", () => { mark.classList.remove("near"); tip.hide(); });
}

function drawFront(axis) {
  const [unit, name] = UNITS[axis];
  const chart = document.querySelector(`#${axis} .chart`), height = 360;
  const { svg, width } = sheet(chart, height, `${label} of every candidate over ${axis}. Arrow keys read the candidates.`);
  const box = { left: 56, right: width - 16, top: 30, bottom: height - 46 };
  const costs = [...judged, ...ends].map((p) => p[axis]).filter((v) => v > 0);
  const [low, high] = [Math.min(...costs) / 1.15, Math.max(...costs) * 1.15];
  const x = logarithmic(low, high, box.left, box.right), [bottom, top] = range();
  const y = linear(bottom, top, box.bottom, box.top);
  const clip = (v) => Math.min(box.bottom, Math.max(box.top, y(v)));
  const shown = unitOf(high, unit);
  axes(svg, box, x, y, { x: `${name} [${shown.unit}]`, y: `test ${label} of the mean model` }, {},
    { x: (v) => plain(v / shown.scale), y: tick });
  const line = data.front[axis].map((k) => data.points[k]);
  svg.append(node("path", { class: "front", d: path(line.map((p) => x(p[axis])), line.map((p) => clip(p.accuracy))) }));
  for (const p of judged) {
    const below = beyond(p, bottom, top);
    const dot = node("circle", { class: below ? "dot below" : "dot", cx: x(p[axis]), cy: clip(p.accuracy), r: p.rung === last ? 5 : 4, fill: ink(p.rung) });
    hover(dot, described(p));
    svg.append(dot);
  }
  for (const end of ends) star(svg, x(end[axis]), clip, end);
  legend(axis, [
    ...data.shares.map((_, rung) => ({ text: shareText(rung), colour: ink(rung), kind: "disc" })),
    { text: "best for the price", colour: "var(--ink)", kind: "dashes" },
    { text: "winner, fresh seeds", colour: "var(--m1)" },
    ...(ends.length > 1 ? [{ text: "as given, fresh seeds", colour: "var(--m2)" }] : []),
  ]);
  dots(svg);
  exports(axis, `${label} over ${axis}`, figures);
}

const figures = () => ({
  columns: ["candidate", "name", "share", label, "joules", "seconds", "iterations", "kept"],
  rows: data.points.map((p) => [p.candidate, data.names[p.candidate], data.shares[p.rung], p.accuracy, p.joules, p.seconds, p.iterations, p.kept]),
});

// Arrow keys go from dot to dot, in the order in which they were drawn.
function dots(svg) {
  const kept = placeOf(svg);
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
    const all = [...svg.querySelectorAll(".dot, .mark")];
    if (step === undefined || !all.length) return;
    event.preventDefault();
    all[kept.at]?.classList.remove("near");
    const at = all[kept.step(step, all.length)];
    at.classList.add("near");
    const frame = at.getBoundingClientRect();
    tip.show(at.said, frame.left, frame.top);
  });
  svg.addEventListener("blur", () => { svg.querySelectorAll(".near").forEach((one) => one.classList.remove("near")); tip.hide(); });
}

function star(svg, at, clip, end) {
  const won = end === data.winner, middle = clip(end.accuracy);
  if (end.half !== null)
    svg.append(node("path", { class: "whisker", d: `M${at},${clip(end.accuracy - end.half)}V${clip(end.accuracy + end.half)}` }));
  const mark = node("rect", { class: "mark", x: at - 5.5, y: middle - 5.5, width: 11, height: 11, fill: won ? "var(--m1)" : "var(--m2)", transform: won ? `rotate(45 ${at} ${middle})` : "" });
  const interval = end.half === null ? "" : ` ± ${share ? plain(Number((100 * end.half).toFixed(1))) : plain(end.half)}`;
  const figure = share ? `${(100 * end.accuracy).toFixed(1)}${interval} %` : `${plain(end.accuracy)}${interval}`;
  hover(mark, `${won ? "winner" : "as given"}${end.name === "as given" ? "" : `: ${end.name}`}\n${figure} on fresh seeds\n${si(end.joules, "J")}, ${si(end.seconds, "s")}`);
  svg.append(mark);
}

function count(rung) {
  const found = judged.filter((p) => p.rung === rung).length;
  return `${found} candidate${found === 1 ? "" : "s"}`;
}

function drawRungs() {
  const chart = document.querySelector("#rungs .chart"), height = 360;
  const { svg, width } = sheet(chart, height, `${label} of every candidate, rung by rung. Arrow keys read the candidates.`);
  const box = { left: 56, right: width - 16, top: 30, bottom: height - 46 };
  const [bottom, top] = range(), y = linear(bottom, top, box.bottom, box.top);
  const clip = (v) => Math.min(box.bottom, Math.max(box.top, y(v)));
  const inner = Math.min(120, (box.right - box.left) / 6);
  const x = last ? linear(0, last, box.left + inner, box.right - inner) : () => (box.left + box.right) / 2;
  x.ticks = () => data.shares.map((_, rung) => rung);
  const narrow = width < 130 * data.shares.length + 80;
  axes(svg, box, x, y, { x: narrow ? "share of the budget (candidates)" : "share of joules, seconds and iterations", y: `test ${label} of the mean model` }, {},
    { x: (rung) => `${plain(Math.round(100 * data.shares[rung]))} % (${narrow ? parseInt(count(rung)) : count(rung)})`, y: tick });
  const lines = new Map();
  for (const p of judged) lines.set(p.candidate, [...(lines.get(p.candidate) ?? []), p]);
  const rank = (c) => (c === data.winner.candidate ? 2 : lines.get(c).some((p) => p.rung === last) ? 1 : 0);
  const order = [...lines.keys()].sort((a, b) => rank(a) - rank(b));
  for (const c of order) {
    const points = lines.get(c).sort((a, b) => a.rung - b.rung), kind = ["", " on", " won"][rank(c)];
    svg.append(node("path", { class: `went${kind}`, d: path(points.map((p) => x(p.rung)), points.map((p) => clip(p.accuracy))) }));
  }
  for (const c of order)
    for (const p of lines.get(c)) {
      const dot = node("circle", { class: beyond(p, bottom, top) ? "dot below" : "dot", cx: x(p.rung), cy: clip(p.accuracy), r: rank(c) === 2 ? 5.5 : p.kept ? 4.5 : 3.5,
        fill: rank(c) === 2 ? "var(--m1)" : p.kept || rank(c) ? "var(--m0)" : "var(--left)" });
      hover(dot, described(p));
      svg.append(dot);
    }
  legend("rungs", [
    { text: "winner", colour: "var(--m1)" },
    { text: "went on, or came to the last rung", colour: "var(--m0)" },
    { text: "dropped", colour: "var(--left)" },
    ...(judged.some((p) => beyond(p, bottom, top)) ? [{ text: "on the edge: worse than shown", colour: "none" }] : []),
  ]);
  dots(svg);
  exports("rungs", "successive halving", figures);
}

function draw() {
  tip.hide();
  if (!judged.length) {
    for (const id of ["joules", "seconds", "rungs"]) document.getElementById(id).hidden = true;
    return;
  }
  drawFront("joules");
  drawFront("seconds");
  drawRungs();
  if (data.gantt.length) drawIteration(data.devices);
  if (data.flow) flowChart("flow", data.flow);
}
page(draw, ".dot, .mark, .shield");
