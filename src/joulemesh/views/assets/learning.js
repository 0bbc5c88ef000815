// The score (accuracy, say), loss and consensus error against iterations, joules or seconds.

const view = { x: "iterations", y: "score", at: null };

const ACROSS = {
  iterations: { key: "iteration", name: () => "iteration", unit: "" },
  joules: { key: "energy_j", name: (unit) => `energy spent by all devices [${unit}]`, unit: "J" },
  seconds: { key: "time_s", name: (unit) => `simulated time [${unit}]`, unit: "s" },
};

const scored = (end) => (end ? `device_${data.score.name}_${end}` : `test_${data.score.name}`);
const ALONG = {
  score: {
    name: `test ${data.score.label}`, share: data.score.share, devices: true,
    lines: [{ key: scored(), text: "mean model", ink: "var(--a)", samples: "test" },
      { key: scored("mean"), text: "devices’ own models, mean", ink: "var(--b)", dashed: true, samples: "device" }],
    range: { low: scored("min"), high: scored("max"), text: "devices, worst to best", ink: "var(--b)" },
  },
  loss: {
    name: "loss of the mean model",
    lines: [{ key: "test_loss", text: "test", ink: "var(--a)", samples: "test" },
      { key: "train_loss", text: "training", ink: "var(--b)", dashed: true, samples: "train" }],
  },
  consensus: {
    name: "relative consensus error",
    lines: [{ key: "consensus", text: "after the exchange", ink: "var(--a)" },
      { key: "drift", text: "before the exchange", ink: "var(--b)", dashed: true }],
  },
};

// Metrics that the scenario adds.
for (const metric of data.metrics) {
  const key = (end) => `device_${metric.name}_${end}`;
  ALONG[metric.name] = {
    name: `test ${metric.label}`, share: metric.share, devices: metric.devices,
    lines: [{ key: `test_${metric.name}`, text: "mean model", ink: "var(--a)", samples: "test" },
      { key: key("mean"), text: "devices’ own models, mean", ink: "var(--b)", dashed: true, samples: "device" }],
    range: { low: key("min"), high: key("max"), text: "devices, smallest to largest", ink: "var(--b)" },
  };
}

const alike = (one, other) => one?.length === other?.length && (one || []).every((v, k) => v === other[k] || Math.abs(v - other[k]) < 2e-5);

// After exact exchanges every device has the mean model: one line, which says so.
function allAgree() {
  const s = data.series, mean = s[scored()], own = s[scored("mean")];
  return Boolean(mean && own) && alike(own.mean, mean.mean) && alike(own.low, mean.low) && alike(own.high, mean.high) &&
    [s[scored("min")], s[scored("max")]].every((end) => end && alike(end.mean, mean.mean));
}

function present(along) {
  const lines = along.lines.filter((line) => data.series[line.key]);
  if (!along.devices || !allAgree()) return lines;
  return [{ ...lines[0], text: "mean model and every device’s own, which are the same" }];
}

function reach(along, lines, range) {
  const all = [];
  for (const line of lines) {
    const s = data.series[line.key];
    all.push(...numbers(s.mean), ...numbers(s.low || []), ...numbers(s.high || []));
  }
  if (range) all.push(...numbers(range.low), ...numbers(range.high));
  if (!all.length) return { low: 0, high: 1, log: false };
  const low = Math.min(...all), high = Math.max(...all);
  if (along.share) return { low: Math.max(0, Math.floor(low * 10 - 0.01) / 10), high: Math.min(1, Math.ceil(high * 10) / 10), log: false };
  const log = low > 0 && high > 30 * low;
  return log ? { low: low / 1.2, high: high * 1.2, log } : { low: Math.min(0, low * 1.05), high: Math.max(0, high * 1.05) || (low < 0 ? 0 : 1), log };
}

