// The time line of one iteration: who trains, sends and receives when.
//
// ganttChart(container, chart, { names }) draws what `Gantt.to_dict` writes; `chart.shown`, if given,
// lists the devices that have a row. Buttons above it choose the stretch of time.

const DOES = {
  train: { text: "trains", ink: "var(--train)" },
  send: { text: "sends", ink: "var(--send)" },
  receive: { text: "receives", ink: "var(--receive)" },
  besides: { text: "takes besides", ink: "var(--left)" },
};
const PHASES = { gifts: "to devices that come back", training: "training", coordination: "flooding of link costs", exchange: "exchange", besides: "besides" };
const kept = { which: 0, windows: [] }; // what the page's own time line shows, from one drawing to the next
const SHORT = 0.15; // of an iteration: an exchange so short is shown larger at first

function ganttChart(container, chart, options = {}) {
  const drawn = new Gantt(container, chart, options);
  drawn.draw();
  return drawn;
}

// The section "gantt" of a page, of whose iterations the reader chooses one.
function drawIteration(names = data.names) {
  const many = data.gantt.length > 1, host = part("gantt", "switches");
  if (many && !host.querySelector(".iterations")) {
    const group = dom("div", { className: "switch iterations" });
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Iteration");
    data.gantt.forEach((one, k) => {
      const button = dom("button", { type: "button", textContent: one.title ?? `iteration ${one.iteration}` });
      button.setAttribute("aria-pressed", String(k === kept.which));
      button.addEventListener("click", () => {
        kept.which = k;
        for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
        drawIteration(names);
      });
      group.append(button);
    });
    host.append(group);
  }
  const heading = document.getElementById("h-gantt");
  heading.dataset.name ??= heading.textContent;
  heading.textContent = `${heading.dataset.name}: t = ${data.gantt[kept.which].iteration}`;
  const made = new Gantt("gantt", data.gantt[kept.which], { names, onWindow: (window) => (kept.windows[kept.which] = window) });
  made.window = kept.windows[kept.which] ?? made.window;
  made.draw();
}

class Gantt {
  constructor(container, chart, options) {
    container = typeof container === "string" ? document.getElementById(container) : container;
    Object.assign(this, { container, chart, options, names: options.names ?? chart.names ?? [] });
    this.shown = chart.shown ?? [...Array(chart.devices).keys()];
    this.row = new Map(this.shown.map((device, k) => [device, k]));
    this.bars = chart.bars.filter((bar) => bar.kind !== "rest" && this.row.has(bar.device));
    this.window = this.first();
  }

  label(device) { return this.names[device] ?? `device ${device}`; }

  first() {
    const phase = this.chart.phases.find((one) => one.name === "exchange"), all = this.chart.seconds;
    if (!phase || phase.end_s - phase.start_s >= SHORT * all) return [0, all];
    return this.around(phase);
  }

  around({ start_s, end_s }) {
    const room = 0.06 * (end_s - start_s);
    return [Math.max(0, start_s - room), Math.min(this.chart.seconds, end_s + room)];
  }

  draw() {
    const { chart, shown } = this;
    this.switches();
    const host = part(this.container, "chart"), count = shown.length;
    const pitch = count <= 12 ? 30 : count <= 40 && !still.printing ? 22 : 16, top = 34, height = Math.ceil(top + pitch * count + 48);
    host.classList.toggle("tall", height > 640 && !still.printing);
    const [from, to] = this.window, { scale, unit } = unitOf(to, "s");
    const { svg, width } = sheet(host, height, this.sentence());
    const longest = Math.min(22, Math.max(...shown.map((device) => this.label(device).length)));
    this.box = { left: Math.min(width * 0.3, 18 + 7.7 * longest), right: width - 16, top, bottom: top + pitch * count };
    Object.assign(this, { svg, pitch, x: linear(from, to, this.box.left, this.box.right) });
    const x = linear(from / scale, to / scale, this.box.left, this.box.right), lanes = linear(0, 1, 0, 1);
    lanes.ticks = () => [];
    const off = to - from < 0.2 * to ? { x: (v) => plain(Number(v.toPrecision(7))) } : {};
    axes(svg, this.box, x, lanes, { x: `time since the iteration began [${unit}]`, y: "" }, { bare: true }, off);
    this.lanes();
    this.phases();
    this.marks();
    this.legend();
    this.read();
    exports(this.container, `iteration ${chart.iteration}`, () => this.figures());
  }

  sentence() {
    const { chart, shown } = this, sent = this.bars.filter((bar) => bar.kind === "send").length;
    const phases = chart.phases.map((one) => `${PHASES[one.name] ?? one.name} from ${si(one.start_s, "s")} to ${si(one.end_s, "s")}`);
    return `Time line of iteration ${chart.iteration} of ${shown.length} devices, ${si(chart.seconds, "s")}: ${phases.join(", ")}; ${sent} transmissions. Arrow keys read the bars.`;
  }

