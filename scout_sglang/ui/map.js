// The cache as a map: an area for each class of nodes, in tokens; brightness is its value.

const KINDS = [["anchor", "Anchors"], ["history", "Histories"], ["other", "Other"], ["free", "Free"]];

// Squarified treemap (Bruls, Huizing, van Wijk 2000): rows along the shorter side, each as long as
// adding to it makes its areas squarer. Areas must come largest first.
function squarify(items, x, y, width, height) {
  const placed = [];
  const total = items.reduce((sum, item) => sum + item.tokens, 0);
  if (!(total > 0) || width <= 0 || height <= 0) return placed;
  const scale = (width * height) / total;
  let left = items.map((item) => ({ item, area: item.tokens * scale }));
  const worst = (row, side) => {
    const sum = row.reduce((s, r) => s + r.area, 0);
    const areas = row.map((r) => r.area);
    return Math.max((side * side * Math.max(...areas)) / (sum * sum), (sum * sum) / (side * side * Math.min(...areas)));
  };
  while (left.length) {
    const side = Math.min(width, height);
    const row = [left[0]];
    while (row.length < left.length && worst([...row, left[row.length]], side) <= worst(row, side)) row.push(left[row.length]);
    left = left.slice(row.length);
    const thick = row.reduce((s, r) => s + r.area, 0) / side;
    let along = 0;
    for (const { item, area } of row) {
      const long = area / thick;
      placed.push(width >= height ? { item, x, y: y + along, w: thick, h: long } : { item, x: x + along, y, w: long, h: thick });
      along += long;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
  }
  return placed;
}

function holdings(state) {
  const agents = new Map((state.agents || []).map((agent) => [agent.id, agent]));
  const memory = state.memory || {};
  const cells = (state.cache_map || []).filter((cell) => known(cell.tokens) && cell.tokens > 0)
    .map((cell) => ({ ...cell, kind: ["anchor", "history"].includes(cell.kind) ? cell.kind : "other" }));
  // Areas too small to be seen are one area each kind.
  const total = (memory.capacity || 0) || cells.reduce((sum, cell) => sum + cell.tokens, 0);
  const groups = new Map(KINDS.map(([kind]) => [kind, []]));
  for (const cell of cells) {
    const name = cell.agent === null || cell.agent === undefined ? (cell.kind === "anchor" ? "shared" : cell.kind === "history" ? "several" : "other") : nameOf(agents.get(cell.agent) || { id: cell.agent });
    const group = groups.get(cell.kind);
    const last = group.find((other) => other.small && other.agent === cell.agent);
    if (cell.tokens >= total / 900) group.push({ ...cell, name, pieces: 1 });
    else if (last) {
      last.value = known(cell.value) && known(last.value) ? (last.value * last.tokens + cell.value * cell.tokens) / (last.tokens + cell.tokens) : last.value;
      last.tokens += cell.tokens; last.pieces += 1;
    } else group.push({ ...cell, name, pieces: 1, small: true });
  }
  if (memory.available > 0) groups.set("free", [{ kind: "free", agent: null, tokens: memory.available, value: null, name: "free", pieces: 1 }]);
  for (const group of groups.values()) group.sort((a, b) => b.tokens - a.tokens);
  return groups;
}

// One block for each agent of a kind, so that its areas lie together.
function byOwner(cells) {
  const blocks = new Map();
  for (const cell of cells) {
    const block = blocks.get(cell.agent) || { agent: cell.agent, name: cell.name, tokens: 0, cells: [] };
    blocks.set(cell.agent, block);
    block.tokens += cell.tokens;
    block.cells.push(cell);
  }
  return [...blocks.values()].sort((a, b) => b.tokens - a.tokens);
}

function drawMap(state) {
  const box = $("#map"), stage = $(".stage", box), svg = $("svg", stage);
  const groups = holdings(state);
  const memory = state.memory || {};
  const { width, height } = stage.getBoundingClientRect();
  const sums = KINDS.map(([kind, title]) => ({ kind, title, cells: groups.get(kind), tokens: groups.get(kind).reduce((s, c) => s + c.tokens, 0) })).filter((g) => g.tokens > 0);
  const total = sums.reduce((sum, group) => sum + group.tokens, 0);
  empty(stage, total ? "" : "Nothing is cached yet, and the size of the cache is not known.");
  const heldBack = known(memory.protected) && memory.protected > 0 ? `, ${short(memory.protected)} in use by running calls` : "";
  say($("#map-hint"), total ? `${short(memory.capacity)} tokens, ${percent(ratio(memory.available, memory.capacity))} free${heldBack}` : "");
  put(svg, { viewBox: `0 0 ${Math.max(1, width)} ${Math.max(1, height)}` });
  if (!svg.layers) {
    const hatch = sv("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      [sv("rect", { width: 7, height: 7, style: "fill:var(--free-a)" }), sv("rect", { width: 3.5, height: 7, style: "fill:var(--free-b)" })]);
    svg.append(sv("defs", {}, hatch), ...["cells", "names", "owners"].map((name) => sv("g", { class: name })));
    svg.layers = { cells: $(".cells", svg), names: $(".names", svg), owners: $(".owners", svg) };
    roving(stage, ".cell");
  }

  // Kinds below each other, so that they keep their places; within them blocks of agents.
  const caption = 18, gap = 5;
  const room = Math.max(1, height - sums.length * (caption + gap));
  const cells = [], owners = [];
  let y = 0;
  for (const group of sums) {
    const tall = (room * group.tokens) / Math.max(1, total);
    group.y = y;
    for (const block of squarify(byOwner(group.cells), 0, y + caption, width, tall)) {
      const strip = block.item.cells.length > 1 && block.w > 52 && block.h > 46 ? 15 : 0;
      if (strip) owners.push({ ...block, key: `${group.kind} ${block.item.agent}` });
      const inset = block.item.cells.length > 1 && block.w > 9 && block.h > 9 ? 1.5 : 0;
      for (const place of squarify(block.item.cells, block.x + inset, block.y + inset + strip, block.w - 2 * inset, block.h - 2 * inset - strip)) cells.push({ ...place, named: !strip });
    }
    y += caption + tall + gap;
  }
  keyed(svg.layers.owners, owners, (o) => o.key, () => sv("text"), (text, owner) => {
    put(text, { class: "owner" + (picked !== null && owner.item.agent !== picked ? " dim" : ""), x: owner.x + 3, y: owner.y + 12 });
    say(text, cut(owner.item.name, Math.floor((owner.w - 4) / 6.6)));
  });
  keyed(svg.layers.names, sums, (g) => g.kind, () => sv("text", { class: "group-name", x: 1 }), (text, group) => {
    put(text, { y: group.y + 12 });
    const share = group.tokens / total;
    say(text, `${group.title} ${share > 0 && share < 0.01 ? "<1 %" : percent(share)}`);
  });
  const uses = new Map();
  for (const cell of cells) {
    const key = `${cell.item.kind} ${cell.item.agent}`;
    const n = uses.get(key) || 0;
    uses.set(key, n + 1);
    cell.key = `${key} ${n}`;
  }
  keyed(svg.layers.cells, cells, (c) => c.key, newCell, (group, cell) => {
    const { item } = cell;
    const free = item.kind === "free";
    const [rect, title, name, amount] = group.parts;
    put(group, {
      class: "cell" + (free ? " free" : "") + (picked !== null && item.agent !== picked ? " dim" : ""),
      "aria-label": free ? `Free: ${number(item.tokens)} tokens` : `${item.kind} of ${item.name}${item.pieces > 1 ? ` (${item.pieces} small ones)` : ""}: ${number(item.tokens)} tokens, value ${worth(item.value)}`,
      transform: `translate(${cell.x.toFixed(1)} ${cell.y.toFixed(1)})`,
    });
    say(title, group.getAttribute("aria-label"));
    put(rect, { width: Math.max(0.5, cell.w).toFixed(1), height: Math.max(0.5, cell.h).toFixed(1), rx: 3, style: `fill:${free ? "url(#hatch)" : shade(item.value)}` });
    const letters = Math.floor((cell.w - 12) / 6.8);
    const ink = free ? "" : `fill:${inkOn(item.value)}`;
    put(name, { x: 7, y: Math.min(17, cell.h / 2 + 4).toFixed(1), style: ink });
    put(amount, { x: 7, y: 31, style: ink });
    const fits = cell.named && cell.h >= 15 && letters >= Math.min(7, item.name.length);
    say(name, fits ? cut(item.name, letters) : "");
    say(amount, fits && letters >= 5 && cell.h >= 36 ? short(item.tokens) : "");
  });
  oneStop(svg.layers.cells, ".cell");
}

function newCell() {
  const parts = [sv("rect"), sv("title"), sv("text"), sv("text", { class: "amount" })];
  const group = sv("g", { role: "img", tabindex: -1 }, parts);
  group.parts = parts;
  return group;
}

function drawLegend() {
  const stops = ramp.map((colour, n) => `${colour} ${((100 * n) / (ramp.length - 1)).toFixed(0)}%`);
  $("#legend").replaceChildren(
    el("span", {}, "goes first"),
    el("span", { class: "ramp", role: "img", "aria-label": "Colour scale of the value", style: `background:linear-gradient(90deg, ${stops.join(", ")})` }),
    el("span", {}, "kept longest"),
    el("span", { class: "box hatch" }), el("span", {}, "free"),
    el("span", { class: "box", style: "background:var(--unknown)" }), el("span", {}, "not valued yet"),
  );
}
