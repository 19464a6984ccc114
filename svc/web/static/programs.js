// @ts-check
/** One program at a time: choosing another shows it without a new page, which would lose the key. */

/** @param {HTMLElement} root */
export function start(root) {
  const links = /** @type {HTMLAnchorElement[]} */ ([...root.querySelectorAll("a[data-program]")]);
  /** @param {string} key */
  const choose = (key) => {
    for (const link of links) {
      const chosen = link.dataset.program === key;
      if (chosen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
      const section = document.getElementById(`with-${link.dataset.program}`);
      if (section) section.hidden = !chosen;
    }
  };
  for (const link of links) {
    link.addEventListener("click", (event) => {
      if (event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      choose(link.dataset.program ?? "");
      history.replaceState(history.state, "", link.href);
    });
  }
  // After a key has come, what was chosen meanwhile stays.
  const asked = new URLSearchParams(location.search).get("with");
  if (asked && links.some((link) => link.dataset.program === asked)) choose(asked);
}
