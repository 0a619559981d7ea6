// Key figures, agents, evictions, warm-up, guard, faults and cost.

function lately(state, seconds) {
  const slots = (state.history || []).filter((s) => known(s.ago) && s.ago <= seconds + 5);
  const sum = (name) => slots.reduce((total, s) => total + (s[name] || 0), 0);
  const prompt = sum("prompt_tokens");
  const compared = slots.length > 0 && slots.every((s) => known(s.lru_hit_tokens));
  return { prompt, rate: ratio(sum("hit_tokens"), prompt), lru: compared ? ratio(sum("lru_hit_tokens"), prompt) : null, saved: compared ? sum("hit_tokens") - sum("lru_hit_tokens") : null };
}

function drawTiles(state) {
  const totals = state.totals || {}, sessions = state.sessions || {}, next = state.next_agent || {}, memory = state.memory || {};
  const minutes = lately(state, 900);
  const gain = minutes.rate !== null && minutes.lru !== null ? minutes.rate - minutes.lru : null;
  const used = ratio(memory.capacity - memory.available, memory.capacity);
  const tiles = [
    ["Hit rate, 15 min", [percent(minutes.rate, 1)], `${percent(ratio(totals.hit_tokens, totals.prompt_tokens), 1)} since start`],
    ["Against LRU, 15 min", gain === null ? ["–"] : [el("span", { class: gain >= 0 ? "up" : "down" }, `${gain >= 0 ? "+" : "−"}${Math.abs(100 * gain).toFixed(1)}`), el("small", {}, "points")],
      gain === null ? "no shadow LRU to compare with" : `${minutes.saved >= 0 ? "saved" : "lost"} ${short(Math.abs(minutes.saved))} tokens of prefill (estimate)`],
    ["Prompt tokens", [short(totals.prompt_tokens)], `${short(totals.recomputed_tokens)} computed, ${number(totals.calls)} calls`],
    ["Live sessions", [number(sessions.live)], `${number(sessions.seen)} seen; ${percent(sessions.id_share)} of calls with an id`],
    ["Next agent foretold", [percent(next.accuracy)], `of ${short(next.predictions)}; predictability R ${known(next.R) ? next.R.toFixed(2) : "–"}`],
    ["Cache in use", [percent(used)], `${short(memory.capacity)} tokens; ${short(totals.evicted_tokens)} evicted`, memory],
  ];
  keyed($("#tiles"), tiles, (t) => t[0], (t) => el("div", { class: "tile" }, [el("dt", {}, t[0]), el("dd"), el("dd", { class: "note" })]), (tile, [, value, note, held]) => {
    tile.children[1].replaceChildren(...value);
    say(tile.children[2], note);
    if (held && known(held.capacity)) {
      const bar = tile.children[3] || tile.appendChild(el("dd", { class: "bar", "aria-hidden": "true" }, [el("i"), el("i")]));
      put(bar.children[0], { style: `width:${percent(ratio(held.protected, held.capacity), 2).replace(" ", "")};background:var(--lru)` });
      put(bar.children[1], { style: `width:${percent(ratio(held.evictable, held.capacity), 2).replace(" ", "")};background:var(--scout)` });
    }
  });
}

// Title, figure to sort by, and what stands in the cell.
const COLUMNS = [
  ["Agent", (a) => nameOf(a).toLowerCase(), (a) => [el("bdi", {}, nameOf(a))]],
  ["Calls", (a) => a.calls, (a) => [number(a.calls)]],
  ["Hit rate", (a) => a.hit_rate, (a) => [el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: `width:${100 * (a.hit_rate || 0)}%` })), percent(a.hit_rate)]],
  ["Recomputed", (a) => a.recomputed_tokens, (a) => [short(a.recomputed_tokens)]],
  ["Anchor", (a) => a.anchor_tokens, (a) => [number(a.anchor_tokens)]],
  ["Parts at", (a) => a.first_divergence, (a) => [number(a.first_divergence)]],
  ["Cache share", (a) => a.resident_share, (a) => [percent(a.resident_share, 1)]],
  ["Value", (a) => a.value, (a) => [el("span", { class: "swatch", "aria-hidden": "true", style: `background:${shade(a.value)}` }), " ", worth(a.value)]],
];
let sorting = { column: 3, down: true };

