// Devices, cells and links of a deployment; draws everything, and again on change.

const KINDS = {
  planned: { ink: "var(--planned)", dash: "2 5" },
  simulated: { ink: "var(--simulated)", dash: "8 5" },
  metered: { ink: "var(--metered)", dash: "" },
};
// What meters say is charged by a model or measured by a sensor; seconds are always measured.
const word = (kind, quantity) => (kind === "metered" ? data.metered[quantity] : kind);
const UNIT = { joules: "J", seconds: "s" };
const shown = { bar: "joules", map: "joules-ratio" };

function drawBars() {
  const bars = data.bars, rows = bars[shown.bar], unit = UNIT[shown.bar], count = data.names.length;
  const chart = document.querySelector("#bars .chart");
  const pitch = count <= 40 ? 20 : count <= 100 ? 9 : Math.max(2, 720 / count);
  const top = 12, height = Math.ceil(top + pitch * count + 46);
  const { svg, width } = sheet(chart, height, `${shown.bar} of ${count} devices: planned, simulated, ${word("metered", shown.bar)}${shown.bar === "joules" ? ", and their batteries" : ""}.`);
  const held = shown.bar === "joules" ? bars.battery : [];
  const most = Math.max(...numbers([...Object.values(rows).flat(), ...held]), 0) || 1;
  const { scale, unit: name } = unitOf(most, unit);
  const longest = Math.min(16, Math.max(...data.names.map((one) => one.length)));
  const box = { left: Math.min(width * 0.34, 20 + 7.6 * longest), right: width - 14, top, bottom: top + pitch * count };
  const x = linear(0, (most * 1.03) / scale, box.left, box.right), none = linear(0, 1, 0, 1);
  none.ticks = () => [];
  axes(svg, box, x, none, { x: `${shown.bar === "joules" ? "energy" : "seconds of its iterations"} [${name}]`, y: "" }, { bare: true });
  const skip = Math.max(1, Math.ceil(13 / pitch)), letters = Math.floor((box.left - 12) / 7.2);
  data.names.forEach((one, k) => {
    const y = top + pitch * (k + 0.5), thick = Math.max(1, pitch * 0.62), edge = (y - thick / 2).toFixed(1), h = thick.toFixed(1);
    const to = (v) => Math.max(0.5, x(v / scale) - box.left).toFixed(1);
    const text = [one, ...(held.length ? [`battery ${si(held[k], unit)}`] : []), ...Object.keys(KINDS).map((kind) => `${word(kind, shown.bar)} ${rows[kind][k] === null ? "–" : si(rows[kind][k], unit)}`)].join("\n");
    if (held.length) svg.append(node("rect", { class: "full", x: box.left, y: edge, width: to(held[k]), height: h }));
    if (rows.metered[k] !== null) svg.append(node("rect", { class: "bar", x: box.left, y: edge, width: to(rows.metered[k]), height: h, fill: KINDS.metered.ink, opacity: 0.75 }));
    for (const kind of ["planned", "simulated"])
      if (rows[kind][k] !== null) {
        const at = x(rows[kind][k] / scale).toFixed(1), half = kind === "planned" ? 0.5 : 0.36;
        svg.append(node("line", { class: "tick", stroke: KINDS[kind].ink, x1: at, x2: at, y1: (y - pitch * half * 0.9).toFixed(1), y2: (y + pitch * half * 0.9).toFixed(1) }));
      }
    if (k % skip === 0) svg.append(node("text", { x: box.left - 7, y: y + 4, "text-anchor": "end" }, clip(one, letters)));
    svg.append(node("rect", { class: "shield", x: 0, y: top + pitch * k, width, height: pitch, "data-tip": text }));
  });
  legend("bars", [
    { text: word("metered", shown.bar), colour: KINDS.metered.ink },
    { text: "planned", colour: KINDS.planned.ink, kind: "tick" },
    { text: "simulated", colour: KINDS.simulated.ink, kind: "tick" },
    ...(held.length ? [{ text: "battery", colour: "var(--grid)" }] : []),
  ]);
  exports("bars", `${shown.bar} of devices`, () => ({ columns: ["device", ...Object.keys(KINDS).map((kind) => word(kind, shown.bar)), ...(held.length ? ["battery"] : [])],
    rows: data.names.map((one, k) => [one, ...Object.keys(KINDS).map((kind) => rows[kind][k]), ...(held.length ? [held[k]] : [])]) }));
}

// Less than planned is blue, more is orange; as planned is the ground between them.
function diverging(level) {
  const night = isDark(), middle = night ? [58, 68, 82] : [238, 240, 243];
  const end = level < 0.5 ? (night ? [91, 180, 236] : [0, 90, 160]) : (night ? [242, 142, 60] : [196, 78, 0]);
  const share = Math.min(1, Math.abs(level - 0.5) * 2) ** 0.6;
  return middle.map((c, i) => Math.round(c + share * (end[i] - c)));
}

