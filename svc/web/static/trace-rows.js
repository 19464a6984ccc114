// @ts-check
/**
 * The rows of a trace as a treegrid: about sixty elements of fixed height, moved and filled anew as one scrolls.
 * One tab stop; the row that is active is told by `aria-activedescendant`.
 */

import { count } from "./format.js";
import { ORPHANS, costs, took } from "./trace-model.js";

export const ROW_PX = 28;
const MOST_INDENTS = 12;

/** Marks and hues by kind, as the server's macros have them. @type {Record<string, [string, number]>} */
const KINDS = {
  llm: ["LM", 0], reasoning: ["RE", 0], tool: ["TO", 1], mcp: ["MC", 1], retrieval: ["RT", 2], embedding: ["EM", 2],
  reranker: ["RR", 2], agent: ["AG", 3], workflow: ["WF", 3], plan: ["PL", 3], handoff: ["HO", 3], memory: ["ME", 4],
  guardrail: ["GR", 4], step: ["ST", 4],
};
const HUES = ["llm", "tool", "find", "agent", "other"];

/** @param {string} kind @returns {[string, number]} */
export function markOf(kind) {
  return KINDS[kind] ?? ["··", 4];
}

/** @typedef {{row: HTMLElement, name: HTMLElement, level: HTMLElement, fold: HTMLElement, mark: HTMLElement,
 *   label: HTMLElement, stated: HTMLElement, error: HTMLElement, took: HTMLElement, tokens: HTMLElement, cost: HTMLElement,
 *   lane: HTMLElement, bar: HTMLElement, said: HTMLElement, at: number}} Slot */

