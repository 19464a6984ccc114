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

document.addEventListener("swapped", (event) => startAll(/** @type {ParentNode} */ (event.target)));
listen(document);
startAll(document);
