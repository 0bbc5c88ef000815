// A lane for each device: when its node was up, what it noted; views as lines across all lanes.

const SHAPES = {
  diamond: (x, y, r) => `M${x},${y - r}L${x + r},${y}L${x},${y + r}L${x - r},${y}Z`,
  triangle: (x, y, r) => `M${x - r},${y - r}L${x + r},${y}L${x - r},${y + r}Z`,
  square: (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  cross: (x, y, r) => `M${x - r},${y - r * 0.4}l${r * 0.6},${-r * 0.6}l${r * 0.4},${r * 0.6}l${r * 0.4},${-r * 0.6}l${r * 0.6},${r * 0.6}l${-r * 0.6},${r * 0.4}l${r * 0.6},${r * 0.4}l${-r * 0.6},${r * 0.6}l${-r * 0.4},${-r * 0.6}l${-r * 0.4},${r * 0.6}l${-r * 0.6},${-r * 0.6}l${r * 0.6},${-r * 0.4}Z`,
  disc: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`,
};
const MARKS = {
  start: { shape: "triangle", ink: "var(--metered)", text: "started again" },
  suspected: { shape: "diamond", ink: "var(--simulated)", text: "suspects another" },
  gift: { shape: "disc", ink: "var(--time)", text: "took up parameters of another" },
  fetched: { shape: "disc", ink: "var(--time)", text: "fetched an average" },
  left: { shape: "cross", ink: "var(--alarm)", text: "left" },
  stopped: { shape: "square", ink: "var(--alarm)", text: "stopped" },
  end: { shape: "square", ink: "var(--good)", text: "ended" },
};
const TROUBLE = { shape: "cross", ink: "var(--alarm)", text: "trouble" };
for (const kind of ["digest", "infeasible", "not-evaluated", "not-saved", "not-trained", "short", "unsaved"]) MARKS[kind] = TROUBLE;
const OTHER = { shape: "cross", ink: "var(--ink)", text: "other notes" };
const markOf = (kind) => MARKS[kind] ?? OTHER;

function clockText(seconds) {
  if (seconds < 60) return `${plain(Number(seconds.toFixed(2)))} s`;
  const whole = Math.round(seconds), parts = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  const names = ["d", "h", "min", "s"], first = parts.findIndex((v) => v > 0);
  return parts.slice(first, first + 2).map((v, k) => `${v} ${names[first + k]}`).join(" ");
}

function drawTimeline() {
  const line = data.timeline, count = data.names.length;
  const chart = document.querySelector("#timeline .chart");
  const pitch = count <= 12 ? 24 : count <= 40 ? 16 : count <= 120 ? 8 : Math.max(2, 900 / count);
  const top = line.views.length ? 30 : 10, height = Math.ceil(top + pitch * count + 48);
  const label = `Time line of ${count} devices over ${clockText(line.span)}: ${line.views.length} view changes, ${line.noted} events.`;
  const { svg, width } = sheet(chart, height, label);
  const longest = Math.min(18, Math.max(...data.names.map((name) => name.length)));
  const box = { left: Math.min(width * 0.3, 20 + 7.6 * longest), right: width - 16, top, bottom: top + pitch * count };
  const { scale, unit } = clockOf(line.span);
  const x = linear(0, line.span / scale, box.left, box.right), at = (seconds) => x(seconds / scale);
  const y = (device) => top + pitch * (device + 0.5);
  const lanes = linear(0, 1, 0, 1);
  lanes.ticks = () => [];
  axes(svg, box, x, lanes, { x: `time since the first start [${unit}]`, y: "" }, { bare: true });
  drawLanes(svg, box, pitch, y, at, Math.floor((box.left - 12) / 7.2));
  drawViews(svg, box, line, at);
  const r = Math.max(2.2, Math.min(6, pitch * 0.36));
  for (const [device, when, kind, text] of line.marks) {
    const { shape, ink } = markOf(kind);
    svg.append(node("path", { class: "mark", d: SHAPES[shape](Number(at(when).toFixed(1)), y(device), r), fill: ink, "data-kind": kind, "data-tip": `${data.names[device]}, after ${clockText(when)}\n${text}` }));
  }
  timelineLegend(line);
  exports("timeline", "time line", () => ({ columns: ["device", "seconds", "kind", "what"],
    rows: [...line.up.flatMap((spans, device) => spans.flatMap(([from, to]) => [[data.names[device], from, "up", "node is up"], [data.names[device], to, "down", "node is up no more"]])),
      ...line.marks.map(([device, when, kind, text]) => [data.names[device], when, kind, text])] }));
}

function drawLanes(svg, box, pitch, y, at, letters) {
  const skip = Math.max(1, Math.ceil(13 / pitch));
  data.timeline.up.forEach((spans, device) => {
    const middle = y(device);
    if (pitch >= 8) svg.append(node("line", { class: "lane", x1: box.left, x2: box.right, y1: Math.round(middle) + 0.5, y2: Math.round(middle) + 0.5 }));
    const thick = Math.max(1, pitch * 0.62);
    spans.forEach(([from, to], k) => svg.append(node("rect", { class: "up", x: at(from).toFixed(1), y: (middle - thick / 2).toFixed(1), width: Math.max(1, at(to) - at(from)).toFixed(1), height: thick.toFixed(1), "data-tip": `${data.names[device]}: up from ${clockText(from)} to ${clockText(to)}${spans.length > 1 ? ` (${k + 1} of ${spans.length})` : ""}` })));
    if (device % skip === 0) svg.append(node("text", { x: box.left - 7, y: middle + 4, "text-anchor": "end" }, clip(data.names[device], letters)));
  });
}

// Views as lines; where they stand close together only some are labelled.
function drawViews(svg, box, line, at) {
  let free = -Infinity;
  for (const view of line.views) {
    const place = Math.round(at(view.at)) + 0.5;
    const text = `view ${view.number}: ${view.members}`;
    svg.append(node("line", { class: "since", x1: place, x2: place, y1: box.top - 8, y2: box.bottom }));
    svg.append(node("line", { class: "hit", x1: place, x2: place, y1: box.top - 24, y2: box.bottom, "data-tip": `view ${view.number}, after ${clockText(view.at)}\n${view.members} members, from iteration ${view.start} on` }));
    const end = place + 7 * text.length > box.right;
    const from = end ? place - 7 * text.length : place;
    if (from < free) continue;
    svg.append(node("text", { class: "since-text", x: place, y: box.top - 13, "text-anchor": end ? "end" : "start" }, text));
    free = from + 7 * text.length + 10;
  }
}

function timelineLegend(line) {
  const list = document.querySelector("#timeline .legend");
  legend("timeline", [{ text: "node is up", colour: "var(--metered)", kind: "veil" },
    ...(line.views.length ? [{ text: "view installed (number: members)", colour: "var(--ink)", kind: "dashes" }] : [])]);
  const kinds = [...new Set(line.marks.map(([, , kind]) => (MARKS[kind] ? kind : "other")))];
  const seen = new Set();
  for (const kind of kinds) {
    const { shape, ink, text } = markOf(kind);
    if (seen.has(text)) continue;
    seen.add(text);
    const item = document.createElement("li"), holder = document.createElement("i");
    holder.className = "shape";
    holder.append(node("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, node("path", { d: SHAPES[shape](6, 6, 5), fill: ink })));
    item.append(holder, text);
    list.append(item);
  }
  if (line.marks.length < line.noted) {
    const item = document.createElement("li");
    item.append(`${line.marks.length.toLocaleString("en")} of ${line.noted.toLocaleString("en")} events drawn`);
    list.append(item);
  }
}
