// @ts-check
/**
 * A trace out of its columns: who stands below whom, what folds, what the answer waited for, which rows there are.
 * Pure, and linear in the number of spans whatever the links between them: parents may be missing or go in a circle.
 */

import { duration, money } from "./format.js";
import { visible } from "./visible.js";

/** @typedef {{v: number, n: number, total: number, settled: boolean, t0: number, names: string[], kinds: string[],
 *   models: string[], id: string, parent: number[], kind: number[], name: number[], model: number[],
 *   dstart: number[], dur: number[], tokens: number[], cost: number[], flags: number[], err: [number, string][]}} Columns */
/** @typedef {{members: number[], start: number, end: number, busy: number, tokens: number, cost: number}} Fold */
/** @typedef {{fold: number, depth: number, span: number}} Row A fold has no span (-1), the row of orphans neither. */
/** @typedef {{closed: Set<number>, open: Set<number>, only: string, low: number, high: number}} Shown */

const FAILED = 1;
const ORPHAN = 2;
/** Equal siblings beyond which they fold. */
const FOLDED = 4;
export const ORPHANS = -2;

/** How long, of the microseconds of columns; less than none is not known. @param {number} us */
export const took = (us) => duration(us < 0 ? null : us / 1000);

/** What it cost, of the billionths of a dollar of columns. @param {number} nano */
export const costs = (nano) => money(nano / 1e9);

export class Trace {
  /** @param {Columns} columns */
  constructor(columns) {
    const n = columns.n;
    this.columns = columns;
    this.n = n;
    this.names = columns.names.map(visible);
    this.start = new Float64Array(n);
    this.end = new Float64Array(n);
    this.parent = new Int32Array(n);
    this.first = new Int32Array(n).fill(-1);
    this.next = new Int32Array(n).fill(-1);
    /** @type {Map<number, string>} */
    this.errors = new Map(columns.err.map(([at, text]) => [at, visible(text)]));
    let at = 0;
    for (let i = 0; i < n; i++) {
      at += columns.dstart[i];
      this.start[i] = at;
      this.end[i] = at + Math.max(columns.dur[i], 0);
      this.parent[i] = columns.parent[i] ? i - columns.parent[i] : -1;
    }
    this.last = this.end.reduce((most, end) => Math.max(most, end), 0);
    this.roots = /** @type {number[]} */ ([]);
    this.orphans = /** @type {number[]} */ ([]);
    this.#link();
    this.foldOf = new Int32Array(n).fill(-1);
    /** @type {Fold[]} */
    this.folds = [];
    this.#fold();
    /** @type {Map<number, number> | null} What each span of the critical path adds to it. */
    this.path = null;
  }

  /** @param {number} i */
  failed(i) {
    return (this.columns.flags[i] & FAILED) !== 0;
  }

  /** @param {number} i */
  id(i) {
    return this.columns.id.slice(i * 16, i * 16 + 16);
  }

  /** The place of a span, or -1. @param {string} id */
  at(id) {
    for (let from = 0; ; from++) {
      from = this.columns.id.indexOf(id, from);
      if (from < 0 || from % 16 === 0) return from < 0 ? -1 : from / 16;
    }
  }

