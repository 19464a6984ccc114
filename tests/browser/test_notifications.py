"""Notifications in a browser: channels, rules and messages, by mouse and by keys, clean at every width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.clean import check, check_everywhere, check_state, settle
from tests.browser.conftest import Opened, press
from tests.receiver import Receiver, receiving
from tests.service import until

pytestmark = pytest.mark.release

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


def channel(page: Any, told: Opened, name: str, address: str) -> None:
    """The first step, for a webhook."""
    page.goto(told.url(HERE + "/channel"))
    page.get_by_label("Address").fill(address)
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Save and send a test").click()
    page.get_by_role("list", name="Step 2 of 2").wait_for()


def removed(page: Any, name: str, rest: str) -> None:
    """What goes is named before it goes."""
    page.get_by_label(f"Remove {name}", exact=True).click()
    page.get_by_role("button", name=f"Remove {name} and {rest}").click()
    page.get_by_label(f"Remove {name}", exact=True).wait_for(state="detached")


@pytest.mark.parametrize("modules", [True, False])
def test_somebody_without_a_channel_gets_to_an_alert_in_two_steps(
    told: Opened, receiver: Receiver, modules: bool
) -> None:
    with told.page(java_script_enabled=modules, viewport={"width": 1280, "height": 900}) as page:
        page.goto(told.url(HERE))
        page.get_by_role("list", name="Step 1 of 2").wait_for()
        page.get_by_label("Address").fill("ftp://example.org")
        page.get_by_role("button", name="Save and send a test").click()
        page.get_by_text("The address must be an https address").wait_for()
        assert page.get_by_label("Address").input_value() == "ftp://example.org"
        page.get_by_label("Address").fill(receiver.url)
        page.get_by_role("button", name="Save and send a test").click()
        page.get_by_text("The test message was accepted").wait_for()
        assert receiver.taken[0].json["type"] == "test"
        assert re.fullmatch(r"whsec_[A-Za-z0-9+/=]+", page.locator(".code pre").inner_text())
        assert page.get_by_role("checkbox", name="Webhook").is_checked()
        page.get_by_role("button", name="Add the rule").click()
        page.get_by_role("heading", level=1, name="1 rule sends alerts to 1 channel").wait_for()
        removed(page, "A case opens", "its unsent messages")
        removed(page, "Webhook", "its queued messages")
        page.get_by_role("list", name="Step 1 of 2").wait_for()


def test_channels_and_rules_are_changed_tested_muted_and_removed(told: Opened, receiver: Receiver) -> None:
    with told.page() as page:
        for path in ("", "/channel", "/channel?kind=pagerduty", "/channel?kind=email"):
            check_state(page, told.url(HERE + path))
        page.set_viewport_size({"width": 1280, "height": 900})
        channel(page, told, "on call", receiver.url)
        page.goto(told.url(HERE))
        page.get_by_role("button", name="Send a test to on call").click()
        page.get_by_text("The test message was accepted").wait_for()
        check_everywhere(page, told.url(HERE + "/rule"))
        for path in ("/rule?kind=metric", "/rule?kind=digest", "/rule?kind=disk.budget"):
            check_state(page, told.url(HERE + path))
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(told.url(HERE + "/rule"))
        page.get_by_label("Severity").select_option("medium")
        page.get_by_role("button", name="Would it have fired?").click()
        page.get_by_text("Would have fired never").wait_for()
        page.get_by_role("button", name="Add the rule").click()
        page.get_by_role("heading", level=1, name="1 rule sends alerts to 1 channel").wait_for()
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
        page.get_by_role("link", name="Change A case opens").click()
        page.get_by_label("Name").fill("bad cases")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("heading", level=3, name="bad cases").wait_for()
        removed(page, "bad cases", "its unsent messages")
        page.get_by_role("heading", level=1, name="Nobody is notified yet").wait_for()
        removed(page, "on call", "its queued messages")
        page.get_by_role("list", name="Step 1 of 2").wait_for()
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
        press(page, "ntfy", role="link")
        page.wait_for_url("**/channel?kind=ntfy")
        page.get_by_label("Address of the topic").focus()
        page.keyboard.type(receiver.url + "/topic")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        # The usual name is selected and typed over.
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        page.get_by_text("The test message was accepted").wait_for()
        assert receiver.taken[0].json["topic"] == "topic"
        page.get_by_label("Name").press("Enter")
        page.get_by_role("heading", level=2, name=name).wait_for()
        page.get_by_role("button", name=f"Send a test to {name}").focus()
        page.keyboard.press("Enter")
        page.get_by_text("The test message was accepted").wait_for()
        for one in page.locator("main summary").all():
            one.click()
        check(page)
        page.get_by_role("button", name="Remove A case opens and its unsent messages").click()
        page.get_by_text("No rule sends anything here yet").wait_for()
        removed(page, name, "its queued messages")
        # The next law counts channels: this one is gone before the page is closed.
        page.get_by_role("list", name="Step 1 of 2").wait_for()


def test_a_message_is_listed_and_sent_once_more(told: Opened, receiver: Receiver) -> None:
    with told.page(viewport={"width": 1280, "height": 900}) as page:
        channel(page, told, "hook", receiver.url)
        del receiver.taken[:]
        page.get_by_role("link", name="A metric crosses its threshold").click()
        page.get_by_label("Dataset").select_option("spans")
        page.get_by_label("Figure", exact=True).select_option("count")
        # Nothing is sent to this project: less than one holds.
        page.get_by_label("Alert when the figure").select_option("below")
        page.get_by_label("Bound").fill("1")
        page.get_by_role("button", name="Add the rule").click()
        page.get_by_role("heading", level=1, name="1 rule sends alerts to 1 channel").wait_for()

        def arrived() -> bool:
            page.goto(told.url(HERE))
            return bool(page.get_by_role("button", name=re.compile("^Send once more")).count())

        until(arrived, every_s=0.5)
        check_everywhere(page, told.url(HERE))
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_role("button", name=re.compile("^Send once more")).click()
        settle(page)
        until(lambda: len(receiver.taken) == 2)
        assert len(set(receiver.ids())) == 1
