// What every part of the page uses: elements, figures as text, colours, keyed updates.
// Text from the server reaches the document as text nodes and attributes only.

const SVG = "http://www.w3.org/2000/svg";
const $ = (selector, within = document) => within.querySelector(selector);

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
  }
  if (children !== undefined) element.replaceChildren(...[].concat(children).filter((c) => c !== null));
  return element;
}
const el = (name, attributes, children) => put(document.createElement(name), attributes, children);
const sv = (name, attributes, children) => put(document.createElementNS(SVG, name), attributes, children);
const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// Children of `parent` follow `items`; an element is kept as long as its key is there, so that
// focus and animation survive an update.
function keyed(parent, items, keyOf, create, update) {
  const kept = parent.kept || (parent.kept = new Map());
  const held = document.activeElement;
  const seen = new Set();
  items.forEach((item, place) => {
    const key = keyOf(item, place);
    seen.add(key);
    let element = kept.get(key);
    if (!element) kept.set(key, (element = create(item)));
    update(element, item, place);
    if (parent.children[place] !== element) parent.insertBefore(element, parent.children[place] || null);
  });
  for (const [key, element] of kept) if (!seen.has(key)) { element.remove(); kept.delete(key); }
  if (held && held !== document.activeElement && parent.contains(held)) held.focus({ preventScroll: true });
}

const known = (value) => typeof value === "number" && Number.isFinite(value);
const number = (value) => (known(value) ? Math.round(value).toLocaleString("en-US") : "–");
function short(value) {
  if (!known(value)) return "–";
  for (const [size, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) {
      const unit = sign === "k" ? 1e3 : size;
      const scaled = value / unit;
      return scaled.toFixed(Math.abs(scaled) >= 100 ? 0 : 1) + " " + sign;
    }
  }
  return number(value);
}
const percent = (share, digits = 0) => (known(share) ? (100 * share).toFixed(digits) + " %" : "–");
const ratio = (part, whole) => (known(part) && known(whole) && whole > 0 ? part / whole : null);
const worth = (value) => (known(value) ? (value >= 0.1 ? value.toFixed(2) : value >= 0.001 ? value.toFixed(3) : "<.001") : "–");
function span(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 120) return Math.round(seconds) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " d";
}

// Labels come from clients: at most 64 characters, what cannot be seen is shown as a dot.
const plain = (text) => String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "·").slice(0, 64);
function nameOf(agent) {
  if (!agent) return "several agents";
  if (agent.label !== null && agent.label !== undefined && agent.label !== "") return plain(agent.label);
  return agent.id === null || agent.id === undefined ? "other" : "agent " + plain(agent.id);
}
const cut = (text, most) => (text.length > most ? text.slice(0, Math.max(1, most - 1)) + "…" : text);

// Value in octaves, as the policy counts it: 1 is sure to be used again, 2^-10 and less as good as
// never. Brightness alone carries the scale, away from the ground, so colour vision does not matter.
const RAMPS = {
  light: ["#f1ead2", "#cfddb6", "#8cc2b0", "#4b98ad", "#2a6a9b", "#1d437c", "#14275a"],
  dark: ["#1d2f57", "#2f4a78", "#55627c", "#827f78", "#b3a36c", "#ddc456", "#ffe96b"],
};
let ramp = RAMPS.light;
const depth = (value) => Math.min(1, Math.max(0, 1 + Math.log2(Math.max(value, 1e-9)) / 10));
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
function shade(value) {
  if (!known(value)) return "var(--unknown)";
  const at = depth(value) * (ramp.length - 1);
  const low = Math.min(ramp.length - 2, Math.floor(at));
  const [a, b] = [channels(ramp[low]), channels(ramp[low + 1])];
  return "rgb(" + a.map((c, n) => Math.round(c + (b[n] - c) * (at - low))).join(" ") + ")";
}
function inkOn(value) {
  if (!known(value)) return "var(--ink)";
  const [r, g, b] = shade(value).match(/\d+/g).map(Number).map((c) => ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#12151a" : "#f6f7f9";
}

// One stop for the Tab key among many; arrows, Home and End move on inside. The box is no SVG
// element: Chromium would make that a stop, too, for listening to the focus.
function roving(box, selector) {
  box.addEventListener("keydown", (event) => {
    const stops = [...box.querySelectorAll(selector)];
    const here = stops.indexOf(document.activeElement);
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (here < 0 || !(event.key in steps || event.key === "Home" || event.key === "End")) return;
    event.preventDefault();
    const next = event.key === "Home" ? 0 : event.key === "End" ? stops.length - 1 : here + steps[event.key];
    stops[(next + stops.length) % stops.length].focus();
  });
  box.addEventListener("focusin", (event) => {
    const stop = event.target.closest(selector);
    if (stop) for (const other of box.querySelectorAll(selector)) other.setAttribute("tabindex", other === stop ? 0 : -1);
  });
}
function oneStop(box, selector) {
  const stops = [...box.querySelectorAll(selector)];
  if (stops.length && !stops.some((stop) => stop.getAttribute("tabindex") === "0")) stops[0].setAttribute("tabindex", 0);
}

function empty(stage, text) {
  let note = $(".empty", stage);
  if (!text) { if (note) note.remove(); return; }
  if (!note) stage.append((note = el("p", { class: "empty" })));
  say(note, text);
}
