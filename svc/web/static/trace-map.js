// @ts-check
/** The whole trace, small: each span a line at its depth. Drag over it to look closer. The rows say the same. */

import { markOf } from "./trace-rows.js";
import { Scale } from "./trace-scale.js";

const LANES = 9;
const KIND_COLORS = ["--llm", "--tool", "--find", "--agent", "--other"];

export class Overview {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    /** @type {import("./trace-model.js").Trace | undefined} */
    this.of = undefined;
    /** @type {Scale | undefined} */
    this.scale = undefined;
    /** @type {import("./trace-model.js").Trace | undefined} */
    this.drawn = undefined;
    this.width = 0;
  }

  /** The scale of all of a trace, made once. @param {import("./trace-model.js").Trace} trace @returns {Scale} */
  whole(trace) {
    if (this.of !== trace || !this.scale) {
      this.of = trace;
      this.scale = new Scale(trace, 0, Infinity);
    }
    return this.scale;
  }

  /** Draw a trace behind the frame that shows its rows, and once. @param {import("./trace-model.js").Trace} trace */
  draw(trace) {
    if (this.drawn === trace && this.width === this.canvas.clientWidth) return;
    this.drawn = trace;
    this.width = this.canvas.clientWidth;
    const hues = trace.columns.kinds.map((kind) => markOf(kind)[1]);
    requestAnimationFrame(() => setTimeout(() => drawMap(this.canvas, trace, this.whole(trace), (i) => hues[trace.columns.kind[i]])));
  }
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./trace-model.js").Trace} trace
 * @param {Scale} scale
 * @param {(span: number) => number} hue which of the five hues a span has
 */
function drawMap(canvas, trace, scale, hue) {
  const width = canvas.clientWidth;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = 40 * ratio;
  const pen = canvas.getContext("2d");
  if (!pen || !width) return;
  pen.scale(ratio, ratio);
  const colors = KIND_COLORS.map((name) => inked(canvas, name));
  const bad = inked(canvas, "--bad");
  const depths = new Int32Array(trace.n);
  // A line is drawn where none of its lane was drawn before: thousands of short ones fall on one pixel.
  const drawn = new Uint8Array(width * LANES);
  for (let pass = 0; pass < 2; pass++) {
    for (let i = 0; i < trace.n; i++) {
      const above = trace.parent[i];
      if (pass === 0) depths[i] = above >= 0 && above < i ? depths[above] + 1 : 0;
      if ((pass === 1) !== trace.failed(i)) continue;
      const lane = Math.min(depths[i], LANES - 1);
      const from = Math.floor(scale.place(trace.start[i]) * (width - 2));
      const to = Math.max(Math.ceil(scale.place(trace.end[i]) * (width - 2)), from + 2);
      if (pass === 0 && to - from < 4 && drawn[lane * width + from]) continue;
      drawn[lane * width + from] = 1;
      pen.fillStyle = pass ? bad : colors[hue(i)];
      pen.fillRect(from, 2 + lane * 4, to - from, 3);
    }
  }
}

/** What a token is in the theme that is on: a canvas knows no `light-dark`. @param {HTMLElement} canvas @param {string} name */
function inked(canvas, name) {
  canvas.style.color = `var(${name})`;
  return getComputedStyle(canvas).color;
}

/**
 * Drag over the map: tells the chosen part, from 0 to 1. A click without a way tells nothing.
 * @param {HTMLElement} place @param {HTMLElement} brush @param {(from: number, to: number) => void} chosen
 */
export function onDrag(place, brush, chosen) {
  let from = -1;
  /** @param {PointerEvent} event */
  const at = (event) => {
    const box = place.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  /** @param {number} to */
  const mark = (to) => {
    brush.style.left = `${Math.min(from, to) * 100}%`;
    brush.style.width = `${Math.abs(to - from) * 100}%`;
  };
  place.addEventListener("pointerdown", (event) => {
    from = at(event);
    place.setPointerCapture(event.pointerId);
    mark(from);
    brush.hidden = false;
  });
  place.addEventListener("pointermove", (event) => from >= 0 && mark(at(event)));
  place.addEventListener("pointerup", (event) => {
    const to = at(event);
    if (from >= 0 && Math.abs(to - from) > 0.005) chosen(Math.min(from, to), Math.max(from, to));
    from = -1;
    brush.hidden = true;
  });
}
