// @ts-check
/** Time to place: linear, but for long stretches in which nothing ran, which are cut to a mark. */

import { took } from "./trace-model.js";

/** @typedef {{from: number, to: number, x: number, width: number, cut: boolean}} Stretch */

/** A stretch is cut when it is this part of all, and longer than a second. */
const CUT_PART = 0.2;
const CUT_US = 1e6;
const CUT_WIDTH = 0.03;

export class Scale {
  /** @param {import("./trace-model.js").Trace} trace @param {number} low @param {number} high */
  constructor(trace, low, high) {
    this.low = Math.max(low, 0);
    this.high = Math.max(Math.min(high, trace.last), this.low + 1);
    const gaps = idle(trace, this.low, this.high);
    const cut = gaps.reduce((sum, [from, to]) => sum + to - from, 0);
    const rest = 1 - gaps.length * CUT_WIDTH;
    const perUs = rest / Math.max(this.high - this.low - cut, 1);
    /** @type {Stretch[]} */
    this.stretches = [];
    let at = this.low;
    let x = 0;
    for (const [from, to] of [...gaps, [this.high, this.high]]) {
      const width = (from - at) * perUs;
      this.stretches.push({ from: at, to: from, x, width, cut: false });
      x += width;
      if (to > from) this.stretches.push({ from, to, x, width: CUT_WIDTH, cut: true });
      x += to > from ? CUT_WIDTH : 0;
      at = to;
    }
  }

  /** From 0 to 1. @param {number} us */
  place(us) {
    for (const one of this.stretches) {
      if (us <= one.to) return one.x + (one.to > one.from ? (Math.max(us - one.from, 0) / (one.to - one.from)) * one.width : 0);
    }
    return 1;
  }

  /** @param {number} x */
  time(x) {
    for (const one of this.stretches) {
      if (x <= one.x + one.width) return one.from + (one.width ? Math.max(x - one.x, 0) / one.width : 0) * (one.to - one.from);
    }
    return this.high;
  }

  /** Marks of the axis: a place and a text, as many as there is room for. @param {number} px */
  ticks(px) {
    const step = nice((this.high - this.low) / Math.max(2, Math.min(6, px / 64)));
    /** @type {{x: number, text: string}[]} */
    const found = [];
    for (let at = Math.ceil(this.low / step) * step; at < this.high; at += step) {
      const x = this.place(at);
      if (x * px < px - 44 && !this.stretches.some((one) => one.cut && Math.abs(one.x - x) < 0.06) && !this.stretches.some((one) => one.cut && at > one.from && at < one.to)) found.push({ x, text: at ? took(at) : "0 s" });
    }
    return found.filter((tick, i) => i === 0 || (tick.x - found[i - 1].x) * px > 52);
  }
}

/** 1, 2 or 5 times a power of ten. @param {number} wanted */
function nice(wanted) {
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  return power * (wanted / power <= 1 ? 1 : wanted / power <= 2 ? 2 : wanted / power <= 5 ? 5 : 10);
}

/** Kinds that hold work and do none while nothing below them runs. */
const HOLDING = new Set(["agent", "workflow", "step", "plan"]);

/** Long stretches in which nothing ran but what holds others. @param {import("./trace-model.js").Trace} trace
 * @param {number} low @param {number} high @returns {[number, number][]} */
function idle(trace, low, high) {
  const least = Math.max((high - low) * CUT_PART, CUT_US);
  /** @type {[number, number][]} */
  const gaps = [];
  let until = low;
  for (let i = 0; i < trace.n; i++) {
    const holds = trace.first[i] >= 0 && HOLDING.has(trace.columns.kinds[trace.columns.kind[i]]);
    if (holds || trace.end[i] < low || trace.start[i] > high) continue;
    if (trace.start[i] - until > least) gaps.push([until, trace.start[i]]);
    until = Math.max(until, trace.end[i]);
  }
  if (high - until > least && until > low) gaps.push([until, high]);
  return gaps;
}

/** Marks of time, and of what was cut. @param {HTMLElement} axis @param {Scale} scale */
export function drawAxis(axis, scale) {
  /** @param {string} className @param {string} text @param {number} x */
  const mark = (className, text, x) => {
    const one = document.createElement("span");
    one.className = className;
    one.textContent = text;
    one.style.left = `${x * 100}%`;
    return one;
  };
  const marks = scale.ticks(axis.clientWidth || 400).map(({ x, text }) => mark("tick", text, x));
  for (const one of scale.stretches.filter(({ cut }) => cut)) {
    const gap = mark("cut", "⁄⁄", one.x);
    gap.title = `${took(one.to - one.from)} in which nothing ran`;
    marks.push(gap);
  }
  axis.replaceChildren(...marks);
}
