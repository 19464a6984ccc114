// @ts-check
/** The histogram of a list: dragging over it, or arrows and Enter, narrow the range. */

/** @param {HTMLElement} figure */
export function bars(figure) {
  brush(figure);
  slider(figure);
}

/** Go to the same list over another range. @param {string} from @param {string} to */
function narrow(from, to) {
  const address = new URL(location.href);
  for (const name of ["range", "cursor", "trace", "saved", "follow"]) address.searchParams.delete(name);
  address.searchParams.set("from", new Date(from).toISOString());
  address.searchParams.set("to", new Date(to).toISOString());
  location.assign(address);
}

/** @param {HTMLElement} figure */
function brush(figure) {
  const svg = /** @type {SVGSVGElement} */ (figure.querySelector("svg"));
  const shade = /** @type {SVGRectElement} */ (figure.querySelector(".brush"));
  const low = Date.parse(figure.dataset.low ?? "");
  const high = Date.parse(figure.dataset.high ?? "");
  let from = -1;
  const place = (/** @type {PointerEvent} */ event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };
  svg.addEventListener("pointerdown", (event) => (from = event.button === 0 ? place(event) : -1));
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("pointermove", (event) => {
    if (from < 0) return;
    const to = place(event);
    shade.setAttribute("x", `${Math.min(from, to) * 100}%`);
    shade.setAttribute("width", `${Math.abs(to - from) * 100}%`);
  });
  svg.ownerDocument.addEventListener("pointerup", (event) => {
    if (from < 0) return;
    const ends = [from, place(event)].sort((a, b) => a - b);
    from = -1;
    if (ends[1] - ends[0] < 0.01) {
      shade.setAttribute("width", "0");
      return;
    }
    svg.addEventListener("click", (click) => click.preventDefault(), { once: true, capture: true });
    const at = (/** @type {number} */ part) => new Date(low + part * (high - low)).toISOString();
    narrow(at(ends[0]), at(ends[1]));
  });
}

/** One bar after the other by arrows, several with Shift; Enter narrows to them. @param {HTMLElement} figure */
function slider(figure) {
  const handle = /** @type {HTMLElement} */ (figure.querySelector("[data-slider]"));
  const shade = /** @type {SVGRectElement} */ (figure.querySelector(".brush"));
  const hits = [...figure.querySelectorAll(".hit")];
  const rows = /** @type {HTMLElement[]} */ ([...figure.querySelectorAll("tr[data-from]")]);
  if (!rows.length) return;
  let at = rows.length - 1;
  let other = at;
  const show = () => {
    const [first, last] = [Math.min(at, other), Math.max(at, other)];
    const x = parseFloat(hits[first].getAttribute("x") ?? "0");
    const end = parseFloat(hits[last].getAttribute("x") ?? "0") + parseFloat(hits[last].getAttribute("width") ?? "0");
    shade.setAttribute("x", `${x}%`);
    shade.setAttribute("width", `${end - x}%`);
    const some = rows.slice(first, last + 1);
    const sum = (/** @type {number} */ cell) => some.reduce((all, row) => all + Number(row.children[cell].textContent), 0);
    const failed = sum(2);
    const said = `${some[0].children[0].textContent}: ${sum(1)} traces${failed ? `, ${failed} failed` : ""}${some.length > 1 ? `, in ${some.length} bars` : ""}`;
    handle.dataset.said = said;
    handle.ariaValueNow = String(at);
    handle.ariaValueText = said;
  };
  handle.hidden = false;
  handle.tabIndex = 0;
  handle.role = "slider";
  handle.ariaLabel = "A stretch of time; Enter narrows the list to it";
  handle.ariaValueMin = "0";
  handle.ariaValueMax = String(rows.length - 1);
  handle.ariaValueNow = String(at);
  handle.ariaValueText = "";
  handle.addEventListener("focus", show);
  handle.addEventListener("blur", () => shade.setAttribute("width", "0"));
  handle.addEventListener("keydown", (event) => {
    /** @type {Record<string, number>} */
    const ways = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: rows.length - 1 };
    if (event.key in ways) {
      at = Math.max(0, Math.min(rows.length - 1, ways[event.key]));
      if (!event.shiftKey) other = at;
      show();
    } else if (event.key === "Enter") {
      narrow(rows[Math.min(at, other)].dataset.from ?? "", rows[Math.max(at, other)].dataset.to ?? "");
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
