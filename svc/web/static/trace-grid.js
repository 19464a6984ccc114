// @ts-check
/**
 * The rows of a trace's page: fetches the columns, draws rows and map, folds, zooms and finds. The address is the
 * state, so a link leads to what one sees.
 */

import { count, counted } from "./format.js";
import { follow, say, waited } from "./trace-head.js";
import { finder } from "./trace-find.js";
import { build, button, hints, keep, keys } from "./trace-keys.js";
import { Overview, onDrag } from "./trace-map.js";
import { ORPHANS, Trace, took } from "./trace-model.js";
import { Rows } from "./trace-rows.js";
import { Scale, drawAxis } from "./trace-scale.js";
import { visible } from "./visible.js";

/** @typedef {import("./trace-model.js").Shown} Shown */

export class Grid {
  /** @param {HTMLElement} root @param {HTMLElement} place @param {import("./trace-panel.js").Panel} panel */
  constructor(root, place, panel) {
    this.root = root;
    this.panel = panel;
    this.address = root.dataset.address ?? "";
    this.tree = root.dataset.view === "tree";
    const asked = new URL(location.href).searchParams;
    /** @type {Shown} */
    this.shown = { closed: new Set(), open: new Set(), only: asked.get("only") ?? "", low: 0, high: Infinity };
    this.asked = asked;
    this.span = asked.get("span") ?? root.dataset.opening ?? "";
    /** @type {string | null} */
    this.etag = null;
    const parts = build(place, this.tree);
    this.map = parts.map;
    this.overview = new Overview(parts.canvas);
    this.brush = parts.brush;
    this.note = parts.note;
    this.scroller = parts.scroller;
    this.axis = parts.axis;
    this.body = parts.body;
    this.rows = new Rows(this.scroller, this.body, {
      tree: this.tree,
      choose: (at, open) => this.choose(at, open),
      toggle: (at) => this.toggle(at),
      seen: (spans) => this.#preview(spans),
    });
    this.panel.onClose = () => this.scroller.focus();
    this.#listen();
  }

  async open() {
    const part = ["from", "to"].filter((name) => this.asked.get(name));
    const query = part.map((name) => `${name}=${encodeURIComponent(this.asked.get(name) ?? "")}`).join("&");
    try {
      await this.#fetch(query && this.asked.get("wide") ? `?${query}` : "");
    } catch {
      this.note.replaceChildren("✕ The spans could not be read. ");
      button(this.note, "Try again", () => this.open());
      return;
    }
    finder(this);
    hints(this);
    if (this.root.dataset.settled === "no") follow(this);
  }

