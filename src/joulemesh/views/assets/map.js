// The map: devices and links in metres, what a link costs by its colour, the route on top.
//
// deviceMap(container, map, { names, kinds, onSelect, onDrag, onDrop, selected }) returns
// { select(what), moved(device, x, y) }. `map` is what `map_data` writes. With `onDrag(device, x, y)`
// devices can be dragged, or moved by keys; `onDrop(device, x, y)` follows at the end; both in metres.
// `onSelect({ device } | { link, ends } | null)`. Links are drawn on a canvas, so that thousands of them
// cost little; while a device is dragged only its own links are drawn again.

const kindInk = (kind) => `var(--${kind})`;
const thinRoute = (map) => !map.route || map.route.ends.length > map.devices;
const NEAR = 6; // pixels within which a link is meant

function deviceMap(container, map, options = {}) {
  const drawn = map.cells ? new MapOfCells(container, map, options) : new MapOfDevices(container, map, options);
  drawn.draw();
  return drawn;
}

class MapSheet {
  constructor(container, map, options) {
    Object.assign(this, { container, map, options, name: named(options.names ?? map.names) });
    this.kinds = options.kinds ?? {};
  }

  // Axes, the colour bar, and the place of a point in metres.
  open(label, bar) {
    const map = this.map;
    this.chart = part(this.container, "chart");
    const side = Math.min(widthOf(this.chart), this.options.most ?? 560);
    const { svg, width } = sheet(this.chart, side + 46, label);
    const size = side - 68, left = 54 + (width - size - 68) / 2;
    this.svg = svg;
    this.box = { left, right: left + size, top: 64, bottom: 64 + size, width, height: side + 46, size };
    const [x0, x1, y0, y1] = map.frame, box = this.box;
    this.x = linear(x0, x1, box.left, box.right);
    this.y = linear(y0, y1, box.bottom, box.top);
    colourBar(svg, box.left, box.right, 4, bar.title, bar.ends);
    axes(svg, box, this.x, this.y, { x: "x [m]", y: "y [m]" }, { x: 4, y: 4, bare: true });
    svg.append(node("rect", { class: "frame", x: box.left, y: box.top, width: size, height: size }));
  }

  // Pixels of the drawing under a pointer.
  place(event) {
    const frame = this.svg.getBoundingClientRect(), scale = this.box.width / frame.width;
    return [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
  }

  say(text, px, py) {
    const frame = this.svg.getBoundingClientRect(), scale = frame.width / this.box.width;
    tip.show(text, frame.left + px * scale, frame.top + py * scale);
  }

  legend(more) {
    const map = this.map;
    const entries = map.bound.map((kind) => ({ text: this.kinds[kind] ?? kind, colour: kindInk(kind), kind: kind === "left" ? "hollow" : "" }));
    entries.push(...more, { text: `route: ${map.words}`, colour: colour(0.4), kind: thinRoute(map) ? "stroke" : "stroke edged" });
    const unused = map.count - map.used;
    if (unused > 0) entries.push({ text: `links not used (${whole(unused)})`, colour: "var(--soft)", kind: "hair" });
    for (const [what, some, all] of map.drawn) if (some < all) entries.push({ text: `${whole(some)} of ${whole(all)} ${what} drawn`, colour: "none" });
    legend(this.container, entries);
  }
}

// Up to some thousand devices, each by itself.
class MapOfDevices extends MapSheet {
  draw() {
    const map = this.map, [low, high] = map.energy, logs = high > 8 * low;
    this.at = map.at.map((point) => [...point]);
    this.level = (e) => (high > low ? (logs ? Math.log(e / low) / Math.log(high / low) : (e - low) / (high - low)) : 0.5);
    const keys = `Arrow keys choose a device and read its figures, L reads its links${this.options.onDrag ? "; Enter takes hold of a device, arrow keys then move it, Enter lets go" : ""}.`;
    this.open(`Map of ${map.devices} devices and ${map.count} links; the route is the ${map.words}. ${keys}`,
      { title: ["link energy, one", `model each way${logs ? " (log)" : ""}`], ends: [si(low, "J"), si(high, "J")] });
    this.layers();
    this.devices();
    this.legend(map.root >= 0 ? [{ text: "root (star)", colour: "var(--halo)" }] : []);
    this.listen();
    exports(this.container, "links and route", () => this.figures());
    if (Number.isInteger(this.options.selected)) this.mark(this.options.selected);
  }

