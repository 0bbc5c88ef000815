// Batteries over time, what was harvested, and the labels that each device holds.

// batteryChart(container, what `battery_data` writes, { names, kinds })
function batteryChart(container, battery, options = {}) {
  const chart = part(container, "chart"), kinds = options.kinds ?? {}, name = named(options.names);
  const few = battery.lines.length > 0, groups = few ? battery.lines.length : battery.bands.length;
  const label = `What is left of the batteries after each iteration: ${groups} ${few ? "devices" : "groups of devices"}. Arrow keys read the values.`;
  const height = 330;
  const { svg, width } = sheet(chart, height, label);
  const box = { left: 54, right: width - 14, top: 28, bottom: height - 46 };
  // Batteries that are recharged may hold more than at the start.
  const fullest = Math.max(1, ...battery.lines.flatMap((line) => line.left), ...battery.bands.flatMap((band) => band.high));
  const x = linear(0, battery.when.at(-1), box.left, box.right), y = linear(0, fullest, box.bottom, box.top);
  x.ticks = wholeTicks(0, battery.when.at(-1));
  axes(svg, box, x, y, { x: "iteration", y: fullest > 1 ? "in the battery, of what it held first" : "left in the battery" }, {}, { y: percentTick });
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
  const text = (row, k) => (few ? `${name(row.device)}: ${percent(row.left[k])} left after iteration ${battery.when[k]}\n${kinds[row.kind] ?? row.kind}`
    : `${kinds[row.kind] ?? row.kind}, ${whole(row.count)} devices: ${percent(row.middle[k])} left after iteration ${battery.when[k]}\nof most ${span(row.low[k], row.high[k], percent)}`);
  nearestLine(svg, box, xs, y, { rows: few ? battery.lines : battery.bands, value: (row, k) => (few ? row.left : row.middle)[k], text, lines });
  const shown = few ? battery.lines : battery.bands;
  legend(container, [...new Set(shown.map((one) => one.kind))].map((kind) => {
    const band = battery.bands.find((b) => b.kind === kind);
    const note = band ? ` (${whole(band.count)} devices: median, 5–95 %)` : "";
    return { text: (kinds[kind] ?? kind) + note, colour: kindInk(kind), kind: "stroke" };
  }));
  const title = (row) => (few ? options.names?.[row.device] ?? `device ${row.device}` : row.kind);
  exports(container, "batteries", () => ({ columns: ["iteration", ...shown.map(title)], rows: battery.when.map((t, k) => [t, ...shown.map((row) => (few ? row.left : row.middle)[k])]) }));
}

// Reads the nearest line by pointer; by keys, left and right in time, up and down from line to line.
function nearestLine(svg, box, xs, y, { rows, value, text, lines }) {
  const shield = node("rect", { class: "shield", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
  const dot = node("circle", { r: 4.5, class: "read", visibility: "hidden" });
  svg.append(dot, shield);
  svg.setAttribute("tabindex", "0");
  const clear = () => { lines.forEach((line) => line.classList.remove("near")); dot.setAttribute("visibility", "hidden"); };
  const show = (best, k, clientX, clientY) => {
    clear();
    lines[best]?.classList.add("near");
    for (const [key, v] of Object.entries({ cx: xs[k], cy: y(value(rows[best], k)), visibility: "visible" })) dot.setAttribute(key, v);
    tip.show(text(rows[best], k), clientX, clientY);
  };
  const kept = placeOf(svg);
  const follow = (event) => {
    const frame = shield.getBoundingClientRect();
    const px = box.left + ((event.clientX - frame.left) / frame.width) * (box.right - box.left);
    const py = box.top + ((event.clientY - frame.top) / frame.height) * (box.bottom - box.top);
    let k = 0, best = 0;
    xs.forEach((x, i) => { if (Math.abs(x - px) < Math.abs(xs[k] - px)) k = i; });
    rows.forEach((row, i) => { if (Math.abs(y(value(row, k)) - py) < Math.abs(y(value(rows[best], k)) - py)) best = i; });
    kept.at = [best, k];
    show(best, k, event.clientX, event.clientY);
  };
  shield.addEventListener("pointermove", follow);
  shield.addEventListener("pointerdown", follow);
  shield.addEventListener("pointerleave", () => { clear(); tip.hide(); });
  svg.addEventListener("blur", () => { clear(); tip.hide(); });
  svg.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] }[event.key];
    if (!way || !rows.length) return;
    event.preventDefault();
    const within = (v, most) => Math.min(most - 1, Math.max(0, v));
    const was = kept.at, at = kept.at = was ? [within(was[0] + way[0], rows.length), within(was[1] + way[1], xs.length)] : [0, way[1] > 0 && way[1] !== 1 ? xs.length - 1 : 0];
    const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
    show(...at, frame.left + xs[at[1]] * scale, frame.top + y(value(rows[at[0]], at[1])) * scale);
  });
}

// harvestChart(container, what `harvest_data` writes): joules of all devices so far, spent and gained.
function harvestChart(container, harvest) {
  const most = Math.max(...harvest.spent, ...harvest.stored, ...harvest.spilled, 0), { scale, unit } = unitOf(most, "J");
  const line = (text, ink, values, dash) => ({ text, ink, dash, xs: harvest.when, ys: values.map((v) => v / scale) });
  const lines = [line("harvested and kept", "var(--halo-ink)", harvest.stored), line("spent", "var(--energy)", harvest.spent, "8 5")];
  if (harvest.spilled.some((v) => v > 0)) lines.push(line("spilled: the battery was full", "var(--left)", harvest.spilled, "2 4"));
  lineChart(container, { label: "Joules of all devices so far: harvested and spent", lines, title: "harvest",
    x: { name: "iteration", whole: true, write: (v) => `after iteration ${v}` },
    y: { name: `energy of all devices so far [${unit}]`, write: (v) => si(v * scale, "J"), zero: true } }, 330);
}

// Ten hues that differ in lightness too; more classes take steps of viridis.
const HUES = ["#332288", "#0072b2", "#56b4e9", "#44aa99", "#117733", "#999933", "#e69f00", "#d55e00", "#cc79a7", "#882255"];
const NIGHT = { "#332288": "#8478dc", "#117733": "#3a9b5c", "#882255": "#b4487f" };
const hue = (k, count) => (count > HUES.length ? colour(k / (count - 1)) : (isDark() && NIGHT[HUES[k]]) || HUES[k]);

// labelChart(container, what `label_data` writes, { names })
function labelChart(container, labels, options = {}) {
  const { classes, counts, devices } = labels, name = named(options.names);
  const chart = part(container, "chart");
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
    svg.append(node("rect", { class: "shield", x: left, y: box.top, width: thick.toFixed(2), height: box.bottom - box.top, "data-tip": `${name(devices[i])}: ${sums[i]} samples\n${list}${more}` }));
  });
  const shown = classes.length <= 20 ? classes.map((_, k) => k) : [0, classes.length - 1];
  const entries = shown.map((k) => ({ text: classes[k], colour: hue(k, classes.length) }));
  if (devices.length < labels.of) entries.push({ text: `${devices.length} of ${labels.of} devices drawn`, colour: "none" });
  legend(container, entries);
  exports(container, "labels", () => ({ columns: ["device", ...classes], rows: devices.map((device, i) => [options.names?.[device] ?? device, ...counts[i]]) }));
}