  #link() {
    const { flags } = this.columns;
    for (let i = this.n - 1; i >= 0; i--) {
      const above = this.parent[i];
      if (above < 0) continue;
      this.next[i] = this.first[above];
      this.first[above] = i;
    }
    const seen = new Uint8Array(this.n);
    for (let i = 0; i < this.n; i++) {
      if (this.parent[i] >= 0) continue;
      (flags[i] & ORPHAN ? this.orphans : this.roots).push(i);
      this.#reach(i, seen);
    }
    // What is left goes round in a circle: each is cut where it is met first.
    for (let i = 0; i < this.n; i++) {
      if (seen[i]) continue;
      const above = this.parent[i];
      if (this.first[above] === i) this.first[above] = this.next[i];
      else {
        let beside = this.first[above];
        while (this.next[beside] !== i) beside = this.next[beside];
        this.next[beside] = this.next[i];
      }
      this.parent[i] = -1;
      this.next[i] = -1;
      this.orphans.push(i);
      this.#reach(i, seen);
    }
  }

  /** @param {number} from @param {Uint8Array} seen */
  #reach(from, seen) {
    const waiting = [from];
    for (let i = waiting.pop(); i !== undefined; i = waiting.pop()) {
      seen[i] = 1;
      for (let child = this.first[i]; child >= 0; child = this.next[child]) if (!seen[child]) waiting.push(child);
    }
  }

  #fold() {
    const { kind, name, tokens, cost } = this.columns;
    for (let above = 0; above < this.n; above++) {
      if (this.first[above] < 0) continue;
      /** @type {Map<number, number[]>} */
      const alike = new Map();
      for (let i = this.first[above]; i >= 0; i = this.next[i]) {
        if (this.first[i] >= 0 || this.failed(i)) continue;
        const key = name[i] * 64 + kind[i];
        const members = alike.get(key);
        if (members) members.push(i);
        else alike.set(key, [i]);
      }
      for (const members of alike.values()) {
        if (members.length < FOLDED) continue;
        const fold = { members, start: this.start[members[0]], end: 0, busy: 0, tokens: 0, cost: 0 };
        for (const i of members) {
          fold.end = Math.max(fold.end, this.end[i]);
          fold.busy += this.end[i] - this.start[i];
          fold.tokens += tokens[i];
          fold.cost += Math.max(cost[i], 0);
          this.foldOf[i] = this.folds.length;
        }
        this.folds.push(fold);
      }
    }
  }

  /** What the end of the trace waited for: span by span, backwards, whatever ended last. */
  criticalPath() {
    if (this.path) return this.path;
    this.path = new Map();
    const root = this.roots.reduce((best, i) => (best < 0 || this.end[i] > this.end[best] ? i : best), -1);
    if (root < 0) return this.path;
    /** @type {[number, number][]} */
    const waiting = [[root, this.end[root]]];
    for (let item = waiting.pop(); item; item = waiting.pop()) {
      const [span, until] = item;
      let left = until;
      let own = 0;
      const children = [];
      for (let i = this.first[span]; i >= 0; i = this.next[i]) children.push(i);
      children.sort((a, b) => this.end[b] - this.end[a]);
      for (const child of children) {
        if (this.start[child] >= left || this.end[child] <= this.start[span]) continue;
        const end = Math.min(this.end[child], left);
        own += left - end;
        waiting.push([child, end]);
        left = Math.max(this.start[child], this.start[span]);
      }
      this.path.set(span, own + Math.max(left - this.start[span], 0));
    }
    return this.path;
  }

  /** The name that the critical path spends most of its time in, and how long. */
  waitedFor() {
    const byName = new Map();
    for (const [span, own] of this.criticalPath()) {
      if (this.parent[span] < 0) continue;
      const name = this.columns.name[span];
      byName.set(name, (byName.get(name) ?? 0) + own);
    }
    let best = { name: "", us: 0 };
    for (const [name, us] of byName) if (us > best.us) best = { name: this.names[name], us };
    return best;
  }

  /** Which spans stay under a filter, ancestors included; null keeps all. @param {Shown} shown */
  #kept(shown) {
    const zoomed = shown.low > 0 || shown.high < Infinity;
    if (!shown.only && !zoomed) return null;
    const path = shown.only === "path" ? this.criticalPath() : null;
    const kept = new Uint8Array(this.n);
    for (let i = 0; i < this.n; i++) {
      if (this.start[i] > shown.high || this.end[i] < shown.low) continue;
      if (shown.only === "errors" && !this.failed(i)) continue;
      if (path && !path.has(i)) continue;
      for (let up = i; up >= 0 && !kept[up]; up = this.parent[up]) kept[up] = 1;
    }
    return kept;
  }

  /** The rows, in order. @param {Shown} shown @returns {Row[]} */
  rows(shown) {
    /** @type {Row[]} */
    const rows = [];
    const kept = this.#kept(shown);
    /** @type {[number, number][]} */
    const waiting = [];
    /** @param {number[]} spans @param {number} depth */
    const queue = (spans, depth) => {
      for (let k = spans.length - 1; k >= 0; k--) waiting.push([spans[k], depth]);
    };
    const draw = () => {
      for (let item = waiting.pop(); item; item = waiting.pop()) {
        const [span, depth] = item;
        if (kept && !kept[span]) continue;
        const fold = kept ? -1 : this.foldOf[span];
        if (fold >= 0 && this.folds[fold].members[0] === span) {
          rows.push({ fold, depth, span: -1 });
          if (shown.open.has(fold)) for (const one of this.folds[fold].members) rows.push({ fold: -1, depth: depth + 1, span: one });
        }
        if (fold >= 0) continue;
        rows.push({ fold: -1, depth, span });
        if (shown.closed.has(span)) continue;
        const children = [];
        for (let i = this.first[span]; i >= 0; i = this.next[i]) children.push(i);
        queue(children, depth + 1);
      }
    };
    queue(this.roots, 0);
    draw();
    const orphans = kept ? this.orphans.filter((i) => kept[i]) : this.orphans;
    if (orphans.length) {
      rows.push({ fold: ORPHANS, depth: 0, span: -1 });
      queue(orphans, 1);
      if (!shown.closed.has(ORPHANS)) draw();
      waiting.length = 0;
    }
    return rows;
  }
}