  // Links below the drawing: those that stand still, and those of a device that is dragged.
  layers() {
    const { width, height } = this.box, sharp = still.printing ? 3 : Math.min(2, devicePixelRatio || 1);
    this.chart.classList.add("layered");
    this.canvases = ["still", "moving"].map((name) => {
      const canvas = dom("canvas", { className: name, width: Math.round(width * sharp), height: Math.round(height * sharp) });
      canvas.setAttribute("aria-hidden", "true");
      canvas.getContext("2d").scale(sharp, sharp);
      this.svg.before(canvas);
      return canvas;
    });
    const map = this.map, few = Math.min(1, 60 / Math.max(1, map.links.ends.length));
    const bold = map.devices <= 40 ? { width: 3, edge: 6 } : map.devices <= 150 ? { width: 2.2, edge: 4.4 } : { width: 1.6, edge: 3.2 };
    const route = thinRoute(map) ? { width: 1.8, opacity: 1 } : { ...bold, opacity: 1 };
    this.groups = [
      { ...map.links, style: { width: 0.8 + 0.5 * few, opacity: 0.22 + 0.33 * few }, on: false },
      { ...map.route, style: route, on: true },
    ];
    this.touching = map.at.map(() => []);
    this.groups.forEach((group, g) => group.ends.forEach(([i, j], k) => { this.touching[i].push([g, k]); this.touching[j].push([g, k]); }));
    this.svg.exported = (copy) => this.exportLinks(copy);
    this.strokeAll();
  }

  end(i) { return [this.x(this.at[i][0]), this.y(this.at[i][1])]; }

  strokeAll(without = -1) {
    const pen = this.canvases[0].getContext("2d");
    pen.clearRect(0, 0, this.box.width, this.box.height);
    for (const group of this.groups) {
      const shown = group.ends.map((_, k) => k).filter((k) => without < 0 || !group.ends[k].includes(without));
      this.stroke(pen, group, shown);
    }
  }

  strokeMoving(device) {
    const pen = this.canvases[1].getContext("2d");
    pen.clearRect(0, 0, this.box.width, this.box.height);
    if (device < 0) return;
    this.groups.forEach((group, g) => this.stroke(pen, group, this.touching[device].filter(([one]) => one === g).map(([, k]) => k)));
  }

  // Links of one shade are one path; a tree or a ring is edged with ink, which stands out on any ground.
  stroke(pen, group, which) {
    const shades = new Map();
    for (const k of which) {
      const shade = Math.round(40 * Math.min(1, Math.max(0, this.level(group.energy[k]))));
      if (!shades.has(shade)) shades.set(shade, []);
      shades.get(shade).push(k);
    }
    const trace = (links) => {
      pen.beginPath();
      for (const k of links) {
        const [i, j] = group.ends[k];
        pen.moveTo(...this.end(i));
        pen.lineTo(...this.end(j));
      }
      pen.stroke();
    };
    pen.lineCap = "round";
    if (group.style.edge) {
      Object.assign(pen, { lineWidth: group.style.edge, globalAlpha: 1, strokeStyle: getComputedStyle(this.svg).getPropertyValue("--ink") || "#18212d" });
      trace(which);
    }
    Object.assign(pen, { lineWidth: group.style.width, globalAlpha: group.style.opacity });
    for (const [shade, links] of shades) {
      pen.strokeStyle = colour(shade / 40);
      trace(links);
    }
    pen.globalAlpha = 1;
  }

