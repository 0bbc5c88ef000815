// The studio: asks the server for a plan after every change, and draws what comes back.

import { makeForm, showFields, fieldError, clearErrors } from "./studio-form.js";
import { drawPlan, redraw } from "./studio-plan.js";
import { makeTable, showTable } from "./studio-table.js";
import { makeTraining } from "./studio-training.js";

const $ = (id) => document.getElementById(id);

// One number for each tab. A tab that is duplicated gets its own: while the page is open its number
// is not in the storage that is copied; it goes there when the page is left, to be loaded again.
const tab = sessionStorage.getItem("tab") ?? [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
sessionStorage.removeItem("tab");
addEventListener("pagehide", () => sessionStorage.setItem("tab", tab));
addEventListener("pageshow", (event) => { if (event.persisted) sessionStorage.removeItem("tab"); });

export class Refused extends Error {
  constructor(refusal, exists) {
    super(refusal.text);
    Object.assign(this, { refusal, exists });
  }
}

// Orders go one after another, in the order in which they were given.
let last = Promise.resolve();
export function ask(order) {
  const answer = last.then(() => send(order));
  last = answer.catch(() => {});
  return answer;
}

async function send(order) {
  let response;
  try {
    response = await fetch(`tab/${tab}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(order) });
  } catch {
    lost(true);
    throw new Refused({ text: "The server does not answer, so nothing has changed.", field: null });
  }
  if (response.status === 403) { lost(true, "This address is not valid any more. Open the one that `joulemesh studio` prints now."); throw new Refused({ text: "not allowed", field: null }); }
  const answer = await response.json().catch(() => ({ refused: { text: "The server failed to answer; see the terminal that it runs in.", field: null } }));
  if (!response.ok) throw new Refused(answer.refused ?? { text: "The server refused.", field: null }, answer.exists);
  return answer;
}

// A change of the scenario; the promise tells whether it was taken.
export async function change(order, where = null) {
  const begun = performance.now(), focused = document.activeElement, home = focused?.closest("section");
  document.body.setAttribute("aria-busy", "true");
  try {
    const view = await ask(order);
    const answered = performance.now();
    show(view);
    keepFocus(focused, home);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    window.studio.times = { answer: answered - begun, drawn: performance.now() - begun, revision: view.revision };
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const field = where ?? error.refusal.field;
    if (!field || !fieldError(field, error.refusal.text)) say(error.refusal.text, true);
    return false;
  } finally {
    document.body.removeAttribute("aria-busy");
  }
}

// A button that has done its work is gone; whoever pressed it by key goes on near its place.
function keepFocus(focused, home) {
  const now = document.activeElement;
  if (!focused || focused === document.body || focused.checkVisibility() || ![focused, document.body].includes(now)) return;
  const near = home?.checkVisibility() && home.querySelector(".chart svg[tabindex]");
  (near || $("results")).focus({ preventScroll: true });
}

export const state = { view: null, toml: "" };
window.studio = { state, change, times: null }; // for scripts, and for whoever measures

function show(view) {
  state.view = view;
  clearErrors();
  $("file").textContent = view.path;
  for (const id of ["undo", "redo"]) {
    $(id).disabled = !view[id];
    $(id).title = view[id] ? `${id === "undo" ? "Take back" : "Do again"}: ${view[id]}` : "";
  }
  $("pin").setAttribute("aria-pressed", String(view.pinned !== null));
  $("pin").textContent = view.pinned ? "Stop comparing" : "Keep to compare";
  $("simulate").disabled = $("tune").disabled = !view.plan;
  showFields(view.fields);
  if (view.refusal?.field) fieldError(view.refusal.field, "");
  drawPlan(view);
  showTable(view);
  const plan = view.plan;
  say(plan ? `Planned: ${plan.tiles.map((tile) => `${tile[0]} ${tile[1]}`).join(", ")}` : view.refusal.text);
  advise(view.revision);
}

// What a listener to the page hears, and what is wrong where no field is to blame.
function say(text, wrong = false) {
  $("status").textContent = text;
  const box = $("table-error");
  box.hidden = !wrong;
  box.textContent = wrong ? text : "";
  if (wrong) box.scrollIntoView({ block: "nearest" });
}

// The advice takes several plans, so it comes when nothing else is wanted.
let advising = 0;
function advise(revision) {
  clearTimeout(advising);
  $("advice").hidden = !state.view.plan;
  $("advice").classList.add("stale");
  advising = setTimeout(async () => {
    const answer = await ask({ do: "advise" }).catch(() => null);
    if (!answer || answer.revision !== revision) return;
    state.toml = answer.toml;
    const box = $("advice");
    box.classList.remove("stale");
    box.querySelector(".words").textContent = unbroken(answer.text);
    box.querySelector(".remedies").replaceChildren(...(answer.edits ? [button(sentence(answer.words), () => change({ do: "edits", edits: answer.edits }))] : []));
  }, 500);
}

export const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}`;

export function button(text, act, kind = "") {
  const made = document.createElement("button");
  made.type = "button";
  made.className = kind;
  made.textContent = text;
  made.addEventListener("click", act);
  return made;
}

// The server ------------------------------------------------------------------------------------

let gone = false;
function lost(is, words = "The server has stopped. What you see is the last plan; start `joulemesh studio` again to go on. Trying to reach it…") {
  const box = $("lost");
  box.hidden = !is;
  box.replaceChildren(...(is ? [words, " ", ...(state.toml ? [button("Copy the scenario", () => navigator.clipboard.writeText(state.toml))] : [])] : []));
  document.querySelector(".studio").classList.toggle("stale", is);
  if (gone && !is) change({ do: "open" });
  gone = is;
}

function listen() {
  const stream = new EventSource(`events/${tab}`);
  let silent = 0;
  const alive = () => {
    clearTimeout(silent);
    silent = setTimeout(() => lost(true), 7000);
  };
  stream.addEventListener("here", () => { alive(); if (gone) lost(false); });
  stream.addEventListener("closing", () => { clearTimeout(silent); lost(true); });
  stream.addEventListener("job", (event) => { alive(); training(JSON.parse(event.data)); });
  stream.addEventListener("error", () => {
    lost(true);
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

// The toolbar -----------------------------------------------------------------------------------

$("undo").addEventListener("click", () => change({ do: "undo" }));
$("redo").addEventListener("click", () => change({ do: "redo" }));
$("pin").addEventListener("click", () => change({ do: state.view?.pinned ? "unpin" : "pin" }));
addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.target.matches?.("input, select, textarea")) return;
  const key = event.key.toLowerCase();
  if (key === "z" || key === "y") { event.preventDefault(); change({ do: key === "y" || event.shiftKey ? "redo" : "undo" }); }
  if (key === "s") { event.preventDefault(); $("save").click(); }
});
$("preset").addEventListener("change", async (event) => {
  if (event.target.value) await change({ do: "preset", name: event.target.value });
  event.target.value = "";
});
$("open").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) await change({ do: "toml", text: await file.text() });
  event.target.value = "";
});

const how = document.querySelector(".how");
how.addEventListener("keydown", (event) => { if (event.key === "Escape" && how.open) { how.open = false; how.querySelector("summary").focus(); } });
addEventListener("pointerdown", (event) => { if (!how.contains(event.target)) how.open = false; });

const dialog = $("save-dialog");
$("save").addEventListener("click", () => {
  $("save-path").value = state.view.path;
  refusedSave("");
  dialog.showModal();
});
function refusedSave(text, exists = false) {
  const box = dialog.querySelector(".error");
  box.hidden = !text;
  box.textContent = text;
  $("save-over").hidden = !exists;
}
async function save(replace) {
  try {
    const answer = await ask({ do: "save", path: $("save-path").value, replace });
    dialog.close();
    await change({ do: "open" });
    say(`Saved ${answer.saved.join(" and ")}`);
    document.getElementById("file").textContent = `${answer.saved[0]}, saved`;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refusedSave(error.refusal.text, error.exists);
  }
}
$("save-now").addEventListener("click", () => save(false));
$("save-over").addEventListener("click", () => save(true));
$("save-path").addEventListener("input", () => refusedSave(""));
$("save-path").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); save(false); } });

const training = makeTraining();
const bar = document.querySelector(".bar"); // it may take two lines, and the form stands below it
new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
page(() => {
  if (!state.view) return;
  redraw(state.view);
  training.redraw();
}, ".shield, svg.map, #training .pair svg");

if (innerWidth <= 860) document.querySelector(".asked").open = false; // the plan comes first on a phone
const form = await (await fetch("form")).json();
for (const name of form.presets) $("preset").append(new Option(name, name));
makeForm(form);
makeTable();
await change({ do: "open" });
listen();
document.documentElement.dataset.ready = "true";
