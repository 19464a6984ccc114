// @ts-check
/** What surrounds the rows: the elements they are drawn in, the keys of a treegrid, the hints above them. */

import { ROW_PX } from "./trace-rows.js";

/** Put a value into the address, or take it out. @param {string} name @param {string} value */
export function keep(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(history.state, "", url);
}

/** The elements of the grid. @param {HTMLElement} place @param {boolean} tree */
export function build(place, tree) {
  place.className = `grid${tree ? " is-tree" : ""}`;
  /** @param {string} name @param {HTMLElement} into @param {string} [role] */
  const box = (name, into, role) => {
    const one = document.createElement("div");
    one.className = name;
    if (role) one.setAttribute("role", role);
    into.append(one);
    return one;
  };
  const map = box("map", place);
  map.ariaHidden = "true";
  const canvas = document.createElement("canvas");
  map.append(canvas);
  const brush = box("brush", map);
  brush.hidden = true;
  map.hidden = tree;
  const note = box("grid-note small", place);
  const scroller = box("scroller", place, "treegrid");
  scroller.tabIndex = 0;
  scroller.ariaLabel = "Spans";
  const head = box("trow thead", scroller, "row");
  head.ariaRowIndex = "1";
  /** @type {HTMLElement} */
  let axis = head;
  for (const [text, name] of [["Name", ""], ["Duration", "num"], ["Tokens", "num"], ["Cost", "num"], [tree ? "Output" : "", "axis"]]) {
    const cell = document.createElement("span");
    cell.className = name;
    cell.setAttribute("role", "columnheader");
    cell.textContent = text;
    if (name === "axis") axis = cell;
    head.append(cell);
  }
  if (!tree) axis.ariaLabel = "When";
  const body = box("tbody", scroller, "rowgroup");
  return { map, canvas, brush, note, scroller, axis, body };
}

/** The keys of a treegrid. @param {any} grid */
export function keys(grid) {
  grid.scroller.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => pressed(grid, event));
}

/** @param {any} grid @param {KeyboardEvent} event */
function pressed(grid, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const at = grid.rows.active;
  const row = grid.rows.rows[at];
  const page = Math.max(1, Math.floor(grid.scroller.clientHeight / ROW_PX) - 2);
  const open = row && grid.scroller.querySelector(`#row-${at}`)?.ariaExpanded;
  /** @type {Record<string, () => void>} */
  const ways = {
    ArrowDown: () => grid.step(1),
    ArrowUp: () => grid.step(-1),
    PageDown: () => grid.step(page),
    PageUp: () => grid.step(-page),
    Home: () => grid.choose(0, false),
    End: () => grid.choose(grid.rows.rows.length - 1, false),
    ArrowRight: () => (open === "false" ? grid.toggle(at, true) : open === "true" && grid.step(1)),
    ArrowLeft: () => (open === "true" ? grid.toggle(at, false) : up(grid, at)),
    Enter: () => grid.choose(at, true),
  };
  const way = ways[event.key];
  if (!way) return;
  event.preventDefault();
  way();
}

/** To the row above in the tree. @param {any} grid @param {number} at */
function up(grid, at) {
  const depth = grid.rows.rows[at]?.depth ?? 0;
  for (let i = at - 1; i >= 0; i--) if (grid.rows.rows[i].depth < depth) return grid.choose(i, false);
}

/** Wake the buttons that name the keys: the page brought them, so that nothing moves now. @param {any} grid */
export function hints(grid) {
  const place = grid.root.querySelector("[data-hints]");
  if (!(place instanceof HTMLElement)) return;
  /** @type {Record<string, () => void>} */
  const actions = {
    error: () => grid.nextError(),
    path: () => grid.path(),
    find: () => document.dispatchEvent(new CustomEvent("key:find")),
    only: grid.shown.only ? () => grid.all() : () => grid.only(),
  };
  for (const hint of place.querySelectorAll("[data-hint]")) {
    hint.addEventListener("click", actions[/** @type {HTMLElement} */ (hint).dataset.hint ?? ""]);
  }
  place.removeAttribute("data-scripted");
}

/** A quiet button at the end of a place. @param {Element} place @param {string} text @param {() => void} run */
export function button(place, text, run) {
  const one = document.createElement("button");
  one.type = "button";
  one.className = "quiet";
  one.append(text);
  one.addEventListener("click", run);
  place.append(one);
}
