// @ts-check
/** A fragment that is read when it comes into sight. */

import { load } from "./part.js";

/** @param {HTMLElement} root */
export function start(root) {
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    load(root, root.dataset.load ?? "");
  }, { rootMargin: "200px" });
  seen.observe(root);
}