function drawAgents(state) {
  const box = $("#agents");
  const heads = $("thead tr", box);
  if (!heads.children.length) {
    COLUMNS.forEach(([title], n) => {
      const button = el("button", { type: "button", title: n === 5 ? "Token where this agent's prompts first differ" : n === 4 ? "Tokens of the agent's fixed context" : null }, title);
      button.addEventListener("click", () => { sorting = { column: n, down: sorting.column === n ? !sorting.down : n > 0 }; redraw(); });
      heads.append(el("th", { scope: "col" }, button));
    });
    $("#find").addEventListener("input", () => redraw());
  }
  [...heads.children].forEach((th, n) => put(th, { "aria-sort": n === sorting.column ? (sorting.down ? "descending" : "ascending") : null }));
  const figure = COLUMNS[sorting.column][1];
  const wanted = $("#find").value.trim().toLowerCase();
  const agents = (state.agents || []).filter((a) => !wanted || nameOf(a).toLowerCase().includes(wanted));
  const order = (a, b) => {
    const [x, y] = [figure(a), figure(b)];
    if (typeof x === "string") return sorting.down ? y.localeCompare(x) : x.localeCompare(y);
    const [u, v] = [known(x) ? x : -1, known(y) ? y : -1];
    return (sorting.down ? v - u : u - v) || (a.id === null) - (b.id === null) || a.id - b.id;
  };
  const body = $("tbody", box);
  keyed(body, agents.sort(order), (a) => String(a.id), () => el("tr", {}, COLUMNS.map(() => el("td"))), (row, agent) => {
    put(row, { class: picked !== null && agent.id === picked ? "on" : null });
    COLUMNS.forEach(([, , cell], n) => {
      const made = el("td", {}, cell(agent));
      if (row.children[n].innerHTML !== made.innerHTML) row.replaceChild(made, row.children[n]);
    });
    put(row.children[0], { title: nameOf(agent) });
  });
  const scroll = $(".scroll", box);
  const text = agents.length ? "" : (state.agents || []).length ? `No agent is called like “${wanted}”.` : "No agents yet: the first calls will name them.";
  empty(scroll, text);
}

function drawEvictions(state, elapsed) {
  const evictions = state.evictions || {};
  const kinds = Object.entries(evictions.by_kind || {}).filter(([, k]) => k && known(k.tokens)).sort((a, b) => b[1].tokens - a[1].tokens);
  const top = Math.max(1, ...kinds.map(([, kind]) => kind.tokens));
  const reasons = Object.entries(evictions.tokens_by_reason || {}).filter(([, tokens]) => tokens > 0);
  const sum = reasons.reduce((total, [, tokens]) => total + tokens, 0);
  say($("#evictions-hint"), reasons.length ? "decided by " + reasons.map(([reason, tokens]) => `${plain(reason)} ${percent(tokens / sum)}`).join(", ") : "");
  keyed($("#evicted-kinds"), kinds, ([kind]) => kind, ([kind]) => el("div", { class: "row" }, [el("span", {}, plain(kind)), el("span", { class: "bar" }, el("i")), el("span")]), (row, [, kind]) => {
    put($("i", row), { style: `width:${(100 * kind.tokens) / top}%` });
    say(row.lastChild, `${short(kind.tokens)} tokens`);
  });
  const agents = new Map((state.agents || []).map((agent) => [agent.id, agent]));
  const recent = [...(evictions.recent || [])].filter((e) => e && known(e.ago)).sort((a, b) => a.ago - b.ago).slice(0, 64);
  const list = $("#evicted");
  list.replaceChildren(...recent.map((e) => {
    const who = e.agent === null || e.agent === undefined ? "several agents" : nameOf(agents.get(e.agent) || { id: e.agent });
    return el("li", { class: e.ago < elapsed ? "new" : null }, [
      el("i", { class: "swatch", style: `background:${shade(e.value)}`, title: `value ${worth(e.value)}` }),
      el("bdi", { class: "who" }, who), el("span", {}, plain(e.kind)), el("span", {}, `${short(e.tokens)} tok`), el("span", {}, span(e.ago)),
    ]);
  }));
  if (!recent.length) list.append(el("li", { class: "empty", style: "display:block" }, "Nothing has been evicted: everything fits so far."));
}

const facts = (pairs) => el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, [el("dt", {}, name), el("dd", {}, value)])));

