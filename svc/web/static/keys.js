// @ts-check
/**
 * Every key of every page, in one table: it feeds the handler, the help and `aria-keyshortcuts`.
 *
 * `press` clicks the first element that matches, `focus` puts the caret into one, after the click if both are there; `send` tells the page's modules (`key:NAME` on the document).
 * Keys are off in fields, under modifiers of the browser, and for good where the account says so.
 */

/** @typedef {{keys: string, says: string, of: string, press?: string, focus?: string, send?: string}} Key */

/** @type {readonly Key[]} */
export const KEYS = [
  { keys: "?", says: "Show the keys", of: "Everywhere", send: "help" },
  { keys: "Control+k", says: "Find a page, an id or a text", of: "Everywhere", send: "palette" },
  { keys: "/", says: "Filter", of: "Everywhere", focus: "[data-filter]" },
  { keys: "c", says: "Copy the link of this view", of: "Everywhere", send: "copy-link" },
  { keys: "z", says: "Times in UTC, or local", of: "Everywhere", send: "zone" },
  { keys: "g t", says: "Triage", of: "Go to", press: "[data-place=triage]" },
  { keys: "g o", says: "Overview", of: "Go to", press: "[data-place=overview]" },
  { keys: "g i", says: "Traces", of: "Go to", press: "[data-place=traces]" },
  { keys: "g s", says: "Sessions", of: "Go to", press: "[data-place=sessions]" },
  { keys: "g f", says: "Feedback", of: "Go to", press: "[data-place=feedback]" },
  { keys: "g v", says: "Vitals", of: "Go to", press: "[data-place=vitals]" },
  { keys: "g e", says: "Explore", of: "Go to", press: "[data-place=explore]" },
  { keys: "g d", says: "Detectors", of: "Go to", press: "[data-place=detectors]" },
  { keys: "g ,", says: "Settings", of: "Go to", press: "[data-place=settings]" },
  { keys: "j", says: "Next row", of: "Lists", send: "next-row" },
  { keys: "k", says: "Previous row", of: "Lists", send: "previous-row" },
  { keys: "Enter", says: "Open the row", of: "Lists", send: "open-row" },
  { keys: "x", says: "Select the row", of: "Lists", send: "select-row" },
  { keys: ".", says: "Show what is new", of: "Lists", press: "[data-show-new]" },
  { keys: "[", says: "Previous item of the list", of: "Items", press: "[data-previous]" },
  { keys: "]", says: "Next item of the list", of: "Items", press: "[data-next]" },
  { keys: "Escape", says: "Up, or close", of: "Items", send: "up" },
  { keys: "e", says: "Next error", of: "Trace", send: "next-error" },
  { keys: "p", says: "Critical path", of: "Trace", send: "critical-path" },
  { keys: "f", says: "Find in the trace", of: "Trace", send: "find" },
  { keys: "+", says: "Zoom in", of: "Trace", send: "zoom-in" },
  { keys: "-", says: "Zoom out", of: "Trace", send: "zoom-out" },
  { keys: "0", says: "Whole trace", of: "Trace", send: "zoom-all" },
  { keys: "+", says: "Helpful: yes (in a conversation)", of: "Feedback", press: "[data-thumb=up]" },
  { keys: "-", says: "Helpful: no (in a conversation)", of: "Feedback", press: "[data-thumb=down]" },
  { keys: "n", says: "Write a note", of: "Feedback", press: "[data-note]", focus: "[data-note] + form textarea" },
  { keys: "m", says: "Mute", of: "Triage", press: "[data-verb=mute]" },
  { keys: "r", says: "Resolve", of: "Triage", press: "[data-verb=resolve]" },
  { keys: "a", says: "Absorb: this is the new normal", of: "Triage", press: "[data-verb=absorb]" },
  { keys: "n", says: "Not an issue", of: "Triage", press: "[data-verb=reject]" },
  { keys: "u", says: "Undo", of: "Triage", press: "[data-undo]" },
];

const WAIT_MS = 1200;

/**
 * Listen for the keys of the table.
 * @param {Document} page
 */
export function listen(page) {
  if (page.documentElement.dataset.shortcuts === "off") return;
  announce(page);
  let first = "";
  let firstAt = 0;
  page.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const pressed = (event.ctrlKey || event.metaKey ? "Control+" : "") + event.key;
    const typing = isTyping(event.target);
    if (event.altKey || (typing && pressed !== "Control+k" && pressed !== "Escape")) return;
    if (typing && pressed === "Escape" && event.target instanceof HTMLElement && !event.target.closest("dialog, :popover-open")) {
      event.target.blur();
      return;
    }
    const chord = event.timeStamp - firstAt < WAIT_MS && first ? `${first} ${pressed}` : pressed;
    const meant = KEYS.filter((one) => one.keys === chord);
    const keys = meant.length ? meant : KEYS.filter((one) => one.keys === pressed);
    const begins = KEYS.some((one) => one.keys.startsWith(`${pressed} `));
    first = begins ? pressed : "";
    firstAt = event.timeStamp;
    // One key may be of several pages: the first that anything answers to.
    if (keys.some((key) => act(page, key, event.target))) event.preventDefault();
  });
}

/**
 * Whether a key pressed here is text. The field of a form that was just closed has the focus until the next frame.
 * @param {EventTarget | null} target
 */
function isTyping(target) {
  return target instanceof HTMLElement && target.checkVisibility() && (target.isContentEditable || target.matches("input, textarea, select"));
}

/**
 * Do what a key is for. Returns whether anything answered to it.
 * @param {Document} page @param {Key} key @param {EventTarget | null} target
 */
function act(page, key, target) {
  if (page.querySelector("dialog[open]") && key.send !== "palette") return false;
  if (key.press) {
    const found = page.querySelector(key.press);
    // What is being replaced by something else takes no key.
    if (found instanceof HTMLElement && !found.closest("[inert]")) found.click();
    if (!key.focus || !found) return found !== null;
  }
  if (key.focus) {
    const found = page.querySelector(key.focus);
    if (found instanceof HTMLElement) found.focus();
    return found !== null;
  }
  // Enter on a link or a button is theirs.
  if (key.keys === "Enter" && target instanceof HTMLElement && target.closest("a, button, summary, [role]")) return false;
  return !page.dispatchEvent(new CustomEvent(`key:${key.send}`, { cancelable: true, detail: { target } }));
}

/** Say on each element which keys press it. @param {Document} page */
function announce(page) {
  for (const key of KEYS) {
    const found = page.querySelector(key.press ?? key.focus ?? "[data-no-such-thing]");
    if (!found) continue;
    found.setAttribute("aria-keyshortcuts", key.keys);
    if (found.matches("[data-place]") && !found.querySelector("kbd, .count:not([hidden])")) {
      const hint = page.createElement("kbd");
      hint.textContent = key.keys;
      hint.ariaHidden = "true";
      found.append(hint);
    }
  }
}
