// The plan: figures, refusal, charts, and what can be done to a device or a link.

import { ask, button, change, sentence, state } from "./studio.js";

const $ = (id) => document.getElementById(id);
const drawn = { frame: null, selected: null, iteration: null, gantt: null };

function item(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

export function drawPlan(view) {
  drawn.gantt = null; // the time line of this plan is still to come
  drawRefusal(view);
  drawTiles(view.plan);
  drawEvents(view);
  redraw(view);
  wantGantt(view);
}

export function redraw(view) {
  const shared = { names: view.names, kinds: view.kinds };
  drawMap(view, shared);
  drawComparison(view);
  if (!view.plan) return;
  roundsMap("rounds", view.rounds, shared);
  batteryChart("batteries", view.battery, shared);
  flowChart("flow", view.flow);
  if (drawn.gantt) ganttChart("gantt", drawn.gantt, shared);
}

function drawRefusal(view) {
  const { refusal } = view;
  const box = $("refusal");
  box.hidden = !refusal;
  if (!refusal) return;
  const text = refusal.text;
  box.querySelector(".words").textContent = unbroken(`${sentence(text)}${/[.!?]$/.test(text) ? "" : "."}`);
  box.querySelector(".notes").replaceChildren(...refusal.notes.map((note) => item("li", note)));
  const way = (remedy) => button(sentence(remedy.words), () => change({ do: "edits", edits: remedy.edits }), "main");
  box.querySelector(".remedies").replaceChildren(...refusal.remedies.map(way), ...(view.map ? [] : restoring(view))); // otherwise below the map
}

function drawTiles(plan) {
  $("tiles").hidden = !plan;
  for (const id of ["rounds", "gantt", "batteries", "flow"]) $(id).hidden = !plan;
  if (plan) $("tiles").replaceChildren(...plan.tiles.map(([name, ...texts]) => item("li", item("span", name), ...["strong", "small"].map((kind, k) => item(kind, unbroken(texts[k]))))));
}

function drawEvents(view) {
  const lines = [];
  if (view.plan) {
    lines.push(`Why ${view.plan.scheme}: ${view.plan.reason}.`);
    for (const event of view.plan.events) lines.push(`Iteration ${event.iteration}, ${event.kind}: ${event.who ? `${event.who}; ` : ""}${event.detail}.`);
    if (view.plan.more_events) lines.push(`… and ${view.plan.more_events.toLocaleString("en")} more events.`);
    lines.push(...view.plan.notes);
  }
  $("events").hidden = !lines.length;
  $("events").querySelector(".notes").replaceChildren(...lines.map((line) => item("li", line)));
}

// The map ---------------------------------------------------------------------------------------

function drawMap(view, shared) {
  $("map").hidden = !view.map;
  if (!view.map) return;
  const map = { ...view.map, frame: steady(view.map) };
  const dots = Boolean(map.at), chosen = drawn.selected;
  document.querySelector("#map .hint").hidden = !dots; // cells cannot be dragged
  if (chosen && "device" in chosen && !(dots && chosen.device < map.at.length)) drawn.selected = null;
  const moves = dots ? { onDrag: () => {}, onDrop: (device, x, y) => change({ do: "move", device, x_m: x, y_m: y }) } : {};
  const focused = document.activeElement?.closest("#map .chart") !== null && document.activeElement !== document.body;
  const made = deviceMap("map", map, { ...shared, ...moves, selected: drawn.selected?.device, onSelect: (what) => { drawn.selected = what; showSelected(view); } });
  if (focused) made.svg?.focus({ preventScroll: true });
  showSelected(view);
}

// The same frame as before while all devices fit it and fill most of it: a drop does not move the others.
function steady(map) {
  const old = drawn.frame, now = map.frame;
  const inside = old && now[0] >= old[0] - 1e-9 && now[1] <= old[1] + 1e-9 && now[2] >= old[2] - 1e-9 && now[3] <= old[3] + 1e-9;
  const near = inside || (old && map.at?.every(([x, y]) => x >= old[0] && x <= old[1] && y >= old[2] && y <= old[3]));
  if (!near || now[1] - now[0] < 0.6 * (old[1] - old[0])) drawn.frame = now;
  return drawn.frame;
}

function showSelected(view) {
  const box = $("selection"), what = drawn.selected, parts = [];
  const name = (i) => (view.names.length ? `device ${i} (${view.names[i]})` : `device ${i}`);
  if (what && "device" in what) {
    const i = what.device, gone = view.leave.find(([device]) => device === i);
    const at = view.map.at?.[i].map((v) => `${Math.round(v * 10) / 10} m`).join(", ");
    parts.push(item("p", `Selected: ${name(i)} at ${at}${gone ? `, gone from iteration ${gone[1]} on` : ""}.`));
    if (!gone && view.plan) parts.push(button("Kill…", () => askKill(view, i)));
  } else if (what?.ends) {
    const [i, j] = what.ends;
    parts.push(item("p", `Selected: the link between ${name(i)} and ${name(j)}.`));
    parts.push(button("Remove this link", () => { drawn.selected = null; change({ do: "cut", link: [i, j] }); }));
  }
  parts.push(...restoring(view));
  box.hidden = !parts.length;
  box.replaceChildren(...parts);
}

// Buttons that take back what was killed or removed, whenever that was.
function restoring(view) {
  const name = (i) => (view.names.length ? `device ${i} (${view.names[i]})` : `device ${i}`);
  return [
    ...view.leave.map(([device, iteration]) => button(`Revive ${name(device)} (gone from iteration ${iteration} on)`, () => change({ do: "revive", device }))),
    ...view.gone.map((link) => button(`Put back the link ${link[0]}–${link[1]}`, () => change({ do: "mend", link }))),
  ];
}

function askKill(view, device) {
  const dialog = $("kill-dialog"), when = $("kill-when");
  $("kill-title").textContent = `Kill device ${device}${view.names.length ? ` (${view.names[device]})` : ""}`;
  when.max = view.plan.iterations;
  when.value = Math.max(1, Math.round(view.plan.iterations / 2));
  $("kill-now").onclick = () => { dialog.close(); change({ do: "kill", device, iteration: Number(when.value) }); };
  dialog.showModal();
}
$("kill-when").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); $("kill-now").click(); } });

