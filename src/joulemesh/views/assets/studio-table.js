// The devices as a table that can be edited, pasted into and loaded.

import { button, change, state } from "./studio.js";

const $ = (id) => document.getElementById(id);
const ROWS = 50;
const WORDS = ["name", "profile"]; // columns that hold no figures
let first = 0;

function cell(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function makeTable() {
  $("table").addEventListener("change", (event) => {
    const { column, device } = event.target.dataset;
    if (column) change({ do: "cells", changes: { [column]: { [device]: event.target.value } } });
  });
  $("table").addEventListener("paste", paste);
  $("table").addEventListener("keydown", (event) => {
    const { column, device } = event.target.dataset, by = { ArrowUp: -1, ArrowDown: 1, Enter: 1 }[event.key];
    if (!column || !by) return;
    event.preventDefault();
    (cellOf(column, Number(device) + by) ?? event.target).focus(); // leaving a cell enters it
  });
  $("load-table").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) await change({ do: "table", text: await file.text() });
    event.target.value = "";
  });
  $("copy-table").addEventListener("click", () => navigator.clipboard.writeText(asText(state.view.devices)));
}

const cellOf = (column, device) => $("table").querySelector(`[data-column="${CSS.escape(column)}"][data-device="${CSS.escape(device)}"]`);

function asText({ columns, cells }) {
  const quoted = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const edited = columns.map((column, k) => [column, cells[k]]).filter(([column]) => column.edits);
  const head = edited.map(([column]) => column.name).join(",");
  return [head, ...edited[0][1].map((_, i) => edited.map(([, own]) => quoted(own[i])).join(","))].join("\n") + "\n";
}

// Rows with a header are a new table; others fill the cells to the right of and below the selected one.
function paste(event) {
  const text = event.clipboardData.getData("text").replace(/\r\n?/g, "\n").replace(/\n+$/, "");
  if (!/[\t\n]/.test(text)) return;
  event.preventDefault();
  const rows = text.split("\n").map((row) => row.split("\t"));
  const { columns } = state.view.devices, names = columns.filter((column) => column.edits).map((column) => column.name);
  const heads = text.split("\n")[0].split(/[\t,;]/).map((name) => name.trim().replace(/^"|"$/g, ""));
  if (heads.some((name) => names.includes(name) || name === "name")) { change({ do: "table", text }); return; }
  const { column, device } = event.target.dataset;
  if (!column) return;
  const changes = {}, from = names.indexOf(column);
  rows.forEach((row, r) => row.forEach((value, c) => {
    const name = names[from + c], at = Number(device) + r;
    if (name && at < state.view.devices.cells[0].length) (changes[name] ??= {})[at] = value;
  }));
  change({ do: "cells", changes });
}

export function showTable(view) {
  const { columns, cells, of } = view.devices;
  const table = $("table"), count = cells.length ? cells[0].length : 0;
  first = Math.max(0, Math.min(first, Math.floor((count - 1) / ROWS) * ROWS));
  const head = document.createElement("tr");
  head.append(cell("th", "device", { scope: "col" }), ...columns.map((column) => cell("th", column.unit ? `${column.name} [${column.unit}]` : column.name, { scope: "col", ...(WORDS.includes(column.name) ? {} : { class: "n" }) })));
  const body = document.createElement("tbody");
  for (let i = first; i < Math.min(count, first + ROWS); i++) body.append(row(view, i));
  const top = document.createElement("thead");
  top.append(head);
  const focused = { ...document.activeElement?.dataset };
  table.replaceChildren(top, body);
  if (focused.column) cellOf(focused.column, focused.device)?.focus();
  showPages(view, count, of);
}

function row(view, i) {
  const { columns, cells } = view.devices, made = document.createElement("tr");
  made.append(cell("th", String(i), { scope: "row" }));
  columns.forEach((column, k) => {
    const value = String(cells[k][i]);
    if (!column.edits) { made.append(cell("td", column.name === "what binds" ? view.kinds[value] ?? value : value, { class: "n" })); return; }
    const input = document.createElement("input");
    input.value = value;
    input.className = WORDS.includes(column.name) ? "word" : "";
    input.setAttribute("aria-label", `${column.name} of device ${i}`);
    Object.assign(input.dataset, { column: column.name, device: String(i) });
    const place = document.createElement("td");
    place.append(input);
    made.append(place);
  });
  return made;
}

function showPages(view, count, of) {
  const pages = $("pages");
  pages.hidden = count <= ROWS;
  if (pages.hidden) return;
  const turn = (by) => () => { first += by; showTable(view); };
  const back = button("Earlier", turn(-ROWS)), on = button("Later", turn(ROWS));
  back.disabled = first === 0;
  on.disabled = first + ROWS >= count;
  pages.replaceChildren(back, cell("span", `devices ${first}–${Math.min(count, first + ROWS) - 1} of ${of.toLocaleString("en")}${count < of ? `; the first ${count.toLocaleString("en")} can be looked at` : ""}`), on);
}