function cellPicture(values, rows, columns, paint) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows);
  const palette = [...Array(256).keys()].map((k) => paint(k / 255));
  for (let k = 0; k < values.length; k++) {
    if (values[k] === 65535) continue;
    image.data.set([...palette[Math.round((255 * values[k]) / 65534)], 255], 4 * k);
  }
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

function drawCells() {
  const { shape: [rows, columns], iterations, maps } = data.cells, count = data.names.length;
  const map = maps[shown.map], ratio = shown.map.endsWith("-ratio"), unit = UNIT[shown.map.replace("-ratio", "")];
  const values = unpack(map.cells), paint = ratio ? diverging : (level) => shade(level);
  const chart = document.querySelector("#cells .chart"), pitch = count <= 40 ? 20 : Math.max(2, 720 / count);
  const top = 46, height = Math.ceil(top + Math.max(140, pitch * count) + 46);
  const { svg, width } = sheet(chart, height, `Heat map of ${count} devices and ${iterations} iterations: ${word("metered", shown.map.replace("-ratio", ""))} ${shown.map.replace("-ratio", " as a multiple of the planned")}.`);
  const longest = Math.min(16, Math.max(...data.names.map((one) => one.length)));
  const box = { left: Math.min(width * 0.34, 20 + 7.6 * longest), right: width - 14, top, bottom: height - 46 };
  const x = linear(0.5, iterations + 0.5, box.left, box.right), none = linear(0, 1, 0, 1), tall = box.bottom - box.top;
  const steps = 48, bar = Math.min(190, (box.right - box.left) * 0.6);
  for (let k = 0; k < steps; k++)
    svg.append(node("rect", { x: box.right - bar + (k * bar) / steps, y: 4, width: bar / steps + 0.6, height: 9, fill: `rgb(${paint((k + 0.5) / steps).join(",")})` }));
  const ends = ratio ? [`÷ ${map.top}`, "as planned", `× ${map.top}`] : ["0", "", si(map.top, unit)];
  ends.forEach((text, k) => svg.append(node("text", { x: box.right - bar + (k * bar) / 2, y: 26, "text-anchor": ["start", "middle", "end"][k] }, text)));
  svg.append(node("rect", { x: box.left, y: box.top, width: box.right - box.left, height: tall, fill: "var(--card)" }));
  svg.append(node("image", { class: "pixels", href: cellPicture(values, rows, columns, paint), x: box.left, y: box.top, width: box.right - box.left, height: tall, preserveAspectRatio: "none" }));
  x.ticks = wholeTicks(1, iterations);
  none.ticks = () => [];
  axes(svg, box, x, none, { x: "iteration", y: "" }, { bare: true });
  const each = tall / count, skip = Math.max(1, Math.ceil(13 / each)), letters = Math.floor((box.left - 12) / 7.2);
  data.names.forEach((one, k) => { if (k % skip === 0) svg.append(node("text", { x: box.left - 7, y: box.top + each * (k + 0.5) + 4, "text-anchor": "end" }, clip(one, letters))); });
  svg.append(node("rect", { class: "frame", x: box.left, y: box.top, width: box.right - box.left, height: tall }));
  readCells(svg, box, values, map, ratio, unit);
  legend("cells", values.includes(65535) ? [{ text: "empty: nothing in the journal, or not a member", colour: "none" }] : []);
  const figure = (cell) => (cell === 65535 ? null : ratio ? Number((2 ** (((cell / 65534) * 2 - 1) * Math.log2(map.top))).toPrecision(4)) : (cell / 65534) * map.top);
  exports("cells", `devices and iterations ${shown.map}`, () => ({
    columns: ["iteration", ...[...Array(rows).keys()].map((r) => data.names[Math.floor(((r + 0.5) * count) / rows)])],
    rows: [...Array(columns).keys()].map((c) => [Math.floor((c * iterations) / columns) + 1, ...[...Array(rows).keys()].map((r) => figure(values[r * columns + c]))]) }));
}

function readCells(svg, box, values, map, ratio, unit) {
  const { shape: [rows, columns], iterations } = data.cells, count = data.names.length;
  readCellsOf(svg, box, rows, columns, (r, c) => {
    const cell = values[r * columns + c], level = cell / 65534;
    const who = rows < count ? `devices about ${data.names[Math.floor(((r + 0.5) * count) / rows)]}` : data.names[r];
    const figure = ratio ? `${plain(Number((2 ** ((level * 2 - 1) * Math.log2(map.top))).toFixed(3)))} times the planned` : si(level * map.top, unit);
    return `${who}, iteration ${Math.floor((c * iterations) / columns) + 1}: ${cell === 65535 ? "nothing known" : figure}`;
  });
}

const linkText = (one) => [`${data.names[one.from]} → ${data.names[one.to] ?? `device ${one.to}`}`, `measured ${si(one.measured, "bit/s")}`,
  `planned ${one.planned === null ? "–" : si(one.planned, "bit/s")}`, `${si(one.bytes, "B")} in ${one.messages.toLocaleString("en")} messages`].join("\n");