// The time line of one iteration ----------------------------------------------------------------

let wanting = 0;
function wantGantt(view) {
  clearTimeout(wanting);
  if (!view.plan) return;
  document.querySelector("#gantt .chart").classList.add("stale");
  const input = $("iteration"), { iterations, first, longest } = view.plan;
  input.max = iterations;
  if (!(Number(input.value) >= 1 && Number(input.value) <= iterations)) input.value = first;
  $("of").textContent = `of ${iterations.toLocaleString("en")}`;
  $("first-iteration").hidden = false;
  $("first-iteration").onclick = () => { input.value = first; fetchGantt(); };
  $("longest-iteration").hidden = longest === first;
  $("longest-iteration").textContent = `The longest: ${longest}`;
  $("longest-iteration").onclick = () => { input.value = longest; fetchGantt(); };
  wanting = setTimeout(fetchGantt, 30);
}

async function fetchGantt() {
  const iteration = Number($("iteration").value), { view } = state;
  const answer = await ask({ do: "gantt", iteration }).catch((error) => ({ gantt: null, error }));
  if (view !== state.view) return;
  const chart = document.querySelector("#gantt .chart");
  chart.classList.remove("stale");
  drawn.gantt = answer.gantt ?? null;
  if (drawn.gantt) ganttChart("gantt", drawn.gantt, { names: view.names });
  else chart.replaceChildren(item("p", answer.error ? answer.error.message : "This iteration sends more messages than can be drawn."));
}
$("iteration").addEventListener("change", fetchGantt);

// Two plans side by side ------------------------------------------------------------------------

function drawComparison(view) {
  const box = $("compare"), { pinned, difference } = view;
  box.hidden = !pinned;
  if (!pinned) return;
  for (const [id, one] of [["kept", pinned], ["now", view]]) {
    const shared = { names: one.names, kinds: one.kinds };
    if (one.map) deviceMap(`map-${id}`, one.map, { ...shared, most: 420 });
    $(`rounds-${id}`).hidden = !one.plan;
    if (one.plan) roundsMap(`rounds-${id}`, one.rounds, shared);
  }
  const rows = [["what", "kept", "now", "change"]], devices = (count) => `${whole(count)} device${count === 1 ? "" : "s"}`;
  for (const field of difference.fields) rows.push([field.field, field.before || "not set", field.now || "not set", ""]);
  for (const row of difference.figures) rows.push([row.name, row.before, row.now, row.change === null ? (row.before === row.now ? "" : "another") : row.change === 0 ? "same" : `${row.change > 0 ? "+" : "−"}${Math.abs(row.change)} %`]);
  for (const [kind, [before, now]] of Object.entries(difference.bound)) rows.push([view.kinds[kind], devices(before), devices(now), before === now ? "same" : `${now > before ? "+" : "−"}${Math.abs(now - before)}`]);
  const line = (cells, kind) => item("tr", ...cells.map((text, k) => { const made = item(k === 0 ? "th" : kind, text); if (k) made.className = "n"; made.setAttribute(...(k === 0 && kind === "td" ? ["scope", "row"] : ["scope", "col"])); if (kind === "td" && k) made.removeAttribute("scope"); return made; }));
  const [head, ...body] = rows;
  $("differences").replaceChildren(item("thead", line(head, "th")), item("tbody", ...body.map((cells) => line(cells, "td"))));
}
