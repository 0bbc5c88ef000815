// A fleet at work: asks for newer data, and shows what has changed.

const EVERY_MS = 1000, RESTING = ["ended", "stopped", "being asked"];
const live = { version: data.version, answered: Date.now(), drawn: "" };
const ago = (seconds) => (seconds < 90 ? `${Math.max(0, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);
const share = (a, b) => (b > 0 && a !== null ? `${Math.round((100 * a) / b)} %` : "–");
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

function drawTiles() {
  const up = data.devices.filter((one) => one.answers), members = data.members.filter(Boolean).length;
  const done = data.devices.map((one) => one.iteration), spent = data.devices.reduce((sum, one) => sum + one.spent_j, 0);
  const planned = data.devices.reduce((sum, one) => sum + one.planned_j, 0), held = data.devices.reduce((sum, one) => sum + one.battery_j, 0);
  const measured = data.devices.map((one) => one.accuracy).filter((v) => v !== null);
  const mean = measured.reduce((sum, v) => sum + v, 0) / measured.length;
  const [slowest, fastest] = [Math.min(...done), Math.max(...done)];
  const tiles = [
    ["up", `${whole(up.length)} of ${whole(data.devices.length)}`, `${whole(members)} in the newest view`],
    ["iteration", slowest === fastest ? whole(fastest) : `${whole(slowest)}–${whole(fastest)}`, `of ${whole(data.iterations)}`],
    ["spent", si(spent, "J"), `${share(spent, planned)} of the plan so far, ${share(spent, held)} of the batteries`],
    ["accuracy", measured.length ? percent(mean) : "–", measured.length ? `mean of ${whole(measured.length)} devices` : "not measured yet"],
  ];
  document.getElementById("tiles").replaceChildren(...tiles.map(([name, value, more]) =>
    dom("li", {}, dom("span", { textContent: name }), dom("strong", { textContent: value }), dom("small", { textContent: more }))));
  const ended = data.devices.filter((one) => one.state === "ended").length;
  document.getElementById("summary").textContent = ended === data.devices.length ? "All devices have ended."
    : `${whole(up.length)} of ${whole(data.devices.length)} devices answer; iteration (communication round) ${whole(fastest)} of ${whole(data.iterations)}.`;
}

function stateCell(one) {
  const kind = one.answers ? "up" : RESTING.includes(one.state) ? "resting" : "gone";
  const text = one.state === "silent" ? `silent for ${ago(data.at - one.heard_at)}` : one.state;
  return dom("td", {}, dom("span", { className: `state ${kind}` }, dom("i", { ariaHidden: "true" }), text));
}

function batteryCell(one) {
  const left = Math.max(0, one.battery_j - one.spent_j), level = one.battery_j > 0 ? left / one.battery_j : 0;
  const bar = dom("i", { className: level < 0.1 ? "low" : "" });
  bar.style.width = `${(100 * level).toFixed(1)}%`;
  return dom("td", {}, dom("span", { className: "held-j" }, dom("span", { ariaHidden: "true" }, bar), dom("span", { textContent: `${si(left, "J")} left (${Math.round(100 * level)} %)` })));
}

function row(one, k) {
  const number = (text, bad) => dom("td", { className: bad ? "n over" : "n", textContent: text });
  const slack = data.deadline_s && one.last_s !== null ? data.deadline_s - one.last_s : null;
  const waits = one.waiting.length ? `waits for ${one.waiting.join(", ")}` : "";
  const outside = data.members[k] ? "" : "not in the newest view";
  return dom("tr", {},
    dom("th", { scope: "row", textContent: one.name }), stateCell(one),
    number(whole(one.iteration)), number(whole(one.view)), batteryCell(one),
    number(share(one.spent_j, one.planned_j), one.spent_j > 1.05 * one.planned_j && one.planned_j > 0),
    number(share(one.elapsed_s, one.planned_s)),
    number(slack === null ? "–" : `${slack < 0 ? "−" : ""}${si(Math.abs(slack), "s")}`, slack !== null && slack < 0),
    number(one.accuracy === null ? "–" : percent(one.accuracy)),
    dom("td", { textContent: [outside, waits, one.why].filter(Boolean).join("; ") }));
}

function drawFleet() {
  document.getElementById("rows").replaceChildren(...data.devices.map(row));
  const unseen = data.devices.filter((one) => !one.answers && one.state !== "ended");
  document.getElementById("unseen").textContent = unseen.length ? `Not seen at present: ${unseen.map((one) => one.name).join(", ")}. What is shown of them is what they said last, and what their journals tell.` : "";
  document.getElementById("notes").replaceChildren(...data.notes.map((text) => dom("li", { textContent: text })));
}

function drawLog() {
  document.getElementById("log").replaceChildren(...data.events.map(([at, name, text]) =>
    dom("li", {}, dom("time", { dateTime: new Date(at * 1000).toISOString(), textContent: clock(at) }), dom("b", { textContent: name }), ` ${text}`)));
}

function drawCharts() {
  for (const [id, there] of [["learning", data.learning], ["links", data.links.length], ["gantt", data.gantt.length]])
    document.getElementById(id).hidden = !there;
  draw();
}

function drawLive() {
  drawTiles();
  drawFleet();
}

async function poll() {
  const lost = document.getElementById("lost");
  try {
    const answer = await fetch("data", { cache: "no-store" });
    if (!answer.ok) throw new Error(await answer.text());
    Object.assign(data, await answer.json());
    live.answered = Date.now();
    lost.hidden = true;
    drawLive();
    if (data.version !== live.version) {
      live.version = data.version;
      drawLog();
      drawCharts();
    }
  } catch (error) {
    const seconds = (Date.now() - live.answered) / 1000;
    lost.textContent = `The server of this page has not answered for ${ago(seconds)}: what is shown is old. The fleet goes on; start \`joulemesh watch\` again to see it.`;
    lost.hidden = seconds < 2;
  }
  setTimeout(poll, EVERY_MS);
}

drawLive();
drawLog();
drawCharts();
setTimeout(poll, EVERY_MS);
