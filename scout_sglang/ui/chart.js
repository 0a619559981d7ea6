// Hit rate of the last minutes, as a moving minute, beside what LRU would have had.

const MINUTE = 60;
let crosshair = null; // index of the point being read, or null

function movingRates(history) {
  const slots = (history || []).filter((s) => known(s.ago) && known(s.prompt_tokens))
    .map((s) => ({ ...s, end: s.ago - (s.seconds || 0) })).sort((a, b) => b.ago - a.ago);
  return slots.map((slot) => {
    const within = slots.filter((s) => s.end >= slot.end && s.ago <= slot.end + MINUTE + 1);
    const sum = (name) => within.reduce((total, s) => total + (s[name] || 0), 0);
    const prompt = sum("prompt_tokens");
    const guessed = within.every((s) => known(s.lru_hit_tokens));
    return { ago: Math.max(0, slot.end), prompt, rate: ratio(sum("hit_tokens"), prompt), lru: guessed ? ratio(sum("lru_hit_tokens"), prompt) : null };
  });
}

function runs(points, has) {
  const found = [];
  let run = [];
  for (const point of points) {
    if (has(point)) run.push(point);
    else if (run.length) { found.push(run); run = []; }
  }
  if (run.length) found.push(run);
  return found;
}

function drawChart(state) {
  const box = $("#rate"), stage = $(".stage", box), svg = $("svg", stage);
  const points = movingRates(state.history);
  const filled = points.filter((p) => p.rate !== null);
  empty(stage, filled.length > 1 ? "" : "The curves begin once prompts have come in for some seconds.");
  const { width, height } = stage.getBoundingClientRect();
  put(svg, { viewBox: `0 0 ${Math.max(1, width)} ${Math.max(1, height)}` });
  if (filled.length < 2) { svg.replaceChildren(); say($("#rate-read"), ""); say($("#rate-hint"), ""); return; }

  const longest = Math.max(60, ...points.map((p) => p.ago));
  const minutes = [1, 2, 5, 10, 15].find((m) => m * 60 >= longest - 20) || 15;
  const area = { left: 40, right: width - 92, top: 10, bottom: height - 26 };
  const x = (ago) => area.right - (Math.min(ago, minutes * 60) / (minutes * 60)) * (area.right - area.left);
  const y = (rate) => area.bottom - rate * (area.bottom - area.top);
  const at = (p, value) => `${x(p.ago).toFixed(1)} ${y(value).toFixed(1)}`;
  const line = (run, name) => run.map((p, n) => (n ? "L" : "M") + at(p, p[name])).join("");

  const parts = [];
  for (const rate of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(sv("line", { class: "axis", x1: area.left, x2: area.right, y1: y(rate), y2: y(rate) }));
    parts.push(sv("text", { class: "axis-text", x: area.left - 8, y: y(rate) + 4, "text-anchor": "end" }, `${100 * rate}%`));
  }
  const steps = width < 480 ? 2 : minutes <= 2 ? 4 : 5;
  for (let n = 0; n <= steps; n++) {
    const ago = (minutes * 60 * n) / steps;
    const text = n === 0 ? "now" : minutes * 60 <= 120 ? `−${Math.round(ago)} s` : `−${+(ago / 60).toFixed(1)} min`;
    parts.push(sv("text", { class: "axis-text", x: x(ago), y: area.bottom + 18, "text-anchor": n === 0 ? "end" : n === steps ? "start" : "middle" }, text));
  }
  for (const run of runs(points, (p) => p.rate !== null && p.lru !== null)) parts.push(...between(run, at));
  for (const run of runs(points, (p) => p.lru !== null)) parts.push(sv("path", { class: "line lru", d: line(run, "lru") }));
  for (const run of runs(points, (p) => p.rate !== null)) parts.push(sv("path", { class: "line scout", d: line(run, "rate") }));
  const last = filled[filled.length - 1];
  const own = state.mode === "shadow" ? "served" : state.policy || "scout";
  let up = y(last.rate) + 4, down = last.lru === null ? null : y(last.lru) + 4;
  if (down !== null && Math.abs(up - down) < 15) {
    const mid = (up + down) / 2, sign = up <= down ? -1 : 1;
    up = mid + sign * 8; down = mid - sign * 8;
  }
  parts.push(sv("text", { class: "end-label scout", x: area.right + 9, y: up }, `${cut(plain(own), 8)} ${percent(last.rate)}`));
  if (down !== null) parts.push(sv("text", { class: "end-label lru", x: area.right + 9, y: down }, `LRU ${percent(last.lru)}`));

  svg.points = filled;
  svg.area = { ...area, x };
  const read = crosshair === null ? null : filled[Math.min(crosshair, filled.length - 1)];
  if (read) {
    parts.push(sv("line", { class: "cross", x1: x(read.ago), x2: x(read.ago), y1: area.top, y2: area.bottom }));
    if (read.lru !== null) parts.push(sv("circle", { class: "dot lru", cx: x(read.ago), cy: y(read.lru), r: 4.5 }));
    parts.push(sv("circle", { class: "dot scout", cx: x(read.ago), cy: y(read.rate), r: 4.5 }));
  }
  svg.replaceChildren(...parts);
  say($("#rate-hint"), last.lru === null ? "a moving minute; without the guard there is no shadow LRU" : "a moving minute; blue is gain over LRU (an estimate), orange is loss");
  const shown = read || last;
  const when = shown === last && !read ? "Now" : `${span(shown.ago)} ago`;
  const compare = shown.lru === null ? "" : `, LRU ${percent(shown.lru, 1)}: ${points100(shown.rate - shown.lru)}`;
  say($("#rate-read"), `${when}: hit rate ${percent(shown.rate, 1)}${compare}, over ${short(shown.prompt)} prompt tokens.`);
}

const points100 = (difference) => `${difference >= 0 ? "+" : "−"}${Math.abs(100 * difference).toFixed(1)} points`;

// The area between the two lines, cut where they cross.
function between(run, at) {
  const shapes = [];
  for (let n = 1; n < run.length; n++) {
    const a = run[n - 1], b = run[n];
    const da = a.rate - a.lru, db = b.rate - b.lru;
    const shape = (sign, ...corners) => shapes.push(sv("path", { class: sign >= 0 ? "gain" : "loss", d: "M" + corners.join("L") + "Z" }));
    if (da * db >= 0) { shape(da + db, at(a, a.rate), at(b, b.rate), at(b, b.lru), at(a, a.lru)); continue; }
    const t = da / (da - db);
    const middle = { ago: a.ago + t * (b.ago - a.ago) };
    const cross = at(middle, a.rate + t * (b.rate - a.rate));
    shape(da, at(a, a.rate), cross, at(a, a.lru));
    shape(db, at(b, b.rate), cross, at(b, b.lru));
  }
  return shapes;
}

function chartReading() {
  const svg = $("#rate svg");
  svg.addEventListener("pointermove", (event) => {
    if (!svg.points) return;
    const left = event.clientX - svg.getBoundingClientRect().left;
    const far = svg.points.map((p) => Math.abs(svg.area.x(p.ago) - left));
    crosshair = far.indexOf(Math.min(...far));
    redraw();
  });
  const leave = () => { if (crosshair !== null) { crosshair = null; redraw(); } };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const most = (svg.points || []).length - 1;
    const here = crosshair === null ? most : crosshair;
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: most }[event.key];
    if (to === undefined || most < 0) return;
    event.preventDefault();
    crosshair = Math.min(most, Math.max(0, to));
    $("#rate-read").setAttribute("aria-live", "polite");
    redraw();
  });
}