function drawLinks() {
  const links = data.links.filter((one) => one.planned !== null && one.measured > 0);
  if (!links.length) { document.getElementById("links").hidden = true; return; }
  const rates = links.flatMap((one) => [one.planned, one.measured]);
  // Over less than a decade, lengths from zero are easier to compare than logarithms.
  const wide = Math.max(...rates) > 8 * Math.min(...rates);
  const low = wide ? Math.min(...rates) / 1.25 : 0, high = Math.max(...rates) * (wide ? 1.25 : 1.08);
  (links.length <= 24 ? drawLinkRows : drawLinkDots)(links, low, high, unitOf(high, "bit/s"));
  legend("links", [{ text: "measured", colour: "var(--metered)", kind: "disc" },
    { text: links.length <= 24 ? "planned" : "as planned", colour: "var(--planned)", kind: links.length <= 24 ? "tick" : "dashes" }]);
  exports("links", "links", () => ({ columns: ["from", "to", "planned_bps", "measured_bps", "bytes", "messages"],
    rows: data.links.map((one) => [data.names[one.from], data.names[one.to] ?? one.to, one.planned, one.measured, one.bytes, one.messages]) }));
}

function drawLinkRows(links, low, high, { scale, unit }) {
  const chart = document.querySelector("#links .chart"), pitch = 22, top = 10;
  const { svg, width } = sheet(chart, top + pitch * links.length + 46, `Planned and measured rates of ${links.length} links.`);
  const ends = links.map((one) => [data.names[one.from], String(data.names[one.to] ?? one.to)]), names = ends.map((pair) => pair.join(" → "));
  const left = Math.min(width * 0.48, 20 + 7.6 * Math.min(34, Math.max(...names.map((name) => name.length))));
  const box = { left, right: width - 16, top, bottom: top + pitch * links.length }, letters = Math.floor((left - 12) / 7.2);
  const x = (low ? logarithmic : linear)(low, high, box.left, box.right), none = linear(0, 1, 0, 1);
  none.ticks = () => [];
  axes(svg, box, x, none, { x: `rate [${unit}]${low ? " (logarithmic)" : ""}`, y: "" }, { bare: true }, { x: (v) => plain(Number((v / scale).toPrecision(6))) });
  links.forEach((one, k) => {
    const y = top + pitch * (k + 0.5), from = x(one.planned).toFixed(1), to = x(one.measured).toFixed(1);
    svg.append(node("line", { class: "link", x1: from, x2: to, y1: y, y2: y }));
    svg.append(node("line", { class: "tick", stroke: "var(--planned)", x1: from, x2: from, y1: y - 7, y2: y + 7 }));
    svg.append(node("circle", { class: "dot", cx: to, cy: y, r: 5, fill: "var(--metered)" }));
    svg.append(node("text", { x: left - 7, y: y + 4, "text-anchor": "end" }, names[k].length <= letters ? names[k] : ends[k].map((name) => clip(name, (letters - 3) >> 1)).join(" → ")));
    svg.append(node("rect", { class: "shield", x: 0, y: top + pitch * k, width, height: pitch, "data-tip": linkText(one) }));
  });
}

function drawLinkDots(links, low, high, { scale, unit }) {
  const chart = document.querySelector("#links .chart"), height = 420;
  const { svg, width } = sheet(chart, height, `Measured against planned rates of ${links.length} links.`);
  const box = { left: 62, right: width - 16, top: 30, bottom: height - 46 };
  const along = low ? logarithmic : linear, note = low ? " (logarithmic)" : "";
  const x = along(low, high, box.left, box.right), y = along(low, high, box.bottom, box.top);
  const write = (v) => plain(v / scale);
  axes(svg, box, x, y, { x: `planned rate [${unit}]${note}`, y: `measured rate [${unit}]${note}` }, {}, { x: write, y: write });
  svg.append(node("path", { class: "diagonal", d: `M${x(low)},${y(low)}L${x(high)},${y(high)}` }));
  const r = links.length > 400 ? 3 : 4.5;
  for (const one of links)
    svg.append(node("circle", { class: "dot", cx: x(one.planned).toFixed(1), cy: y(one.measured).toFixed(1), r, fill: "var(--metered)", "fill-opacity": links.length > 400 ? 0.5 : 0.85, "data-tip": linkText(one) }));
}

function draw() {
  tip.hide();
  if (data.learning) curves("learning", data.learning);
  drawTimeline();
  curves("costs", data.costs);
  drawBars();
  if (data.cells) drawCells();
  if (data.links.length) drawLinks();
  if (data.gantt.length) drawIteration();
  if (data.flow) {
    document.querySelector("#h-flow").textContent = data.flow.title;
    flowChart("flow", data.flow);
  }
}

switches("bar", (value) => { shown.bar = value; drawBars(); });
switches("map", (value) => { shown.map = value; drawCells(); });

page(draw, ".shield, #learning svg, #costs svg");
