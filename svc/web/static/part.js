// @ts-check
/** Fragments of pages: fetched from our own addresses, put in place, and a way to try again when they fail. */

/** @typedef {{status: number, html: string}} Answered */

/**
 * A fragment as the server has it. Signed out: the page is loaded anew, which leads to the sign-in and back.
 * @param {string} address @param {AbortSignal} [signal]
 * @returns {Promise<Answered>}
 */
export async function fetchPart(address, signal) {
  const answer = await fetch(address, { headers: { "X-Part": "1" }, signal, credentials: "same-origin" });
  if (answer.status === 401) location.reload();
  return { status: answer.status, html: await answer.text() };
}

/**
 * A fragment as elements. The one place that parses; only our own fragments come here.
 * @param {string} html
 */
export const parse = (html) => new DOMParser().parseFromString(html, "text/html").body;

/**
 * Put a fragment in the place of what an element holds.
 * @param {Element} place @param {string} html
 */
export function swap(place, html) {
  place.replaceChildren(...parse(html).childNodes);
  place.dispatchEvent(new CustomEvent("swapped", { bubbles: true }));
}

/**
 * Fetch a fragment into a place. What stood there is dimmed meanwhile, and stays when the fetch fails.
 * @param {Element} place @param {string} address @param {AbortSignal} [signal]
 */
export async function load(place, address, signal) {
  const dim = setTimeout(() => place.classList.add("dim"), 300);
  try {
    const answered = await fetchPart(address, signal);
    if (answered.status < 500) swap(place, answered.html);
    else fail(place, address);
  } catch (error) {
    if (!(error instanceof DOMException && error.name === "AbortError")) fail(place, address);
  } finally {
    clearTimeout(dim);
    place.classList.remove("dim");
  }
}

/** @param {Element} place @param {string} address */
function fail(place, address) {
  place.querySelector(":scope > .failed")?.remove();
  const line = document.createElement("p");
  line.className = "failed small bad";
  line.setAttribute("role", "alert");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Try again";
  button.addEventListener("click", () => load(place, address));
  line.append("✕ This part could not be read. ", button);
  place.prepend(line);
}
