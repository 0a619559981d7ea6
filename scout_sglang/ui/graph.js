// The transition graph. Few agents stand on an ellipse in the order in which they mostly follow
// each other; many are spread by forces. Both start from the same places for the same agents.

const FEW = 16;
let picked = null;
const places = new Map();
let placedFor = "";

function links(transitions) {
  const ids = transitions.agents || [];
  const rows = transitions.probabilities || [];
  const found = [];
  const most = ids.length > FEW ? 3 : ids.length;
  const least = ids.length > FEW ? 0.08 : 0.04;
  rows.forEach((row, i) => {
    const best = row.map((p, j) => ({ from: ids[i], to: ids[j], p })).filter((e) => known(e.p) && e.p >= least);
    best.sort((a, b) => b.p - a.p);
    found.push(...best.slice(0, most));
  });
  return found;
}

// From the likeliest first agent on to whoever follows most often and has no place yet.
function procession(transitions) {
  const ids = transitions.agents || [];
  const left = new Set(ids.keys());
  const likeliest = (weights) => {
    let best = null;
    for (const n of left) if (best === null || (weights[n] || 0) > (weights[best] || 0)) best = n;
    return best;
  };
  const order = [];
  let next = likeliest(transitions.starts || []);
  while (next !== null) {
    left.delete(next);
    order.push(ids[next]);
    next = likeliest((transitions.probabilities || [])[next] || []);
  }
  return order;
}

function layOut(transitions, edges, sizeOf) {
  const order = procession(transitions);
  const members = [...order].sort((a, b) => a - b).join();
  if (placedFor === members && order.every((id) => places.has(id))) return;
  placedFor = members;
  places.clear();
  order.forEach((id, n) => {
    const turn = -Math.PI / 2 + (2 * Math.PI * n) / Math.max(1, order.length);
    places.set(id, { x: Math.cos(turn), y: Math.sin(turn) });
  });
  if (order.length === 1) places.set(order[0], { x: 0, y: 0 });
  if (order.length > FEW) spread(order, edges, sizeOf);
}

function spread(order, edges, sizeOf) {
  const most = Math.max(1, ...order.map(sizeOf));
  const weight = order.map((id) => 0.8 + 1.6 * (sizeOf(id) / most));
  const spots = order.map((id) => places.get(id));
  const index = new Map(order.map((id, n) => [id, n]));
  const ideal = 1.5 / Math.sqrt(order.length);
  for (let round = 0; round < 260; round++) {
    const heat = 0.12 * (1 - round / 260) + 0.002;
    const push = spots.map((p) => ({ x: -p.x * 0.35, y: -p.y * 0.35 }));
    for (let a = 0; a < spots.length; a++) {
      for (let b = a + 1; b < spots.length; b++) {
        const dx = spots[a].x - spots[b].x, dy = spots[a].y - spots[b].y;
        const near = Math.max(1e-4, dx * dx + dy * dy);
        const force = (ideal * ideal * weight[a] * weight[b]) / near;
        push[a].x += dx * force; push[a].y += dy * force;
        push[b].x -= dx * force; push[b].y -= dy * force;
      }
    }
    for (const edge of edges) {
      const a = index.get(edge.from), b = index.get(edge.to);
      if (a === b || a === undefined || b === undefined) continue;
      const dx = spots[a].x - spots[b].x, dy = spots[a].y - spots[b].y;
      const force = (Math.hypot(dx, dy) / ideal) * edge.p * 0.9;
      push[a].x -= dx * force; push[a].y -= dy * force;
      push[b].x += dx * force; push[b].y += dy * force;
    }
    spots.forEach((p, n) => {
      const length = Math.hypot(push[n].x, push[n].y) || 1;
      p.x += (push[n].x / length) * Math.min(length, heat);
      p.y += (push[n].y / length) * Math.min(length, heat);
    });
  }
  const extent = (axis) => [Math.min(...spots.map((p) => p[axis])), Math.max(...spots.map((p) => p[axis]))];
  for (const axis of ["x", "y"]) {
    const [low, high] = extent(axis);
    for (const p of spots) p[axis] = high > low ? (2 * (p[axis] - low)) / (high - low) - 1 : 0;
  }
}

