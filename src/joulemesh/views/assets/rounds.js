// The rounds of every device and iteration as a heat map.

// Cells of 16 bits each, in base64.
function unpack(text) {
  const raw = atob(text), found = new Uint16Array(raw.length / 2);
  for (let k = 0; k < found.length; k++) found[k] = raw.charCodeAt(2 * k) + 256 * raw.charCodeAt(2 * k + 1);
  return found;
}
const NOBODY = 65535;

function heatPicture(values, rows, columns, level) {
  const canvas = dom("canvas", { width: columns, height: rows });
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows);
  const palette = [...Array(256).keys()].map((k) => shade(k / 255));
  const absent = isDark() ? [60, 70, 83] : [207, 212, 218];
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) {
      const cell = values[r * columns + c];
      const ink = cell === NOBODY ? absent : palette[Math.round(255 * level(cell))];
      image.data.set([...ink, 255], 4 * ((rows - 1 - r) * columns + c));
    }
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

// roundsMap(container, what `rounds_data` writes, { names })
function roundsMap(container, rounds, options = {}) {
  const [rows, columns] = rounds.shape, values = unpack(rounds.cells), name = named(options.names);
  const { least, most, devices, iterations } = rounds;
  const chart = part(container, "chart");
  const label = `Heat map of local rounds: ${devices} devices, ${iterations} iterations, from ${plain(least)} to ${plain(most)} rounds. Arrow keys read the cells.`;
  const height = Math.min(widthOf(chart), 560) + 46;
  const { svg, width } = sheet(chart, height, label);
  const box = { left: 54, right: width - 14, top: 64, bottom: height - 50 };
  const x = linear(0.5, iterations + 0.5, box.left, box.right), y = linear(-0.5, devices - 0.5, box.bottom, box.top);
  colourBar(svg, box.left, box.right, 4, ["rounds τ", rows < devices || columns < iterations ? "(mean of a cell)" : "of a device"], [plain(least), plain(most)]);
  const level = (cell) => (most > least ? Math.max(0, (cell * rounds.scale - least) / (most - least)) : 0.5);
  const href = heatPicture(values, rows, columns, level);
  svg.append(node("image", { class: "pixels", href, x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, preserveAspectRatio: "none" }));
  x.ticks = wholeTicks(1, iterations);
  y.ticks = wholeTicks(0, devices - 1);
  axes(svg, box, x, y, { x: "iteration", y: rounds.sorted ? "device, by mean rounds" : "device" }, { y: 6, bare: true });
  for (const t of rounds.skipped) svg.append(node("line", { x1: x(t), x2: x(t), y1: box.top - 7, y2: box.top - 1, stroke: "var(--energy)", "stroke-width": 1.5 }));
  const text = (r, c) => {
    const cell = values[r * columns + c], when = Math.floor((c * iterations) / columns) + 1;
    const what = cell === NOBODY ? "not taking part" : `${plain(cell * rounds.scale)} rounds`;
    const who = rows < devices ? `devices about rank ${Math.round(((r + 0.5) * devices) / rows)}` : name(r);
    return `${who}, iteration ${when}: ${what}${rounds.skipped.includes(when) ? "\nexchange skipped" : ""}`;
  };
  readCellsOf(svg, box, rows, columns, (r, c) => text(rows - 1 - r, c));
  const entries = values.includes(NOBODY) ? [{ text: "not taking part", colour: "var(--absent)" }] : [];
  if (rounds.skipped.length) entries.push({ text: `exchange skipped (${rounds.skipped.length} of ${iterations})`, colour: "var(--energy)" });
  legend(container, entries);
  exports(container, "local rounds", () => ({
    columns: ["iteration", ...[...Array(rows).keys()].map((r) => (rows < devices ? `devices about rank ${Math.round(((r + 0.5) * devices) / rows)}` : options.names?.[r] ?? `device ${r}`))],
    rows: [...Array(columns).keys()].map((c) => [Math.floor((c * iterations) / columns) + 1, ...[...Array(rows).keys()].map((r) => (values[r * columns + c] === NOBODY ? null : values[r * columns + c] * rounds.scale))]),
  }));
}

// Reads a grid by pointer or by arrow keys; rows are counted from above.
function readCellsOf(svg, box, rows, columns, text) {
  const shield = node("rect", { class: "shield", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
  const ring = node("rect", { class: "ring", visibility: "hidden" });
  svg.append(ring, shield);
  svg.setAttribute("tabindex", "0");
  const place = (share, most) => Math.min(most - 1, Math.max(0, Math.floor(share * most)));
  const show = (event) => {
    const frame = shield.getBoundingClientRect();
    tip.show(text(place((event.clientY - frame.top) / frame.height, rows), place((event.clientX - frame.left) / frame.width, columns)), event.clientX, event.clientY);
  };
  shield.addEventListener("pointermove", show);
  shield.addEventListener("pointerdown", show);
  shield.addEventListener("pointerleave", () => tip.hide());
  const kept = placeOf(svg);
  svg.addEventListener("blur", () => { tip.hide(); ring.setAttribute("visibility", "hidden"); });
  svg.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -columns], End: [0, columns] }[event.key];
    if (!way) return;
    event.preventDefault();
    const was = kept.at, at = kept.at = was ? [Math.min(rows - 1, Math.max(0, was[0] + way[0])), Math.min(columns - 1, Math.max(0, was[1] + way[1]))] : [0, 0];
    const wide = (box.right - box.left) / columns, tall = (box.bottom - box.top) / rows, frame = shield.getBoundingClientRect();
    for (const [key, value] of Object.entries({ x: box.left + at[1] * wide, y: box.top + at[0] * tall, width: wide, height: tall, visibility: "visible" })) ring.setAttribute(key, value);
    tip.show(text(...at), frame.left + ((at[1] + 0.5) / columns) * frame.width, frame.top + ((at[0] + 0.5) / rows) * frame.height);
  });
}