  switches() {
    const host = part(this.container, "switches");
    const group = dom("div", { className: "switch" });
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Stretch of time");
    const choose = (window) => { this.window = window; this.options.onWindow?.(window); this.draw(); };
    const choices = [["whole iteration", [0, this.chart.seconds]], ...this.chart.phases.filter((one) => this.chart.phases.length > 1).map((one) => [PHASES[one.name] ?? one.name, this.around(one)])];
    const same = (one) => one.every((v, k) => Math.abs(v - this.window[k]) <= 1e-9 * this.chart.seconds);
    const focused = host.contains(document.activeElement) ? document.activeElement.textContent : null;
    const [low, high] = this.window, middle = (low + high) / 2, half = (high - low) / 2;
    const zoom = (by) => [Math.max(0, middle - half * by), Math.min(this.chart.seconds, middle + half * by)];
    const button = (text, label, window, pressed) => {
      const made = dom("button", { type: "button", textContent: text });
      if (label) made.setAttribute("aria-label", label);
      if (pressed !== null) made.setAttribute("aria-pressed", String(pressed));
      made.addEventListener("click", () => choose(window));
      group.append(made);
      if (text === focused) queueMicrotask(() => made.focus());
    };
    for (const [text, window] of choices) button(text, "", window, same(window));
    button("+", "Zoom in", zoom(0.5), null);
    button("−", "Zoom out", zoom(2), null);
    host.querySelector(".switch.stretch")?.remove();
    group.classList.add("stretch");
    host.append(group);
    const chart = part(this.container, "chart");
    if (!(host.compareDocumentPosition(chart) & Node.DOCUMENT_POSITION_FOLLOWING)) chart.before(host);
  }

  lanes() {
    const letters = Math.floor((this.box.left - 14) / 7.6);
    this.shown.forEach((device, k) => {
      const y = this.box.top + this.pitch * (k + 0.5), at = Math.round(y) + 0.5;
      this.svg.append(node("line", { class: "lane", x1: this.box.left, x2: this.box.right, y1: at, y2: at }));
      this.svg.append(node("text", { class: "name", x: this.box.left - 8, y: y + 4, "text-anchor": "end" }, clip(this.label(device), letters)));
    });
  }

  phases() {
    const { box, chart, svg } = this;
    for (const one of chart.phases) {
      const from = Math.max(box.left, this.x(one.start_s)), to = Math.min(box.right, this.x(one.end_s));
      if (to <= from) continue;
      svg.append(node("line", { class: "since", x1: from, x2: from, y1: box.top - 6, y2: box.bottom }));
      const text = PHASES[one.name] ?? one.name;
      if (to - from > 7 * text.length) svg.append(node("text", { class: "since-text", x: from + 4, y: box.top - 10 }, text));
    }
    if (chart.deadline_s !== null && chart.deadline_s <= this.window[1]) {
      const at = this.x(chart.deadline_s);
      svg.append(node("line", { class: "target", x1: at, x2: at, y1: box.top - 6, y2: box.bottom }));
      svg.append(node("text", { x: at - 4, y: box.top - 10, "text-anchor": "end" }, "deadline"));
    }
  }

  // A device that sends and receives has two halves of its row; a line before a bar is waiting for the medium.
  place(bar) {
    const k = this.row.get(bar.device), full = this.pitch * 0.76, half = full / 2, y = this.box.top + this.pitch * (k + 0.5) - half;
    const from = Math.max(this.box.left, this.x(bar.start_s)), to = Math.min(this.box.right, this.x(bar.end_s));
    const lower = bar.kind === "receive", split = lower || bar.kind === "send";
    return { x: from, y: y + (lower ? half : 0), width: Math.max(1, to - from), height: split ? half - 0.5 : full };
  }

  marks() {
    const [from, to] = this.window, { svg } = this;
    const below = svg.appendChild(node("g"));
    this.drawn = [];
    this.bars.forEach((bar) => {
      if (bar.end_s < from || bar.start_s > to) return;
      const at = this.place(bar);
      if (bar.kind === "send" && bar.start_s - bar.ready_s > 1e-9 * this.chart.seconds) {
        const since = Math.max(this.box.left, this.x(bar.ready_s)), middle = at.y + at.height / 2;
        if (at.x - since > 1) below.append(node("line", { class: "waits", x1: since.toFixed(1), x2: at.x.toFixed(1), y1: middle.toFixed(1), y2: middle.toFixed(1) }));
      }
      const sized = Object.fromEntries(Object.entries(at).map(([key, value]) => [key, value.toFixed(1)]));
      const made = node("rect", { class: `bar ${bar.kind}${at.width < 4 ? " slim" : ""}`, ...sized, rx: 1.5, fill: DOES[bar.kind].ink, "data-tip": this.text(bar) });
      svg.append(made);
      this.drawn.push({ bar, made });
    });
  }

