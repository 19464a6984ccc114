"""Roles in single projects in a browser: given by keyboard alone, obeyed at once, clean at every width."""

from __future__ import annotations

import re

import pytest

from tests.browser.clean import check_everywhere, settle
from tests.browser.conftest import BASE, Opened

pytestmark = pytest.mark.release

PEOPLE = f"{BASE}/settings/people"


def test_a_role_in_one_project_is_given_by_keyboard(opened: Opened) -> None:
    with opened.page() as page, opened.page(signed_in=False) as guest:
        page.goto(opened.url(f"{BASE}/settings/project"))
        page.locator("#other").fill("Billing")
        page.get_by_role("button", name="Make a project").click()
        page.wait_for_url("**/projects/billing/connect")
        page.goto(opened.url(PEOPLE))
        page.get_by_label("E-mail address").focus()
        page.keyboard.type("grace@example.org")
        page.keyboard.press("Tab")
        page.keyboard.type("none")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        # Which projects stand before this one depends on the tests before.
        page.locator("#in-billing").focus()
        page.keyboard.type("viewer")
        page.get_by_role("button", name="Make an invitation").focus()
        page.keyboard.press("Enter")
        link = page.locator(".code pre").inner_text()
        guest.goto(link)
        guest.get_by_label("E-mail address").fill("grace@example.org")
        guest.get_by_label("Password").fill("correct horse battery")
        guest.get_by_role("button", name="Sign up").click()
        guest.wait_for_url("**/projects/billing/**")
        guest.locator("details.switch summary").click()
        settle(guest)
        assert guest.get_by_role("link", name="Default", exact=True).count() == 0
        check_everywhere(page, opened.url(PEOPLE))
        page.get_by_role("link", name="Change roles of grace@example.org in projects").focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name="grace@example.org sees 1 project").wait_for()
        access = page.url
        check_everywhere(page, access)
        page.get_by_label("Default", exact=True).focus()
        page.keyboard.type("member")
        page.get_by_role("button", name="Save").focus()
        page.keyboard.press("Enter")
        row = page.get_by_role("row", name=re.compile("grace@example.org"))
        row.get_by_text("default member").wait_for()
        assert guest.goto(opened.url(f"{BASE}/settings/keys")).status == 200
        assert guest.get_by_role("button", name="Make the key").count() == 1
