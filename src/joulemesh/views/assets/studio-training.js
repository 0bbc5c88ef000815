// Simulating and tuning: what the server tells of them as they go on.

import { ask, button, change, Refused, sentence } from "./studio.js";

const $ = (id) => document.getElementById(id);
const INKS = ["var(--a)", "var(--b)", "var(--policy)", "var(--time)", "var(--left)"];

export function makeTraining() {
  const box = $("training"), words = box.querySelector(".words"), bar = box.querySelector("progress");
  const found = { kind: "", rows: [], points: [], waiting: 0 };

  const start = (kind) => async () => {
    begin(kind);
    words.textContent = "Starting…";
    try {
      await ask({ do: kind, ...(kind === "tune" ? { candidates: Number($("candidates").value), objective: $("objective").value } : { seeds: Number($("seeds").value) }) });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      words.textContent = error.refusal.text;
      $("stop").hidden = true;
    }
    box.scrollIntoView({ block: "nearest" });
  };
  function begin(kind) {
    Object.assign(found, { kind, rows: [], points: [] });
    box.hidden = $("stop").hidden = bar.hidden = false;
    bar.removeAttribute("value");
    $("training-title").textContent = kind === "tune" ? "Tuning" : "Simulation";
    $("winner").replaceChildren();
    draw();
  }
  $("simulate").addEventListener("click", start("simulate"));
  $("tune").addEventListener("click", start("tune"));
  $("stop").addEventListener("click", () => ask({ do: "stop" }));

  function draw() {
    found.waiting = 0;
    const tuned = found.kind === "tune";
    for (const id of ["curve-accuracy", "curve-loss"]) $(id).hidden = tuned;
    $("front").hidden = !tuned;
    if (tuned) drawFront(found.points);
    else drawCurves(found.rows);
  }

  const follow = (told) => {
    if (told.state === "started") begin(told.kind);
    if (told.stage) words.textContent = `${sentence(told.stage)}${told.best ? `; best so far ${told.best}` : ""}`;
    if (told.of) { bar.value = told.done / told.of; words.textContent = `Iteration ${whole(told.done)} of ${whole(told.of)}`; }
    if (told.share !== undefined && told.share !== null) bar.value = told.share;
    if (told.row) found.rows.push(told.row);
    if (told.points?.length) found.points.push(...told.points);
    if (told.state && told.state !== "started") {
      const how = { done: "Done", stopped: "Stopped", failed: "Failed", refused: "Refused" }[told.state];
      words.textContent = told.text ? `${how}: ${told.text}` : `${how}.`;
      $("stop").hidden = bar.hidden = true;
      if (told.changes?.length) $("winner").replaceChildren(button("Take the winner", () => change({ do: "edits", edits: told.changes }), "main"));
    }
    found.waiting ||= requestAnimationFrame(draw); // many rows may come at once
  };
  return Object.assign(follow, { redraw: () => { if (!box.hidden) draw(); } });
}

// The mean over seeds at every evaluation, and its range.
function series(rows, column) {
  const by = new Map();
  for (const row of rows) if (row[column] !== null && row[column] !== undefined) by.set(row.iteration, [...(by.get(row.iteration) ?? []), row[column]]);
  const xs = [...by.keys()].sort((a, b) => a - b), of = (pick) => xs.map((x) => pick(by.get(x)));
  return { xs, ys: of((list) => list.reduce((a, b) => a + b, 0) / list.length), low: of((list) => Math.min(...list)), high: of((list) => Math.max(...list)), seeds: Math.max(0, ...[...by.values()].map((list) => list.length)) };
}

function drawCurves(rows) {
  const known = (columns) => columns.filter((column) => rows.some((row) => row[column] !== null && row[column] !== undefined));
  const accuracy = known(["test_accuracy", "device_accuracy_mean", "device_accuracy_min"]);
  const others = known(["test_loss", "train_loss"]);
  const scored = accuracy.length ? accuracy : known(["test_score"]);
  curves("curve-accuracy", rows, scored.length ? scored : ["test_accuracy"], { name: "accuracy", write: percent, tick: percentTick, share: true });
  curves("curve-loss", rows, others.length ? others : ["test_loss"], { name: "loss", write: plain, zero: true });
}

const TEXTS = { test_accuracy: "mean model", device_accuracy_mean: "devices’ own, mean", device_accuracy_min: "weakest device", test_loss: "test", train_loss: "training" };

function curves(id, rows, columns, y) {
  const lines = columns.map((column, k) => {
    const { xs, ys, low, high, seeds } = series(rows, column);
    return { text: TEXTS[column] ?? column, ink: INKS[k], xs, ys, ...(seeds > 1 ? { low, high } : {}), ...(k ? { dash: k === 1 ? "6 4" : "2 4" } : {}) };
  });
  lineChart(id, { label: `${y.name} over iterations`, title: y.name, x: { name: "iteration", whole: true, write: (v) => `iteration ${whole(v)}` }, y, lines }, 300);
  legend(id, lines.map(({ text, ink, dash }) => ({ text, colour: ink, kind: dash ? "dashes" : "stroke" })));
}

// Every candidate that was trained, accuracy over joules, and the best for its price so far.
function drawFront(points) {
  const chart = part("front", "chart"), height = 340;
  const rungs = Math.max(0, ...points.map((p) => p.rung));
  const { svg, width } = sheet(chart, height, `Accuracy over energy of ${points.length} candidates, so far.`);
  const box = { left: 56, right: width - 16, top: 30, bottom: height - 46 };
  const shown = points.filter((p) => p.joules > 0 && p.accuracy !== null);
  const costs = shown.map((p) => p.joules), marks = shown.map((p) => p.accuracy);
  const [low, high] = costs.length ? [Math.min(...costs) / 1.15, Math.max(...costs) * 1.15] : [0.1, 10];
  const [bottom, top] = rangeOf(marks, { share: true });
  const x = logarithmic(low, high, box.left, box.right), y = linear(bottom, top || 1, box.bottom, box.top), unit = unitOf(high, "J");
  axes(svg, box, x, y, { x: `energy [${unit.unit}]`, y: "test accuracy of the mean model" }, {}, { x: (v) => plain(v / unit.scale), y: percentTick });
  let best = -1;
  const front = [...shown].sort((a, b) => a.joules - b.joules || b.accuracy - a.accuracy).filter((p) => p.accuracy > best && (best = p.accuracy, true));
  svg.append(node("path", { class: "front", fill: "none", stroke: "var(--ink)", "stroke-dasharray": "5 4", d: path(front.map((p) => x(p.joules)), front.map((p) => y(p.accuracy))) }));
  for (const p of shown) svg.append(node("circle", { class: "dot", cx: x(p.joules).toFixed(1), cy: y(p.accuracy).toFixed(1), r: 4 + p.rung, fill: colour(rungs ? p.rung / rungs : 0.5), stroke: "var(--card)", "data-tip": `${p.name}\n${percent(p.accuracy)} for ${si(p.joules, "J")} in ${si(p.seconds, "s")}` }));
  legend("front", [...[...Array(rungs + 1).keys()].map((rung) => ({ text: `rung ${rung + 1}`, colour: colour(rungs ? rung / rungs : 0.5) })), { text: "best for the price", colour: "var(--ink)", kind: "dashes" }]);
  exports("front", "tuning", () => ({ columns: ["candidate", "name", "rung", "accuracy", "joules", "seconds"], rows: points.map((p) => [p.candidate, p.name, p.rung + 1, p.accuracy, p.joules, p.seconds]) }));
}
