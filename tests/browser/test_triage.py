"""Triage in a browser: from what broke to a closed case by keys alone, with undo, in each width and theme."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import BASE, EMAIL, PASSWORD, Opened
from tests.browser.test_pages import check, check_everywhere, settle
from tests.service import copy_made, running

TRIAGE = BASE + "/triage"


@pytest.fixture(scope="package")
def watched(chromium: Any) -> Iterator[Opened]:
    """A service with four weeks behind it that detectors have judged, and its owner."""
    with tempfile.TemporaryDirectory(prefix="trace-svc-") as made:
        # The database's account passes through it.
        os.chmod(made, 0o755)
        yield from _watched(chromium, Path(made) / "data")


def _watched(chromium: Any, folder: Path) -> Iterator[Opened]:
    copy_made(folder)
    fill = [sys.executable, "-m", "tests.detecting.filled", str(folder)]
    subprocess.run(fill, check=True, capture_output=True, timeout=300)
    with running(folder, SVC_DETECTORS_INTERVAL_SECONDS="3600") as service:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(service.url + "/signup")
        page.get_by_label("E-mail address").fill(EMAIL)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign up").click()
        page.get_by_role("heading", level=1).wait_for()
        state = context.storage_state()
        context.close()
        yield Opened(chromium, service, state)


def address(page: Any, watched: Opened, what: str) -> str:
    """The address of a finding or a report, as the page of a case links it."""
    page.goto(watched.url(f"{BASE}/cases/C-2"))
    return str(page.locator(f"a[href*='/{what}/']").first.get_attribute("href"))


def test_pages_of_detection_are_clean_at_every_width_and_theme(watched: Opened) -> None:
    with watched.page() as page:
        paths = [TRIAGE, f"{TRIAGE}?tab=resolved", f"{TRIAGE}?tab=muted", f"{BASE}/cases/C-2"]
        paths += [address(page, watched, "findings"), address(page, watched, "rca")]
        paths += [f"{BASE}/detectors", f"{BASE}/detectors/duration_drift"]
        for path in paths:
            check_everywhere(page, watched.url(path))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forms_over_a_case_are_clean_too(watched: Opened, theme: str) -> None:
    with watched.page(color_scheme=theme, viewport={"width": 1280, "height": 900}) as page:
        page.goto(watched.url(f"{TRIAGE}?case=C-2"))
        settle(page)
        for key, name in (("m", "Mute"), ("r", "Resolve"), ("a", "Take it as normal")):
            page.keyboard.press(key)
            page.locator(":popover-open").get_by_role("button", name=name).wait_for()
            check(page)
            page.keyboard.press("Escape")


def test_by_keys_alone_from_the_inbox_to_a_mute_and_back(watched: Opened) -> None:
    with watched.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(watched.url("/"))
        page.wait_for_url("**/triage")
        page.get_by_role("heading", level=1, name=re.compile("things need you")).wait_for()
        settle(page)
        first = page.locator("li.at").get_attribute("data-ref")
        page.keyboard.press("j")
        page.locator(f".pane:not([data-case={first}])").wait_for()
        second = page.locator("li.at").get_attribute("data-ref")
        assert f"case={second}" in page.url
        page.locator(".pane").get_by_text(re.compile(f"{second} · open")).wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/cases/{second}?in=open")
        settle(page)
        page.keyboard.press("Escape")
        page.wait_for_url(f"**/triage?case={second}")
        settle(page)
        page.keyboard.press("m")
        page.locator(":popover-open").get_by_label("for a day").wait_for()
        page.keyboard.press("Enter")
        page.get_by_text(f"{second} is muted.").wait_for()
        assert page.locator(f"li[data-ref={second}]").count() == 0
        assert "did=" not in page.url
        page.keyboard.press("u")
        page.get_by_text(f"{second} is open again.").wait_for()
        assert page.locator(f"li[data-ref={second}]").count() == 1


def test_a_case_is_resolved_and_reopened_without_scripts(watched: Opened) -> None:
    with watched.page(java_script_enabled=False) as page:
        page.goto(watched.url(f"{TRIAGE}?case=C-3"))
        page.get_by_role("button", name="Resolve").first.click()
        page.locator(":popover-open").get_by_label("Why", exact=True).fill("the vendor fixed it")
        page.locator(":popover-open").get_by_role("button", name="Resolve").click()
        page.get_by_text("C-3 is resolved.").wait_for()
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("C-3 is open again.").wait_for()


def test_every_verb_of_a_case_is_a_key_with_a_way_back(watched: Opened) -> None:
    with watched.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(watched.url(f"{BASE}/cases/C-2?in=open"))
        settle(page)
        # To its neighbour in the list and back.
        way, back = ("]", "[") if page.locator("[data-next]").count() else ("[", "]")
        page.keyboard.press(way)
        page.wait_for_url(re.compile(r"/cases/C-(?!2\b)\d+\?in=open"))
        settle(page)
        page.keyboard.press(back)
        page.wait_for_url("**/cases/C-2?in=open")
        settle(page)
        for key, said in (("n", "is no issue"), ("r", "is resolved")):
            page.keyboard.press(key)
            page.locator(":popover-open").get_by_label("Why", exact=True).wait_for()
            page.keyboard.type("a load test of ours")
            page.keyboard.press("Enter")
            page.get_by_text(f"C-2 {said}.").wait_for()
            settle(page)
            page.keyboard.press("u")
            page.get_by_text("C-2 is open again.").wait_for()
            settle(page)
        page.keyboard.press("a")
        page.locator(":popover-open").get_by_label("Why (may be left blank)").wait_for()
        page.keyboard.press("Enter")
        page.get_by_text("C-2 is the new normal now.").wait_for()
        settle(page)
        page.keyboard.press("u")
        page.get_by_text("C-2 is open again.").wait_for()
        page.get_by_role("button", name=re.compile("Analyse")).click()
        page.get_by_text("C-2 is being looked into.").wait_for()


def test_of_two_people_on_one_case_the_second_hears_who_was_first(watched: Opened) -> None:
    # A refusal is an error in the console, so the second one's is not looked at.
    context = watched.browser.new_context(storage_state=watched.state)
    with closing(context), watched.page() as first:
        second = context.new_page()
        for page in (first, second):
            page.goto(watched.url(f"{TRIAGE}?case=C-3"))
            settle(page)
        for page, reason in ((first, "the vendor fixed it"), (second, "mine")):
            page.keyboard.press("r")
            page.locator(":popover-open").get_by_label("Why", exact=True).fill(reason)
            page.keyboard.press("Enter")
            settle(page)
        second.get_by_text("Nothing was done: it is resolved already.").wait_for()
        second.get_by_text(f"{EMAIL} was there first").wait_for()
        second.get_by_role("button", name="Reopen").click()
        second.get_by_text("C-3 is open again.").wait_for()


def test_the_pages_weigh_no_more_than_their_budget(watched: Opened) -> None:
    with watched.page() as page:
        sizes: dict[str, int] = {}

        def note(response: Any) -> None:
            kind = response.request.resource_type
            sizes[kind] = sizes.get(kind, 0) + int(response.headers.get("content-length", 0))

        page.on("response", note)
        page.goto(watched.url(TRIAGE))
        settle(page)
        assert sizes["script"] <= 25 * 1024
        assert sizes["stylesheet"] <= 14 * 1024
        assert sizes["document"] <= 40 * 1024
