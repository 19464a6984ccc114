// @ts-check
/**
 * The pulse of a project: a few numbers, asked for while the page is seen. Modules hear of it as `pulse` on the
 * document. Every 30 s, or as fast as the page says (`data-pulse-s` on main); slower and slower on errors.
 */

const SLOWEST_MS = 60_000;

/** @typedef {{spans_per_s: number, refused: number, dead_lettered: number, well: boolean, open_cases: number,
 *   newest: string | null, light: string}} Pulse */

/** @param {HTMLElement} root */
export function start(root) {
  const address = root.dataset.pulse ?? "";
  const wanted = Number(document.querySelector("[data-pulse-s]")?.getAttribute("data-pulse-s") ?? 30) * 1000;
  let wait = wanted;
  let timer = 0;

  const again = () => {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(ask, wait);
  };
  const ask = async () => {
    try {
      const answer = await fetch(address, { headers: { "X-Part": "1" }, credentials: "same-origin" });
      if (answer.status === 401) return;
      if (!answer.ok) throw new Error(String(answer.status));
      tell(root, await answer.json());
      wait = wanted;
    } catch {
      wait = Math.min(wait * 2, SLOWEST_MS);
    }
    again();
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) ask();
  });
  again();
}

/** @param {HTMLElement} root @param {Pulse} pulse */
function tell(root, pulse) {
  const mark = root.querySelector("[data-light]");
  const text = root.querySelector("[data-light-text]");
  if (mark && text && text.textContent !== pulse.light) {
    mark.className = pulse.well ? "ok" : "bad";
    mark.textContent = pulse.well ? "●" : "✕";
    text.textContent = pulse.light;
  }
  for (const count of document.querySelectorAll("[data-open-cases]")) {
    count.textContent = String(pulse.open_cases);
    if (count instanceof HTMLElement) count.hidden = pulse.open_cases === 0;
  }
  document.dispatchEvent(new CustomEvent("pulse", { detail: pulse }));
}
