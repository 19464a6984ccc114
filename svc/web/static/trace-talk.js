// @ts-check
/** The conversation: further pages as one reaches the end, spans in the panel, texts in full. */

import { fetchPart, swap } from "./part.js";
import { markdown } from "./markdown.js";
import { wholeText } from "./trace-panel.js";
import { say } from "./trace-head.js";

/** @param {HTMLElement} root @param {import("./trace-panel.js").Panel} panel */
export function talk(root, panel) {
  const list = root.querySelector(".talk");
  if (!(list instanceof HTMLElement)) return;
  markdown(list);
  const near = new IntersectionObserver((seen) => {
    for (const one of seen) if (one.isIntersecting) more(list, /** @type {HTMLElement} */ (one.target), near, root);
  }, { rootMargin: "600px" });
  watch(list, near);
  let last = /** @type {HTMLElement | null} */ (null);
  panel.onClose = () => last?.focus();
  list.addEventListener("click", (event) => {
    wholeText(event);
    const link = event.target instanceof Element ? event.target.closest("[data-span]") : null;
    if (!(link instanceof HTMLElement) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    last = link;
    panel.show(link.dataset.span ?? "", true);
  });
}

/** @param {HTMLElement} list @param {IntersectionObserver} near */
function watch(list, near) {
  const link = list.querySelector("[data-more]");
  if (link) near.observe(link);
}

/** @param {HTMLElement} list @param {HTMLElement} link @param {IntersectionObserver} near @param {HTMLElement} root */
async function more(list, link, near, root) {
  near.unobserve(link);
  const answered = await fetchPart(link.dataset.more ?? "").catch(() => null);
  if (!answered || answered.status >= 400) return say(root, "The next part could not be read; the link asks again");
  const place = document.createElement("ol");
  swap(place, answered.html);
  const rows = [...place.children];
  link.closest("li")?.replaceWith(...rows);
  for (const row of rows) markdown(row);
  watch(list, near);
}
