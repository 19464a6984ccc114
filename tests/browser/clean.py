"""What every page and every state owes its reader: axe finds nothing, it fits, nothing moves, it is small.

Owns the checks of the tests of this room and the budgets of web.md §11 that a test can hold; how long a page
takes is measured by `make bench-pages`. `check_everywhere` loads a page twice, for pages with a layout of
their own; `check_state` once, for their states: empty, refused, a form with faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

KIB: Final = 1024
#: The narrowest that is promised: 1280 px at a zoom of 400 %.
NARROWEST: Final = 320
MOST_SHIFT: Final = 0.02
MOST_REQUESTS: Final = 15
#: Compressed, by the type of a resource, for any page; of scripts the page of a trace may have more.
MOST_BYTES: Final = {"script": 25 * KIB, "stylesheet": 14 * KIB, "document": 40 * KIB, "font": 0}
MOST_BYTES_TRACE: Final = 60 * KIB

#: All that axe knows, or what a theme alone can change.
WHOLE: dict[str, Any] = {}
COLOURS: dict[str, Any] = {"runOnly": ["color-contrast"]}

#: What is wrong alone: what is right at each of a thousand nodes took longer to tell than to find out.
AXE: Final = """
async (options) => (await axe.run({resultTypes: ["violations"], ...options})).violations.map(
  (one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`)
"""

#: What the browser itself saw: the largest paint, what moved under the reader, how long a key was answered.
SEEN: Final = """() => new Promise((done) => {
  const seen = {paint: 0, shift: 0, answer: 0};
  const watch = (type, take, more) => new PerformanceObserver((list) => list.getEntries().forEach(take))
    .observe({type, buffered: true, ...more});
  watch('largest-contentful-paint', (entry) => { seen.paint = entry.startTime; });
  watch('layout-shift', (entry) => { if (!entry.hadRecentInput) seen.shift += entry.value; });
  const answered = (entry) => { seen.answer = Math.max(seen.answer, entry.duration); };
  watch('event', answered, {durationThreshold: 16});
  setTimeout(() => done(seen), 100);
})"""


def settle(page: Any) -> None:
    """Until nothing is fetched any more; pages ask for a pulse no sooner than after some seconds."""
    page.wait_for_load_state("networkidle")


@cache
def axe_script() -> str:
    """The whole of axe, half a megabyte."""
    import axe_playwright_python

    return Path(str(axe_playwright_python.__file__)).with_name("axe.min.js").read_text(encoding="utf-8")


def fits(page: Any) -> None:
    """No sideways scrolling, and one heading, once what a new width moves has been drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page.url
    assert page.locator("h1").count() == 1


def check(page: Any, axe: dict[str, Any] = WHOLE) -> None:
    """It fits, and axe finds nothing."""
    fits(page)
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe_script())
    assert page.evaluate(AXE, axe) == [], page.url


def keeps_still(page: Any) -> None:
    """Nothing moved under the reader since the page began to load."""
    settle(page)
    shift = page.evaluate(SEEN)["shift"]
    assert shift <= MOST_SHIFT, (page.url, shift)


@contextmanager
def within_budget(page: Any) -> Iterator[None]:
    """What is loaded meanwhile is one page within its budgets: one file of modules, nothing twice."""
    sizes: dict[str, int] = {}
    urls: list[str] = []

    def note(response: Any) -> None:
        kind = response.request.resource_type
        if response.request.is_navigation_request():
            # What came before is of the page that was left.
            sizes.clear()
            urls.clear()
        sizes[kind] = sizes.get(kind, 0) + int(response.headers.get("content-length", 0))
        urls.append(response.url)

    page.on("response", note)
    try:
        yield
        keeps_still(page)
    finally:
        page.remove_listener("response", note)
    scripts = [url for url in urls if url.endswith(".js")]
    assert len(scripts) == 1, (page.url, scripts)
    most = MOST_BYTES | ({"script": MOST_BYTES_TRACE} if scripts[0].endswith("-trace.js") else {})
    beyond = {kind: size for kind, size in sizes.items() if size > most.get(kind, size)}
    assert beyond == {}, page.url
    assert len(urls) <= MOST_REQUESTS, (page.url, urls)
    assert len(set(urls)) == len(urls), (page.url, urls)


def check_everywhere(page: Any, address: str) -> None:
    """At every width in both themes, loaded wide and light and loaded narrow and dark.

    Everything of axe in both layouts, its colours in both themes of the wide one, where most is shown.
    """
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    with within_budget(page):
        page.goto(address)
    check(page)
    for width in (1920, 360, NARROWEST):
        page.set_viewport_size({"width": width, "height": 900})
        fits(page)
    page.set_viewport_size({"width": 360, "height": 900})
    page.emulate_media(color_scheme="dark")
    page.goto(address)
    keeps_still(page)
    check(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    check(page, COLOURS)
    page.set_viewport_size({"width": 1920, "height": 900})
    fits(page)


def check_state(page: Any, address: str | None = None) -> None:
    """A state of a page, loaded once, or the one that is shown: all of axe wide, narrow, and in the dark."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    if address is not None:
        page.goto(address)
        keeps_still(page)
    check(page)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": NARROWEST, "height": 900})
    check(page, COLOURS)
