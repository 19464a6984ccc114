// @ts-check
/** Follows the run of an agent: its part is fetched anew while it is live, and the page once it is over. */

import { fetchPart, swap } from "./part.js";

const FAST_MS = 3_000;
const SLOW_MS = 30_000;

/** @param {HTMLElement} root */
export function start(root) {
  const address = root.dataset.address ?? "";
  /** @returns {string | undefined} */
  const live = () => root.querySelector("[data-live]")?.getAttribute("data-live") ?? undefined;

  const again = () => {
    const pace = live();
    if (pace !== undefined) setTimeout(ask, pace === "slow" ? SLOW_MS : FAST_MS);
  };
  const ask = async () => {
    if (!root.isConnected) return;
    if (!document.hidden) {
      try {
        const answered = await fetchPart(address);
        if (answered.status === 200) swap(root, answered.html);
        // What it found stands elsewhere on the page, too.
        if (answered.status === 200 && live() === undefined) location.reload();
      } catch {
        // The next look may do better.
      }
    }
    again();
  };
  again();
}
