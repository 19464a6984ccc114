"""Notifications in a browser: channels, rules and messages, by mouse and by keys, clean at every width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import Opened
from tests.browser.test_pages import check, check_everywhere, settle
from tests.receiver import Receiver, receiving
from tests.service import until

OWN = "/orgs/default/projects/told"
HERE = OWN + "/settings/notifications"


@pytest.fixture(scope="module")
def told(opened: Opened) -> Opened:
    """A project of its own, where nobody is told anything."""
    with opened.page() as page:
        page.goto(opened.url("/orgs/default/projects/default/settings/project"))
        page.locator("#other").fill("Told")
        page.get_by_role("button", name="Make a project").click()
        page.wait_for_url("**/projects/told/connect")
    return opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def fold(page: Any, says: str) -> Any:
    """The form below one of the words that unfold."""
    page.locator("summary").get_by_text(says, exact=True).click()
    return page.locator("details.fold[open] form")


def test_channels_and_rules_are_added_tested_muted_and_removed(told: Opened, receiver: Receiver) -> None:
    with told.page() as page:
        check_everywhere(page, told.url(HERE))
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_role("heading", level=1, name="Nobody is notified yet").wait_for()
        form = fold(page, "Webhook")
        form.get_by_label("Name").fill("on call")
        form.get_by_label("Address").fill(receiver.url)
        form.get_by_role("button", name="Add it").click()
        assert re.fullmatch(r"whsec_[A-Za-z0-9+/=]+", page.locator(".code pre").inner_text())
        page.goto(told.url(HERE))
        page.get_by_role("button", name="Send a test to on call").click()
        page.get_by_text("The test message was taken").wait_for()
        assert receiver.taken[0].json["type"] == "test"
        form = fold(page, "A case opens")
        form.get_by_label("Severity").select_option("medium")
        form.get_by_role("button", name="Would it have fired?").click()
        page.get_by_text("Would have fired never").wait_for()
        page.get_by_role("button", name="Add the rule").first.click()
        page.get_by_role("heading", level=1, name="1 rule tells 1 channel").wait_for()
        page.get_by_text("when a case opens, medium or worse.").wait_for()
        # Test on past data comes when it is in sight.
        page.get_by_text("Judged by the trails of cases").wait_for()
        check_everywhere(page, told.url(HERE))
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_label("Mute A case opens for").select_option("a day")
        page.get_by_role("button", name="Mute A case opens", exact=True).click()
        page.get_by_text("muted until").wait_for()
        page.get_by_role("button", name="Unmute A case opens").click()
        page.get_by_text("muted until").wait_for(state="detached")
        # What goes is named before it goes.
        page.get_by_text("Remove", exact=True).last.click()
        page.get_by_role("button", name="Remove A case opens and its unsent messages").click()
        page.get_by_role("heading", level=1, name="Nobody is notified yet").wait_for()
        page.get_by_text("Remove", exact=True).first.click()
        page.get_by_role("button", name="Remove on call and its queued messages").click()
        page.get_by_role("heading", level=2, name="No channel yet").wait_for()
        page.goto(told.url(OWN + "/settings/audit"))
        text = page.locator("table").inner_text()
        assert all(f"alert_{act}" in text for act in ("channel.test", "rule.mute", "rule.delete"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_with_everything_unfolded_it_is_clean_and_works_by_keys(
    told: Opened, receiver: Receiver, theme: str
) -> None:
    with told.page(color_scheme=theme, viewport={"width": 1280, "height": 900}) as page:
        page.goto(told.url(HERE))
        settle(page)
        name = f"phone {theme}"
        summary = page.locator("summary").get_by_text("ntfy", exact=True)
        summary.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type(name)
        page.keyboard.press("Tab")
        page.keyboard.type(receiver.url + "/topic")
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=3, name=name).wait_for()
        page.get_by_role("button", name=f"Send a test to {name}").focus()
        page.keyboard.press("Enter")
        page.get_by_text("The test message was taken").wait_for()
        assert receiver.taken[0].json["topic"] == "topic"
        for one in page.locator("main summary").all():
            one.click()
        check(page)
        page.get_by_role("button", name=f"Remove {name} and its queued messages").click()
        # The next law counts channels: this one is gone before the page is closed.
        page.get_by_role("heading", level=3, name=name).wait_for(state="detached")


def test_a_message_is_listed_and_sent_once_more(told: Opened, receiver: Receiver) -> None:
    with told.page(viewport={"width": 1280, "height": 900}) as page:
        page.goto(told.url(HERE))
        form = fold(page, "Webhook")
        form.get_by_label("Name").fill("hook")
        form.get_by_label("Address").fill(receiver.url)
        form.get_by_role("button", name="Add it").click()
        page.locator(".code pre").wait_for()
        form = fold(page, "A figure is beyond its bound")
        form.get_by_label("Of", exact=True).select_option("spans")
        form.get_by_label("Figure", exact=True).select_option("count")
        # Nothing is sent to this project: less than one holds.
        form.get_by_label("It tells when the figure").select_option("below")
        form.get_by_label("Bound").fill("1")
        form.get_by_role("button", name="Add the rule").click()
        page.get_by_role("heading", level=1, name="1 rule tells 1 channel").wait_for()

        def arrived() -> bool:
            page.goto(told.url(HERE))
            return bool(page.get_by_role("button", name=re.compile("^Send once more")).count())

        until(arrived, 40, every_s=0.5)
        check_everywhere(page, told.url(HERE))
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_role("button", name=re.compile("^Send once more")).click()
        settle(page)
        until(lambda: len(receiver.taken) == 2)
        assert len(set(receiver.ids())) == 1
