// @ts-check
/** Completion in the filter bar: names of fields, then their values, those that the facets found among them. */

/** @typedef {{text: string, says: string, ends: boolean}} Proposal */

const MOST = 10;

/** @param {HTMLElement} root the input; its `list` names the fields */
export function start(root) {
  const input = /** @type {HTMLInputElement} */ (root);
  const fields = /** @type {HTMLOptionElement[]} */ ([...(input.list?.options ?? [])]);
  // The browser's own list completes whole bars only.
  input.removeAttribute("list");
  const list = document.createElement("ul");
  list.className = "suggested";
  list.id = "suggested";
  list.role = "listbox";
  list.ariaLabel = "Completions";
  list.hidden = true;
  input.form?.after(list);
  input.role = "combobox";
  input.setAttribute("aria-autocomplete", "list");
  input.setAttribute("aria-controls", list.id);
  /** @type {Proposal[]} */
  let proposed = [];
  let at = -1;

  const draw = () => {
    list.replaceChildren(...proposed.map((one, i) => option(one, i)));
    list.hidden = !proposed.length;
    input.ariaExpanded = String(!list.hidden);
    if (at >= 0) input.setAttribute("aria-activedescendant", `suggested-${at}`);
    else input.removeAttribute("aria-activedescendant");
    const box = input.getBoundingClientRect();
    list.style.left = `${box.left + scrollX}px`;
    list.style.top = `${box.bottom + scrollY + 4}px`;
  };
  /** @param {Proposal} one @param {number} i */
  const option = (one, i) => {
    const row = document.createElement("li");
    row.role = "option";
    row.id = `suggested-${i}`;
    row.ariaSelected = String(i === at);
    const [text, says] = [document.createElement("span"), document.createElement("span")];
    text.textContent = one.text;
    says.className = "hint";
    says.textContent = one.says;
    row.append(text, says);
    // Before the field loses the focus.
    row.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      take(one);
    });
    return row;
  };
  const close = () => {
    proposed = [];
    at = -1;
    draw();
  };
  const show = () => {
    at = -1;
    proposed = proposals(lastWord(input.value.slice(0, input.selectionStart ?? undefined)), fields);
    draw();
  };
  /** @param {Proposal} one */
  const take = (one) => {
    const end = input.selectionStart ?? input.value.length;
    const word = lastWord(input.value.slice(0, end));
    const before = input.value.slice(0, end - word.length) + one.text + (one.ends ? " " : "");
    input.value = before + input.value.slice(end).trimStart();
    input.setSelectionRange(before.length, before.length);
    input.focus();
    if (one.ends) close();
    else show();
  };
  input.addEventListener("input", show);
  input.addEventListener("blur", close);
  input.form?.addEventListener("submit", close);
  input.addEventListener("keydown", (event) => {
    if (!proposed.length) return;
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      at = (at + step + proposed.length + (at < 0 && step < 0 ? 1 : 0)) % proposed.length;
      draw();
    } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) take(proposed[at]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** What is being typed: behind the last blank that stands in no quotation marks. @param {string} text */
function lastWord(text) {
  return /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)*$/.exec(text)?.[0] ?? "";
}

/** @param {string} word @param {HTMLOptionElement[]} fields @returns {Proposal[]} */
function proposals(word, fields) {
  const minus = word.startsWith("-") ? "-" : "";
  const [name, ...rest] = word.slice(minus.length).split(":");
  if (!name && !minus) return [];
  const able = fields.filter((field) => !minus || field.dataset.excludes !== undefined);
  if (!rest.length) {
    return able
      .filter((field) => field.dataset.name?.startsWith(name))
      .map((field) => ({ text: `${minus}${field.dataset.name}:`, says: field.text, ends: false }));
  }
  const typed = rest.join(":").replace(/^"|"$/g, "").toLowerCase();
  const field = able.find((one) => one.dataset.name === name);
  if (!field) return [];
  const known = (field.dataset.values ?? "").split(" ").filter(Boolean);
  const seen = [...document.querySelectorAll("[data-value]")].map((one) => one.getAttribute("data-value") ?? "");
  const values = new Set([...seen.filter((one) => one.startsWith(`${name}:`)).map((one) => one.slice(name.length + 1)), ...known]);
  return [...values]
    .filter((value) => value.toLowerCase().includes(typed) && value.toLowerCase() !== typed)
    .slice(0, MOST)
    .map((value) => ({ text: `${minus}${name}:${/^[^\s"\\:]+$/.test(value) ? value : JSON.stringify(value)}`, says: "", ends: true }));
}
