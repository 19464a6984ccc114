"""Debian's chromium without a window, for the tests of the pages and the pictures of the documentation."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

# A context of the whole browser brings a window and its furniture: 0.4 s of a core, against 0.07 s.
_PROGRAMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser")


class BrowserMissing(Exception):
    """A part that a browser needs is not installed; the text names it."""


@contextmanager
def chromium(*options: str) -> Iterator[Any]:
    """The browser, started with these options. Raises `BrowserMissing`."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BrowserMissing("playwright") from None
    program = next((path for path in map(shutil.which, _PROGRAMS) if path), None)
    if program is None:
        raise BrowserMissing("chromium")
    # Outside of Trio, trio-asyncio would lend its own loop, which cannot be left and entered again.
    asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", *options])
        yield browser
        browser.close()
    asyncio.set_event_loop_policy(None)
