// @ts-check
/** Offers the zone of this browser for the field of the zone. */

/** @param {HTMLElement} root */
export function start(root) {
  const input = root.querySelector("input");
  const button = root.querySelector("button");
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!input || !button || !local || input.value === local) return;
  button.hidden = false;
  button.textContent = `This browser: ${local}`;
  button.addEventListener("click", () => {
    input.value = local;
    input.focus();
  });
}
