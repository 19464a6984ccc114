"""Twelve jobs that people come with, each from Triage in two clicks at most, over a week of the demo.

A click is a press on a link or a button, or one line that is typed and sent; a tick chooses and is no click.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from tests.browser.clean import check_everywhere
from tests.browser.conftest import BASE, Opened, signed_up
from tests.service import running, until

MOST_CLICKS = 2
WIDE: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}}


@attrs.define
class Reader:
    """Somebody before a page, who counts what they press."""

    page: Any
    clicks: int = 0

    def click(self, locator: Any) -> None:
        """Press the first element of a locator once it is there."""
        self.clicks += 1
        locator.first.click()

    def go(self, name: str) -> None:
        """Press an entry of the navigation."""
        self.click(self.page.get_by_role("navigation", name="Main").get_by_role("link", name=name))

    def send(self, locator: Any, text: str) -> None:
        """Type a line and send it."""
        self.clicks += 1
        locator.fill(text)
        locator.press("Enter")

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until a text is in sight."""
        self.page.get_by_text(text).locator("visible=true").first.wait_for()

    def heads(self, pattern: str) -> None:
        """Wait for a headline."""
        self.page.get_by_role("heading", level=1, name=re.compile(pattern)).wait_for()


def failing_tool_call(reader: Reader) -> None:
    reader.go("Traces")
    reader.send(reader.page.get_by_label("Filter traces"), "errors:yes kind:tool")
    reader.page.locator("[data-rows] tr").first.wait_for()


def cost_of_yesterday_by_model(reader: Reader) -> None:
    reader.go("Overview")
    reader.click(reader.page.get_by_role("link", name="Yesterday", exact=True))
    reader.heads("yesterday")
    reader.page.get_by_role("region", name="By model").get_by_role("link", name="gpt-4o").first.wait_for()


def prompt_of_a_trace(reader: Reader) -> None:
    exemplar = reader.page.get_by_role("region", name="The selected case").locator("a[href*='/traces/']")
    reader.click(exemplar)
    reader.click(reader.page.get_by_role("link", name="Conversation", exact=True))
    reader.page.locator(".talk .say").first.wait_for()


def session_of_a_user(reader: Reader) -> None:
    reader.go("Sessions")
    row = reader.page.locator("[data-rows] tr", has=reader.page.locator("a[href*='/user?id=']")).first
    user = row.locator("a[href*='/user?id=']").inner_text()
    reader.click(row.locator("a[href*='/session?id=']"))
    reader.page.locator(".ask .who", has_text=user).first.wait_for()
    reader.page.locator(".reply").first.wait_for()


def two_of_ones_choice(reader: Reader) -> None:
    reader.go("Traces")
    ticks = reader.page.locator("[data-rows] input[type=checkbox]")
    ticks.nth(0).check()
    ticks.nth(2).check()
    reader.click(reader.page.get_by_role("button", name="Compare two"))
    reader.page.locator(".differences table").wait_for()


def what_changed(reader: Reader) -> None:
    region = reader.page.get_by_role("region", name="The selected case")
    reader.click(region.locator("a[href*='/cases/']"))
    reader.page.wait_for_url("**/cases/**")
    reader.sees(re.compile("since "))


def slowest_of_a_day(reader: Reader) -> None:
    reader.go("Traces")
    reader.click(reader.page.get_by_role("link", name="Slowest", exact=True))
    reader.page.wait_for_url(re.compile("/traces/[0-9a-f]{32}"))
    reader.heads(r"(took|failed after) [0-9.]+ (s|min)")


def failures_about_a_topic(reader: Reader) -> None:
    reader.go("Traces")
    reader.send(reader.page.get_by_label("Filter traces"), 'errors:yes "parcel"')
    reader.page.locator("[data-rows] tr").first.wait_for()
    reader.heads("trace")


def user_hit_most(reader: Reader) -> None:
    reader.go("Sessions")
    reader.click(reader.page.get_by_role("link", name="Users", exact=True))
    first = reader.page.locator("[data-rows] tr").first
    first.locator(".bad, .warn").first.wait_for()
    first.locator("a[href*='/user?id=']").wait_for()


def secret_leaked(reader: Reader) -> None:
    reader.click(reader.page.locator("li[data-ref] a", has_text=re.compile("secret", re.IGNORECASE)))
    pane = reader.page.get_by_role("region", name="The selected case")
    pane.locator(".pane-title", has_text=re.compile("secret", re.IGNORECASE)).wait_for()
    reader.click(pane.locator("a[href*='/traces/']"))
    reader.page.wait_for_url("**/traces/**")


def p95_by_call_site(reader: Reader) -> None:
    reader.go("Vitals")
    reader.page.get_by_role("columnheader", name="p95").first.wait_for()
    reader.page.locator("main table").first.get_by_role("link", name="support").wait_for()


def connecting_a_program(reader: Reader) -> None:
    reader.go("Connect")
    reader.sees("What sends your traces?")


JOBS: tuple[Callable[[Reader], None], ...] = (
    *(failing_tool_call, cost_of_yesterday_by_model, prompt_of_a_trace, session_of_a_user),
    *(two_of_ones_choice, what_changed, slowest_of_a_day, failures_about_a_topic),
    *(user_hit_most, secret_leaked, p95_by_call_site, connecting_a_program),
)


@pytest.fixture(scope="module")
def demo(chromium: Any) -> Iterator[Opened]:
    """A service with a week of the demo, whose leaked secret has become a case, and its owner."""
    with running(SVC_DETECTORS_INTERVAL_SECONDS="5") as service:
        service.command("demo", "--url", service.url, "--weeks", "1", timeout_s=240)
        until(lambda: "C-1" in service.command("cases", "list"), every_s=1)
        yield Opened(chromium, service, signed_up(chromium, service))


@pytest.fixture
def reader(demo: Opened) -> Iterator[Reader]:
    """Somebody who has just opened the service."""
    with demo.page(**WIDE) as page:
        page.goto(demo.url(f"{BASE}/triage"))
        page.get_by_role("region", name="The selected case").locator(".pane-title").wait_for()
        yield Reader(page)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_a_job_takes_two_clicks_at_most(reader: Reader, job: Callable[[Reader], None]) -> None:
    job(reader)
    assert 1 <= reader.clicks <= MOST_CLICKS


def test_there_are_twelve_jobs() -> None:
    assert len(set(JOBS)) == 12


def test_a_session_as_a_chat_is_clean_at_every_width_and_theme(demo: Opened) -> None:
    with demo.page() as page:
        page.goto(demo.url(f"{BASE}/sessions"))
        address = page.locator("[data-rows] a[href*='/session?id=']").first.get_attribute("href")
        check_everywhere(page, demo.url(address))
