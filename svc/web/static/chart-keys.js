// @ts-check
/** Charts by keyboard: one stop for Tab, arrows walk the bars, Home and End go to the ends. */

/** @param {HTMLElement} root */
export function start(root) {
  for (const chart of root.querySelectorAll("[data-bars]")) walk(/** @type {SVGElement} */ (chart));
}

/** @param {SVGElement} chart */
function walk(chart) {
  const bars = /** @type {SVGAElement[]} */ ([...chart.querySelectorAll("[href]")]);
  chart.addEventListener("keydown", (event) => {
    const here = bars.findIndex((bar) => bar === document.activeElement);
    const place = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: bars.length - 1 }[event.key];
    if (here < 0 || place === undefined || !bars[place]) return;
    event.preventDefault();
    bars[here].setAttribute("tabindex", "-1");
    bars[place].setAttribute("tabindex", "0");
    bars[place].focus();
  });
}
