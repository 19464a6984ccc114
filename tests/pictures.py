"""Takes the pictures of the documentation from the demo, light and dark: `make pictures`.

Owns `PICTURES`, `TOUR` and what stands in `deploy/pages`: two PNG files a picture, two WebP files of the
tour, which moves, and `words.json`, the headings, buttons and labels that each page had when it was taken. A
release test reads the pages again and fails where those differ. Needs Debian's chromium, as the tests of the
pages do.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from PIL import Image

from tests.browser.conftest import BASE, PATIENCE_MS, signed_up
from tests.chromium import chromium
from tests.service import Service, measured, until

FOLDER: Final = Path(__file__).parent.parent / "deploy" / "pages"
WORDS: Final = FOLDER / "words.json"
THEMES: Final = ("light", "dark")
#: The demo plants three faults; each is a case before a picture is taken.
CASES: Final = 3
#: Two minutes are what the README promises; a busy machine takes longer.
PATIENCE_S: Final = 900.0


@attrs.frozen
class Picture:
    """A page and how much of it is shown; `clicks` are links that are followed first."""

    path: str
    height_px: int = 720
    clicks: tuple[str, ...] = ()


_FAILING: Final = "main a:has-text('lookup_order is failing')"
PICTURES: Final[Mapping[str, Picture]] = {
    "triage": Picture("/triage", 900, (_FAILING,)),
    "overview": Picture("/overview", 900),
    "trace": Picture("/triage", 900, (_FAILING, "table.exemplars a.card-link")),
}

#: From what broke to the call that failed and what was said, then to the week: each step is a link that is
#: followed, or an address, and what is there then.
TOUR: Final = (
    ("/triage", "main h2"),
    (_FAILING, "main h2:has-text('lookup_order is failing')"),
    ("table.exemplars a.card-link", "main h1:has-text('failed')"),
    (".view-bar a:has-text('Conversation')", "main ol.talk"),
    ("/overview", "main h1:has-text('traces')"),
)
TOUR_NAME: Final = "tour"
TOUR_PX: Final = (1280, 800)
#: As wide as a README shows it.
TOUR_SHOWN_PX: Final = (960, 600)
STEP_MS: Final = 2_500

# What a page is made of, whatever its traffic: lines that hold a figure or a name of the demo's are its data,
# and so is a group of what has no name.
_READ_WORDS: Final = """() => [...new Set(
    [...document.querySelectorAll("h1, h2, h3, th, button, summary, label, nav a")]
        .filter(one => one.checkVisibility() && !one.closest("code, pre, svg"))
        .map(one => one.innerText.trim())
        .filter(text => text && text.length <= 60 && !/[0-9]|\\n|^not known$/.test(text)))].sort()"""


@contextmanager
def story() -> Iterator[Service]:
    """A service with four weeks of the demo, once each planted fault is a case that has its report."""
    with measured(SVC_DETECTORS_INTERVAL_SECONDS="1") as service:
        service.command("demo", "--weeks", "4", "--url", service.url, timeout_s=PATIENCE_S)
        until(lambda: _analysed(service) >= CASES, PATIENCE_S, every_s=2.0)
        yield service


def _analysed(service: Service) -> int:
    """How many cases have their report."""
    listed = json.loads(service.command("cases", "list", "--json"))["cases"]
    shown = (json.loads(service.command("cases", "show", case["reference"], "--json")) for case in listed)
    return sum((case.get("rca") or {}).get("verdict") is not None for case in shown)


@contextmanager
def shown(browser: Any, service: Service, state: Any, picture: Picture, theme: str) -> Iterator[Any]:
    """The page of a picture, as it is taken."""
    context = browser.new_context(
        storage_state=state,
        viewport={"width": 1280, "height": picture.height_px},
        color_scheme=theme,
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(service.url + BASE + picture.path)
    for link in picture.clicks:
        page.locator(link).first.click()
        page.wait_for_load_state("networkidle")
    page.wait_for_load_state("networkidle")
    yield page
    context.close()


def tour(browser: Any, service: Service, state: Any, theme: str) -> Iterator[Any]:
    """The page at each step of the tour."""
    start = Picture(TOUR[0][0], TOUR_PX[1])
    with shown(browser, service, state, start, theme) as page:
        for step, there in TOUR:
            if step.startswith("/"):
                page.goto(service.url + BASE + step)
            else:
                page.locator(step).first.click()
            page.locator(there).first.wait_for()
            page.wait_for_load_state("networkidle")
            yield page


def _moving(frames: list[bytes], path: Path) -> None:
    """Write the frames as one picture that moves."""
    images = [Image.open(io.BytesIO(frame)).convert("RGB").resize(TOUR_SHOWN_PX) for frame in frames]
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=STEP_MS, loop=0, quality=80, method=6
    )


def words(page: Any) -> list[str]:
    """The headings, buttons and labels of a page that hold no figure."""
    found: list[str] = page.evaluate(_READ_WORDS)
    return found


def words_now(browser: Any) -> dict[str, list[str]]:
    """What each page says now."""
    with story() as service:
        state, said = signed_up(browser, service), {}
        for name, picture in PICTURES.items():
            with shown(browser, service, state, picture, THEMES[0]) as page:
                said[name] = words(page)
        said[TOUR_NAME] = _tour_words(browser, service, state)
        return said


def _tour_words(browser: Any, service: Service, state: Any) -> list[str]:
    pages = tour(browser, service, state, THEMES[0])
    return sorted({word for page in pages for word in words(page)})


def main() -> None:
    said: dict[str, list[str]] = {}
    with story() as service, chromium() as browser:
        state = signed_up(browser, service)
        for name, picture in PICTURES.items():
            for theme in THEMES:
                with shown(browser, service, state, picture, theme) as page:
                    page.screenshot(path=FOLDER / f"{name}-{theme}.png")
                    said[name] = words(page)
            print(f"{name}: taken", file=sys.stderr)
        for theme in THEMES:
            frames = [page.screenshot() for page in tour(browser, service, state, theme)]
            _moving(frames, FOLDER / f"{TOUR_NAME}-{theme}.webp")
        said[TOUR_NAME] = _tour_words(browser, service, state)
        print(f"{TOUR_NAME}: taken", file=sys.stderr)
    WORDS.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