// On how many samples a line's evaluations were made; empty where that is not known.
const samplesOf = (line) => numbers(data.series[`${line.samples}_samples`]?.mean || []).filter((n) => n > 0);
const count = (n) => Math.round(n).toLocaleString("en");

// In the legend, of all evaluations but the last, which takes the whole test set.
function sampleWords(line) {
  const own = samplesOf(line), test = samplesOf({ samples: "test" });
  if (!own.length) return "";
  if (line.samples === "train") return ` (${count(own[0])} training samples)`;
  if (line.samples === "test") return ` (${count(own[0])} test samples)`;
  const fewest = Math.min(...own);
  if (own.every((n, k) => n === test[k])) return " (the same samples)";
  return ` (compared with the mean model on ${count(fewest)} of these samples)`;
}

const endsWhole = (lines) => lines.some((line) => samplesOf(line).at(-1) !== samplesOf(line)[0]);

function deviceRange(along) {
  if (along.devices && allAgree()) return null;
  const low = along.range && data.series[along.range.low], high = along.range && data.series[along.range.high];
  return low && high ? { low: low.low || low.mean, high: high.high || high.mean } : null;
}

function drawLearning() {
  const along = ALONG[view.y], across = ACROSS[view.x];
  const lines = present(along), range = deviceRange(along);
  const raw = data.series[across.key].mean;
  const { scale, unit } = across.unit ? unitOf(Math.max(...numbers(raw)), across.unit) : { scale: 1, unit: "" };
  const values = raw.map((v) => (v === null ? NaN : v / scale));
  const height = 360;
  const chart = document.querySelector("#learning .chart");
  const ends = lines.map((line) => `${line.text} ends at ${plain(data.series[line.key].mean.at(-1) ?? NaN)}`);
  const label = `${along.name} against ${across.name(unit)}: ${ends.join(", ")}. Arrow keys read the values.`;
  const { svg, width } = sheet(chart, height, label);
  svg.setAttribute("tabindex", "0");
  const box = { left: 54, right: width - 14, top: 28, bottom: height - 46 };
  const { low, high, log } = reach(along, lines, range);
  const x = linear(0, Math.max(...numbers(values)), box.left, box.right);
  if (!across.unit) x.ticks = wholeTicks(0, Math.max(...numbers(values)));
  const y = (log ? logarithmic : linear)(low, high, box.bottom, box.top);
  const write = along.share ? { y: percentTick } : {};
  axes(svg, box, x, y, { x: across.name(unit), y: log ? `${along.name} (logarithmic)` : along.name }, {}, write);
  const xs = values.map(x);
  const up = (list) => list.map((v) => (v === null || (log && v <= 0) ? NaN : y(v)));
  const keys = [];
  if (range) svg.append(node("path", { class: "band range", fill: along.range.ink, d: area(xs, up(range.low), up(range.high)) }));
  for (const line of lines) {
    const s = data.series[line.key];
    if (s.low) svg.append(node("path", { class: "band seeds", fill: line.ink, d: area(xs, up(s.low), up(s.high)) }));
    svg.append(node("path", { class: "line", "data-series": line.key, stroke: line.ink, d: path(xs, up(s.mean)), ...(line.dashed ? { "stroke-dasharray": "7 5" } : {}) }));
    if (xs.length === 1) svg.append(node("circle", { class: "alone", r: 4, fill: line.ink, cx: xs[0], cy: up(s.mean)[0] }));
    keys.push({ text: line.text + sampleWords(line), colour: line.ink, kind: line.dashed ? "dashes" : "stroke" });
  }
  if (range) keys.push({ text: along.range.text, colour: along.range.ink, kind: "veil" });
  if (endsWhole(lines)) keys.push({ text: `the last point: all ${count(samplesOf({ samples: "test" }).at(-1))} test samples`, colour: "none" });
  if (lines.some((line) => data.series[line.key].low)) keys.push({ text: "lines: mean of the seeds; bands around them: their range", colour: "none" });
  legend("learning", keys);
  reader(svg, { xs, raw, box, lines, up, along, across, range });
  exports("learning", `${along.name} against ${view.x}`, () => ({
    columns: [across.key, ...lines.flatMap((line) => [line.key, ...(data.series[line.key].low ? [`${line.key}_low`, `${line.key}_high`] : [])])],
    rows: raw.map((v, k) => [v, ...lines.flatMap((line) => { const s = data.series[line.key]; return [s.mean[k], ...(s.low ? [s.low[k], s.high[k]] : [])]; })]),
  }));
}

