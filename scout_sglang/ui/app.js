// Asks for the state, draws it, and says what it cannot do: no key, no server, no policy.

const EVERY = 2;
const PATIENCE = 10;
const LONGEST = 30;
const ADDRESS = new URL("../scout", location.origin + location.pathname.replace(/\/+$/, ""));
const DRAWN = [["#tiles", drawTiles], ["#graph", drawGraph], ["#map", drawMap], ["#rate", drawChart], ["#evictions", drawEvictions], ["#agents", drawAgents], ["#warmup", drawWarmup], ["#guard", drawGuard], ["#faults", drawFaults], ["#shadow-note", drawShadow]];

const memory = (() => { // sessionStorage may be forbidden: then this page's own memory has to do
  const kept = {};
  const attempt = (act, otherwise) => { try { return act(); } catch { return otherwise; } };
  return {
    get: (name) => attempt(() => sessionStorage.getItem(name), null) ?? kept[name] ?? null,
    set: (name, value) => { kept[name] = value; attempt(() => sessionStorage.setItem(name, value)); },
  };
})();

let answer = null, asked = 0, heard = null, elapsed = 0, failures = 0, paused = false, timer = 0, rankNumber = null, keyRefused = false;

function rankState() {
  const ranks = (answer && answer.ranks) || [];
  return ranks.find((rank) => rank.dp_rank === rankNumber) || ranks[0] || null;
}

function redraw() {
  const state = rankState();
  if (!state) return;
  for (const [part, draw] of DRAWN) {
    try { draw(state, elapsed); } catch (error) { console.error(`${part} cannot be drawn`, error); }
  }
}

function drawHead() {
  const state = rankState() || {};
  const model = String(answer.model ?? "").replace(/^\/.*\/(?=.)/, ""); // of a local folder its name
  const facts = [["", model], ["policy ", state.policy], ["mode ", state.mode === "on" ? null : state.mode], ["tree core ", state.tree_core], ["up ", known(state.uptime) ? span(state.uptime) : null], ["version ", answer.version]];
  const shown = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  $("#about").replaceChildren(...shown.map(([name, value]) => el("span", {}, [name, el("b", {}, el("bdi", {}, plain(value)))])));
  document.title = model ? `scout · ${plain(model)}` : "scout";
  const ranks = answer.ranks || [];
  const select = $("#rank");
  $("#rank-field").hidden = ranks.length < 2;
  const numbers = ranks.map((rank) => String(rank.dp_rank));
  if ([...select.options].map((o) => o.value).join() !== numbers.join()) select.replaceChildren(...numbers.map((n) => el("option", { value: n }, n)));
  select.value = String(state.dp_rank);
}

async function poll() {
  clearTimeout(timer);
  const turn = ++asked;
  const key = memory.get("scout-key");
  try {
    const response = await fetch(ADDRESS, { headers: key ? { Authorization: `Bearer ${key}` } : {}, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE * 1000) });
    if (turn !== asked) return;
    if (response.status === 401 || response.status === 403) return lacksKey(Boolean(key));
    const body = await response.json().catch(() => null);
    if (!response.ok) throw new Error(response.status === 404 ? "it runs none of scout's policies" : plain((body && body.error) || `status ${response.status}`).slice(0, 200));
    if (!body || !Array.isArray(body.ranks)) throw new Error("its answer is not the state of scout");
    arrived(body);
  } catch (error) {
    if (turn === asked) gone(error);
  }
}

function arrived(body) {
  const now = performance.now() / 1000;
  elapsed = heard === null ? 0 : now - heard;
  heard = now; answer = body; failures = 0; keyRefused = false;
  $("#main").setAttribute("aria-busy", "false");
  $("#key-form").hidden = true;
  document.body.classList.remove("stale");
  const other = body.schema !== 1 ? `The server speaks version ${plain(body.schema)} of the figures, this page version 1: some may be missing.` : "";
  notice(body.ranks.length ? other : "The server answers, but none of its ranks runs one of scout's policies.", false);
  status("live", paused ? "paused" : "live");
  drawHead();
  redraw();
  again(EVERY);
}

function lacksKey(had) {
  keyRefused = true;
  $("#key-form").hidden = false;
  notice(had ? "The server refuses this key." : "", false);
  status("idle", "needs a key");
  if (heard !== null) document.body.classList.add("stale");
}

function gone(error) {
  failures += 1;
  const wait = Math.min(LONGEST, EVERY * 1.6 ** failures);
  document.body.classList.toggle("stale", heard !== null);
  const silent = error.name === "TimeoutError" || error instanceof TypeError;
  const reason = silent ? `The server does not answer: ${error.name === "TimeoutError" ? `nothing came in ${PATIENCE} s` : "it cannot be reached"}.` : `The server shows no figures: ${error.message}.`;
  const age = heard === null ? "" : ` What you see is ${span(performance.now() / 1000 - heard)} old.`;
  notice(`${reason}${age} Trying again every ${Math.round(wait)} s.`, true);
  status("gone", silent ? "server gone" : "no figures");
  again(wait);
}

function again(seconds) {
  clearTimeout(timer);
  if (!paused && !document.hidden && !keyRefused) timer = setTimeout(poll, seconds * 1000);
}

function notice(text, retry) {
  const box = $("#notice");
  box.hidden = !text;
  say($("p", box), text);
  $("#retry").hidden = !retry;
}
function status(state, text) {
  put($("#status"), { "data-state": state });
  say($("#status span"), text);
}

// Theme: the system's until the button is used.
const dark = matchMedia("(prefers-color-scheme: dark)");
function theme() {
  const now = memory.get("scout-theme") || (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = now;
  ramp = RAMPS[now];
  say($("#theme"), now === "dark" ? "Light" : "Dark");
  $("#theme").setAttribute("aria-label", now === "dark" ? "Light colours" : "Dark colours");
  drawLegend();
  redraw();
}

$("#theme").addEventListener("click", () => { memory.set("scout-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark"); theme(); });
dark.addEventListener("change", theme);
$("#pause").addEventListener("click", () => {
  paused = !paused;
  put($("#pause"), { "aria-pressed": paused });
  say($("#pause"), paused ? "Go on" : "Pause");
  if (paused) { clearTimeout(timer); if (!failures) status("idle", "paused"); } else poll();
});
$("#retry").addEventListener("click", poll);
$("#rank").addEventListener("change", (event) => { rankNumber = Number(event.target.value); picked = null; elapsed = 0; drawHead(); redraw(); });
$("#key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  memory.set("scout-key", $("#key").value);
  $("#key").value = "";
  keyRefused = false;
  poll();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused && !keyRefused) poll(); });
let resized = 0;
new ResizeObserver(() => { cancelAnimationFrame(resized); resized = requestAnimationFrame(redraw); }).observe($("#main"));
$("#json").href = ADDRESS;
chartReading();
theme();
status("idle", "connecting");
poll();
