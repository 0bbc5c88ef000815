// Simulating and tuning: what the server tells of them as they go on.

import { ask, button, change, Refused, state } from "./studio.js";

const $ = (id) => document.getElementById(id);

export function makeTraining() {
  const box = $("training"), words = box.querySelector(".words"), bar = box.querySelector("progress");
  let rows = [], points = [];

  const start = (kind) => async () => {
    rows = [];
    points = [];
    box.hidden = false;
    $("training-title").textContent = kind === "tune" ? "Tuning" : "Training";
    words.textContent = "Starting…";
    try {
      await ask({ do: kind });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      words.textContent = error.refusal.text;
    }
    box.scrollIntoView({ block: "nearest" });
  };
  $("simulate").addEventListener("click", start("simulate"));
  $("tune").addEventListener("click", start("tune"));
  $("stop").addEventListener("click", () => ask({ do: "stop" }));

  return (told) => {
    box.hidden = false;
    if (told.stage) words.textContent = told.stage;
    if (told.of) bar.value = told.done / told.of;
    if (told.share) bar.value = told.share;
    if (told.row) rows.push(told.row);
    if (told.points) points.push(...told.points);
    if (told.state && told.state !== "started") words.textContent = told.text || told.state;
  };
}
