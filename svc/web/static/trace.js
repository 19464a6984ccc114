// @ts-check
/** The page of one trace: its panel, its explanations, and the view that the address names. */

import { Grid } from "./trace-grid.js";
import { explanations } from "./trace-head.js";
import { Panel } from "./trace-panel.js";
import { talk } from "./trace-talk.js";

/** @param {HTMLElement} root */
export function start(root) {
  const panel = new Panel(root);
  explanations(root);
  const place = root.querySelector("[data-grid]");
  if (place instanceof HTMLElement) new Grid(root, place, panel).open();
  else talk(root, panel);
}