  exportLinks(copy) {
    const made = node("g", { fill: "none", "stroke-linecap": "round" });
    const ink = getComputedStyle(this.svg).getPropertyValue("--ink");
    for (const { ends, energy, style, on } of this.groups) {
      const line = ([i, j], more) => {
        const [[x1, y1], [x2, y2]] = [this.end(i), this.end(j)].map((p) => p.map((v) => v.toFixed(1)));
        made.append(node("line", { x1, y1, x2, y2, ...more }));
      };
      if (style.edge) ends.forEach((pair) => line(pair, { class: "edge", stroke: ink, "stroke-width": style.edge }));
      ends.forEach((pair, k) => line(pair, { class: on ? "route" : "unused", stroke: colour(this.level(energy[k])), "stroke-width": style.width, "stroke-opacity": style.opacity }));
    }
    copy.prepend(made);
  }

  devices() {
    const map = this.map, labelled = map.devices <= 40, svg = this.svg;
    this.radius = labelled ? 10 : map.devices <= 150 ? 5.5 : map.devices <= 700 ? 3.5 : 2.2;
    this.ring = node("circle", { class: "chosen", r: this.radius + 4, visibility: "hidden" });
    if (map.root >= 0) svg.append((this.star = node("polygon", { class: "root", points: this.rays(map.root) })));
    this.stripe = node("line", { class: "chosen stripe", visibility: "hidden" });
    svg.append(this.stripe, this.ring);
    const many = document.createDocumentFragment();
    this.dots = map.at.map((_, i) => {
      const [cx, cy] = this.end(i), gone = map.departed[i], ink = kindInk(map.binding[i]);
      const dot = node("circle", { class: "device", "data-device": i, cx: cx.toFixed(1), cy: cy.toFixed(1), r: this.radius, fill: gone ? "var(--card)" : ink, stroke: gone ? ink : "var(--card)", "stroke-width": gone ? 2 : 1 });
      many.append(dot);
      return dot;
    });
    this.texts = !labelled ? [] : map.at.map((_, i) => {
      const [cx, cy] = this.end(i), text = node("text", { class: `number on-${map.binding[i]}`, x: cx.toFixed(1), y: (cy + 4).toFixed(1) }, String(i));
      if (map.departed[i]) text.style.fill = kindInk(map.binding[i]);
      many.append(text);
      return text;
    });
    svg.append(many);
  }

  rays(root) {
    const [cx, cy] = this.end(root);
    return [...Array(10).keys()].map((k) => {
      const r = this.radius * (k % 2 ? 1.0 : 1.75) + 2, a = (Math.PI * k) / 5 - Math.PI / 2;
      return `${(cx + r * Math.cos(a)).toFixed(1)},${(cy + r * Math.sin(a)).toFixed(1)}`;
    }).join(" ");
  }

  text(i) {
    const map = this.map;
    return `${this.name(i)}${i === map.root ? " (root)" : ""}: ${this.kinds[map.binding[i]] ?? map.binding[i]}\n` +
      `${si(map.spent[i], "J")} of ${si(map.battery[i], "J")} spent\n${map.rounds[i]} rounds in all`;
  }

  linkText({ group, k }) {
    const [i, j] = group.ends[k], names = this.options.names ?? this.map.names;
    return `link ${i}–${j}${names?.length ? ` (${names[i]}–${names[j]})` : ""}: ${si(group.energy[k], "J")}\n${group.on ? "on the route" : "not used"}`;
  }

  nearestDevice(px, py, within) {
    let best = -1, nearest = within * within;
    this.at.forEach((_, i) => {
      const [cx, cy] = this.end(i), away = (cx - px) ** 2 + (cy - py) ** 2;
      if (away <= nearest) [best, nearest] = [i, away];
    });
    return best;
  }

