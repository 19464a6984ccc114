// @ts-check
/** Watches how far the first trace is, and posts for a key once the page is really seen. */

import { load, swap } from "./part.js";

const EVERY_MS = 2000;

/** @param {HTMLElement} root */
export function start(root) {
  const place = /** @type {HTMLElement} */ (document.getElementById("lights"));
  const code = /** @type {HTMLElement} */ (document.getElementById("code"));
  const address = root.dataset.lights ?? "";
  if (root.dataset.mint) whenSeen(() => mint(code, root.dataset.mint ?? ""));
  code.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.matches("[data-mint-form]")) return;
    event.preventDefault();
    mint(code, form.action);
  });
  for (const form of root.querySelectorAll("form[action$='/sample'], form[action$='/demo']")) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(/** @type {HTMLFormElement} */ (form)).then(() => watch());
    });
  }

  let last = "";
  let timer = 0;
  const watch = async () => {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        const answer = await fetch(address, { headers: { "X-Part": "1" }, credentials: "same-origin" });
        const html = await answer.text();
        if (answer.ok && html !== last) {
          last = html;
          swap(place, html);
        }
      } catch {
        // The next round tries again; what stands there stays.
      }
    }
    timer = setTimeout(watch, EVERY_MS);
  };
  if (root.hasAttribute("data-watch")) watch();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && root.hasAttribute("data-watch")) watch();
  });
}

/** @param {() => void} run */
function whenSeen(run) {
  if (!document.hidden) return run();
  document.addEventListener("visibilitychange", () => run(), { once: true });
}

/** @param {HTMLElement} code @param {string} action */
async function mint(code, action) {
  const answer = await fetch(action, { method: "POST", headers: { "X-Part": "1" }, credentials: "same-origin" });
  if (answer.ok) swap(code, await answer.text());
  else await load(code, location.href).catch(() => location.reload());
}

/** @param {HTMLFormElement} form */
async function send(form) {
  const button = form.querySelector("button");
  if (button) button.disabled = true;
  await fetch(form.action, { method: "POST", headers: { "X-Part": "1" }, credentials: "same-origin", redirect: "manual" });
  if (button) setTimeout(() => (button.disabled = false), 1000);
}