function drawWarmup(state) {
  const warm = state.warmup, box = $("#warmup"), body = $(".body", box);
  if (!warm || typeof warm !== "object") {
    say($(".hint", box), "");
    body.replaceChildren(el("p", { class: "empty", style: "padding:0" }, "No warm-up: the next agent's anchor is not fetched ahead on this server."));
    return;
  }
  say($(".hint", box), warm.on === false ? "off" : "anchors computed ahead while the server idles");
  const parts = [["used", warm.tokens_used, "var(--scout)"], ["waiting", warm.tokens_resident, "var(--faint)"], ["wasted", warm.tokens_wasted, "var(--lru)"]];
  const total = parts.reduce((sum, [, tokens]) => sum + (tokens || 0), 0);
  const children = [];
  if (total > 0) {
    children.push(el("div", { class: "bar split", role: "img", "aria-label": parts.map(([n, t]) => `${n} ${number(t)} tokens`).join(", ") }, parts.map(([, tokens, colour]) => el("i", { style: `width:${(100 * (tokens || 0)) / total}%;background:${colour}` }))));
    children.push(el("div", { class: "key-line" }, parts.map(([name, tokens, colour]) => el("span", {}, [el("i", { class: "swatch", style: `background:${colour}` }), ` ${name} ${short(tokens)}`]))));
  }
  const named = { pieces_sent: "Pieces sent", tokens_prefilled: "Tokens computed", foreground_delay_ms: "Delay to calls, ms" };
  const shown = new Set(["on", "tokens_used", "tokens_resident", "tokens_wasted"]);
  const rest = Object.entries(warm).filter(([key, value]) => !shown.has(key) && (known(value) || typeof value === "string"));
  children.push(facts(rest.slice(0, 9).map(([key, value]) => [named[key] || plain(key).replaceAll("_", " "), known(value) ? (Number.isInteger(value) ? short(value) : value.toFixed(2)) : plain(value)])));
  body.replaceChildren(...children);
}

function drawGuard(state) {
  const guard = state.guard, box = $("#guard"), body = $(".body", box);
  if (!guard) {
    say($(".hint", box), "off");
    body.replaceChildren(el("p", { class: "empty", style: "padding:0" }, "Without the guard nothing holds the policy to LRU should its predictions go wrong."));
    return;
  }
  const beta = known(guard.beta) ? Math.min(1, Math.max(0, guard.beta)) : 0;
  say($(".hint", box), beta >= 1 ? "eviction is plain LRU at present" : beta > 0 ? "leaning towards LRU" : "the policy decides alone");
  body.replaceChildren(
    el("div", { class: "dial" }, [
      el("div", { class: "bar", role: "meter", "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": beta, "aria-label": "Weight of LRU" }, el("i", { style: `width:${100 * beta}%;background:var(--lru)` })),
      el("div", { class: "ends" }, [el("span", {}, "policy"), el("span", {}, `weight of LRU ${beta.toFixed(2)}`), el("span", {}, "LRU")]),
    ]),
    facts([[guard.regret > 0 ? "Behind LRU, tokens" : "Ahead of LRU, tokens", short(Math.abs(guard.regret))], ["Forgiven", short(guard.forgiven)], ["Switches", number(guard.switches)]]),
  );
}

function drawFaults(state) {
  const faults = Object.entries(state.faults || {}).filter(([, n]) => n), box = $("#faults"), body = $(".body", box);
  say($(".hint", box), known(state.uptime) ? `in ${span(state.uptime)}` : "");
  const children = faults.length
    ? [el("p", { class: "verdict bad" }, "⚠ Eviction fell back to recency where scout failed; see the log."), el("ul", { class: "fault-list" }, faults.map(([kind, n]) => el("li", {}, [el("span", {}, plain(kind)), el("b", {}, number(n))])))]
    : [el("p", { class: "verdict good" }, "✓ No faults")];
  const steps = Object.entries(state.cpu || {}).filter(([, step]) => step && known(step.count));
  if (steps.length) {
    const head = ["Own CPU time", "times", "mean", "p99"].map((t) => el("th", { scope: "col" }, el("span", { style: "color:var(--soft);font-size:12px" }, t)));
    const rows = steps.map(([name, step]) => el("tr", {}, [plain(name), short(step.count), micro(step.mean_us), micro(step.p99_us)].map((t) => el("td", {}, t))));
    children.push(el("table", { class: "costs" }, [el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)]));
  }
  body.replaceChildren(...children);
}
const micro = (us) => (known(us) ? (us < 1000 ? `${us < 10 ? us.toFixed(1) : Math.round(us)} µs` : `${(us / 1000).toFixed(1)} ms`) : "–");

function drawShadow(state) {
  const note = $("#shadow-note"), shadow = state.shadow;
  note.hidden = state.mode !== "shadow";
  if (note.hidden) return;
  const served = "Shadow mode: requests are served exactly as under lru. ";
  if (!shadow || !known(shadow.saved_tokens)) { say(note, served + "What scout would have saved is shown after the first calls."); return; }
  const sample = known(shadow.sample) && shadow.sample < 1 ? `, estimated from ${percent(shadow.sample)} of the prompts` : "";
  say(note, `${served}${plain(shadow.policy || "scout")} would have saved ${short(shadow.saved_tokens)} tokens of prefill (${percent(shadow.saved_share, 1)} of all)${sample}.`);
}
