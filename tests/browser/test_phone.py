"""On a phone: lists are cards of two lines, list and case are two screens, and nothing scrolls sideways."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import pytest

from tests import wire
from tests.browser.clean import NARROWEST, check, fits, settle
from tests.browser.conftest import BASE, Opened

pytestmark = pytest.mark.release

TRIAGE, TRACES = BASE + "/triage", BASE + "/traces"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}

#: Where the lines of a row begin, from the places of the words in it.
LINES = """row => {
  const lines = [];
  const walk = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    const box = range.getBoundingClientRect();
    if (!walk.currentNode.data.trim() || box.height < 8) continue;
    if (!lines.some((line) => box.top < line.bottom && box.bottom > line.top)) lines.push(box);
  }
  return lines.length;
}"""

#: Whether the part of the page that scrolls sideways shows all of it.
IN_VIEW = """act => {
  const box = act.getBoundingClientRect();
  const frame = (act.closest(".scroll") ?? document.documentElement).getBoundingClientRect();
  return box.left >= frame.left && box.right <= frame.right;
}"""


def send(opened: Opened, name: str) -> None:
    """A trace without a user."""
    began = time.time_ns() - 1_000_000_000
    span = wire.span(name, trace_id=os.urandom(16), start_ns=began, end_ns=began + 1_000_000)
    assert opened.service.send(wire.request(span).SerializeToString()).status_code == 200


def lines(row: Any) -> int:
    """How many lines of text a row has."""
    return int(row.evaluate(LINES))


@pytest.mark.parametrize(("path", "most"), [(TRACES, 2), (BASE + "/sessions", 3), (BASE + "/users", 3)])
def test_on_a_phone_a_row_is_a_card_of_two_lines_and_still_a_row(
    opened: Opened, path: str, most: int
) -> None:
    with opened.page(**PHONE) as page:
        page.goto(opened.url(path))
        settle(page)
        rows = page.locator("[data-rows]").get_by_role("row")
        for row in rows.all()[:5]:
            # Sessions and users have more figures: the last may need a line of its own.
            assert 2 <= lines(row) <= most
        # As screen readers hear it: each cell has its heading.
        headings = page.locator("table.cards").get_by_role("columnheader").count()
        assert headings == rows.first.get_by_role("cell").count() > 3
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            check(page)


def test_a_card_says_what_was_asked_and_how_it_went_above_its_figures(
    opened: Opened,
) -> None:
    with opened.page(**PHONE) as page:
        page.goto(opened.url(TRACES))
        settle(page)
        card = page.locator("[data-rows] tr").first
        top = {
            name: card.locator(place).bounding_box()["y"]
            for name, place in {"name": ".card-name", "asked": ".card-text", "time": ".card-link"}.items()
        }
        assert abs(top["name"] - top["asked"]) < 1 < top["time"] - top["name"]
        figures = card.locator(".num:visible").all()
        assert len(figures) == 4
        assert "Spans" in card.locator("td").last.evaluate(
            "cell => getComputedStyle(cell, '::before').content"
        )
        for figure in figures:
            assert abs(figure.bounding_box()["y"] - top["time"]) < 4


@pytest.mark.parametrize("width", [390, NARROWEST])
def test_on_a_phone_no_table_of_figures_is_cut_off(opened: Opened, width: int) -> None:
    with opened.page(**{**PHONE, "viewport": {"width": width, "height": 844}}) as page:
        graph = "/graph?site=parcel-desk/parcel-desk/invoke_agent%20parcel-desk"
        for path in ("/vitals?range=7d", "/first-look", "/overview?range=30d", "/prices", graph):
            page.goto(opened.url(BASE + path))
            settle(page)
            fits(page)
            cards = page.locator("table.cards")
            cards.first.wait_for()
            assert cards.evaluate_all("all => all.filter(one => one.scrollWidth > innerWidth).length") == 0
            # Beside the name at least two figures are in sight, and each cell has its heading.
            for table in cards.all():
                row = table.locator("[data-rows] tr").first
                assert row.locator(".num:visible").count() >= 2
                headings = table.get_by_role("columnheader").count()
                assert row.locator("[role=cell]:visible, [role=rowheader]:visible").count() <= headings


def test_two_cards_are_ticked_and_compared(opened: Opened) -> None:
    with opened.page(**PHONE) as page:
        page.goto(opened.url(TRACES))
        settle(page)
        rows = page.locator("[data-rows] tr")
        ticked = [rows.nth(i).get_attribute("data-id") for i in (1, 2)]
        for i in (1, 2):
            rows.nth(i).get_by_role("checkbox").tap()
        assert page.url.endswith("/traces")
        page.get_by_role("button", name="Compare two").tap()
        page.wait_for_url(re.compile(f"/traces/({'|'.join(map(str, ticked))})"))
        settle(page)
        check(page)


def test_a_card_opens_its_trace_by_a_tap_anywhere_or_by_keys(opened: Opened) -> None:
    with opened.page(**PHONE) as page:
        page.goto(opened.url(TRACES))
        settle(page)
        card = page.locator("[data-rows] tr").nth(1)
        chosen = card.get_attribute("data-id")
        box = card.bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] - 8, box["y"] + 8)
        page.wait_for_url(f"**/traces/{chosen}")
        page.go_back()
        settle(page)
        page.keyboard.press("j")
        page.keyboard.press("j")
        assert page.locator("tr.at").get_attribute("data-id") == chosen
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/traces/{chosen}")


def test_what_arrives_while_one_looks_is_a_card_too(opened: Opened) -> None:
    with opened.page(**PHONE) as page:
        page.goto(opened.url(TRACES))
        settle(page)
        send(opened, "came by phone")
        page.get_by_text(re.compile("^1 new$")).tap()
        card = page.locator("[data-rows] tr").filter(has_text="came by phone")
        card.wait_for()
        assert lines(card) == 2


def test_columns_of_ones_own_are_named_on_a_card(opened: Opened) -> None:
    send(opened, "came without a user")
    with opened.page(**PHONE) as page:
        page.goto(opened.url(TRACES))
        settle(page)
        page.get_by_role("button", name="Columns").tap()
        for name in ("Input", "Tokens", "Cost", "Spans"):
            page.get_by_role("checkbox", name=name, exact=True).uncheck()
        for name in ("User", "Failed"):
            page.get_by_role("checkbox", name=name, exact=True).check()
        page.get_by_role("button", name="Show").last.tap()
        page.get_by_role("columnheader", name="User").wait_for(state="attached")
        settle(page)
        cards = page.locator("[data-rows] tr")
        named = cards.filter(has_text="visitor-").first
        label = "cell => getComputedStyle(cell, '::before').content"
        assert named.locator("td").evaluate_all(f"cells => cells.map({label})") == [
            "none",
            "none",
            '"User "',
            "none",
            '"Failed "',
        ]
        # One without a user keeps the column, and says nothing of it.
        nobody = cards.filter(has_text="came without a user")
        assert nobody.locator("td").nth(2).evaluate(label) == "none"
        for card in (named, nobody):
            assert card.get_by_role("cell").count() == 5
            assert lines(card) == 2
        check(page)


def test_values_to_narrow_by_are_a_tap_away_from_the_head_of_the_list(opened: Opened) -> None:
    with opened.page(**PHONE) as page:
        page.goto(opened.url(TRACES))
        settle(page)
        page.get_by_role("link", name="Narrow down").tap()
        value = page.locator(".facets a[data-value]").first
        value.wait_for()
        box = value.bounding_box()
        assert box is not None
        assert 0 <= box["y"] < PHONE["viewport"]["height"]  # type: ignore[index]
        value.tap()
        page.locator(".filter .chip").first.wait_for()
        fits(page)
    with opened.page() as page:
        page.goto(opened.url(TRACES))
        assert not page.get_by_role("link", name="Narrow down").is_visible()


def test_feedback_and_sets_are_cards_too(opened: Opened) -> None:
    with opened.page(**PHONE) as page:
        page.goto(opened.url(TRACES))
        settle(page)
        for i in (1, 2):
            page.locator("[data-rows] tr").nth(i).get_by_role("checkbox").tap()
        page.get_by_label("Add what is ticked to").fill("of a phone")
        page.get_by_role("button", name="Add", exact=True).last.tap()
        page.wait_for_url("**/sets/*")
        address = page.url
        page.locator(".card-link").first.tap()
        page.wait_for_url("**/traces/*")
        page.get_by_role("button", name="Yes").first.tap()
        page.locator("[data-thumb=up][aria-pressed=true]").wait_for()
        for path in (address, opened.url(f"{BASE}/sets"), opened.url(f"{BASE}/feedback")):
            page.goto(path)
            settle(page)
            check(page)
            row = page.locator(".cards [data-rows] tr").first
            assert 2 <= lines(row) <= 5
            headings = page.locator(".cards").get_by_role("columnheader").count()
            assert headings == row.locator("[role=cell], [role=rowheader]").count()
        # What can be pressed on a card is not covered by its link.
        page.get_by_role("button", name=re.compile("is good$")).tap()
        page.wait_for_url("**/feedback")
        page.get_by_role("button", name="helpful: higher is good").tap()
        page.get_by_role("button", name="helpful: lower is good").wait_for()


def is_in_view(row: Any) -> bool:
    """Whether all of it is on the screen."""
    box = "row => { const {top, bottom} = row.getBoundingClientRect(); return [top, innerHeight - bottom]; }"
    return min(row.evaluate(box)) >= 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_a_case_fills_the_screen_and_leads_back_to_its_place_in_the_list(
    watched: Opened, theme: str
) -> None:
    # So low that the last row is reached by scrolling alone.
    with watched.page(**{**PHONE, "viewport": {"width": 390, "height": 300}}, color_scheme=theme) as page:
        page.goto(watched.url(TRIAGE))
        settle(page)
        check(page)
        assert page.locator(".pane").is_hidden()
        row = page.locator("[data-cases] li").last
        reference = row.get_attribute("data-ref")
        row.scroll_into_view_if_needed()
        box = row.bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4)
        page.wait_for_url(f"**/cases/{reference}?in=open")
        settle(page)
        check(page)
        assert page.locator("[data-cases]").count() == 0
        page.get_by_role("heading", level=1).wait_for()
        page.get_by_role("link", name="Open cases").tap()
        page.wait_for_url(f"**/triage?case={reference}#{reference}")
        settle(page)
        assert is_in_view(row)
        assert page.locator(".pane").is_hidden()
        check(page)


def test_a_case_hides_nothing_on_the_narrowest_screen(watched: Opened) -> None:
    with watched.page(viewport={"width": NARROWEST, "height": 844}, has_touch=True) as page:
        page.goto(watched.url(f"{BASE}/cases/C-2?in=open"))
        settle(page)
        fits(page)
        for name in ("Resolve", "Mute", "Not an issue", "Copy for a ticket"):
            assert page.get_by_role("button", name=name).first.is_visible()
        trace = page.locator(".exemplars [data-rows] tr").first
        assert trace.get_by_role("link", name="Compare with a healthy trace").is_visible()
        headings = page.locator(".exemplars").get_by_role("columnheader").count()
        assert trace.get_by_role("cell").count() == headings
        # The bar of verbs ends the page and covers none of it.
        bar = page.locator(".verbs").bounding_box()
        assert bar["y"] > trace.bounding_box()["y"] + 100
        page.get_by_role("button", name="Mute").tap()
        page.locator(":popover-open").get_by_label("for a day").wait_for()
        check(page)


def test_by_keys_alone_from_the_list_to_a_case_and_back_on_a_narrow_screen(watched: Opened) -> None:
    with watched.page(**PHONE) as page:
        page.goto(watched.url(TRIAGE))
        settle(page)
        page.keyboard.press("j")
        chosen = page.locator("li.at").get_attribute("data-ref")
        # No key acts on a case that is not shown.
        page.keyboard.press("r")
        assert page.locator(":popover-open").count() == 0
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/cases/{chosen}?in=open")
        settle(page)
        page.keyboard.press("Escape")
        page.wait_for_url(f"**/triage?case={chosen}#{chosen}")
        # A wider screen, as a tablet that is turned, has the pane again.
        page.set_viewport_size({"width": 1280, "height": 900})
        page.locator(f".pane[data-case={chosen}]:not([inert])").wait_for()
        page.keyboard.press("r")
        page.locator(":popover-open").wait_for()


def test_a_phone_without_scripts_reads_cases_and_compares_traces(watched: Opened) -> None:
    with watched.page(**PHONE, java_script_enabled=False) as page:
        page.goto(watched.url(TRIAGE))
        page.locator("[data-cases] a.what").first.tap()
        page.wait_for_url("**/cases/C-*?in=open")
        page.get_by_role("link", name="Open cases").tap()
        page.wait_for_url("**/triage?case=*")
        page.goto(watched.url(f"{TRACES}?range=30d"))
        for i in (0, 1):
            page.locator("[data-rows] tr").nth(i).get_by_role("checkbox").check()
        page.get_by_role("button", name="Compare two").tap()
        page.get_by_role("heading", level=1).wait_for()
        assert "against=" in page.url


@pytest.mark.parametrize(("path", "name"), [("/detectors", "Switch"), ("/settings/keys", "Change")])
def test_on_the_narrowest_phone_what_acts_on_a_row_is_seen_without_scrolling(
    opened: Opened, path: str, name: str
) -> None:
    with opened.page(viewport={"width": NARROWEST, "height": 800}) as page:
        page.goto(opened.url(BASE + path))
        settle(page)
        check(page)
        acts = page.locator("main tr :is(button, summary):visible", has_text=name).all()
        assert acts
        for act in acts:
            assert act.evaluate(IN_VIEW)
