// The plan: figures, refusal, charts, and what can be done to a device or a link.

import { button, change } from "./studio.js";

const $ = (id) => document.getElementById(id);

function item(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

export function drawPlan(view) {
  drawRefusal(view.refusal);
  drawTiles(view.plan);
  redraw(view);
  drawEvents(view);
}

export function redraw(view) {
  drawStudioMap(view);
}

function drawRefusal(refusal) {
  const box = $("refusal");
  box.hidden = !refusal;
  if (!refusal) return;
  box.querySelector(".words").textContent = refusal.text;
  box.querySelector(".notes").replaceChildren(...refusal.notes.map((note) => item("li", note)));
  const way = (remedy) => button(remedy.words[0].toUpperCase() + remedy.words.slice(1), () => change({ do: "edits", edits: remedy.edits }), "main");
  box.querySelector(".remedies").replaceChildren(...refusal.remedies.map(way));
}

function drawTiles(plan) {
  $("tiles").hidden = !plan;
  for (const id of ["rounds", "gantt", "batteries", "flow"]) $(id).hidden = !plan;
  if (plan) $("tiles").replaceChildren(...plan.tiles.map(([name, figure, note]) => item("li", item("span", name), item("strong", figure), item("small", note))));
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

function drawStudioMap(view) {
  const map = view.map, chart = document.querySelector("#map .chart");
  document.getElementById("map").hidden = !map;
  if (!map) return;
  const side = Math.min(widthOf(chart), 560);
  const { svg, width } = sheet(chart, side + 10, `Map of ${map.devices} devices and ${map.count} links; the route is the ${map.words}.`);
  const xs = map.at.map((p) => p[0]), ys = map.at.map((p) => p[1]);
  const middle = [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
  const half = 0.54 * Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys), 1);
  const x = linear(middle[0] - half, middle[0] + half, (width - side) / 2, (width + side) / 2), y = linear(middle[1] - half, middle[1] + half, side, 0);
  const place = (i) => [x(map.at[i][0]), y(map.at[i][1])];
  const lines = [];
  for (const [kind, links] of [["unused", map.links], ["route", map.route]])
    for (const [i, j] of links.ends) {
      const [a, b] = [place(i), place(j)];
      const line = node("line", { class: `link ${kind}`, x1: a[0], y1: a[1], x2: b[0], y2: b[1], stroke: kind === "route" ? "var(--ink)" : "var(--rule)", "stroke-width": kind === "route" ? 2.5 : 1 });
      lines.push([i, j, line]);
      svg.append(line);
    }
  map.at.forEach((at, i) => {
    const [cx, cy] = place(i);
    const dot = node("circle", { class: "device", cx, cy, r: map.devices > 150 ? 4 : 9, fill: map.binding ? `var(--${map.binding[i]})` : "var(--left)", tabindex: 0, role: "button", "aria-label": view.names.length ? `device ${i} (${view.names[i]})` : `device ${i}`, "data-device": i });
    svg.append(dot);
    dot.addEventListener("pointerdown", (event) => drag(event, dot, i, svg, x, y, lines));
  });
}

function drag(down, dot, device, svg, x, y, lines) {
  dot.setPointerCapture(down.pointerId);
  let to = null;
  const move = (event) => {
    const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
    const [px, py] = [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
    if (!to && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < 4) return;
    to = [x.invert(px), y.invert(py)];
    dot.setAttribute("cx", px);
    dot.setAttribute("cy", py);
    for (const [i, j, line] of lines) {
      if (i === device) { line.setAttribute("x1", px); line.setAttribute("y1", py); }
      if (j === device) { line.setAttribute("x2", px); line.setAttribute("y2", py); }
    }
  };
  const up = () => {
    dot.removeEventListener("pointermove", move);
    if (to) change({ do: "move", device, x_m: to[0], y_m: to[1] });
  };
  dot.addEventListener("pointermove", move);
  dot.addEventListener("pointerup", up, { once: true });
}
