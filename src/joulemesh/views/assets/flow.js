// Where the joules went: from what batteries held and gained to what they were spent on.
//
// flowChart(container, { sources: [{ name, joules: [...] }], uses: [{ key, text }], gained }) draws
// bands whose widths are joules. `gained[k]` is what source k harvested; the rest it held. Sources that
// stand beside each other, like methods that are compared, have no sums (`options.apart`).

const USE_INK = { train: "var(--train)", send: "var(--send)", receive: "var(--receive)", exchange: "var(--send)", outside: "var(--alarm)", rest: "var(--rest)", left: "var(--left)", spilled: "var(--halo)" };

// Places near those that are wanted, so far apart that texts do not meet, all between top and bottom.
function labelled(wanted, apart, top, bottom) {
  const found = [];
  wanted.forEach((y, k) => found.push(Math.max(y, k ? found[k - 1] + apart : top + apart / 2)));
  for (let k = found.length - 1, most = bottom - apart / 2; k >= 0; k--, most -= apart) found[k] = Math.min(found[k], most);
  return found;
}

function flowChart(container, flow, options = {}) {
  const chart = part(container, "chart");
  const sources = flow.sources.map((one, k) => ({ ...one, sum: one.joules.reduce((a, b) => a + b, 0), gained: flow.gained?.[k] ?? 0 }));
  const total = sources.reduce((sum, one) => sum + one.sum, 0);
  const uses = flow.uses.map((one, k) => ({ ...one, sum: sources.reduce((sum, source) => sum + source.joules[k], 0), k })).filter((one) => one.sum > 1e-9 * total); // less is what rounding leaves
  const share = (v) => percent(total ? v / total : 0);
  const parts = (joules) => uses.map((one) => `${one.text} ${si(joules(one), "J")}`).join(", ");
  const label = options.apart ? `Where the joules went: ${sources.map((one) => `${one.name}: ${parts((use) => one.joules[use.k])}`).join("; ")}.`
    : `Where the joules went, ${si(total, "J")} in all: ${uses.map((one) => `${one.text} ${si(one.sum, "J")}, ${share(one.sum)}`).join("; ")}.`;
  const narrow = widthOf(chart) < 520, gap = sources.length > 12 ? 2 : 6;
  const height = Math.max(280, Math.min(640, 60 + sources.length * (still.printing ? 16 : 24)));
  const { svg, width } = sheet(chart, height, label);
  const longest = Math.min(narrow ? 14 : 24, Math.max(...sources.map((one) => one.name.length)));
  const told = (one) => (narrow || options.apart ? one.text : `${one.text}: ${si(one.sum, "J")}`);
  const room = Math.min(width * 0.4, Math.max(narrow ? 118 : 190, 20 + 7.5 * Math.max(...uses.map((one) => told(one).length))));
  const box = { left: 24 + 7.6 * longest, right: width - room, top: 26, bottom: height - 12 }, thick = 14;
  const fits = (count) => (box.bottom - box.top - gap * (count - 1));
  const scale = Math.min(fits(sources.length), fits(uses.length)) / (total || 1);
  const spread = (list) => {
    const room = box.bottom - box.top - list.reduce((sum, one) => sum + one.sum * scale, 0), each = list.length > 1 ? room / (list.length - 1) : 0;
    let y = list.length > 1 ? box.top : box.top + room / 2;
    for (const one of list) { one.y = one.next = y; y += one.sum * scale + each; }
  };
  spread(sources);
  spread(uses);
  svg.append(node("text", { class: "name", x: box.left + thick / 2, y: 14, "text-anchor": "end" }, options.from ?? "batteries"));
  svg.append(node("text", { class: "name", x: box.right - thick, y: 14 }, "went to"));
  const middle = (box.left + box.right) / 2;
  for (const source of sources)
    for (const use of uses) {
      const joules = source.joules[use.k], tall = joules * scale;
      if (!(joules > 0)) continue;
      const [x0, x1] = [box.left + thick / 2, box.right - thick], [y0, y1] = [source.next, use.next];
      const d = `M${x0},${y0.toFixed(2)}C${middle},${y0.toFixed(2)} ${middle},${y1.toFixed(2)} ${x1},${y1.toFixed(2)}V${(y1 + tall).toFixed(2)}C${middle},${(y1 + tall).toFixed(2)} ${middle},${(y0 + tall).toFixed(2)} ${x0},${(y0 + tall).toFixed(2)}Z`;
      svg.append(node("path", { class: "flow", d, fill: USE_INK[use.key], "data-tip": `${source.name}: ${si(joules, "J")} ${use.text}\n${percent(joules / source.sum)} of its ${si(source.sum, "J")}` }));
      source.next += tall;
      use.next += tall;
    }
  const letters = Math.floor((box.left - 20) / 7.2), skip = Math.max(1, Math.ceil((13 * sources.length) / (box.bottom - box.top)));
  sources.forEach((one, k) => {
    const tall = Math.max(1, one.sum * scale), held = one.sum - one.gained;
    svg.append(node("rect", { class: "source", x: box.left - thick / 2, y: one.y, width: thick, height: tall, "data-tip": `${one.name}: ${si(held, "J")} held${one.gained ? `, ${si(one.gained, "J")} harvested` : ""}` }));
    if (one.gained > 0) svg.append(node("rect", { class: "gained", x: box.left - thick / 2, y: one.y, width: thick, height: Math.max(1, one.gained * scale), "data-tip": `${one.name}: ${si(one.gained, "J")} harvested` }));
    const lines = one.name.length > letters && tall > 34 ? one.name.split(": ") : [one.name]; // of a group: how many, and which
    if (k % skip === 0) lines.forEach((text, line) => svg.append(node("text", { x: box.left - thick, y: one.y + tall / 2 + 4 + 15 * (line - (lines.length - 1) / 2), "text-anchor": "end" }, clip(text, letters))));
  });
  const second = (one) => (options.apart ? "" : narrow ? si(one.sum, "J") : share(one.sum)), tallest = options.apart ? 17 : 37;
  labelled(uses.map((one) => one.y + (one.sum * scale) / 2), tallest, 10, height).forEach((y, k) => {
    const one = uses[k], tall = Math.max(1, one.sum * scale);
    svg.append(node("rect", { x: box.right - thick, y: one.y, width: thick, height: tall, fill: USE_INK[one.key], "data-tip": options.apart ? one.text : `${one.text}: ${si(one.sum, "J")}, ${share(one.sum)}` }));
    svg.append(node("text", { class: "name", x: box.right + 8, y: second(one) ? y - 3 : y + 4 }, clip(told(one), Math.floor((room - 12) / 7.5))));
    if (second(one)) svg.append(node("text", { x: box.right + 8, y: y + 12 }, second(one)));
  });
  legend(container, flow.gained?.some((v) => v > 0) ? [{ text: "harvested", colour: "var(--halo)" }, { text: "held at the start", colour: "var(--ink)" }] : []);
  exports(container, "where the joules went", () => ({
    columns: [options.from ?? "battery", "held_j", "harvested_j", ...flow.uses.map((one) => `${one.key}_j`)],
    rows: sources.map((one) => [one.name, one.sum - one.gained, one.gained, ...one.joules]),
  }));
}
