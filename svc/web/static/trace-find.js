// @ts-check
/** Find in a trace: names and errors at once, then what the server finds in all that was said. */

import { counted } from "./format.js";
import { keep } from "./trace-keys.js";

const WAIT_MS = 250;

/** @param {any} grid the rows of the page, as `trace.js` keeps them */
export function finder(grid) {
  const form = document.createElement("form");
  form.className = "find";
  form.setAttribute("role", "search");
  form.hidden = true;
  const input = document.createElement("input");
  input.type = "search";
  input.maxLength = 200;
  input.ariaLabel = "Find in the trace";
  input.placeholder = "find in names, errors and all that was said";
  const told = document.createElement("span");
  told.className = "small soft";
  told.setAttribute("role", "status");
  form.append(input, told);
  grid.note.before(form);
  /** @type {number[]} */
  let found = [];
  let at = -1;
  let waiting = 0;

  const tell = (/** @type {string} */ more) => {
    told.textContent = input.value.trim() ? `${at >= 0 ? `${at + 1} of ` : ""}${counted(found.length, "span")}${more}` : "";
  };
  /** @param {number[]} spans @param {string} more */
  const mark = (spans, more) => {
    found = spans;
    at = Math.min(at, found.length - 1);
    grid.rows.found = new Set(found);
    grid.rows.draw(true);
    tell(more);
  };
  const look = async () => {
    const q = input.value.trim();
    keep("q", q);
    at = -1;
    if (!q) return mark([], "");
    mark(here(grid.trace, q.toLowerCase()), ", looking into what was said …");
    const answer = await fetch(`${grid.address}/find?q=${encodeURIComponent(q)}`).catch(() => null);
    if (input.value.trim() !== q) return;
    if (!answer?.ok) return tell("; what was said could not be searched");
    const { ids, more, unread } = await answer.json();
    const all = new Set([...found, ...ids.map((/** @type {string} */ id) => grid.trace.at(id)).filter((/** @type {number} */ i) => i >= 0)]);
    const rest = `${more ? " and more" : ""}${unread ? `; ${counted(unread, "span")} too long to look into` : ""}`;
    mark([...all].sort((a, b) => a - b), rest);
  };
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(look, WAIT_MS);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      form.hidden = true;
      input.value = "";
      look();
      grid.scroller.focus();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!found.length) return;
      at = (at + (event.shiftKey ? found.length - 1 : 1)) % found.length;
      grid.reveal(found[at]);
      tell("");
    }
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("key:find", (event) => {
    event.preventDefault();
    form.hidden = false;
    input.focus();
    input.select();
  });
  const asked = new URL(location.href).searchParams.get("q");
  if (asked) {
    form.hidden = false;
    input.value = asked;
    look();
  }
}

/** Spans whose name or error holds a text. @param {import("./trace-model.js").Trace} trace @param {string} q */
function here(trace, q) {
  const names = trace.names.map((name) => name.toLowerCase().includes(q));
  const found = [];
  for (let i = 0; i < trace.n; i++) {
    if (names[trace.columns.name[i]] || trace.errors.get(i)?.toLowerCase().includes(q)) found.push(i);
  }
  return found;
}