  /** Fetch the columns anew; false when they are as they were. @param {string} query */
  async #fetch(query) {
    const answer = await fetch(`${this.address}/skeleton${query}`);
    if (!answer.ok) throw new Error(String(answer.status));
    const etag = answer.headers.get("etag");
    if (etag && etag === this.etag) return false;
    this.etag = etag;
    this.query = query;
    this.take(new Trace(await answer.json()));
    return true;
  }

  again() {
    return this.#fetch(this.query ?? "");
  }

  /** Draw a trace; what was open, chosen and in sight stays. @param {Trace} trace */
  take(trace) {
    const first = !this.trace;
    this.trace = trace;
    if (first) this.#zoomed();
    this.redraw();
    this.#left();
    const at = this.span ? trace.at(this.span) : -1;
    // What nobody asked for moves no part of the time that somebody chose.
    if (at >= 0 && first && (this.asked.get("span") || !this.asked.get("from"))) this.reveal(at);
    // What takes longer than a frame waits until the rows stand.
    setTimeout(() => waited(this.root, trace), 50);
  }

  redraw() {
    const trace = /** @type {Trace} */ (this.trace);
    if (this.shown.only === "path") trace.criticalPath();
    const chosen = this.rows.rows[this.rows.active];
    const { low, high } = this.shown;
    this.scale = low === 0 && high === Infinity ? this.overview.whole(trace) : new Scale(trace, low, high);
    const rows = trace.rows(this.shown);
    this.rows.active = chosen ? rows.findIndex((row) => row.span === chosen.span && row.fold === chosen.fold) : -1;
    this.rows.show(trace, this.scale, rows, this.shown);
    if (!this.tree) {
      drawAxis(this.axis, this.scale);
      this.overview.draw(trace);
    }
    this.#said(rows.length);
  }

  /** What is not here, and the way to it. */
  #left() {
    const { columns, last } = /** @type {Trace} */ (this.trace);
    this.note.textContent = "";
    if (columns.n < columns.total) {
      const rest = this.query ? "overlap this part of its time" : `the first ${took(last)} of it`;
      this.note.textContent = `${count(columns.n)} of ${counted(columns.total, "span")} are here: ${rest}. The export holds the others. `;
      button(this.note, this.query ? "Back to the beginning" : "Show the next part", () => this.#part());
    }
  }

  /** The part of a long trace behind what is here, or the beginning again. */
  async #part() {
    const { columns, start } = /** @type {Trace} */ (this.trace);
    const at = new Date((columns.t0 + start[columns.n - 1]) / 1000).toISOString();
    this.shown.low = 0;
    this.shown.high = Infinity;
    keep("wide", this.query ? "" : "1");
    keep("from", this.query ? "" : at);
    await this.#fetch(this.query ? "" : `?from=${encodeURIComponent(at)}`);
    this.scroller.scrollTop = 0;
  }

  /** @param {number} rows */
  #said(rows) {
    const { only, low, high } = this.shown;
    if (!only && low === 0 && high === Infinity) return;
    const what = only === "errors" ? "failed spans and what holds them" : only === "path" ? "the critical path" : "a part of the time";
    say(this.root, `${counted(rows, "row")}: ${what}`);
  }

  /** The rows of which previews were not asked yet. @param {number[]} spans */
  #preview(spans) {
    clearTimeout(this.previewing);
    this.previewing = setTimeout(async () => {
      const trace = /** @type {Trace} */ (this.trace);
      const ids = spans.map((i) => trace.id(i)).filter((id) => !this.rows.previews.has(id));
      if (!ids.length) return;
      for (const id of ids) this.rows.previews.set(id, "");
      const answer = await fetch(`${this.address}/previews?ids=${ids.slice(0, 200).join(",")}`).catch(() => null);
      if (!answer?.ok) return;
      for (const [id, [asked, answered]] of Object.entries(await answer.json())) this.rows.previews.set(id, visible(answered || asked || ""));
      this.rows.draw(true);
    }, 120);
  }

  /** Make a row the active one; open its span in the panel when it is open or shall be. @param {number} at @param {boolean} open */
  choose(at, open) {
    const row = this.rows.rows[at];
    if (!row) return;
    this.rows.activate(at);
    if (row.span < 0) {
      if (open) this.toggle(at);
      return;
    }
    this.span = /** @type {Trace} */ (this.trace).id(row.span);
    if (open || this.panel.isOpen) this.panel.show(this.span, open);
  }

  /** @param {number} at @param {boolean} [wanted] */
  toggle(at, wanted) {
    const row = this.rows.rows[at];
    const set = row.fold >= 0 ? this.shown.open : this.shown.closed;
    const key = row.fold >= 0 ? row.fold : row.fold === ORPHANS ? ORPHANS : row.span;
    const open = (row.fold >= 0) === set.has(key);
    if (wanted !== undefined && wanted === open) return;
    if (set.has(key)) set.delete(key);
    else set.add(key);
    this.rows.active = at;
    this.redraw();
    this.rows.activate(Math.max(this.rows.active, 0));
  }

  /** Bring a span in sight, whatever it is folded or closed under; the panel follows it where it is open. @param {number} span */
  reveal(span) {
    const trace = /** @type {Trace} */ (this.trace);
    if (trace.foldOf[span] >= 0) this.shown.open.add(trace.foldOf[span]);
    for (let up = trace.parent[span]; up >= 0; up = trace.parent[up]) this.shown.closed.delete(up);
    this.shown.closed.delete(ORPHANS);
    this.redraw();
    let at = this.rows.rows.findIndex((row) => row.span === span);
    if (at < 0) {
      this.all();
      at = this.rows.rows.findIndex((row) => row.span === span);
    }
    this.choose(at, false);
  }

  /** Without filter and zoom. */
  all() {
    Object.assign(this.shown, { only: "", low: 0, high: Infinity });
    for (const name of ["only", "from", "to"]) keep(name, "");
    this.redraw();
  }

  #zoomed() {
    const { columns } = /** @type {Trace} */ (this.trace);
    if (this.asked.get("wide")) return;
    const [low, high] = ["from", "to"].map((name) => Date.parse(this.asked.get(name) ?? "") * 1000 - columns.t0);
    if (low > 0) this.shown.low = low;
    if (high > 0) this.shown.high = high;
  }

  /** @param {number} low @param {number} high */
  zoom(low, high) {
    const trace = /** @type {Trace} */ (this.trace);
    this.shown.low = Math.max(low, 0);
    this.shown.high = high >= trace.last ? Infinity : high;
    const instant = (/** @type {number} */ us) => new Date((trace.columns.t0 + us) / 1000).toISOString();
    keep("from", this.shown.low > 0 ? instant(low) : "");
    keep("to", this.shown.high < Infinity ? instant(high) : "");
    this.redraw();
  }

  #listen() {
    onDrag(this.map, this.brush, (from, to) => {
      const whole = this.overview.whole(/** @type {Trace} */ (this.trace));
      this.zoom(whole.time(from), whole.time(to));
    });
    keys(this);
    this.scroller.addEventListener("focus", () => {
      if (this.rows.active < 0 && this.rows.rows.length) this.rows.activate(0);
    });
    /** @type {Record<string, () => void>} */
    const ways = {
      "next-row": () => this.step(1),
      "previous-row": () => this.step(-1),
      "next-error": () => this.nextError(),
      "critical-path": () => this.path(),
      "zoom-in": () => this.#by(0.5),
      "zoom-out": () => this.#by(2),
      "zoom-all": () => this.all(),
    };
    for (const [name, run] of Object.entries(ways)) {
      document.addEventListener(`key:${name}`, (event) => {
        event.preventDefault();
        if (this.trace) run();
      });
    }
  }

  /** @param {number} by */
  step(by) {
    const at = Math.min(Math.max(this.rows.active + by, 0), this.rows.rows.length - 1);
    this.choose(at, false);
    if (document.activeElement !== this.scroller && !this.panel.holdsFocus()) this.scroller.focus({ preventScroll: true });
  }

  nextError() {
    const trace = /** @type {Trace} */ (this.trace);
    const failed = [...trace.errors.keys()].sort((a, b) => a - b);
    if (!failed.length) return say(this.root, "No span failed");
    const here = this.rows.rows[this.rows.active]?.span ?? -1;
    const next = failed.find((i) => i > here) ?? failed[0];
    this.reveal(next);
    say(this.root, `Failed span ${failed.indexOf(next) + 1} of ${failed.length}`);
    this.scroller.focus({ preventScroll: true });
  }

  path() {
    this.rows.bold = !this.rows.bold;
    const trace = /** @type {Trace} */ (this.trace);
    trace.criticalPath();
    this.rows.draw(true);
    const { name, us } = trace.waitedFor();
    say(this.root, this.rows.bold ? `The bold path is what the end waited for${name ? `; most of it ${name}, ${took(us)}` : ""}` : "");
  }

  /** @param {number} factor */
  #by(factor) {
    const { low, high } = /** @type {Scale} */ (this.scale);
    const row = this.rows.rows[this.rows.active];
    const trace = /** @type {Trace} */ (this.trace);
    const middle = row && row.span >= 0 ? (trace.start[row.span] + trace.end[row.span]) / 2 : (low + high) / 2;
    const half = ((high - low) * factor) / 2;
    this.zoom(Math.max(middle - half, 0), Math.min(middle + half, trace.last));
  }

  only() {
    this.shown.only = this.shown.only ? "" : "errors";
    keep("only", this.shown.only);
    this.redraw();
  }
}
