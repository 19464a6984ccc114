// @ts-check
/** A session as a chat: Markdown in what was said, and texts in full where they were cut. */

import { markdown } from "./markdown.js";
import { wholeText } from "./trace-panel.js";

/** @param {HTMLElement} root */
export function start(root) {
  markdown(root);
  root.addEventListener("click", wholeText);
}
