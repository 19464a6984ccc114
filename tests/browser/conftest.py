"""A real browser (Debian's chromium) on a real service: signed in, with the demo's traces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.chromium import BrowserMissing
from tests.chromium import chromium as launched
from tests.conftest import missing
from tests.service import Service, copy_filled, copy_made, running

BASE = "/orgs/default/projects/default"
EMAIL, PASSWORD = "owner@example.org", "correct horse battery"


#: What a page is waited for at most: of three browsers on two cores beside other work, 30 s were too few.
PATIENCE_MS = 120_000

#: What a browser says in its console of a refusal that a test provokes, and of a header that it heeds over
#: HTTPS and on this machine alone: of each page under a plain name of a network. On a busy machine a part of
#: a page may hear that the store took too long (503) and offers to try again; a test that needs it waits for
#: it. The browser itself gives up the fade between two pages (`@view-transition` in look.css; no module of
#: ours asks for one) when a busy machine shows the next page before the fade was made, and reports that as an
#: error of the page.
_NO_FAULT = (
    "status of 400",
    "status of 404",
    "status of 401",
    "status of 503",
    "Cross-Origin-Opener-Policy header has been ignored",
    "Transition was aborted",
    "Transition was skipped",
)


@attrs.frozen
class Opened:
    """A browser, the service it looks at, and the cookies of who is signed in."""

    browser: Any
    service: Service
    state: Any

    @contextmanager
    def page(self, *, signed_in: bool = True, **how: Any) -> Iterator[Any]:
        """A page in a context of its own; fails on an error in its console or a request to elsewhere."""
        context = self.browser.new_context(storage_state=self.state if signed_in else None, **how)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda line: wrong.append(_told(line)) if line.type == "error" else None)
        page.on("request", lambda asked: None if self._ours(asked.url) else wrong.append(asked.url))
        try:
            yield page
            assert [line for line in wrong if not any(part in line for part in _NO_FAULT)] == []
        except Exception:
            print(page.url, *wrong, page.inner_text("body", timeout=5_000), sep="\n")
            raise
        finally:
            context.close()

    def _ours(self, url: str) -> bool:
        return url.startswith((self.service.url, f"http://lan-host.example:{self.service.port}", "data:"))

    def url(self, path: str) -> str:
        """The address of a path."""
        return self.service.url + path


def _told(line: Any) -> str:
    """A line of the console and where it came from."""
    return f"{line.text} {line.location.get('url', '')}".rstrip()


def patiently(part: Any, link: Any) -> None:
    """Press a link of a part of a page, which may have taken too long on a busy machine: then once more."""
    again = part.get_by_text("Try again")
    link.or_(again).first.wait_for()
    while not link.is_visible():
        again.click()
        link.or_(again).first.wait_for()
    link.click()


def press(page: Any, name: str, *, role: str = "button") -> None:
    """Reach a button or a link with Tab and press it."""
    found = page.get_by_role(role, name=name).first
    found.wait_for()
    for _ in range(90):
        if found.evaluate("one => one === document.activeElement"):
            page.keyboard.press("Enter")
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {name}")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """The browser; skipped aloud where there is none.

    For this room alone: its loop runs in the thread of the tests, and whoever opens one after it in the same
    process is given futures of that one.
    """
    try:
        with launched("--host-resolver-rules=MAP lan-host.example 127.0.0.1") as browser:
            yield browser
    except BrowserMissing as part:
        missing(str(part))


def signed_up(chromium: Any, service: Service) -> Any:
    """The cookies of the owner, who signs up."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(service.url + "/signup")
    page.get_by_label("E-mail address").fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign up").click()
    page.get_by_role("heading", level=1).wait_for()
    state = context.storage_state()
    context.close()
    return state


def fill_demo(folder: Path) -> None:
    """A data folder with the demo's traces."""
    copy_made(folder)
    with running(folder) as service:
        service.command("demo", "--url", service.url)


@pytest.fixture(scope="package")
def opened(chromium: Any) -> Iterator[Opened]:
    """A service with an owner and the demo's traces."""
    with copy_filled("demo", fill_demo) as folder, running(folder) as service:
        yield Opened(chromium, service, signed_up(chromium, service))


def fill_four_weeks(folder: Path) -> None:
    """A data folder with four weeks that detectors have judged."""
    copy_made(folder)
    fill = [sys.executable, "-m", "tests.detecting.filled", str(folder)]
    subprocess.run(fill, check=True, capture_output=True, timeout=300)


@pytest.fixture(scope="package")
def watched(chromium: Any) -> Iterator[Opened]:
    """A service with four weeks behind it that detectors have judged, and its owner."""
    with (
        copy_filled("four-weeks", fill_four_weeks) as folder,
        running(folder, SVC_DETECTORS_INTERVAL_SECONDS="3600") as service,
    ):
        yield Opened(chromium, service, signed_up(chromium, service))
