// @ts-check
/** Starts what a page asks for: a module for each element with `data-module`, and the keys. */

import { listen } from "./keys.js";

/**
 * Start the modules of a piece of page, the new ones of a fragment included.
 * @param {ParentNode} root
 */
export function startAll(root) {
  for (const element of root.querySelectorAll("[data-module]:not([data-started])")) {
    const name = element.getAttribute("data-module") ?? "";
    element.setAttribute("data-started", "");
    // Names are ours, written in templates.
    import(`./${name}.js`).then((module) => module.start(element));
  }
}

/** Escape closes the menu that holds the focus, and gives the focus back to what opened it. @param {KeyboardEvent} event */
function closeMenu(event) {
  if (event.key !== "Escape" || event.defaultPrevented || !(event.target instanceof Element)) return;
  const menu = event.target.closest("details[open]:is(.exports, .act, .switch)");
  if (!(menu instanceof HTMLDetailsElement)) return;
  event.preventDefault();
  menu.open = false;
  menu.querySelector("summary")?.focus();
}

document.addEventListener("keydown", closeMenu);
document.addEventListener("swapped", (event) => startAll(/** @type {ParentNode} */ (event.target)));
listen(document);
startAll(document);
