// @ts-check
/**
 * Markdown out of DOM nodes: headings, lists, tables, code, emphasis, links. Nothing is parsed as HTML: what a model wrote
 * can only become text in one of the elements below. Links lead to http and https and show where to; pictures are
 * links.
 */

const MOST_CHARS = 20_000;
const MOST_COLUMNS = 30;

/** Turn every text that is marked for it. @param {Element} root */
export function markdown(root) {
  for (const part of root.querySelectorAll("[data-markdown] > pre.prose")) {
    const text = part.textContent ?? "";
    if (text.length > MOST_CHARS || !/[*_`#[\n-]/.test(text)) continue;
    const shown = document.createElement("div");
    shown.className = "markdown";
    shown.append(...blocks(text));
    part.replaceWith(shown);
  }
}

/** @param {string} text @returns {Node[]} */
export function blocks(text) {
  const lines = text.split("\n");
  const out = [];
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const fence = line.match(/^\s*(```+|~~~+)/);
    if (fence) {
      const from = ++i;
      while (i < lines.length && !lines[i].trimStart().startsWith(fence[1])) i++;
      out.push(element("pre", [lines.slice(from, i).join("\n")], "fenced"));
      i++;
      continue;
    }
    const heading = line.match(/^(#{1,6})\s+(.*)$/);
    if (heading) {
      out.push(element("p", inline(heading[2]), "heading"));
      i++;
      continue;
    }
    const rows = tableRows(lines, i);
    if (rows) {
      out.push(table(rows));
      i += rows.length + 1;
      continue;
    }
    const item = /^\s*(?:[-*+]|\d{1,9}[.)])\s+/;
    if (item.test(line)) {
      const ordered = /^\s*\d/.test(line);
      const list = element(ordered ? "ol" : "ul", []);
      if (ordered && list instanceof HTMLOListElement) list.start = Number.parseInt(line.trim(), 10);
      while (i < lines.length && item.test(lines[i])) {
        const said = [lines[i++].replace(item, "")];
        while (i < lines.length && /^\s{2,}\S/.test(lines[i]) && !item.test(lines[i])) said.push(lines[i++].trim());
        list.append(element("li", inline(said.join("\n"))));
      }
      out.push(list);
      continue;
    }
    if (!line.trim()) {
      i++;
      continue;
    }
    const said = [line];
    const ends = (/** @type {number} */ at) => !lines[at].trim() || item.test(lines[at]) || /^(#{1,6}\s|\s*(```|~~~))/.test(lines[at]) || tableRows(lines, at);
    for (i++; i < lines.length && !ends(i); i++) said.push(lines[i]);
    out.push(element("p", inline(said.join("\n"))));
  }
  return out;
}

/**
 * The cells of the table that begins at a line, its heading first; null where none does. As GitHub writes them: the
 * second line is dashes between bars, and a row ends the table that has no bar.
 * @param {string[]} lines @param {number} from @returns {string[][] | null}
 */
function tableRows(lines, from) {
  if (!lines[from].includes("|") || !/^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/.test((lines[from + 1] ?? "").trim())) return null;
  const heading = cells(lines[from]);
  if (heading.length > MOST_COLUMNS || cells(lines[from + 1]).length !== heading.length) return null;
  const rows = [heading];
  for (let at = from + 2; at < lines.length && lines[at].includes("|"); at++) {
    const row = cells(lines[at]).slice(0, heading.length);
    rows.push([...row, ...Array(heading.length - row.length).fill("")]);
  }
  return rows;
}

/** The cells of a row: between its bars, but for those behind a backslash. @param {string} line */
function cells(line) {
  const parts = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/);
  return parts.map((part) => part.trim().replaceAll("\\|", "|"));
}

/** @param {string[][]} rows */
function table([heading, ...rows]) {
  const head = element("tr", heading.map((cell) => element("th", inline(cell))));
  for (const cell of head.children) cell.setAttribute("scope", "col");
  const body = rows.map((row) => element("tr", row.map((cell) => element("td", inline(cell)))));
  const region = element("div", [element("table", [element("thead", [head]), element("tbody", body)])], "scroll");
  region.tabIndex = 0;
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", "Table");
  return region;
}

const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|!?\[([^\]\n]{0,500})\]\(([^\s()]{1,2000})\)|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*(?!\w)|(?<!\w)_([^_\n]+)_(?!\w)/g;

/** @param {string} text @returns {(Node | string)[]} */
function inline(text) {
  const out = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    out.push(text.slice(at, found.index));
    at = found.index + found[0].length;
    const [all, , code, label, address, bold, star, line] = found;
    if (code !== undefined) out.push(element("code", [code]));
    else if (address !== undefined) out.push(link(label, address, all));
    else if (bold !== undefined) out.push(element("b", inline(bold)));
    else out.push(element("em", [star ?? line]));
  }
  out.push(text.slice(at));
  return out;
}

/** @param {string} label @param {string} address @param {string} all @returns {Node | string} */
function link(label, address, all) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return all;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return all;
  const one = document.createElement("a");
  one.href = url.href;
  one.rel = "noreferrer noopener nofollow";
  one.target = "_blank";
  one.append(label || url.host, ` (${url.host})`);
  return one;
}

/** @param {string} name @param {(Node | string)[]} children @param {string} [className] */
function element(name, children, className) {
  const one = document.createElement(name);
  if (className) one.className = className;
  one.append(...children);
  return one;
}
