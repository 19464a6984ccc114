// @ts-check
/**
 * Traces that arrive while one looks at the list: counted, shown when asked for, or inserted at once by *Follow* while
 * one is at the top. Rows that stand keep their places otherwise; the one that is selected stays selected.
 */

import { fetchPart, parse } from "./part.js";

/** Rows of a list that is followed; the oldest go beyond. */
const MOST_ROWS = 500;

/** @param {HTMLElement} root @param {(figure: HTMLElement) => void} drawn */
export function arrivals(root, drawn) {
  const line = root.querySelector("[data-new]");
  const button = root.querySelector("[data-follow]");
  if (!(line instanceof HTMLElement) || !(button instanceof HTMLElement) || root.dataset.follows === undefined) return;
  const link = /** @type {HTMLAnchorElement} */ (line.querySelector("a"));
  let following = new URL(location.href).searchParams.has("follow");
  let asking = false;
  /** @type {HTMLElement | null} The page as it is by now. */
  let fresh = null;

  const mark = () => (button.ariaPressed = String(following));
  button.removeAttribute("data-scripted");
  mark();
  button.addEventListener("click", () => {
    following = !following;
    const address = new URL(location.href);
    if (following) address.searchParams.set("follow", "1");
    else address.searchParams.delete("follow");
    history.replaceState(history.state, "", address);
    mark();
    if (following && fresh) show();
  });
  link.addEventListener("click", (event) => {
    if (!fresh || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show();
    scrollTo({ top: 0 });
  });

  const show = () => {
    if (fresh) insert(root, fresh, drawn);
    fresh = null;
    line.hidden = true;
  };
  document.addEventListener("pulse", async (event) => {
    const { newest } = /** @type {CustomEvent} */ (event).detail;
    if (asking || !newest || newest <= (root.dataset.newest ?? "")) return;
    asking = true;
    try {
      const answered = await fetchPart(location.href);
      if (answered.status !== 200) return;
      const page = parse(answered.html);
      const there = new Set(ids(root));
      const many = ids(page).filter((id) => !there.has(id)).length;
      // Newer ones that the filter leaves out are none of this list's.
      root.dataset.newest = newest;
      if (!many) return;
      fresh = page;
      if (following && scrollY < 80) return show();
      link.textContent = `${many}${many >= 50 ? " or more" : ""} new`;
      line.hidden = false;
    } catch {
      // The pulse asks again.
    } finally {
      asking = false;
    }
  });
}

/** @param {ParentNode} root */
const ids = (root) => [...root.querySelectorAll("[data-rows] tr")].map((row) => row.getAttribute("data-id") ?? "");

/** Put what is new on top, and what has changed in its place. @param {HTMLElement} root @param {HTMLElement} page
 * @param {(figure: HTMLElement) => void} drawn */
function insert(root, page, drawn) {
  const body = root.querySelector("[data-rows]");
  if (!body) return;
  /** @type {Map<string, Element>} */
  const there = new Map([...root.querySelectorAll("[data-rows] tr")].map((row) => [row.getAttribute("data-id") ?? "", row]));
  let before = body.firstElementChild;
  for (const row of [...page.querySelectorAll("[data-rows] tr")]) {
    const old = there.get(row.getAttribute("data-id") ?? "");
    if (old) {
      const changed = [...old.children].some((cell, i) => !row.children[i]?.isEqualNode(cell));
      if (changed && !old.contains(document.activeElement)) old.replaceChildren(...row.childNodes);
      before = old.nextElementSibling;
    } else {
      row.classList.add("fresh");
      body.insertBefore(row, before?.parentElement === body ? before : null);
    }
  }
  const rows = [...root.querySelectorAll("[data-rows] tr")];
  for (const row of rows.slice(MOST_ROWS)) row.remove();
  const more = root.querySelector(".more");
  if (rows.length > MOST_ROWS && more) {
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = `The newest ${MOST_ROWS} are shown. Reload the list to go further back`;
    more.replaceChildren(link);
  }
  for (const part of ["[data-headline]", "[data-histogram]"]) {
    const [old, next] = [root.querySelector(part), page.querySelector(part)];
    if (!old || !next || old.contains(document.activeElement)) continue;
    old.replaceWith(next);
    if (part === "[data-histogram]" && next instanceof HTMLElement) drawn(next);
  }
}
