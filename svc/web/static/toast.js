// @ts-check
/** One line that says what happened, for eight seconds, with a way back where there is one. */

const SHOWN_MS = 8000;

/**
 * @param {string} text
 * @param {{label: string, run: () => void}} [undo]
 */
export function toast(text, undo) {
  const place = document.getElementById("toasts");
  if (!place) return;
  const line = document.createElement("div");
  line.className = "toast";
  line.append(text);
  if (undo) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet";
    button.dataset.undo = "";
    button.textContent = undo.label;
    button.addEventListener("click", () => {
      line.remove();
      undo.run();
    });
    line.append(" ", button);
  }
  place.replaceChildren(line);
  setTimeout(() => line.remove(), SHOWN_MS);
}
