// @ts-check
// Searches the documentation in the page: every word must be in an entry; a title counts for more than a text.
// The index is fetched when the field is first used. Without this module the pages are whole, and have no field.

/** @typedef {{page: string, title: string, href: string, text: string}} Entry */

const MOST = 12;

/** @param {Entry[]} entries @param {string} query @returns {Entry[]} */
export function find(entries, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const scored = [];
  for (const entry of entries) {
    const title = entry.title.toLowerCase();
    const rest = `${entry.page} ${entry.text}`.toLowerCase();
    let score = 0;
    for (const word of words) {
      const own = title === word ? 8 : title.startsWith(word) ? 5 : title.includes(word) ? 4 : rest.includes(word) ? 1 : 0;
      score = own && score >= 0 ? score + own : -1;
    }
    if (score > 0) scored.push({ entry, score });
  }
  return scored
    .sort((a, b) => b.score - a.score)
    .slice(0, MOST)
    .map(({ entry }) => entry);
}

/** @param {HTMLInputElement} input @param {HTMLElement} list */
function attach(input, list) {
  /** @type {Promise<Entry[]> | undefined} */
  let index;
  let at = 0;
  const items = () => /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=option]")]);
  const mark = () => {
    for (const [number, item] of items().entries()) item.setAttribute("aria-selected", String(number === at));
    const chosen = items()[at];
    input.setAttribute("aria-activedescendant", chosen?.id ?? "");
    chosen?.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  };
  const show = async () => {
    index ??= fetch(new URL("search.json", import.meta.url)).then((answer) => answer.json());
    const query = input.value;
    const results = find(await index, query);
    if (query !== input.value) return;
    list.replaceChildren(...results.map(drawn));
    if (!results.length) {
      const none = document.createElement("p");
      none.textContent = "Nothing has all of these words.";
      list.append(none);
    }
    list.hidden = !query.trim();
    input.setAttribute("aria-expanded", String(!list.hidden));
    at = 0;
    mark();
  };
  input.hidden = false;
  input.addEventListener("input", () => void show());
  input.addEventListener("focus", () => void show());
  input.addEventListener("keydown", (event) => {
    const count = items().length;
    if (event.key === "Escape") close();
    else if (event.key === "Enter") items()[at]?.querySelector("a")?.click();
    else if (count && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      at = (at + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
      mark();
    } else return;
    event.preventDefault();
  });
  list.addEventListener("click", close);
  document.addEventListener("click", (event) => {
    if (event.target instanceof Node && event.target !== input && !list.contains(event.target)) close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    input.focus();
  });
}

/** @param {Entry} entry @param {number} number */
function drawn(entry, number) {
  const item = document.createElement("li");
  item.role = "option";
  item.id = `result-${number}`;
  const link = document.createElement("a");
  link.href = entry.href;
  link.tabIndex = -1;
  for (const [tag, text] of [["b", entry.title], ["small", `${entry.page} — ${entry.text.slice(0, 140)}`]]) {
    const part = document.createElement(tag);
    part.textContent = text;
    link.append(part);
  }
  item.append(link);
  return item;
}

if (globalThis.document) {
  const input = document.querySelector("#query");
  const list = document.querySelector("#results");
  if (input instanceof HTMLInputElement && list instanceof HTMLElement) attach(input, list);
  // On a narrow screen the list of pages is long and the text is what one came for.
  const menu = document.querySelector("details.pages");
  if (menu instanceof HTMLDetailsElement && matchMedia("(max-width: 760px)").matches) menu.open = false;
}
