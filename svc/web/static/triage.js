// @ts-check
/**
 * The inbox: cases by keys, each read in the pane beside the list, or on its page where there is no room for a pane;
 * toasts that go; the list that has changed.
 */

import { load } from "./part.js";

const SHOWN_MS = 8000;

/** Where a case is read on a page of its own. */
const PHONE = matchMedia("(max-width: 899px)");

/** @param {HTMLElement} root */
export function start(root) {
  forget();
  const list = root.querySelector("[data-cases]");
  if (list instanceof HTMLElement) keys(root, list);
  document.addEventListener("key:up", (event) => {
    const up = root.querySelector("[data-up]");
    if (!(up instanceof HTMLElement) || document.querySelector(":popover-open")) return;
    event.preventDefault();
    up.click();
  });
  document.addEventListener("pulse", (event) => {
    const open = /** @type {CustomEvent} */ (event).detail.open_cases;
    const line = root.querySelector("[data-new]");
    if (line instanceof HTMLElement && root.dataset.tab === "open" && String(open) !== root.dataset.open) line.hidden = false;
  });
}

/** What was just done is said for a while, and not again when the page is loaded anew. */
function forget() {
  const said = document.querySelector("[data-did]");
  if (!said) return;
  const address = new URL(location.href);
  address.searchParams.delete("did");
  history.replaceState(history.state, "", address);
  setTimeout(() => said.remove(), SHOWN_MS);
}

/** @param {HTMLElement} root @param {HTMLElement} list */
function keys(root, list) {
  const all = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("li")]);
  const current = () => all.findIndex((row) => row.classList.contains("at"));
  /** @param {number} step */
  const move = (step) => (/** @type {Event} */ event) => {
    const next = all[Math.max(0, Math.min(all.length - 1, current() + step))];
    if (!next) return;
    event.preventDefault();
    select(next);
  };
  /** @param {HTMLElement} row */
  const select = (row) => {
    for (const one of all) {
      one.classList.toggle("at", one === row);
      one.querySelector("a")?.toggleAttribute("aria-current", false);
    }
    const link = /** @type {HTMLAnchorElement} */ (row.querySelector("a"));
    link.setAttribute("aria-current", "true");
    link.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
    if (!PHONE.matches) show(root, all, row.dataset.ref ?? "");
  };
  document.addEventListener("key:next-row", move(1));
  document.addEventListener("key:previous-row", move(-1));
  const open = (/** @type {Event} */ event) => {
    const link = all[current()]?.querySelector("a");
    if (!link) return;
    event.preventDefault();
    location.assign(link.href);
  };
  document.addEventListener("key:open-row", open);
  list.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target instanceof HTMLElement && event.target.closest("li.at")) open(event);
  });
  list.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const row = target.closest("li");
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey || event.button || PHONE.matches) return;
    event.preventDefault();
    select(row);
  });
  const fit = () => {
    const pane = root.querySelector(".pane");
    // A pane that is not shown takes no key.
    if (pane instanceof HTMLElement) pane.inert = PHONE.matches;
    const row = all[current()];
    if (row && !PHONE.matches) show(root, all, row.dataset.ref ?? "");
  };
  PHONE.addEventListener("change", fit);
  if (PHONE.matches) fit();
}

let showing = new AbortController();

/** Read a case in the pane; the address says which. @param {HTMLElement} root @param {HTMLElement[]} all @param {string} ref */
function show(root, all, ref) {
  const pane = root.querySelector(".pane");
  if (!(pane instanceof HTMLElement) || pane.dataset.case === ref) return;
  pane.dataset.case = ref;
  // Until the new case stands there, no key and no press acts on the old one.
  pane.inert = true;
  const address = new URL(location.href);
  address.searchParams.set("case", ref);
  address.hash = "";
  history.replaceState(history.state, "", address);
  showing.abort();
  showing = new AbortController();
  const of = all.map((row) => row.dataset.ref).join(",");
  const query = new URLSearchParams({ case: ref, tab: root.dataset.tab ?? "open", of, cursor: address.searchParams.get("cursor") ?? "" });
  load(pane, `${root.dataset.pane}?${query}`, showing.signal).then(() => {
    if (pane.dataset.case !== ref) return;
    pane.inert = PHONE.matches;
    pane.scrollTo(0, 0);
  });
}
