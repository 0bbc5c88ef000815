// Batteries over time, and the labels that each device holds.

function drawBatteries() {
  const battery = data.battery;
  const chart = document.querySelector("#batteries .chart");
  const groups = battery.lines.length ? battery.lines.length : battery.bands.length;
  const label = `What is left of the batteries after each iteration: ${groups} ${battery.lines.length ? "devices" : "groups of devices"}.`;
  const height = 330;
  const { svg, width } = sheet(chart, height, label);
  const box = { left: 54, right: width - 14, top: 28, bottom: height - 46 };
  const x = linear(0, battery.when.at(-1), box.left, box.right), y = linear(0, 1, box.bottom, box.top);
  x.ticks = wholeTicks(0, battery.when.at(-1));
  axes(svg, box, x, y, { x: "iteration", y: "left in the battery" }, {}, { y: percentTick });
  const xs = battery.when.map(x);
  const lines = battery.lines.map((line) => {
    const made = node("path", { class: "thin", stroke: kindInk(line.kind), d: path(xs, line.left.map(y)) });
    svg.append(made);
    return made;
  });
  for (const band of battery.bands) {
    svg.append(node("path", { class: "band", fill: kindInk(band.kind), d: area(xs, band.low.map(y), band.high.map(y)) }));
    svg.append(node("path", { class: "line", stroke: kindInk(band.kind), d: path(xs, band.middle.map(y)) }));
  }
  if (lines.length) nearestLine(svg, box, xs, y, lines);
  const shown = battery.lines.length ? battery.lines : battery.bands;
  const entries = Object.keys(data.kinds).filter((kind) => shown.some((s) => s.kind === kind)).map((kind) => {
    const band = battery.bands.find((b) => b.kind === kind);
    const note = band ? ` (${band.count.toLocaleString("en")} devices: median, 5–95 %)` : "";
    return { text: data.kinds[kind] + note, colour: kindInk(kind), kind: "stroke" };
  });
  legend("batteries", entries);
}

function nearestLine(svg, box, xs, y, lines) {
  const { when, lines: rows } = data.battery;
  const shield = node("rect", { class: "shield", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
  svg.append(shield);
  const clear = () => lines.forEach((line) => line.classList.remove("near"));
  const follow = (event) => {
    const frame = shield.getBoundingClientRect();
    const px = box.left + ((event.clientX - frame.left) / frame.width) * (box.right - box.left);
    const py = box.top + ((event.clientY - frame.top) / frame.height) * (box.bottom - box.top);
    let k = 0, best = 0;
    xs.forEach((x, i) => { if (Math.abs(x - px) < Math.abs(xs[k] - px)) k = i; });
    rows.forEach((row, i) => { if (Math.abs(y(row.left[k]) - py) < Math.abs(y(rows[best].left[k]) - py)) best = i; });
    clear();
    lines[best].classList.add("near");
    const row = rows[best];
    tip.show(`${deviceName(row.device)}: ${percent(row.left[k])} left after iteration ${when[k]}\n${data.kinds[row.kind]}`, event.clientX, event.clientY);
  };
  shield.addEventListener("pointermove", follow);
  shield.addEventListener("pointerdown", follow);
  shield.addEventListener("pointerleave", () => { clear(); tip.hide(); });
}

// Ten hues that differ in lightness too; more classes take steps of viridis.
const HUES = ["#332288", "#0072b2", "#56b4e9", "#44aa99", "#117733", "#999933", "#e69f00", "#d55e00", "#cc79a7", "#882255"];
const NIGHT = { "#332288": "#8478dc", "#117733": "#3a9b5c", "#882255": "#b4487f" };
const hue = (k, count) => (count > HUES.length ? colour(k / (count - 1)) : (isDark() && NIGHT[HUES[k]]) || HUES[k]);

function drawLabels() {
  const labels = data.labels, { classes, counts, devices } = labels;
  const chart = document.querySelector("#labels .chart");
  const sums = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const label = `Stacked bars of the labels on ${devices.length} devices, ${Math.min(...sums)} to ${Math.max(...sums)} samples each.`;
  const height = 330;
  const { svg, width } = sheet(chart, height, label);
  const box = { left: 54, right: width - 14, top: 28, bottom: height - 46 };
  const x = linear(-0.5, devices.length - 0.5, box.left, box.right);
  const y = linear(0, Math.max(...sums, 1) * 1.02, box.bottom, box.top);
  x.ticks = wholeTicks(0, devices.length - 1);
  axes(svg, box, x, y, { x: "device", y: "samples" }, {}, { x: (v) => String(devices[v]) });
  const pitch = (box.right - box.left) / devices.length, thick = Math.max(0.5, pitch * (pitch > 4 ? 0.8 : 1));
  counts.forEach((row, i) => {
    let base = 0;
    const left = (x(i) - thick / 2).toFixed(2);
    row.forEach((count, k) => {
      if (!count) return;
      const top = y(base + count);
      svg.append(node("rect", { x: left, y: top.toFixed(2), width: thick.toFixed(2), height: (y(base) - top).toFixed(2), fill: hue(k, classes.length) }));
      base += count;
    });
    const most = row.map((count, k) => [count, k]).filter(([count]) => count).sort((a, b) => b[0] - a[0]);
    const list = most.slice(0, 8).map(([count, k]) => `${classes[k]}: ${count}`).join(", ");
    const more = most.length > 8 ? ` and ${most.length - 8} more classes` : "";
    svg.append(node("rect", { class: "shield", x: left, y: box.top, width: thick.toFixed(2), height: box.bottom - box.top, "data-tip": `${deviceName(devices[i])}: ${sums[i]} samples\n${list}${more}` }));
  });
  const shown = classes.length <= 20 ? classes.map((_, k) => k) : [0, classes.length - 1];
  const entries = shown.map((k) => ({ text: classes[k], colour: hue(k, classes.length) }));
  if (devices.length < labels.of) entries.push({ text: `${devices.length} of ${labels.of} devices drawn`, colour: "none" });
  legend("labels", entries);
}
