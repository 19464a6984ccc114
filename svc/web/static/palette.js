// @ts-check
/** The palette: pages and actions by name, ids and texts by what the server makes of them. */

import { visible } from "./visible.js";

/** @typedef {{label: string, hint: string, about?: string, go: () => void}} Entry */

/** @param {HTMLElement} root */
export function start(root) {
  const dialog = /** @type {HTMLDialogElement} */ (root);
  const input = /** @type {HTMLInputElement} */ (root.querySelector("input"));
  const list = /** @type {HTMLElement} */ (root.querySelector("ul"));
  let at = 0;
  /** @type {Entry[]} */
  let shown = [];
  /** @type {Entry[]} Saved views, read when the palette opens. */
  let views = [];

  const open = () => {
    input.value = "";
    show();
    dialog.showModal();
    fetch(dialog.dataset.views ?? "", { headers: { "X-Part": "1" } })
      .then((answer) => (answer.ok ? answer.json() : []))
      .then((/** @type {[string, string][]} */ found) => {
        views = found.map(([label, address]) => ({ label: visible(label), hint: "view", go: () => location.assign(address) }));
        show();
      })
      .catch(() => {});
  };
  const show = () => {
    const wanted = input.value.trim();
    const typed = wanted.toLowerCase();
    const named = (/** @type {Entry} */ entry) => entry.label.toLowerCase().includes(typed);
    const about = (/** @type {Entry} */ entry) => !named(entry) && Boolean(entry.about?.includes(typed));
    // Settings are many: they show once something is typed.
    const more = wanted ? entries("[data-settings] a") : [];
    const all = [...entries("#menu a[href], [data-action], [data-verb]"), ...views, ...more];
    shown = [...all.filter(named), ...(wanted ? all.filter(about) : [])].slice(0, 16);
    const hint = leadsTo(wanted);
    if (hint) shown.push({ label: wanted.length > 80 ? `${wanted.slice(0, 79)}…` : wanted, hint, go: () => input.form?.requestSubmit() });
    at = 0;
    draw();
  };
  const draw = () => {
    list.replaceChildren(
      ...shown.map((entry, index) => {
        const row = document.createElement("li");
        row.setAttribute("role", "option");
        row.id = `palette-${index}`;
        row.ariaSelected = String(index === at);
        const hint = document.createElement("span");
        hint.className = "hint";
        hint.textContent = entry.hint;
        row.append(entry.label, hint);
        row.addEventListener("click", () => entry.go());
        return row;
      }),
    );
    if (shown.length) input.setAttribute("aria-activedescendant", `palette-${at}`);
  };

  const button = document.querySelector("[data-palette]");
  if (button instanceof HTMLElement) {
    // Apple's keyboards have ⌘; the others press Ctrl.
    const key = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";
    for (const label of button.querySelectorAll("kbd")) label.textContent = key;
    button.hidden = false;
    button.addEventListener("click", open);
  }
  document.addEventListener("key:palette", (event) => {
    event.preventDefault();
    if (!dialog.open) open();
  });
  // Of a pasted key only its public beginning may stand in an address.
  input.form?.addEventListener("submit", () => {
    if (/^svc_[wqa]_/.test(input.value.trim())) input.value = input.value.trim().slice(0, 14);
  });
  input.addEventListener("input", show);
  input.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step && shown.length) {
      at = (at + step + shown.length) % shown.length;
      draw();
      event.preventDefault();
    }
    if (event.key === "Enter" && shown[at]) {
      event.preventDefault();
      dialog.close();
      shown[at].go();
    }
  });
}

/** What the server makes of what was typed, in a word. @param {string} wanted */
function leadsTo(wanted) {
  if (!wanted) return "";
  if (/^[0-9a-f]{32}$/i.test(wanted)) return "trace";
  if (/^[0-9a-f]{16}$/i.test(wanted)) return "span";
  if (/^c-\d{1,9}$/i.test(wanted)) return "case";
  if (/^svc_[wqa]_/.test(wanted)) return "";
  return "session or text";
}

/** Where one can go from here: what the navigation links to, projects, settings, and what the page offers.
 * @param {string} which @returns {Entry[]} */
function entries(which) {
  /** @type {Entry[]} */
  const found = [];
  for (const link of document.querySelectorAll(which)) {
    if (!(link instanceof HTMLElement) || link.classList.contains("light")) continue;
    const label = (link.firstChild?.textContent ?? "").trim();
    const hint = link.closest(".switch") ? "project" : link.matches("[data-action], [data-verb]") ? "action" : link.closest("[data-settings]") ? "settings" : "page";
    const about = link.closest("[data-settings]") ? link.title.toLowerCase() : "";
    if (label) found.push({ label, hint, about, go: () => link.click() });
  }
  return found;
}
