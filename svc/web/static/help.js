// @ts-check
/** The help dialog, made of the table of keys; and the small keys that every page has. */

import { KEYS } from "./keys.js";
import { copyText } from "./copy.js";
import { toast } from "./toast.js";

/** @param {HTMLElement} root */
export function start(root) {
  const groups = new Map();
  for (const key of KEYS) groups.set(key.of, [...(groups.get(key.of) ?? []), key]);
  root.replaceChildren(...[...groups].map(([name, keys]) => group(name, keys)));
  const dialog = root.closest("dialog");
  document.addEventListener("key:help", (event) => {
    event.preventDefault();
    dialog?.showModal();
  });
  document.addEventListener("key:copy-link", (event) => {
    event.preventDefault();
    copyText(kept()).then((done) => toast(done ? "Link copied" : "Copy it from the address bar"));
  });
  document.addEventListener("key:zone", (event) => {
    event.preventDefault();
    switchZone();
  });
}

/** The address of this view, as it means the same tomorrow: a range that is relative to now as two instants. */
function kept() {
  const link = new URL(location.href);
  const place = document.querySelector("[data-instants]");
  if (!(place instanceof HTMLElement) || link.searchParams.has("from") || link.searchParams.has("to")) return link.href;
  for (const name of ["range", "follow"]) link.searchParams.delete(name);
  for (const [name, instant] of new URLSearchParams(place.dataset.instants)) link.searchParams.set(name, instant);
  return link.href;
}

/** @param {string} name @param {import("./keys.js").Key[]} keys */
function group(name, keys) {
  const section = document.createElement("section");
  const heading = document.createElement("h3");
  heading.textContent = name;
  const list = document.createElement("dl");
  list.className = "keys";
  for (const key of keys) {
    const term = document.createElement("dt");
    for (const part of key.keys.replace("Control+", "Ctrl/⌘ ").split(" ")) {
      const kbd = document.createElement("kbd");
      kbd.textContent = part;
      term.append(kbd, " ");
    }
    const says = document.createElement("dd");
    says.textContent = key.says;
    list.append(term, says);
  }
  section.append(heading, list);
  return section;
}

/** Times in UTC, or in the zone of this browser: a cookie, so that the server writes them. */
export function switchZone() {
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zone = document.documentElement.dataset.zone === "UTC" ? local : "UTC";
  // As the service itself writes it, which may live under a path of its host.
  const path = new URL("../..", import.meta.url).pathname.replace(/(.)\/$/, "$1");
  document.cookie = `svc_zone=${zone}; Path=${path}; Max-Age=31536000; SameSite=Lax`;
  location.reload();
}
