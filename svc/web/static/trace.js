// @ts-check
/**
 * The page of one trace: fetches the columns, draws the rows and the map, and keeps the address as the state.
 * Views without rows (the conversation) share the panel, the explanations and the live head.
 */

import { count, counted, duration } from "./format.js";
import { Panel } from "./trace-panel.js";
import { explanations, follow, say } from "./trace-head.js";
import { talk } from "./trace-talk.js";
import { ORPHANS, Trace } from "./trace-model.js";
import { ROW_PX, Rows, markOf } from "./trace-rows.js";
import { Scale } from "./trace-scale.js";
import { drawMap, onDrag } from "./trace-map.js";
import { finder } from "./trace-find.js";

/** @typedef {import("./trace-model.js").Shown} Shown */

/** @param {HTMLElement} root */
export function start(root) {
  const panel = new Panel(root);
  explanations(root);
  const place = root.querySelector("[data-grid]");
  if (place instanceof HTMLElement) new Grid(root, place, panel).open();
  else talk(root, panel);
}

/** Put a value into the address, or take it out. @param {string} name @param {string} value */
export function keep(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(history.state, "", url);
}

class Grid {
  /** @param {HTMLElement} root @param {HTMLElement} place @param {Panel} panel */
  constructor(root, place, panel) {
    this.root = root;
    this.panel = panel;
    this.address = root.dataset.address ?? "";
    this.tree = root.dataset.view === "tree";
    const asked = new URL(location.href).searchParams;
    /** @type {Shown} */
    this.shown = { closed: new Set(), open: new Set(), only: asked.get("only") ?? "", low: 0, high: Infinity };
    this.asked = asked;
    this.span = asked.get("span") ?? "";
    this.#build(place);
    this.rows = new Rows(this.scroller, this.body, {
      tree: this.tree,
      choose: (at, open) => this.choose(at, open),
      toggle: (at) => this.toggle(at),
      seen: (spans) => this.#preview(spans),
    });
    this.panel.onClose = () => this.scroller.focus();
    this.#listen();
  }