export class Rows {
  /**
   * @param {HTMLElement} scroller @param {HTMLElement} body
   * @param {{tree: boolean, choose: (index: number, open: boolean) => void, toggle: (index: number) => void,
   *   seen: (spans: number[]) => void}} ways
   */
  constructor(scroller, body, ways) {
    this.scroller = scroller;
    this.body = body;
    this.ways = ways;
    /** @type {import("./trace-model.js").Row[]} */
    this.rows = [];
    /** @type {Slot[]} */
    this.slots = [];
    this.active = -1;
    /** @type {Set<number>} Spans that were found. */
    this.found = new Set();
    /** @type {Map<string, string>} */
    this.previews = new Map();
    /** @type {Map<string, string>} Marks by the span at which they show: a label, and below it the sentence. */
    this.stated = new Map();
    this.bold = false;
    let asked = false;
    scroller.addEventListener("scroll", () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        this.draw(false);
      });
    });
    new ResizeObserver(() => this.draw(true)).observe(scroller);
    body.addEventListener("click", (event) => {
      const slot = this.slots.find((one) => event.target instanceof Node && one.row.contains(event.target));
      if (!slot) return;
      if (event.target instanceof Element && event.target.closest(".fold")) this.ways.toggle(slot.at);
      else this.ways.choose(slot.at, true);
    });
  }

  /** @param {import("./trace-model.js").Trace} trace @param {import("./trace-scale.js").Scale} scale
   * @param {import("./trace-model.js").Row[]} rows @param {import("./trace-model.js").Shown} shown */
  show(trace, scale, rows, shown) {
    Object.assign(this, { trace, scale, rows, shown });
    this.trace = trace;
    this.scale = scale;
    this.shown = shown;
    for (const one of document.querySelectorAll("[data-mark-of]")) {
      const { markOf: at = "", markLabel, markSentence } = /** @type {HTMLElement} */ (one).dataset;
      this.stated.set(at, `${markLabel}\n${markSentence}`);
    }
    this.body.style.height = `${rows.length * ROW_PX}px`;
    this.scroller.setAttribute("aria-rowcount", String(rows.length + 1));
    this.draw(true);
  }

  /** Fill the elements of the rows that are in sight. @param {boolean} anew whether those that stay are filled too */
  draw(anew) {
    if (!this.trace) return;
    const wanted = Math.min(Math.ceil(this.scroller.clientHeight / ROW_PX) + 24, 80);
    while (this.slots.length < wanted) this.slots.push(this.#slot());
    const size = this.slots.length;
    const top = Math.floor((this.scroller.scrollTop - this.body.offsetTop) / ROW_PX) - 10;
    const first = Math.max(0, Math.min(top, this.rows.length - size));
    const seen = [];
    for (let at = first; at < first + size; at++) {
      const slot = this.slots[at % size];
      if (at >= this.rows.length) {
        slot.row.hidden = true;
        slot.at = -1;
        continue;
      }
      if (anew || slot.at !== at) this.#fill(slot, at);
      if (this.rows[at].span >= 0) seen.push(this.rows[at].span);
    }
    const there = this.slots.some((slot) => slot.at === this.active && this.active >= 0);
    if (there) this.scroller.setAttribute("aria-activedescendant", `row-${this.active}`);
    else this.scroller.removeAttribute("aria-activedescendant");
    if (this.ways.tree) this.ways.seen(seen);
  }

  /** Make a row the active one and bring it in sight. @param {number} at */
  activate(at) {
    this.active = at;
    const y = at * ROW_PX + this.body.offsetTop;
    const head = this.body.offsetTop;
    const view = this.scroller;
    if (y < view.scrollTop + head) view.scrollTop = y - head;
    else if (y + ROW_PX > view.scrollTop + view.clientHeight) view.scrollTop = y + ROW_PX - view.clientHeight;
    this.draw(true);
  }

  /** @returns {Slot} */
  #slot() {
    /** @param {string} className @param {string} [role] */
    const cell = (className, role) => {
      const one = document.createElement("span");
      one.className = className;
      if (role) one.setAttribute("role", role);
      return one;
    };
    const row = document.createElement("div");
    row.className = "trow";
    row.setAttribute("role", "row");
    const slot = {
      row, name: cell("tname", "gridcell"), level: cell("level"), fold: cell("fold"), mark: cell("mark"), label: cell("tlabel"),
      stated: cell("tstated"), error: cell("terr"), took: cell("num", "gridcell"), tokens: cell("num soft", "gridcell"), cost: cell("num soft", "gridcell"),
      lane: cell("lane", "gridcell"), bar: cell("tbar"), said: cell("tsaid clip"), at: -1,
    };
    slot.fold.ariaHidden = "true";
    slot.name.append(slot.level, slot.fold, slot.mark, slot.label, slot.error, slot.stated);
    slot.lane.append(this.ways.tree ? slot.said : slot.bar);
    row.append(slot.name, slot.took, slot.tokens, slot.cost, slot.lane);
    this.body.append(row);
    return slot;
  }

  /** @param {Slot} slot @param {number} at */
  #fill(slot, at) {
    const trace = /** @type {import("./trace-model.js").Trace} */ (this.trace);
    const shown = /** @type {import("./trace-model.js").Shown} */ (this.shown);
    const { fold, depth, span } = this.rows[at];
    const group = fold >= 0 ? trace.folds[fold] : null;
    const one = group ? group.members[0] : span;
    const c = trace.columns;
    slot.at = at;
    slot.row.hidden = false;
    slot.row.id = `row-${at}`;
    slot.row.style.transform = `translateY(${at * ROW_PX}px)`;
    slot.row.ariaRowIndex = String(at + 2);
    slot.row.ariaLevel = String(depth + 1);
    slot.row.ariaSelected = String(at === this.active);
    const opens = group || fold === ORPHANS || trace.first[span] >= 0;
    const open = group ? shown.open.has(fold) : !shown.closed.has(fold === ORPHANS ? ORPHANS : span);
    if (opens) slot.row.ariaExpanded = String(open);
    else slot.row.removeAttribute("aria-expanded");
    slot.fold.textContent = opens ? (open ? "▾" : "▸") : "";
    slot.name.style.setProperty("--depth", String(Math.min(depth, MOST_INDENTS)));
    slot.level.textContent = depth > MOST_INDENTS ? String(depth) : "";
    if (fold === ORPHANS) return this.#fillOrphans(slot);
    const [letters, hue] = markOf(c.kinds[c.kind[one]]);
    slot.mark.className = `mark m-${HUES[hue]}`;
    slot.mark.textContent = letters;
    slot.mark.title = c.kinds[c.kind[one]];
    const name = trace.names[c.name[one]] || "(no name)";
    slot.label.textContent = group ? `${name} ×${count(group.members.length)}` : name;
    slot.row.classList.toggle("on-path", this.bold && !group && Boolean(trace.path?.has(span)));
    slot.row.classList.toggle("found", !group && this.found.has(span));
    const failed = !group && trace.failed(span);
    const stated = group ? "" : this.stated.get(trace.id(span)) ?? "";
    slot.stated.textContent = stated && `⚑ ${stated.split("\n")[0]}`;
    slot.stated.title = stated;
    slot.error.textContent = failed ? `✕ ${trace.errors.get(span) || "failed"}` : "";
    slot.took.textContent = took(group ? group.end - group.start : c.dur[span]);
    const tokens = group ? group.tokens : c.tokens[span];
    slot.tokens.textContent = tokens ? count(tokens) : "";
    const cost = group ? group.cost : c.cost[span];
    slot.cost.textContent = cost > 0 ? costs(cost) : cost < 0 ? "no price" : "";
    if (this.ways.tree) slot.said.textContent = this.previews.get(group ? "" : trace.id(span)) ?? "";
    else this.#place(slot, group ? group.start : trace.start[span], group ? group.end : trace.end[span], hue, failed, Boolean(group));
  }

  /** @param {Slot} slot */
  #fillOrphans(slot) {
    slot.mark.className = "mark m-other";
    slot.mark.textContent = "··";
    slot.label.textContent = "parent not received";
    slot.error.textContent = slot.stated.textContent = "";
    slot.row.classList.remove("on-path", "found");
    for (const cell of [slot.took, slot.tokens, slot.cost, slot.said]) cell.textContent = "";
    slot.bar.hidden = true;
  }

  /** @param {Slot} slot @param {number} start @param {number} end @param {number} hue @param {boolean} failed @param {boolean} folded */
  #place(slot, start, end, hue, failed, folded) {
    const scale = /** @type {import("./trace-scale.js").Scale} */ (this.scale);
    const from = scale.place(start);
    const to = scale.place(end);
    slot.bar.hidden = end < scale.low || start > scale.high;
    slot.bar.className = `tbar m-${HUES[hue]}${failed ? " failed" : ""}${folded ? " folded" : ""}`;
    slot.bar.style.left = `${(from * 100).toFixed(3)}%`;
    slot.bar.style.width = `${(Math.max(to - from, 0) * 100).toFixed(3)}%`;
  }
}
