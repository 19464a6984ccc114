// @ts-check
/** Sections as tabs: the last one chosen is remembered by this browser. Without scripts all of them stand there. */

/** @param {HTMLElement} root */
export function start(root) {
  const sections = /** @type {HTMLElement[]} */ ([...root.querySelectorAll(":scope > [data-tab]")]);
  const bar = document.createElement("div");
  bar.className = "tabs";
  bar.setAttribute("role", "tablist");
  const kept = `tab:${root.dataset.name}`;
  const buttons = sections.map((section, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("role", "tab");
    button.textContent = section.dataset.tab ?? "";
    section.setAttribute("role", "tabpanel");
    section.setAttribute("aria-label", button.textContent);
    section.querySelector("h3")?.remove();
    button.addEventListener("click", () => choose(index));
    bar.append(button);
    return button;
  });
  /** @param {number} chosen */
  const choose = (chosen) => {
    sections.forEach((section, index) => {
      section.hidden = index !== chosen;
      buttons[index].ariaSelected = String(index === chosen);
      buttons[index].tabIndex = index === chosen ? 0 : -1;
    });
    localStorage.setItem(kept, sections[chosen].dataset.tab ?? "");
  };
  bar.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const at = buttons.findIndex((button) => button === document.activeElement);
    if (!step || at < 0) return;
    const next = (at + step + buttons.length) % buttons.length;
    choose(next);
    buttons[next].focus();
  });
  root.prepend(bar);
  choose(Math.max(0, sections.findIndex((section) => section.dataset.tab === localStorage.getItem(kept))));
}