// Reads the chart at the nearest evaluation, by pointer or by arrow keys.
function reader(svg, c) {
  const cursor = node("line", { class: "cursor", y1: c.box.top, y2: c.box.bottom, visibility: "hidden" });
  const dots = c.lines.map((line) => node("circle", { r: 4, fill: line.ink, visibility: "hidden" }));
  svg.append(cursor, ...dots);
  const last = c.xs.length - 1;
  const write = (v) => (v === null || v === undefined ? "–" : c.along.share ? percent(v) : plain(v));
  const read = (k, clientX, clientY) => {
    view.at = k;
    cursor.setAttribute("x1", c.xs[k]);
    cursor.setAttribute("x2", c.xs[k]);
    cursor.setAttribute("visibility", "visible");
    c.lines.forEach((line, i) => {
      const at = c.up(data.series[line.key].mean)[k];
      dots[i].setAttribute("visibility", Number.isFinite(at) ? "visible" : "hidden");
      if (Number.isFinite(at)) { dots[i].setAttribute("cx", c.xs[k]); dots[i].setAttribute("cy", at); }
    });
    const head = c.across.unit ? si(c.raw[k], c.across.unit) : `iteration ${c.raw[k]}`;
    const rows = c.lines.map((line) => {
      const s = data.series[line.key];
      const between = s.low && s.low[k] !== null ? ` (seeds ${span(s.low[k], s.high[k], write)})` : "";
      return `${line.text}: ${write(s.mean[k])}${between}`;
    });
    if (c.range) rows.push(`${c.along.range.text}: ${span(c.range.low[k], c.range.high[k], write)}`);
    const tested = samplesOf({ samples: "test" })[k];
    if (tested && c.lines.some((line) => line.samples === "test")) rows.push(`on ${count(tested)} test samples`);
    tip.show([head, ...rows].join("\n"), clientX, clientY);
  };
  const clear = () => {
    tip.hide();
    [cursor, ...dots].forEach((mark) => mark.setAttribute("visibility", "hidden"));
  };
  const follow = (event) => {
    const frame = svg.getBoundingClientRect();
    const place = ((event.clientX - frame.left) * svg.viewBox.baseVal.width) / frame.width;
    let best = 0;
    c.xs.forEach((x, k) => { if (Math.abs(x - place) < Math.abs(c.xs[best] - place)) best = k; });
    read(best, event.clientX, event.clientY);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const k = Math.max(0, Math.min(last, (view.at ?? (step > 0 ? -1 : last + 1)) + step));
    const frame = svg.getBoundingClientRect();
    read(k, frame.left + (c.xs[k] * frame.width) / svg.viewBox.baseVal.width, frame.top + 40);
  });
}

function learningSwitches() {
  for (const axis of ["x", "y"]) {
    const buttons = [...document.querySelectorAll(`#learning button[data-${axis}]`)];
    for (const button of buttons) {
      if (axis === "y") button.hidden = !present(ALONG[button.dataset.y]).length;
      button.addEventListener("click", () => {
        view[axis] = button.dataset[axis];
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        drawLearning();
      });
    }
    const first = buttons.find((button) => !button.hidden);
    if (axis === "y" && first && buttons[0].hidden) {
      view.y = first.dataset.y;
      first.setAttribute("aria-pressed", "true");
      buttons[0].setAttribute("aria-pressed", "false");
    }
  }
}
