// @ts-check
/** The list of traces: rows by keys, the rail, more rows in place, facets, and narrowing by dragging. */

import { fetchPart, load, parse } from "./part.js";
import { bars } from "./traces-bars.js";
import { arrivals } from "./traces-new.js";

/** @param {HTMLElement} root */
export function start(root) {
  const facets = root.querySelector("[data-load]");
  if (facets instanceof HTMLElement) lazily(facets);
  root.addEventListener("click", (event) => pressed(root, event));
  rows(root);
  const drawing = root.querySelector("[data-histogram]");
  if (drawing instanceof HTMLElement) bars(drawing);
  later(root);
  arrivals(root, bars);
  // Said once: a link that is copied from here says the list only.
  const address = new URL(location.href);
  if (!address.searchParams.has("saved")) return;
  address.searchParams.delete("saved");
  history.replaceState(history.state, "", address);
}

/** The values to narrow by, also once more where counting them took too long. @param {HTMLElement} place */
function lazily(place) {
  const address = place.dataset.load ?? "";
  place.addEventListener("click", (event) => {
    const again = /** @type {HTMLElement} */ (event.target).closest("[data-again]");
    if (!(again instanceof HTMLElement) || !plain(event)) return;
    event.preventDefault();
    again.textContent = "Counting…";
    load(place, address);
  });
  load(place, address);
}

/**
 * What takes longer than the rows: the drawing, and with it the page's first line; more of it when asked for.
 * @param {HTMLElement} root
 */
function later(root) {
  const place = root.querySelector("[data-drawing]");
  if (!(place instanceof HTMLElement)) return;
  place.addEventListener("swapped", () => {
    const said = place.querySelector("[data-said]")?.textContent ?? "";
    const headline = root.querySelector("h1");
    if (said && headline) headline.textContent = said;
    const drawing = place.querySelector("[data-histogram]");
    if (drawing instanceof HTMLElement) bars(drawing);
  });
  place.addEventListener("click", (event) => {
    const further = /** @type {HTMLElement} */ (event.target).closest("[data-further]");
    if (!(further instanceof HTMLAnchorElement) || !plain(event)) return;
    event.preventDefault();
    further.textContent = "Counting…";
    load(place, further.href);
  });
  if (place.dataset.drawing) load(place, place.dataset.drawing);
}

/** @param {HTMLElement} root @param {MouseEvent} event */
function pressed(root, event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const other = target.closest("[data-not]");
  if (event.altKey && other instanceof HTMLElement) {
    event.preventDefault();
    location.assign(other.dataset.not ?? "");
    return;
  }
  const more = target.closest("[data-more]");
  if (more instanceof HTMLElement && plain(event)) {
    event.preventDefault();
    append(more);
    return;
  }
  if (target.closest("[data-close]")) {
    show(root, "");
    return;
  }
  const row = target.closest("[data-rows] tr");
  if (row instanceof HTMLElement && plain(event) && !target.closest("a, button, input") && !getSelection()?.toString()) {
    mark(root, row);
    show(root, row.dataset.id ?? "");
  }
}

/** @param {MouseEvent} event */
const plain = (event) => !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;

/** Put the next rows behind those that stand. @param {HTMLElement} link */
async function append(link) {
  link.textContent = "Reading…";
  const answered = await fetchPart(link.dataset.more ?? "");
  const end = /** @type {HTMLElement} */ (link.closest("tbody"));
  if (answered.status !== 200) {
    link.textContent = "These could not be read. Try again";
    return;
  }
  end.replaceWith(...parse(`<table>${answered.html}</table>`).querySelectorAll("tbody"));
}

/** @param {HTMLElement} root */
function rows(root) {
  const all = () => /** @type {HTMLElement[]} */ ([...root.querySelectorAll("[data-rows] tr")]);
  const current = () => all().findIndex((row) => row.classList.contains("at"));
  /** @param {number} step */
  const move = (step) => (/** @type {Event} */ event) => {
    const list = all();
    const next = list[Math.max(0, Math.min(list.length - 1, current() + step))];
    if (!next) return;
    event.preventDefault();
    mark(root, next);
    next.scrollIntoView({ block: "nearest" });
    const rail = root.querySelector(".rail");
    if (rail instanceof HTMLElement && !rail.hidden) show(root, next.dataset.id ?? "");
  };
  document.addEventListener("key:next-row", move(1));
  document.addEventListener("key:previous-row", move(-1));
  document.addEventListener("key:open-row", (event) => {
    const link = all()[current()]?.querySelector("a");
    if (link) {
      event.preventDefault();
      link.click();
    }
  });
  document.addEventListener("key:select-row", (event) => {
    const row = all()[current()];
    if (row) {
      event.preventDefault();
      show(root, row.getAttribute("aria-selected") === "true" ? "" : (row.dataset.id ?? ""));
    }
  });
  document.addEventListener("key:up", (event) => {
    const rail = root.querySelector(".rail");
    if (rail instanceof HTMLElement && !rail.hidden) {
      event.preventDefault();
      show(root, "");
    }
  });
  const asked = root.querySelector(".rail")?.getAttribute("data-trace");
  if (asked) show(root, asked);
}

/** @param {HTMLElement} root @param {HTMLElement} row */
function mark(root, row) {
  for (const other of root.querySelectorAll("tr.at")) other.classList.remove("at");
  row.classList.add("at");
  row.querySelector("a")?.focus({ preventScroll: true });
}

let showing = new AbortController();

/** Show a trace in the rail, or close it; the address says which. @param {HTMLElement} root @param {string} id */
function show(root, id) {
  const rail = /** @type {HTMLElement | null} */ (root.querySelector(".rail"));
  if (!rail) return;
  for (const row of root.querySelectorAll("[data-rows] tr")) {
    if (row.getAttribute("data-id") === id) row.setAttribute("aria-selected", "true");
    else row.removeAttribute("aria-selected");
  }
  const address = new URL(location.href);
  if (id) address.searchParams.set("trace", id);
  else address.searchParams.delete("trace");
  history.replaceState(history.state, "", address);
  rail.hidden = !id;
  root.querySelector(".list-page")?.classList.toggle("railed", Boolean(id));
  showing.abort();
  showing = new AbortController();
  if (id) load(rail, `${root.dataset.rail}?trace=${encodeURIComponent(id)}`, showing.signal);
}
