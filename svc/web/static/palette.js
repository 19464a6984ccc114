// @ts-check
/** The palette: pages and actions by name, ids and texts by what the server makes of them. */

/** @typedef {{label: string, hint: string, go: () => void}} Entry */

/** @param {HTMLElement} root */
export function start(root) {
  const dialog = /** @type {HTMLDialogElement} */ (root);
  const input = /** @type {HTMLInputElement} */ (root.querySelector("input"));
  const list = /** @type {HTMLElement} */ (root.querySelector("ul"));
  let at = 0;
  /** @type {Entry[]} */
  let shown = [];

  const open = () => {
    input.value = "";
    show();
    dialog.showModal();
  };
  const show = () => {
    const wanted = input.value.trim().toLowerCase();
    shown = entries().filter((entry) => entry.label.toLowerCase().includes(wanted)).slice(0, 12);
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

/** Where one can go from here: what the navigation links to, projects, and what the page offers.
 * @returns {Entry[]} */
function entries() {
  /** @type {Entry[]} */
  const found = [];
  for (const link of document.querySelectorAll("#menu a[href], [data-action]")) {
    if (!(link instanceof HTMLElement) || link.classList.contains("light")) continue;
    const label = (link.firstChild?.textContent ?? "").trim();
    const hint = link.closest(".switch") ? "project" : link.hasAttribute("data-action") ? "action" : "page";
    if (label) found.push({ label, hint, go: () => link.click() });
  }
  return found;
}
