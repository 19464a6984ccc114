"""The board in a browser: kept and arranged without scripts, clean in both themes, and nothing moves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.clean import KIB, SEEN, check, check_everywhere, settle
from tests.browser.conftest import BASE, Opened
from tests.web.test_board import COST

pytestmark = pytest.mark.release

OVERVIEW = f"{BASE}/overview?range=30d"
QUESTIONS = {
    "Spend of models": COST,
    "How often tools fail": "dataset=tool_calls&measure=error_rate&field=name",
    "A title as long as titles can be: it is eighty letters, and takes two lines here": "measure=users",
}


def keep(page: Any, opened: Opened, title: str, question: str) -> None:
    page.goto(opened.url(f"{BASE}/explore?{question}"))
    page.locator("summary", has_text="Keep on Overview").click()
    page.get_by_label("Title").fill(title)
    page.get_by_role("button", name="Keep", exact=True).click()
    page.get_by_text("see it on Overview").wait_for()


def titles(page: Any) -> list[str]:
    texts: list[str] = page.locator("#board .measure h2").all_inner_texts()
    return texts


def test_a_board_is_kept_and_arranged_without_scripts_and_clean_in_both_themes(opened: Opened) -> None:
    with opened.page(java_script_enabled=False) as page:
        for title, question in QUESTIONS.items():
            keep(page, opened, title, question)
        page.goto(opened.url(OVERVIEW))
        first, second, third = titles(page)
        page.get_by_role("button", name=f"Move {third} up").click()
        assert titles(page) == [first, third, second]
        assert page.get_by_role("button", name=f"Move {first} up").is_disabled()
        page.locator("#board summary", has_text="Rename").first.click()
        page.get_by_label("Title").first.fill("Spend")
        page.get_by_role("button", name="Rename", exact=True).first.click()
        assert titles(page) == ["Spend", third, second]
    with opened.page() as page:
        check_everywhere(page, opened.url(OVERVIEW))
        page.set_viewport_size({"width": 360, "height": 900})
        for act in ("Rename", "Remove"):
            page.locator("#board summary", has_text=act).last.click()
            check(page)
            page.locator("#board summary", has_text=act).last.click()
        page.goto(opened.url(f"{BASE}/explore?measure=traces"))
        page.locator("summary", has_text="Keep on Overview").click()
        check(page)
    with opened.page(viewport={"width": 1280, "height": 2000}) as page:
        sizes: list[int] = []
        page.on("response", lambda got: sizes.append(int(got.headers.get("content-length", 0))))
        page.goto(opened.url(OVERVIEW))
        settle(page)
        assert page.evaluate(SEEN)["shift"] <= 0.02
        assert sizes[0] <= 40 * KIB
        # What this test has kept goes again, each by its own form.
        for _ in QUESTIONS:
            page.locator("#board summary", has_text="Remove").first.click()
            page.get_by_role("button", name="Remove", exact=True).first.click()
            settle(page)
        page.get_by_text("Nothing yet.").wait_for()