function drawGraph(state) {
  const box = $("#graph"), stage = $(".stage", box), svg = $("svg", stage);
  const transitions = state.transitions || {};
  const ids = transitions.agents || [];
  const agents = new Map((state.agents || []).map((agent) => [agent.id, agent]));
  const edges = links(transitions);
  empty(stage, ids.length ? "" : "No calls yet. Agents appear here as soon as the first prompts come in, and arrows once one has followed another.");
  say($("#graph-hint"), ids.length ? `Size: calls. Colour: value of the anchor. Ring: how often a session ends there.` : "");
  layOut(transitions, edges, (id) => Math.sqrt((agents.get(id) || {}).calls || 0));
  if (picked !== null && !ids.includes(picked)) picked = null;

  const { width, height } = stage.getBoundingClientRect();
  const many = ids.length > FEW;
  const calls = ids.map((id) => (agents.get(id) || {}).calls || 0);
  const top = Math.max(1, ...calls);
  const biggest = many ? 17 : 27;
  const radius = (id) => (many ? 4 : 9) + (biggest - (many ? 4 : 9)) * Math.sqrt(((agents.get(id) || {}).calls || 0) / top);
  const mid = { x: width / 2, y: height / 2 };
  const reach = { x: Math.max(40, width / 2 - (many ? 60 : width < 480 ? 105 : 150)), y: Math.max(40, height / 2 - (many ? 34 : 66)) };
  const spot = (id) => {
    const place = places.get(id) || { x: 0, y: 0 };
    return { x: mid.x + place.x * reach.x, y: mid.y + place.y * reach.y, r: radius(id), place };
  };

  let layers = svg.layers;
  if (!layers) {
    const head = sv("marker", { id: "head", viewBox: "0 0 8 8", refX: 6.5, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
      sv("path", { d: "M0.5 0.8L7 4L0.5 7.2z", fill: "context-stroke" }));
    const names = ["edges", "labels", "nodes", "names"];
    svg.append(sv("defs", {}, head), ...names.map((name) => sv("g", { class: name })));
    layers = svg.layers = Object.fromEntries(names.map((name) => [name, $(`.${name}`, svg)]));
    put(layers.names, { "aria-hidden": "true" });
    roving(stage, ".node");
  }
  put(svg, { viewBox: `0 0 ${Math.max(1, width)} ${Math.max(1, height)}`, class: picked === null ? "" : "picked" });

  const touches = (edge) => picked !== null && (edge.from === picked || edge.to === picked);
  const side = (edge) => (touches(edge) ? (edge.from === picked ? " on" : " on in") : "");
  edges.sort((a, b) => a.p - b.p);
  keyed(layers.edges, edges, (e) => e.from + ">" + e.to, () => sv("path"), (path, edge) => {
    edge.curve = curve(spot(edge.from), spot(edge.to), edge.from === edge.to, mid);
    put(path, { class: "edge" + side(edge), d: edge.curve.d, "stroke-width": (0.7 + (many ? 2.6 : 5) * edge.p).toFixed(2), opacity: (0.18 + 0.72 * edge.p).toFixed(2), "marker-end": "url(#head)" });
  });
  const labelled = edges.filter((e) => (many ? touches(e) : e.p >= 0.15 || touches(e)));
  keyed(layers.labels, labelled, (e) => e.from + ">" + e.to, () => sv("text"), (text, edge) => {
    put(text, { class: "edge-label" + side(edge), x: edge.curve.x, y: edge.curve.y + 4 });
    say(text, percent(edge.p));
  });

  const near = new Set(edges.filter(touches).flatMap((e) => [e.from, e.to]));
  const order = many ? ids : procession(transitions);
  keyed(layers.nodes, order, (id) => id, (id) => newNode(id), (node, id) => {
    const at = spot(id), agent = agents.get(id) || { id };
    const row = ids.indexOf(id);
    const end = (transitions.ends || [])[row];
    put(node, { transform: `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})`, class: "node" + (id === picked || near.has(id) ? " on" : ""), "aria-pressed": id === picked, "aria-label": spoken(agent, row, transitions, agents) });
    const [halo, ring, ends, body] = node.parts;
    put(halo, { r: at.r + (many ? 4 : 8) });
    put(ring, { r: at.r + 3.5, "stroke-width": many ? 1.5 : 3 });
    put(ends, { d: arc(at.r + 3.5, known(end) ? end : 0), "stroke-width": many ? 2 : 3 });
    put(body, { r: at.r, style: `fill:${shade(agent.value)}` });
  });
  const byCalls = (a, b) => ((agents.get(b) || {}).calls || 0) - ((agents.get(a) || {}).calls || 0) || a - b;
  const urgent = [...ids].sort((a, b) => near.has(b) - near.has(a) || byCalls(a, b));
  const names = placeNames(urgent.map((id) => ({ id, at: spot(id), name: nameOf(agents.get(id) || { id }) })), width, many);
  keyed(layers.names, names, (n) => n.id, () => sv("text"), (text, label) => {
    put(text, { class: "node-name" + (near.has(label.id) ? " on" : ""), x: label.x.toFixed(1), y: label.y.toFixed(1), "text-anchor": label.anchor });
    say(text, label.text);
  });
  oneStop(layers.nodes, ".node");
  describe(agents, transitions);
}

function newNode(id) {
  const parts = [sv("circle", { class: "halo" }), sv("circle", { class: "ring" }), sv("path", { class: "ends" }), sv("circle", { class: "body" })];
  const node = sv("g", { role: "button", tabindex: -1, "data-agent": id }, parts);
  node.parts = parts;
  const toggle = () => { picked = picked === id ? null : id; redraw(); };
  node.addEventListener("click", toggle);
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
    if (event.key === "Escape" && picked !== null) { picked = null; redraw(); }
  });
  return node;
}

