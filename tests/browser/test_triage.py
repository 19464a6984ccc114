"""Triage in a browser: from what broke to a closed case by keys alone, with undo, in each width and theme."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest

from tests.browser.clean import check, check_everywhere, check_state, settle
from tests.browser.conftest import BASE, EMAIL, Opened
from tests.service import until

TRIAGE = BASE + "/triage"


def address(page: Any, watched: Opened, what: str) -> str:
    """The address of a finding or a report, as the page of a case links it."""
    page.goto(watched.url(f"{BASE}/cases/C-2"))
    return str(page.locator(f"a[href*='/{what}/']").first.get_attribute("href"))


@pytest.mark.release
def test_pages_of_detection_are_clean_at_every_width_and_theme(watched: Opened) -> None:
    with watched.page() as page:
        paths = [TRIAGE, f"{BASE}/cases/C-2", address(page, watched, "findings")]
        paths += [address(page, watched, "rca"), f"{BASE}/detectors/duration_drift"]
        for path in paths:
            check_everywhere(page, watched.url(path))
        for path in (f"{TRIAGE}?tab=resolved", f"{TRIAGE}?tab=muted", f"{BASE}/detectors"):
            check_state(page, watched.url(path))


def test_what_has_the_focus_is_above_the_bar_of_a_case(watched: Opened) -> None:
    with watched.page(viewport={"width": 1280, "height": 700}) as page:
        page.goto(watched.url(f"{BASE}/cases/C-2"))
        settle(page)
        bar = page.locator(".verbs").bounding_box()
        for link in page.locator("main .case a").all():
            link.focus()
            box = link.bounding_box()
            assert box["y"] + box["height"] <= bar["y"] + 1, link.inner_text()


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
            # The next key is for the page, not for a field of what is closing.
            page.locator(":popover-open").wait_for(state="detached")


def test_the_palette_offers_what_one_can_do_to_a_case(watched: Opened) -> None:
    with watched.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(watched.url(f"{BASE}/cases/C-2"))
        settle(page)
        page.keyboard.press("Control+k")
        page.keyboard.type("mute")
        page.get_by_role("option", name=re.compile("Mute.*action")).wait_for()
        page.keyboard.press("Enter")
        page.locator(":popover-open").get_by_label("for a day").wait_for()


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
        page.locator(".pane").get_by_text(re.compile(rf"{second} ·\s+open")).wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/cases/{second}?in=open")
        settle(page)
        page.keyboard.press("Escape")
        page.wait_for_url(f"**/triage?case={second}#{second}")
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
        # Reopened, it is analysed by itself. Meanwhile the page has no such button, nor gets one until it is
        # opened again.
        button = page.get_by_role("button", name=re.compile("Analyse"))

        def is_shown() -> bool:
            page.reload()
            settle(page)
            return bool(button.count())

        until(is_shown, every_s=0.5)
        button.click()
        page.get_by_text("C-2 is being looked into.").wait_for()


def test_no_key_acts_on_a_case_that_another_is_about_to_replace(watched: Opened) -> None:
    with watched.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(watched.url(f"{BASE}/triage"))
        settle(page)
        held: list[Any] = []
        page.route(re.compile("[?&]of="), lambda route: held.append(route))
        page.keyboard.press("j")
        page.locator(".pane[inert]").wait_for(state="attached")
        page.keyboard.press("r")
        assert page.locator(":popover-open").count() == 0
        for one in held:
            one.continue_()
        page.locator(".pane:not([inert])").wait_for(state="attached")
        page.keyboard.press("r")
        page.locator(":popover-open").wait_for()


def test_a_case_stands_in_the_list_of_its_state(watched: Opened) -> None:
    with watched.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(watched.url(f"{BASE}/cases/C-3"))
        settle(page)
        for key, tab, back in (("m", "Muted", "Unmute"), ("r", "Resolved", "Reopen")):
            page.keyboard.press(key)
            page.locator(":popover-open").wait_for()
            page.keyboard.type("known")
            page.keyboard.press("Enter")
            page.get_by_text(re.compile("^C-3 is (muted|resolved)")).wait_for()
            page.goto(watched.url(TRIAGE))
            assert page.locator("li[data-ref=C-3]").count() == 0
            page.get_by_role("navigation", name="States").get_by_role("link", name=tab).click()
            page.locator("li[data-ref=C-3] a.what").click()
            page.locator(".pane[data-case=C-3]").get_by_role("button", name=back).click()
            page.get_by_text("C-3 is open again.").wait_for()
            page.goto(watched.url(f"{BASE}/cases/C-3"))
            settle(page)


def test_a_detector_is_switched_and_tuned_on_its_page(watched: Opened) -> None:
    here = watched.url(f"{BASE}/detectors/duration_drift")
    # A refusal is an error in the console, so this page is not looked at.
    context = watched.browser.new_context(storage_state=watched.state)
    with closing(context):
        page = context.new_page()
        page.goto(watched.url(f"{BASE}/detectors"))
        row = page.get_by_role("row").filter(has=page.locator("a[href$='/duration_drift']"))
        row.get_by_role("button", name=re.compile("^Switch .* off")).click()
        row.get_by_text("switched off").wait_for()
        page.goto(here)
        page.get_by_role("heading", level=1, name=re.compile("switched off")).wait_for()
        page.get_by_role("button", name="Switch on").click()
        page.goto(here)
        usual = page.locator("#tune-w1_floor").input_value()
        page.locator("#tune-w1_floor").fill("0.4")
        page.get_by_role("button", name="What would have fired").click()
        page.get_by_role("heading", name=re.compile("^It would (not )?have fired")).wait_for()
        # What was typed for a look stays until it is kept.
        assert page.locator("#tune-w1_floor").input_value() == "0.4"
        page.goto(here)
        assert page.locator("#tune-w1_floor").input_value() == usual
        page.locator("#tune-w1_floor").fill("much")
        page.get_by_role("button", name="Keep this tuning").click()
        page.get_by_role("alert").wait_for()
        assert page.locator("#tune-w1_floor").input_value() == "much"
        for typed, kept in (("0.4", "0.4"), ("", usual)):
            page.locator("#tune-w1_floor").fill(typed)
            page.keyboard.press("Enter")
            page.wait_for_url(here)
            page.locator(f"#tune-w1_floor[value='{kept}']").wait_for()


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
            with page.expect_response(lambda answer: answer.request.method == "POST"):
                page.keyboard.press("Enter")
        second.get_by_text("Nothing was done: it is resolved already.").wait_for()
        second.get_by_text(f"{EMAIL} was there first").wait_for()
        second.get_by_role("button", name="Reopen").click()
        second.get_by_text("C-3 is open again.").wait_for()