  nearestLink(px, py) {
    let best = null, nearest = NEAR * NEAR;
    for (const group of [this.groups[1], this.groups[0]])
      group.ends.forEach(([i, j], k) => {
        const [ax, ay] = this.end(i), [bx, by] = this.end(j), dx = bx - ax, dy = by - ay;
        const t = Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy || 1)));
        const away = (ax + t * dx - px) ** 2 + (ay + t * dy - py) ** 2;
        if (away < nearest) [best, nearest] = [{ group, k }, away];
      });
    return best;
  }

  // Put a device somewhere else, in metres, without telling anybody.
  moved(device, x, y) {
    this.at[device] = [x, y];
    const [cx, cy] = this.end(device);
    this.dots[device].setAttribute("cx", cx.toFixed(1));
    this.dots[device].setAttribute("cy", cy.toFixed(1));
    this.texts[device]?.setAttribute("x", cx.toFixed(1));
    this.texts[device]?.setAttribute("y", (cy + 4).toFixed(1));
    if (device === this.map.root) this.star.setAttribute("points", this.rays(device));
    if (device === this.chosen) { this.ring.setAttribute("cx", cx); this.ring.setAttribute("cy", cy); }
    if (this.held === device) this.strokeMoving(device); else this.strokeAll();
  }

  hold(device) {
    this.held = device;
    this.strokeAll(device);
    this.strokeMoving(device);
    this.svg.classList.toggle("holding", device >= 0);
  }

  letGo() {
    this.held = undefined;
    this.strokeMoving(-1);
    this.strokeAll();
    this.svg.classList.remove("holding");
  }

  mark(device) {
    this.chosen = device ?? undefined;
    this.ring.setAttribute("visibility", device === null ? "hidden" : "visible");
    if (device === null) return;
    const [cx, cy] = this.end(device);
    this.ring.setAttribute("cx", cx);
    this.ring.setAttribute("cy", cy);
  }

  select(what) {
    this.mark(what && "device" in what ? what.device : null);
    this.stripe.setAttribute("visibility", what?.ends ? "visible" : "hidden");
    what?.ends?.forEach((i, k) => { const [x, y] = this.end(i); this.stripe.setAttribute(`x${k + 1}`, x); this.stripe.setAttribute(`y${k + 1}`, y); });
    this.walk = null;
    this.options.onSelect?.(what);
  }

  listen() {
    const svg = this.svg;
    svg.classList.add("map");
    svg.classList.toggle("draggable", Boolean(this.options.onDrag));
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "application");
    svg.addEventListener("pointerdown", (event) => this.down(event));
    svg.addEventListener("pointermove", (event) => this.follow(event));
    svg.addEventListener("pointerup", (event) => this.up(event));
    svg.addEventListener("pointercancel", () => { if (this.drag) { this.drag = null; this.letGo(); } });
    svg.addEventListener("pointerleave", () => { if (!this.drag) tip.hide(); });
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("blur", () => { tip.hide(); if (this.held !== undefined && !this.drag) this.putBack(); });
  }

  down(event) {
    const [px, py] = this.place(event), device = this.nearestDevice(px, py, this.radius + 5);
    if (device < 0) {
      const link = this.nearestLink(px, py);
      this.select(link && { link: link.k, ends: link.group.ends[link.k], used: link.group.on });
      return;
    }
    this.select({ device });
    if (!this.options.onDrag) return;
    const [cx, cy] = this.end(device);
    this.drag = { device, dx: cx - px, dy: cy - py, moved: false };
    this.svg.setPointerCapture?.(event.pointerId);
    this.hold(device);
    event.preventDefault();
    this.svg.focus({ preventScroll: true });
  }

  follow(event) {
    const [px, py] = this.place(event);
    if (!this.drag) {
      const device = this.nearestDevice(px, py, this.radius + 3), link = device < 0 ? this.nearestLink(px, py) : null;
      if (device >= 0) tip.show(this.text(device), event.clientX, event.clientY);
      else if (link) tip.show(this.linkText(link), event.clientX, event.clientY);
      else tip.hide();
      return;
    }
    tip.hide();
    this.drag.moved = true;
    this.drag.to = [px + this.drag.dx, py + this.drag.dy];
    this.drag.waiting ??= requestAnimationFrame(() => this.step()); // once in a frame is enough
  }

  step() {
    if (!this.drag) return;
    this.drag.waiting = undefined;
    this.shift(this.drag.device, ...this.drag.to);
  }

  // To a place in pixels, kept within the frame.
  shift(device, px, py) {
    const { left, right, top, bottom } = this.box;
    const x = this.x.invert(Math.min(right, Math.max(left, px))), y = this.y.invert(Math.min(bottom, Math.max(top, py)));
    this.moved(device, x, y);
    this.options.onDrag(device, x, y);
  }

  up() {
    const drag = this.drag;
    if (!drag) return;
    cancelAnimationFrame(drag.waiting);
    if (drag.moved) this.shift(drag.device, ...drag.to);
    this.drag = null;
    this.letGo();
    if (drag.moved) this.options.onDrop?.(drag.device, ...this.at[drag.device]);
  }

  // Arrow keys choose the next device that way; of one that is held they change the place.
  key(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const held = this.held !== undefined && !this.drag;
    if (way) {
      event.preventDefault();
      if (!held) return this.choose(way);
      const step = this.box.size / (event.shiftKey ? 400 : 50), [cx, cy] = this.end(this.held);
      this.shift(this.held, cx + way[0] * step, cy + way[1] * step);
      this.say(`${this.name(this.held)} at ${plain(this.at[this.held][0])} m, ${plain(this.at[this.held][1])} m`, ...this.end(this.held));
    } else if (event.key === "Enter" && this.chosen !== undefined && this.options.onDrag) {
      event.preventDefault();
      if (held) {
        const device = this.held;
        this.letGo();
        this.options.onDrop?.(device, ...this.at[device]);
        this.say(`${this.name(device)} is there`, ...this.end(device));
      } else {
        this.before = [...this.at[this.chosen]];
        this.hold(this.chosen);
        this.say(`${this.name(this.chosen)}: arrow keys move it, Enter lets go, Escape puts it back`, ...this.end(this.chosen));
      }
    } else if (event.key === "Escape") {
      if (held) this.putBack(); else this.select(null);
    } else if (event.key.toLowerCase() === "l" && !held && !(event.ctrlKey || event.metaKey || event.altKey)) this.nextLink();
  }

  // A device that was held by keys is where it was before; nobody else need know.
  putBack() {
    const device = this.held;
    this.letGo();
    this.moved(device, ...this.before);
    this.options.onDrag(device, ...this.before);
  }

  // One after another the links of the device that was chosen, those of the route first.
  nextLink() {
    const of = this.walk?.of ?? this.chosen;
    if (of === undefined || !this.touching[of].length) return;
    const links = [...this.touching[of]].sort(([a], [b]) => b - a), at = ((this.walk?.at ?? -1) + 1) % links.length;
    const [g, k] = links[at], group = this.groups[g], [i, j] = group.ends[k].map((one) => this.end(one));
    this.select({ link: k, ends: group.ends[k], used: group.on });
    this.walk = { of, at };
    this.say(this.linkText({ group, k }), (i[0] + j[0]) / 2, (i[1] + j[1]) / 2);
  }

  choose([dx, dy]) {
    const now = this.chosen ?? this.walk?.of;
    let best = now === undefined ? 0 : -1, least = Infinity;
    if (now !== undefined) {
      const [ax, ay] = this.end(now);
      this.at.forEach((_, i) => {
        const [bx, by] = this.end(i), along = (bx - ax) * dx + (by - ay) * dy, aside = Math.abs((bx - ax) * dy) + Math.abs((by - ay) * dx);
        if (i !== now && along > 0.5 && along + 2 * aside < least) [best, least] = [i, along + 2 * aside];
      });
    }
    if (best < 0) return;
    this.select({ device: best });
    this.say(this.text(best), ...this.end(best));
  }

  figures() {
    const map = this.map, names = this.options.names ?? map.names;
    return {
      columns: ["device", ...(names?.length ? ["name"] : []), "x_m", "y_m", "binding", "battery_j", "spent_j", "rounds", "neighbours_on_the_route"],
      rows: this.at.map(([x, y], i) => [i, ...(names?.length ? [names[i]] : []), x, y, map.binding[i], map.battery[i], map.spent[i], map.rounds[i],
        this.touching[i].filter(([g]) => g === 1).map(([, k]) => this.groups[1].ends[k].find((one) => one !== i)).join(" ")]),
    };
  }
}

