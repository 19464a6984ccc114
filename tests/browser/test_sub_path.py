"""A service under a path of its host, in a browser, behind a terminator."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from tests.browser.conftest import BASE, EMAIL, PASSWORD, Opened
from tests.service import running
from tests.terminator import Terminator, terminated

# Two services, 38 s of a core (November 2026); tests/e2e/test_sub_path.py holds what a path changes.
pytestmark = pytest.mark.release

PATH = "/traces"


@pytest.fixture(params=[True, False], ids=["stripped", "passed on"])
def terminator(request: pytest.FixtureRequest, chromium: object) -> Iterator[tuple[Opened, Terminator]]:
    """A fresh service with the demo's traces, looked at through its terminator."""
    with running(SVC_BASE_PATH=PATH) as service:
        service.command("demo", "--url", service.url)
        with terminated(service.port, PATH, strips=request.param) as terminator:
            yield Opened(chromium, attrs.evolve(service, url=terminator.url), None), terminator


def test_somebody_signs_up_and_in_and_opens_a_trace_below_the_path(
    terminator: tuple[Opened, Terminator],
) -> None:
    opened, proxy = terminator
    with opened.page(signed_in=False) as page:
        page.goto(opened.url("/signup"))
        page.get_by_label("E-mail address").fill(EMAIL)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign up").click()
        page.wait_for_url(f"{proxy.url}/orgs/**")
        assert {cookie["path"] for cookie in page.context.cookies()} == {PATH}
        page.goto(opened.url("/account"))
        page.get_by_role("button", name="Sign out").click()
        # Whoever asks for a page is led there after the form.
        page.goto(opened.url(f"{BASE}/traces"))
        page.get_by_label("E-mail address").fill(EMAIL)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{proxy.url}{BASE}/traces**")
        page.locator("main a[href*='/default/traces/']").first.wait_for()
        address = page.locator("main a[href*='/default/traces/']").first.get_attribute("href")
        assert address.startswith(f"{PATH}{BASE}/traces/")
        page.goto(proxy.url.removesuffix(PATH) + address)
        # Drawn by modules, from documents that they fetch.
        page.locator(".tbody .trow[id]").first.wait_for()
        page.keyboard.press("Control+k")
        page.get_by_role("dialog").wait_for()
        assert proxy.strayed == []
