// @ts-check
/** What stands above the spans: numbers that explain themselves, and how a trace that still arrives is followed. */

import { load } from "./part.js";
import { took } from "./trace-model.js";

const EVERY_MS = 2000;
const MOST_MS = 600_000;
const SLOWEST_MS = 60_000;

/** Say something that changed, once. @param {HTMLElement} root @param {string} text */
export function say(root, text) {
  for (const place of root.querySelectorAll("[data-said]")) place.textContent = text;
}

/** Open what a number is made of beside it. @param {HTMLElement} root */
export function explanations(root) {
  const sheet = root.querySelector("[data-explain-sheet]");
  if (!(sheet instanceof HTMLElement) || !sheet.showPopover) return;
  root.addEventListener("click", async (event) => {
    const number = event.target instanceof Element ? event.target.closest("[data-explain]") : null;
    if (!(number instanceof HTMLElement) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const box = number.getBoundingClientRect();
    sheet.style.left = `${Math.max(8, Math.min(box.left, innerWidth - 500))}px`;
    sheet.style.top = `${box.bottom + 6}px`;
    await load(sheet, number.dataset.explain ?? "");
    sheet.showPopover();
    sheet.tabIndex = -1;
    sheet.focus();
    sheet.addEventListener("toggle", () => number.focus(), { once: true });
  });
}

/**
 * Ask for a trace that still arrives every two seconds, until it is settled or ten minutes have passed. Only while
 * the page is seen; slower and slower on errors.
 * @param {{root: HTMLElement, address: string, again: () => Promise<boolean>}} grid
 */
export function follow(grid) {
  const since = Date.now();
  let wait = EVERY_MS;
  const top = grid.root.querySelector("[data-top]");
  const ask = async () => {
    if (document.hidden) return;
    try {
      const changed = await grid.again();
      wait = EVERY_MS;
      if (changed && top) await load(top, `${grid.address}/top`);
    } catch {
      wait = Math.min(wait * 2, SLOWEST_MS);
    }
    const state = top?.querySelector("[data-state]")?.textContent ?? "";
    if (state === "settled") return say(grid.root, "The trace is settled");
    if (Date.now() - since < MOST_MS) setTimeout(ask, wait);
    else say(grid.root, "Stopped following after ten minutes; reload the page to continue");
  };
  document.addEventListener("visibilitychange", () => !document.hidden && setTimeout(ask, 0));
  setTimeout(ask, wait);
}

/** What the end waited for most, in the line that is kept for it. @param {HTMLElement} root @param {import("./trace-model.js").Trace} trace */
export function waited(root, trace) {
  const { name, us } = trace.waitedFor();
  const place = root.querySelector("[data-waited]");
  if (place && name && us > trace.last * 0.2) place.textContent = `${took(us)} of ${took(trace.last)} spent waiting for ${name.slice(0, 60)}`;
}