// Very many devices: how many there are in each cell of a grid, and how many links join two cells.
class MapOfCells extends MapSheet {
  draw() {
    const { cells, joints } = this.map, most = Math.max(...cells.map((one) => one.count));
    this.most = most;
    this.open(`Map of ${whole(this.map.devices)} devices in ${cells.length} cells, of ${whole(this.map.count)} links and the route, the ${this.map.words}. Arrow keys read the cells.`,
      { title: ["battery spent,", "mean of a cell"], ends: ["0 %", "100 %"] });
    const heaviest = Math.max(...joints.map((one) => one.route), 1), svg = this.svg;
    for (const { ends: [a, b], route } of joints)
      if (route) svg.append(node("line", { class: "joint", x1: this.x(cells[a].x), y1: this.y(cells[a].y), x2: this.x(cells[b].x), y2: this.y(cells[b].y), "stroke-width": (0.6 + 4 * Math.sqrt(route / heaviest)).toFixed(2) }));
    const half = this.box.size / this.map.across / 2;
    cells.forEach((one, k) => {
      const cx = this.x(one.x), cy = this.y(one.y), r = Math.max(1.5, half * 0.95 * Math.sqrt(one.count / most));
      svg.append(node("circle", { class: "cell", cx: cx.toFixed(1), cy: cy.toFixed(1), r: r.toFixed(1), fill: colour(one.spent), "data-tip": this.text(k) }));
      if (half > 13 && r > 9) svg.append(node("text", { class: "number over", x: cx.toFixed(1), y: (cy + 4).toFixed(1) }, short(one.count)));
    });
    legend(this.container, [
      { text: `a circle: the devices of a cell (up to ${whole(most)})`, colour: colour(0.5), kind: "disc" },
      { text: `the route between cells: ${this.map.words}`, colour: "var(--soft)", kind: "stroke" },
      { text: `${whole(this.map.devices)} devices and ${whole(this.map.count)} links, summarised`, colour: "none" },
    ]);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => this.key(event));
    svg.addEventListener("blur", () => tip.hide());
    exports(this.container, "links and route", () => this.figures());
  }

  text(k) {
    const one = this.map.cells[k];
    const bound = Object.entries(one.binding).map(([kind, count]) => `${whole(count)}: ${this.kinds[kind] ?? kind}`);
    return [`${whole(one.count)} devices about ${plain(one.x)} m, ${plain(one.y)} m`, `${percent(one.spent)} of their batteries spent`, ...bound].join("\n");
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key], cells = this.map.cells;
    if (!step) return;
    event.preventDefault();
    this.read = Math.max(0, Math.min(cells.length - 1, (this.read ?? (step > 0 ? -1 : cells.length)) + step));
    this.say(this.text(this.read), this.x(cells[this.read].x), this.y(cells[this.read].y));
  }

  figures() {
    const kinds = this.map.bound;
    return { columns: ["x_m", "y_m", "devices", "share_spent", ...kinds], rows: this.map.cells.map((one) => [one.x, one.y, one.count, one.spent, ...kinds.map((kind) => one.binding[kind] ?? 0)]) };
  }
}

const short = (n) => (n >= 1e6 ? `${plain(Number((n / 1e6).toPrecision(2)))}M` : n >= 1e3 ? `${plain(Number((n / 1e3).toPrecision(2)))}k` : String(n));
