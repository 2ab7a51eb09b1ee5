// Keeps a page up to date without reloading it, and draws its plots.
//
//   <main data-live>           asked for again every two seconds while somebody looks at it;
//                              only what changed is changed, so that focus, scroll and what is
//                              open stay as they are
//   <figure data-plot>         has its values in a <script type="application/json">, and a
//                              <div> that they are drawn in
//
// Nothing is kept: what the service no longer says is no longer on the page.
"use strict";

const EVERY = 2000;
const main = document.getElementById("main");
const asof = document.getElementById("asof");
const pause = document.getElementById("pause");
let paused = false;
let asking = false;
let good = new Date();

function clock(time) {
  return time.toLocaleTimeString("en-GB");
}

function say(text, trouble) {
  if (!asof) return;
  if (asof.textContent !== text) asof.textContent = text;
  asof.classList.toggle("trouble", Boolean(trouble));
}

// --- the page as it is now -------------------------------------------------------------------

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

function kept(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.matches("[data-kept], .drawing");
}

function attributes(old, now) {
  for (const { name } of [...old.attributes]) {
    if (name === "open" || now.hasAttribute(name)) continue;
    old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function change(old, now) {
  if (kept(old)) return;
  if (old.nodeType === Node.TEXT_NODE || old.nodeType === Node.COMMENT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE || old.isEqualNode(now)) return;
  attributes(old, now);
  if (old.matches("input, select, textarea")) return; // what somebody writes is theirs
  children(old, now);
}

function children(old, now) {
  let at = old.firstChild;
  for (const wanted of [...now.childNodes]) {
    let found = at;
    while (found && !same(found, wanted)) found = found.nextSibling;
    if (found) {
      while (at !== found) { // what stood before it is not there any more
        const next = at.nextSibling;
        at.remove();
        at = next;
      }
      const next = at.nextSibling;
      change(at, wanted);
      at = next;
    } else {
      old.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function show(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  children(main, page.body);
  draw();
}

async function update() {
  if (asking || paused || document.hidden) return;
  asking = true;
  try {
    const answer = await fetch(location.href, {
      headers: { "X-Live": "1" }, credentials: "same-origin", cache: "no-store", redirect: "error",
      signal: AbortSignal.timeout(10 * EVERY),
    });
    const text = await answer.text();
    if (paused) return;
    if (answer.status === 401) {
      // Nothing stays on the screen once the login is over.
      paused = true;
      show(text);
      say("logged out", true);
      return;
    }
    if (answer.status >= 500 || answer.status === 429) throw new Error(String(answer.status));
    show(text);
    good = new Date();
    say(`live, ${clock(good)}`);
  } catch {
    say(`as of ${clock(good)}: the service does not answer`, true);
  } finally {
    asking = false;
  }
}

// --- plots -----------------------------------------------------------------------------------

const drawn = new WeakMap();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function coloured(value) {
  if (typeof value === "string" && value.startsWith("--")) return colour(value);
  if (Array.isArray(value)) return value.map(coloured);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each)]));
  }
  return value;
}

function draw(anew) {
  if (typeof Plotly === "undefined") return;
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    const text = figure.querySelector("script").textContent;
    const place = figure.querySelector(".drawing");
    if (!anew && drawn.get(place) === text) continue;
    drawn.set(place, text);
    const told = coloured(JSON.parse(text));
    Plotly.react(place, told.data, told.layout, { displayModeBar: false, responsive: true });
  }
}

// --- who looks -------------------------------------------------------------------------------

if (main && main.hasAttribute("data-live")) {
  pause.hidden = false;
  say(`live, ${clock(good)}`);
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) say(`paused at ${clock(good)}`);
    else update();
  });
  document.addEventListener("visibilitychange", update);
  setInterval(update, EVERY);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
addEventListener("load", () => setTimeout(draw, 0)); // the page first: its tables say the same
if (main && main.hasAttribute("data-ends")) {
  // What is raw leaves the screen again.
  const back = document.getElementById("back");
  setTimeout(() => location.replace(back.href), 1000 * Number(main.dataset.ends));
}
