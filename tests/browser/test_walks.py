"""Whole walks of somebody who has only the address, by keyboard alone, from the sign-up on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import httpx2
import pytest

from tests.browser.clean import settle
from tests.browser.conftest import BASE, Opened, press
from tests.browser.test_triage import TRIAGE
from tests.service import PLAIN, running, until

WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
NEWCOMER, PHRASE = "newcomer@example.org", "correct horse battery"

#: A program with somebody else's SDK, which knows where to send to by its environment.
PROGRAM = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("shop")
with tracer.start_as_current_span("checkout"), tracer.start_as_current_span("chat"):
    pass
provider.shutdown()
"""


def sign_up(page: Any) -> None:
    """On the form, whose first field has the focus."""
    page.get_by_label("E-mail address").wait_for()
    page.keyboard.type(NEWCOMER)
    page.keyboard.press("Tab")
    page.keyboard.type(PHRASE)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/orgs/"))


def shown_key(page: Any) -> str:
    """The key in the blocks of the page of the connection."""
    page.get_by_text("A fresh key").wait_for()
    found = re.search(r"svc_w_[\w-]{22}", page.locator("#code .addresses").text_content())
    assert found is not None
    return found[0]


# Not in every run: once, beside four others, the demo's failed trace was not listed within two minutes.
@pytest.mark.release
def test_a_newcomer_connects_an_exporter_and_finds_what_fails_in_the_demo(chromium: Any) -> None:
    with running() as fresh:
        here = Opened(chromium, fresh, None)
        with here.page(signed_in=False, **WIDE) as page:
            page.goto(here.url("/"))
            sign_up(page)
            first = shown_key(page)
            httpx2.post(fresh.url + "/v1/traces", content=b"x", **PLAIN)
            page.get_by_text("401: no tenant context").wait_for()
            # Each load of this page makes a key of its own.
            page.reload()
            key = shown_key(page)
            assert key != first
            press(page, "Environment variables", role="link")
            page.wait_for_url("**with=environment")
            shown = page.locator("#with-environment pre").inner_text()
            pasted = dict(re.findall(r'export (\w+)="?([^"\n]+)"?', shown))
            assert pasted["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] == f"Authorization=Bearer%20{key}"
            subprocess.run(
                [sys.executable, "-c", PROGRAM], env={**os.environ, **pasted}, check=True, timeout=60
            )
            page.get_by_role("heading", name="Your application is connected").wait_for()
            assert page.locator(".first-trace rect").count() == 2
            press(page, "Load the demo")
            page.get_by_text("The demo is being sent").wait_for()
            page.get_by_text("The demo is being sent").wait_for(state="hidden", timeout=60_000)
            assert page.get_by_text("The demo failed").count() == 0, fresh.log.read_text()[-2_000:]
            page.keyboard.press("g")
            page.keyboard.press("i")
            page.wait_for_url("**/traces")
            settle(page)
            page.keyboard.press("/")
            page.keyboard.type("errors:yes")
            page.keyboard.press("Enter")
            page.get_by_role("link", name="Remove errors: yes").wait_for()

            def failed() -> bool:
                page.reload()
                return bool(page.locator("[data-rows] tr").count())

            # It is added up a moment after its last span.
            until(failed, every_s=0.5)
            settle(page)
            page.keyboard.press("j")
            page.keyboard.press("Enter")
            page.locator(".tbody .trow[id]").first.wait_for()
            settle(page)
            page.keyboard.press("e")
            row = page.locator(".trow[aria-selected=true]")
            assert row.locator(".terr").text_content() != ""
            page.keyboard.press("Enter")
            panel = page.get_by_role("complementary", name="The selected span")
            panel.get_by_role("heading", level=2).wait_for()
            assert page.evaluate("document.activeElement.dataset.panel") == ""


def test_a_newcomer_tells_what_broke_since_when_and_why_and_closes_the_case(watched: Opened) -> None:
    # Others are owners here already, who let newcomers do things.
    with watched.page() as page:
        page.goto(watched.url(f"{BASE}/settings/people"))
        page.get_by_label("Who signs up without an invitation becomes").select_option("member")
        with page.expect_response(lambda answer: answer.request.method == "POST"):
            page.get_by_role("button", name="Keep").click()
    with watched.page(signed_in=False, **WIDE) as page:
        page.goto(watched.url("/"))
        page.get_by_role("heading", name="Sign in").wait_for()
        press(page, "Sign up", role="link")
        sign_up(page)
        # What: the headline and its proof; since when, and how sure; why; and what to look at.
        page.wait_for_url("**/triage")
        page.get_by_role("heading", level=1, name=re.compile("things? needs? you.* began")).wait_for()
        settle(page)
        pane = page.get_by_role("region", name="The selected case")
        reference = str(pane.get_attribute("data-case"))
        while "search" not in (title := str(pane.locator(".pane-title").text_content())):
            page.keyboard.press("j")
            # The pane names its case at once, and is read a moment later.
            pane.locator(".pane-title").filter(has_not_text=title).wait_for()
            reference = str(pane.get_attribute("data-case"))
        pane.get_by_text(re.compile("failing more often")).first.wait_for()
        pane.get_by_text(re.compile(r"^\s*since\s+\w+")).first.wait_for()
        cause = pane.locator(".cause").inner_text()
        assert "HTTP 502" in cause
        press(page, "Compare with a healthy trace", role="link")
        page.get_by_text("First difference:").wait_for()
        page.go_back()
        settle(page)
        page.keyboard.press("r")
        page.locator(":popover-open").get_by_label("Why", exact=True).wait_for()
        page.keyboard.type("the search behind it answered 502; its owner restarted it")
        page.keyboard.press("Enter")
        page.get_by_text(f"{reference} is resolved.").wait_for()
        assert page.locator(f"li[data-ref={reference}]").count() == 0
        settle(page)
        page.keyboard.press("u")
        page.get_by_text(f"{reference} is open again.").wait_for()
    assert TRIAGE in page.url
