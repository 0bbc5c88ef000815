// The map with the route, and the rounds as a heat map.

const kindInk = (kind) => `var(--${kind})`;

function drawMap() {
  const map = data.map;
  const chart = document.querySelector("#map .chart");
  const label = `Map of ${map.devices} devices and ${map.count} links; the route is the ${map.words}.`;
  const side = Math.min(widthOf(chart), 560);
  const { svg, width } = sheet(chart, side + 46, label);
  const size = side - 68;
  const box = { left: 54 + (width - size - 68) / 2, top: 64, bottom: 64 + size };
  box.right = box.left + size;
  const [x0, x1, y0, y1] = map.frame;
  const x = linear(x0, x1, box.left, box.right), y = linear(y0, y1, box.bottom, box.top);
  const [low, high] = map.energy;
  const logs = high > 8 * low;
  const level = (e) => (high > low ? (logs ? Math.log(e / low) / Math.log(high / low) : (e - low) / (high - low)) : 0.5);
  const title = ["link energy, one", `model each way${logs ? " (log)" : ""}`];
  colourBar(svg, box.left, box.right, 4, title, [si(low, "J"), si(high, "J")], map.picture ? false : undefined);
  axes(svg, box, x, y, { x: "x [m]", y: "y [m]" }, { x: 4, y: 4, bare: true });
  svg.append(node("rect", { class: "frame", x: box.left, y: box.top, width: size, height: size }));
  if (map.picture) {
    svg.append(node("image", { class: "flip", href: map.picture, x: box.left, y: box.top, width: size, height: size }));
  } else {
    const few = Math.min(1, 60 / Math.max(1, map.links.ends.length));
    drawLinks(svg, map, map.links, x, y, level, { width: 0.8 + 0.5 * few, opacity: 0.22 + 0.33 * few });
    // A tree or a ring is edged with ink, which stands out on any ground; gossip's many links are not.
    const bold = map.devices <= 40 ? { width: 3, edge: 6 } : map.devices <= 150 ? { width: 2.2, edge: 4.4 } : { width: 1.6, edge: 3.2 };
    drawLinks(svg, map, map.route, x, y, level, thinRoute(map) ? { width: 1.8, opacity: 1 } : { ...bold, opacity: 1 });
    drawDevices(svg, map, x, y);
  }
  mapLegend(map);
}

const thinRoute = (map) => !map.route || map.route.ends.length > map.devices;

function drawLinks(svg, map, links, x, y, level, { width, opacity, edge = 0 }) {
  const end = (k, i) => ({ [`x${k}`]: x(map.at[i][0]).toFixed(1), [`y${k}`]: y(map.at[i][1]).toFixed(1) });
  const placed = links.ends.map(([i, j]) => ({ ...end(1, i), ...end(2, j) }));
  const on = links === map.route;
  const kind = on ? "route" : "unused";
  if (edge) for (const ends of placed) svg.append(node("line", { ...ends, class: "edge", "stroke-width": edge }));
  placed.forEach((ends, k) =>
    svg.append(node("line", { ...ends, class: kind, stroke: colour(level(links.energy[k])), "stroke-width": width, "stroke-opacity": opacity, "stroke-linecap": "round" })));
  placed.forEach((ends, k) => {
    const [i, j] = links.ends[k];
    svg.append(node("line", { ...ends, class: "hit", "data-tip": `link ${i}–${j}${data.names ? ` (${data.names[i]}–${data.names[j]})` : ""}: ${si(links.energy[k], "J")}\n${on ? "on the route" : "not used"}` }));
  });
}

function drawDevices(svg, map, x, y) {
  const labelled = map.devices <= 40;
  const radius = labelled ? 9 : map.devices <= 150 ? 5 : 3.5;
  if (map.root >= 0) {
    const [cx, cy] = [x(map.at[map.root][0]), y(map.at[map.root][1])];
    const points = [...Array(10).keys()].map((k) => {
      const r = radius * (k % 2 ? 1.0 : 1.75) + 2, a = (Math.PI * k) / 5 - Math.PI / 2;
      return `${(cx + r * Math.cos(a)).toFixed(1)},${(cy + r * Math.sin(a)).toFixed(1)}`;
    });
    svg.append(node("polygon", { points: points.join(" "), fill: "var(--halo)", stroke: "#222", "stroke-width": 0.8 }));
  }
  map.at.forEach(([px, py], i) => {
    const gone = map.departed[i], ink = kindInk(map.binding[i]);
    const text = `${deviceName(i)}${i === map.root ? " (root)" : ""}: ${data.kinds[map.binding[i]]}\n` +
      `${si(map.spent[i], "J")} of ${si(map.battery[i], "J")} spent\n${map.rounds[i]} rounds in all`;
    svg.append(node("circle", { cx: x(px).toFixed(1), cy: y(py).toFixed(1), r: radius, fill: gone ? "var(--card)" : ink, stroke: gone ? ink : "var(--card)", "stroke-width": gone ? 2 : 1, "data-tip": text }));
    if (labelled) svg.append(node("text", { class: "number", x: x(px).toFixed(1), y: (y(py) + 3.6).toFixed(1), ...(gone ? { style: `fill:${ink}` } : {}) }, String(i)));
  });
}

