// @ts-check
/** The panel of one span: fetched when it is chosen, beside the rows; texts in full when somebody opens them. */

import { load } from "./part.js";
import { markdown } from "./markdown.js";

export class Panel {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.address = root.dataset.address ?? "";
    this.body = /** @type {HTMLElement} */ (root.querySelector(".trace-body"));
    this.place = /** @type {HTMLElement} */ (root.querySelector("[data-panel]"));
    this.place.tabIndex = -1;
    // What nobody asked for would cover the rows of a narrow page; there it is as if it were not open.
    if (this.place.classList.contains("unasked") && matchMedia("(max-width: 899px)").matches) this.#hide();
    const asked = new URL(location.href).searchParams.get("span") ?? root.dataset.opening ?? "";
    this.span = this.place.hidden ? "" : asked;
    /** @type {() => void} */
    this.onClose = () => {};
    this.place.addEventListener("click", (event) => this.#click(event));
    this.place.addEventListener("toggle", (event) => this.#open(event), true);
    document.addEventListener("key:up", (event) => {
      // What floats above it closes first, by itself.
      if (!this.isOpen || document.querySelector(":popover-open")) return;
      event.preventDefault();
      this.close();
    });
    this.#ready();
  }

  get isOpen() {
    return !this.place.hidden;
  }

  holdsFocus() {
    return this.place.contains(document.activeElement);
  }

  /** Show a span; what comes while one steps through rows is asked for when one stays. @param {string} span @param {boolean} focus */
  async show(span, focus) {
    if (span === this.span && !focus && this.place.classList.contains("unasked")) return;
    this.place.classList.remove("unasked");
    const url = new URL(location.href);
    url.searchParams.set("span", span);
    history.replaceState(history.state, "", url);
    this.place.hidden = false;
    this.body.classList.add("with-panel");
    clearTimeout(this.waiting);
    if (span !== this.span) {
      this.asking?.abort();
      this.asking = new AbortController();
      const signal = this.asking.signal;
      if (!focus) await new Promise((done) => { this.waiting = setTimeout(done, 120); });
      if (signal.aborted) return;
      this.span = span;
      await load(this.place, `${this.address}/spans/${span}`, signal);
      if (signal.aborted) return;
      this.place.scrollTop = 0;
      this.#ready();
    }
    if (focus) this.place.focus({ preventScroll: true });
  }

  #hide() {
    this.place.hidden = true;
    this.place.classList.remove("unasked");
    this.body.classList.remove("with-panel");
  }

  close() {
    this.#hide();
    const url = new URL(location.href);
    url.searchParams.delete("span");
    history.replaceState(history.state, "", url);
    this.onClose();
  }

  #ready() {
    markdown(this.place);
  }

  /** @param {MouseEvent} event */
  async #click(event) {
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest("[data-close]")) {
      event.preventDefault();
      this.close();
    }
    wholeText(event);
  }

  /** @param {Event} event */
  #open(event) {
    const opened = event.target;
    if (!(opened instanceof HTMLDetailsElement) || !opened.open || !opened.dataset.lazy) return;
    const place = opened.querySelector(":scope > div");
    if (place) load(place, opened.dataset.lazy);
    delete opened.dataset.lazy;
  }
}

/** Put the whole of a text in the place of its beginning. @param {MouseEvent} event */
export function wholeText(event) {
  const link = event.target instanceof Element ? event.target.closest("[data-whole]") : null;
  const part = link?.closest(".part");
  if (!(link instanceof HTMLAnchorElement) || !part || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  load(part, link.href);
}