// Beside each node, away from the middle; where many crowd, those that would cover another stay out.
const LETTER = 7.4;
function placeNames(nodes, width, many) {
  const circle = ({ at }) => ({ x: at.x - at.r - 3, y: at.y - at.r - 3, w: 2 * at.r + 6, h: 2 * at.r + 6 });
  const taken = many ? nodes.map(circle) : [];
  const found = [];
  for (const { id, at, name } of nodes) {
    const left = !many && at.place.x < -0.35;
    const x = many ? at.x : at.x + (left ? -1 : 1) * (at.r + 13);
    const y = many ? at.y - at.r - 8 : at.y + 4 + (Math.abs(at.place.x) > 0.35 ? 0 : 17 * Math.sign(at.place.y));
    const room = many ? 14 : Math.max(4, Math.floor((left ? x : width - x) / LETTER));
    const text = cut(name, room);
    const w = text.length * LETTER;
    const box = { x: many ? x - w / 2 : left ? x - w : x, y: y - 12, w, h: 16 };
    const covers = (other) => box.x < other.x + other.w && other.x < box.x + box.w && box.y < other.y + other.h && other.y < box.y + box.h;
    if (many && taken.some(covers)) continue;
    taken.push(box);
    found.push({ id, text, x, y, anchor: many ? "middle" : left ? "end" : "start" });
  }
  return found;
}

// A bow to the right of its direction, so that two opposite arrows do not cover each other.
function curve(a, b, self, mid) {
  if (self) {
    const up = a.y <= mid.y ? -1 : 1;
    const far = a.r + 34;
    const [sx, ex] = [a.x - a.r * 0.5, a.x + a.r * 0.55];
    const near = a.y + up * (a.r * 0.86 + 5), tip = a.y + up * (a.r * 0.84 + 8);
    return { d: `M${sx.toFixed(1)} ${near.toFixed(1)}C${(sx - 16).toFixed(1)} ${(a.y + up * far).toFixed(1)} ${(ex + 16).toFixed(1)} ${(a.y + up * far).toFixed(1)} ${ex.toFixed(1)} ${tip.toFixed(1)}`, x: a.x, y: a.y + up * (a.r + 37) };
  }
  const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy) || 1;
  const bow = Math.min(46, 0.16 * length);
  const cx = (a.x + b.x) / 2 - (dy / length) * bow, cy = (a.y + b.y) / 2 + (dx / length) * bow;
  const from = step(a, cx, cy, a.r + 5), to = step(b, cx, cy, b.r + 8);
  return { d: `M${from.x.toFixed(1)} ${from.y.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${to.x.toFixed(1)} ${to.y.toFixed(1)}`, x: 0.25 * from.x + 0.5 * cx + 0.25 * to.x - (dy / length) * 11, y: 0.25 * from.y + 0.5 * cy + 0.25 * to.y + (dx / length) * 11 };
}
function step(p, x, y, far) {
  const length = Math.hypot(x - p.x, y - p.y) || 1;
  return { x: p.x + ((x - p.x) / length) * far, y: p.y + ((y - p.y) / length) * far };
}
function arc(r, share) {
  const part = Math.min(0.9999, Math.max(0, share));
  if (part < 0.005) return "";
  const turn = -Math.PI / 2 + 2 * Math.PI * part;
  return `M0 ${-r}A${r} ${r} 0 ${part > 0.5 ? 1 : 0} 1 ${(r * Math.cos(turn)).toFixed(2)} ${(r * Math.sin(turn)).toFixed(2)}`;
}

function followers(row, transitions, most) {
  const ids = transitions.agents || [];
  return ((transitions.probabilities || [])[row] || [])
    .map((p, n) => ({ id: ids[n], p })).filter((next) => known(next.p) && next.p >= 0.01)
    .sort((a, b) => b.p - a.p).slice(0, most);
}
function spoken(agent, row, transitions, agents) {
  const next = followers(row, transitions, 3).map((n) => `${nameOf(agents.get(n.id) || n)} ${percent(n.p)}`);
  const end = (transitions.ends || [])[row], others = (transitions.others || [])[row];
  if (known(others) && others >= 0.01) next.push(`agents not shown ${percent(others)}`);
  return `${nameOf(agent)}: ${number(agent.calls)} calls, hit rate ${percent(agent.hit_rate)}. ` +
    (next.length ? `Next: ${next.join(", ")}. ` : "") + (known(end) ? `Ends a session: ${percent(end)}.` : "");
}
function describe(agents, transitions) {
  const box = $("#detail");
  if (picked === null) {
    const text = (transitions.agents || []).length ? "Choose an agent (click, or Tab, arrows and Enter) to see who follows it and what it holds in the cache." : "";
    if (box.textContent !== text) box.replaceChildren(text);
    return;
  }
  const agent = agents.get(picked) || { id: picked };
  const text = spoken(agent, transitions.agents.indexOf(picked), transitions, agents).slice(nameOf(agent).length);
  const more = ` Anchor ${number(agent.anchor_tokens)} tokens, prompts part at token ${number(agent.first_divergence)}, ${number(agent.resident_tokens)} tokens in the cache, value ${worth(agent.value)}.`;
  if (box.textContent !== nameOf(agent) + text + more) box.replaceChildren(el("b", {}, el("bdi", {}, nameOf(agent))), text + more);
}
