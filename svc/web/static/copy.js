// @ts-check
/** Copies a block of text. Where the browser has no clipboard (plain HTTP on a LAN name) it selects instead. */

/**
 * Whether the text is in the clipboard now.
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** @param {HTMLElement} root */
export function start(root) {
  const button = root.querySelector("button.copy");
  const text = root.querySelector("pre");
  if (!(button instanceof HTMLButtonElement) || !text) return;
  const label = button.textContent ?? "";
  button.hidden = false;
  button.addEventListener("click", async () => {
    const done = await copyText(text.textContent ?? "");
    if (!done) select(text);
    button.textContent = done ? "Copied" : "Selected: press Ctrl/⌘ C";
    setTimeout(() => (button.textContent = label), 2000);
  });
}

/** @param {Element} element */
function select(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  getSelection()?.removeAllRanges();
  getSelection()?.addRange(range);
}