  text(bar) {
    const others = bar.others.map((one) => this.label(one));
    const whom = others.length > 4 ? `${others.slice(0, 4).join(", ")} and ${others.length - 4} more` : others.join(", ");
    const what = { train: `trains ${bar.rounds} round${bar.rounds === 1 ? "" : "s"}`, send: `sends to ${whom}`, receive: `receives from ${whom}`, besides: "what an iteration takes besides" }[bar.kind];
    const many = bar.messages > 1 ? ` (${bar.messages} messages)` : "", waits = bar.kind === "send" ? bar.start_s - bar.ready_s : 0;
    const lines = [`${this.label(bar.device)} ${what}${many}`, `${si(bar.start_s, "s")} to ${si(bar.end_s, "s")} (${si(bar.end_s - bar.start_s, "s")}), ${si(bar.joules, "J")}`];
    if (waits > 1e-9 * this.chart.seconds) lines.push(`waits ${si(waits, "s")} for the medium`);
    return lines.join("\n");
  }

  legend() {
    const kinds = Object.keys(DOES).filter((kind) => this.bars.some((bar) => bar.kind === kind));
    const waits = this.bars.some((bar) => bar.kind === "send" && bar.start_s - bar.ready_s > 1e-9 * this.chart.seconds);
    const entries = kinds.map((kind) => ({ text: DOES[kind].text, colour: DOES[kind].ink }));
    if (waits) entries.push({ text: "waits for the medium", colour: "var(--soft)", kind: "dashes" });
    if (!this.chart.ordered) entries.push({ text: "the paper’s clock knows no order of messages: steps share the time equally", colour: "none" });
    if (this.shown.length < this.chart.devices) entries.push({ text: `${whole(this.shown.length)} of ${whole(this.chart.devices)} devices: those that finish last`, colour: "none" });
    if (this.bars.some((bar) => bar.messages > 1)) entries.push({ text: "a bar holds all plays or chunks of a transmission", colour: "none" });
    legend(this.container, entries);
  }

  // The other end of a message is marked with it; arrow keys go from bar to bar in time.
  read() {
    const { svg, drawn } = this;
    const line = node("path", { class: "to", visibility: "hidden" });
    svg.append(line);
    svg.setAttribute("tabindex", "0");
    const ends = (one, two) => one.start_s === two.start_s && one.step === two.step && one.time === two.time && one.phase === two.phase && two.others.includes(one.device) && one.others.includes(two.device);
    let near = [];
    const bring = (found) => {
      near.forEach((one) => one.made.classList.remove("near"));
      const { bar } = found ?? {};
      const others = bar?.others.length ? drawn.filter((one) => one.bar.kind !== bar.kind && ends(bar, one.bar)) : [];
      near = found ? [found, ...others] : [];
      near.forEach((one) => one.made.classList.add("near"));
      line.setAttribute("visibility", others.length ? "visible" : "hidden");
      const at = (one) => { const { x, y, width, height } = this.place(one.bar); return [x + width / 2, y + height / 2]; };
      line.setAttribute("d", others.map((one) => `M${at(found)}L${at(one)}`).join(""));
    };
    svg.addEventListener("pointermove", (event) => bring(drawn.find((one) => one.made === event.target)));
    svg.addEventListener("pointerleave", () => { bring(); tip.hide(); });
    const order = [...drawn].sort((one, two) => one.bar.start_s - two.bar.start_s || this.row.get(one.bar.device) - this.row.get(two.bar.device));
    const kept = placeOf(svg);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined || !order.length) return;
      event.preventDefault();
      const found = order[kept.step(step, order.length)];
      bring(found);
      found.made.scrollIntoView?.({ block: "nearest" });
      const frame = found.made.getBoundingClientRect();
      tip.show(this.text(found.bar), frame.left + frame.width / 2, frame.top);
    });
    svg.addEventListener("blur", () => { bring(); tip.hide(); });
  }

  figures() {
    const columns = ["kind", "phase", "device", "name", "others", "ready_s", "start_s", "end_s", "joules", "rounds", "messages"];
    return { columns, rows: this.chart.bars.map((bar) => [bar.kind, bar.phase, bar.device, this.label(bar.device), bar.others.join(" "), bar.ready_s, bar.start_s, bar.end_s, bar.joules, bar.rounds, bar.messages]) };
  }
}
