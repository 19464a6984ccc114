// @ts-check
/** A list by keys: the next and the previous row, and opening one. */

/** @param {HTMLElement} root */
export function start(root) {
  const all = () => /** @type {HTMLElement[]} */ ([...root.querySelectorAll("[data-rows] tr")]);
  const current = () => all().findIndex((row) => row.classList.contains("at"));
  /** @param {number} step */
  const move = (step) => (/** @type {Event} */ event) => {
    const list = all();
    const next = list[Math.max(0, Math.min(list.length - 1, current() + step))];
    if (!next) return;
    event.preventDefault();
    for (const row of list) row.classList.toggle("at", row === next);
    next.querySelector("a")?.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("key:next-row", move(1));
  document.addEventListener("key:previous-row", move(-1));
  document.addEventListener("key:open-row", (event) => {
    const link = all()[current()]?.querySelector("a");
    if (!link) return;
    event.preventDefault();
    link.click();
  });
}