  /** @param {HTMLElement} place */
  #build(place) {
    place.className = `grid${this.tree ? " is-tree" : ""}`;
    /** @param {string} name @param {HTMLElement} into @param {string} [role] */
    const box = (name, into, role) => {
      const one = document.createElement("div");
      one.className = name;
      if (role) one.setAttribute("role", role);
      into.append(one);
      return one;
    };
    this.map = box("map", place);
    this.map.ariaHidden = "true";
    this.canvas = document.createElement("canvas");
    this.map.append(this.canvas);
    this.brush = box("brush", this.map);
    this.brush.hidden = true;
    this.map.hidden = this.tree;
    this.note = box("grid-note small", place);
    this.scroller = box("scroller", place, "treegrid");
    this.scroller.tabIndex = 0;
    this.scroller.ariaLabel = "Spans";
    const head = box("trow thead", this.scroller, "row");
    head.ariaRowIndex = "1";
    for (const [text, name] of [["Name", ""], ["Took", "num"], ["Tokens", "num"], ["Cost", "num"], [this.tree ? "Said" : "", "axis"]]) {
      const cell = document.createElement("span");
      cell.className = name;
      cell.setAttribute("role", "columnheader");
      cell.textContent = text;
      if (name === "axis") this.axis = cell;
      head.append(cell);
    }
    if (!this.tree) this.axis.ariaLabel = "When";
    this.body = box("tbody", this.scroller, "rowgroup");
  }

  async open() {
    const part = ["from", "to"].filter((name) => this.asked.get(name));
    const query = part.map((name) => `${name}=${encodeURIComponent(this.asked.get(name) ?? "")}`).join("&");
    try {
      await this.#fetch(query && this.asked.get("wide") ? `?${query}` : "");
    } catch {
      this.note.replaceChildren("✕ The spans could not be read. ");
      this.#button(this.note, "Try again", () => this.open());
      return;
    }
    finder(this);
    this.#hints();
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
    if (at >= 0 && first) this.reveal(at, true);
    // What takes longer than a frame waits until the rows stand.
    setTimeout(() => this.#waited(), 50);
  }

  redraw() {
    const trace = /** @type {Trace} */ (this.trace);
    if (this.shown.only === "path") trace.criticalPath();
    const chosen = this.rows.rows[this.rows.active];
    this.scale = new Scale(trace, this.shown.low, this.shown.high);
    const rows = trace.rows(this.shown);
    this.rows.active = chosen ? rows.findIndex((row) => row.span === chosen.span && row.fold === chosen.fold) : -1;
    this.rows.show(trace, this.scale, rows, this.shown);
    if (!this.tree) {
      this.#axis();
      requestAnimationFrame(() => drawMap(this.canvas, trace, new Scale(trace, 0, Infinity), (i) => markOf(trace.columns.kinds[trace.columns.kind[i]])[1]));
    }
    this.#said(rows.length);
  }

  #axis() {
    const scale = /** @type {Scale} */ (this.scale);
    const marks = scale.ticks().map(({ x, text }) => {
      const tick = document.createElement("span");
      tick.className = "tick";
      tick.textContent = text;
      tick.style.left = `${x * 100}%`;
      return tick;
    });
    for (const one of scale.stretches.filter((one) => one.cut)) {
      const gap = document.createElement("span");
      gap.className = "cut";
      gap.title = `${duration(one.to - one.from)} in which nothing ran`;
      gap.textContent = "⁄⁄";
      gap.style.left = `${one.x * 100}%`;
      marks.push(gap);
    }
    this.axis.replaceChildren(...marks);
  }

  /** What is not here, and the way to it. */
  #left() {
    const { columns, last } = /** @type {Trace} */ (this.trace);
    this.note.textContent = "";
    if (columns.n < columns.total) {
      const rest = this.query ? "overlap this part of its time" : `the first ${duration(last)} of it`;
      this.note.textContent = `${count(columns.n)} of ${counted(columns.total, "span")} are here: ${rest}. The export holds the others. `;
      this.#button(this.note, this.query ? "Back to the beginning" : "Show the next part", () => this.#part());
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

  #waited() {
    const trace = /** @type {Trace} */ (this.trace);
    const { name, us } = trace.waitedFor();
    const place = this.root.querySelector("[data-waited]");
    if (place && name && us > trace.last * 0.2) place.textContent = `, ${duration(us)} of it waiting for ${name.slice(0, 60)}`;
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
      for (const [id, [asked, answered]] of Object.entries(await answer.json())) this.rows.previews.set(id, answered || asked || "");
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

  /** Bring a span in sight, whatever it is folded or closed under. @param {number} span @param {boolean} open */
  reveal(span, open) {
    const trace = /** @type {Trace} */ (this.trace);
    if (trace.foldOf[span] >= 0) this.shown.open.add(trace.foldOf[span]);
    for (let up = trace.parent[span]; up >= 0; up = trace.parent[up]) this.shown.closed.delete(up);
    this.shown.closed.delete(ORPHANS);
    this.redraw();
    let at = this.rows.rows.findIndex((row) => row.span === span);
    if (at < 0) {
      this.#all();
      at = this.rows.rows.findIndex((row) => row.span === span);
    }
    this.choose(at, open);
  }

  /** Without filter and zoom. */
  #all() {
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
      const whole = new Scale(/** @type {Trace} */ (this.trace), 0, Infinity);
      this.zoom(whole.time(from), whole.time(to));
    });
    this.scroller.addEventListener("keydown", (event) => this.#key(event));
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
      "zoom-all": () => this.#all(),
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

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.rows.active;
    const row = this.rows.rows[at];
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW_PX) - 2);
    const open = row && this.scroller.querySelector(`#row-${at}`)?.ariaExpanded;
    /** @type {Record<string, () => void>} */
    const ways = {
      ArrowDown: () => this.step(1),
      ArrowUp: () => this.step(-1),
      PageDown: () => this.step(page),
      PageUp: () => this.step(-page),
      Home: () => this.choose(0, false),
      End: () => this.choose(this.rows.rows.length - 1, false),
      ArrowRight: () => (open === "false" ? this.toggle(at, true) : open === "true" && this.step(1)),
      ArrowLeft: () => (open === "true" ? this.toggle(at, false) : this.#up(at)),
      Enter: () => this.choose(at, true),
    };
    const way = ways[event.key];
    if (!way) return;
    event.preventDefault();
    way();
  }

  /** To the row above in the tree. @param {number} at */
  #up(at) {
    const depth = this.rows.rows[at]?.depth ?? 0;
    for (let i = at - 1; i >= 0; i--) if (this.rows.rows[i].depth < depth) return this.choose(i, false);
  }

  nextError() {
    const trace = /** @type {Trace} */ (this.trace);
    const failed = [...trace.errors.keys()].sort((a, b) => a - b);
    if (!failed.length) return say(this.root, "No span failed");
    const here = this.rows.rows[this.rows.active]?.span ?? -1;
    const next = failed.find((i) => i > here) ?? failed[0];
    this.reveal(next, this.panel.isOpen);
    say(this.root, `Failed span ${failed.indexOf(next) + 1} of ${failed.length}`);
    this.scroller.focus({ preventScroll: true });
  }

  path() {
    this.rows.bold = !this.rows.bold;
    const trace = /** @type {Trace} */ (this.trace);
    trace.criticalPath();
    this.rows.draw(true);
    const { name, us } = trace.waitedFor();
    say(this.root, this.rows.bold ? `The bold path is what the end waited for${name ? `; most of it ${name}, ${duration(us)}` : ""}` : "");
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

  #hints() {
    const place = this.root.querySelector("[data-hints]");
    if (!(place instanceof HTMLElement)) return;
    place.hidden = false;
    const { errors } = /** @type {Trace} */ (this.trace);
    /** @type {[string, string, () => void][]} */
    const ways = [["p", "critical path", () => this.path()], ["f", "find", () => document.dispatchEvent(new CustomEvent("key:find"))]];
    if (errors.size) ways.unshift(["e", "next error", () => this.nextError()]);
    for (const [key, text, run] of ways) this.#button(place, text, run, key);
    if (this.shown.only) this.#button(place, "show all", () => this.#all());
    else if (errors.size) this.#button(place, "only errors", () => this.#only());
  }

  #only() {
    this.shown.only = this.shown.only ? "" : "errors";
    keep("only", this.shown.only);
    this.redraw();
  }

  /** @param {Element} place @param {string} text @param {() => void} run @param {string} [key] */
  #button(place, text, run, key) {
    const one = document.createElement("button");
    one.type = "button";
    one.className = "quiet";
    if (key) {
      const hint = document.createElement("kbd");
      hint.textContent = key;
      one.append(hint, " ");
      one.setAttribute("aria-keyshortcuts", key);
    }
    one.append(text);
    one.addEventListener("click", run);
    place.append(one);
  }
}
