// @ts-check
/** A file chosen on this machine becomes the text of a form: nothing is sent before its button is pressed. */

/** @param {HTMLElement} root */
export function start(root) {
  const text = root.querySelector("textarea");
  const chooser = root.querySelector("input[type=file]");
  if (!text || !(chooser instanceof HTMLInputElement)) return;
  chooser.closest("[data-scripted]")?.removeAttribute("data-scripted");
  const said = root.querySelector("[data-said]");
  chooser.addEventListener("change", async () => {
    const file = chooser.files?.[0];
    if (!file) return;
    const most = Number(root.dataset.most);
    if (file.size > most) {
      if (said) said.textContent = `${file.name} is larger than this form takes.`;
      return;
    }
    text.value = await file.text();
    if (said) said.textContent = `${file.name} is in the text below.`;
    text.focus();
  });
}
