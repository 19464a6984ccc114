"""What every page may cost (web.md): bytes, requests, shifts. Its time is measured by `make bench-pages`."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import Opened
from tests.browser.test_pages import OUTSIDE, PAGES, settle

KIB = 1024

#: What the browser itself saw: the largest paint, what moved under the reader, how long a key was answered.
SEEN = """() => new Promise((done) => {
  const seen = {paint: 0, shift: 0, answer: 0};
  const watch = (type, take, more) => new PerformanceObserver((list) => list.getEntries().forEach(take))
    .observe({type, buffered: true, ...more});
  watch('largest-contentful-paint', (entry) => { seen.paint = entry.startTime; });
  watch('layout-shift', (entry) => { if (!entry.hadRecentInput) seen.shift += entry.value; });
  const answered = (entry) => { seen.answer = Math.max(seen.answer, entry.duration); };
  watch('event', answered, {durationThreshold: 16});
  setTimeout(() => done(seen), 100);
})"""


def test_every_page_keeps_to_its_budget(opened: Opened) -> None:
    wrong: list[str] = []
    for signed_in, paths in ((True, PAGES), (False, OUTSIDE)):
        with opened.page(signed_in=signed_in, viewport={"width": 1280, "height": 900}) as page:
            session = page.context.new_cdp_session(page)
            session.send("Network.enable")
            session.send("Network.setCacheDisabled", {"cacheDisabled": True})
            sizes: dict[str, int] = {}
            asked: list[str] = []

            def note(response: Any, sizes: dict[str, int] = sizes, asked: list[str] = asked) -> None:
                kind = response.request.resource_type
                sizes[kind] = sizes.get(kind, 0) + int(response.headers.get("content-length", 0))
                asked.append(response.url)

            page.on("response", note)
            for path in paths:
                sizes.clear()
                asked.clear()
                page.goto(opened.url(path))
                settle(page)
                page.keyboard.press("j")
                seen = page.evaluate(SEEN)
                held = {
                    "JavaScript": sizes.get("script", 0) <= 25 * KIB,
                    "CSS": sizes.get("stylesheet", 0) <= 14 * KIB,
                    "HTML": sizes.get("document", 0) <= 40 * KIB,
                    "fonts": "font" not in sizes,
                    "requests": len(asked) <= 30,
                    "asked twice": len(set(asked)) == len(asked),
                    "shifts": seen["shift"] <= 0.02,
                }
                wrong += [f"{path}: {name} {sizes} {seen}" for name, well in held.items() if not well]
    assert wrong == []