function mapLegend(map) {
  const entries = map.bound.map((kind) => ({ text: data.kinds[kind], colour: kindInk(kind), kind: kind === "left" ? "hollow" : "" }));
  if (map.root >= 0) entries.push({ text: "root (star)", colour: "var(--halo)" });
  entries.push({ text: `route: ${map.words}`, colour: map.picture ? "var(--ink)" : colour(0.4), kind: thinRoute(map) ? "stroke" : "stroke edged" });
  const unused = map.count - map.used;
  if (unused > 0) entries.push({ text: `links not used (${unused.toLocaleString("en")})`, colour: "var(--soft)", kind: "hair" });
  for (const [what, some, all] of map.drawn) {
    if (some < all) entries.push({ text: `${some} of ${all} ${what} drawn`, colour: "none" });
  }
  legend("map", entries);
}

function cells() {
  const text = atob(data.rounds.cells), found = new Uint16Array(text.length / 2);
  for (let k = 0; k < found.length; k++) found[k] = text.charCodeAt(2 * k) + 256 * text.charCodeAt(2 * k + 1);
  return found;
}

function heatPicture(values, rows, columns, low, high) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows);
  const palette = [...Array(256).keys()].map((k) => shade(k / 255));
  const absent = isDark() ? [60, 70, 83] : [207, 212, 218];
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) {
      const cell = values[r * columns + c];
      const level = high > low ? (cell * data.rounds.scale - low) / (high - low) : 0.5;
      const ink = cell === 65535 ? absent : palette[Math.round(255 * level)];
      image.data.set([...ink, 255], 4 * ((rows - 1 - r) * columns + c));
    }
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

function drawRounds() {
  const rounds = data.rounds, [rows, columns] = rounds.shape, values = cells();
  const { least, most, devices, iterations } = rounds;
  const chart = document.querySelector("#rounds .chart");
  const label = `Heat map of local rounds: ${devices} devices, ${iterations} iterations, from ${plain(least)} to ${plain(most)} rounds.`;
  const height = Math.min(widthOf(chart), 560) + 46;
  const { svg, width } = sheet(chart, height, label);
  const box = { left: 54, right: width - 14, top: 64, bottom: height - 50 };
  const x = linear(0.5, iterations + 0.5, box.left, box.right), y = linear(-0.5, devices - 0.5, box.bottom, box.top);
  colourBar(svg, box.left, box.right, 4, ["rounds τ", rows < devices || columns < iterations ? "(mean of a cell)" : "of a device"], [plain(least), plain(most)]);
  const href = heatPicture(values, rows, columns, least, most);
  svg.append(node("image", { class: "pixels", href, x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, preserveAspectRatio: "none" }));
  x.ticks = wholeTicks(1, iterations);
  y.ticks = wholeTicks(0, devices - 1);
  axes(svg, box, x, y, { x: "iteration", y: rounds.sorted ? "device, by mean rounds" : "device" }, { y: 6, bare: true });
  for (const t of rounds.skipped) svg.append(node("line", { x1: x(t), x2: x(t), y1: box.top - 7, y2: box.top - 1, stroke: "var(--energy)", "stroke-width": 1.5 }));
  const shield = node("rect", { class: "shield", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
  svg.append(shield);
  shield.addEventListener("pointermove", (event) => {
    const frame = shield.getBoundingClientRect();
    const c = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - frame.left) / frame.width) * columns)));
    const r = Math.min(rows - 1, Math.max(0, Math.floor((1 - (event.clientY - frame.top) / frame.height) * rows)));
    const cell = values[r * columns + c];
    const what = cell === 65535 ? "not taking part" : `${plain(cell * rounds.scale)} rounds`;
    const who = rows < devices ? `devices about rank ${Math.round((r + 0.5) * devices / rows)}` : deviceName(r);
    const when = Math.floor((c * iterations) / columns) + 1;
    const skip = rounds.skipped.includes(when) ? "\nexchange skipped" : "";
    tip.show(`${who}, iteration ${when}: ${what}${skip}`, event.clientX, event.clientY);
  });
  shield.addEventListener("pointerleave", () => tip.hide());
  const entries = values.includes(65535) ? [{ text: "not taking part", colour: "var(--absent)" }] : [];
  if (rounds.skipped.length) entries.push({ text: `exchange skipped (${rounds.skipped.length} of ${iterations})`, colour: "var(--energy)" });
  legend("rounds", entries);
}
