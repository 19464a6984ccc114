"""A form that is sent after its session has ended: what was typed survives the sign-in, nothing else does."""

from __future__ import annotations

import re
from html import unescape
from typing import Final
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.web.account.kept_form import SECRET_FIELDS, TYPED_BYTES, kept_again, kept_form
from svc.web.shell.render import ROOMS
from tests.front.people import PASSWORD, Replica
from tests.web.test_pages import HOSTILE, heading
from tests.web.visitor import BASE, Seen, Visitor

RENAME: Final = BASE + "/settings/project/name"
SETTINGS: Final = BASE + "/settings/project"


def hidden(page: Seen) -> dict[str, str]:
    """The hidden fields of the form in the page."""
    main = page.text.partition("<main")[2]
    found = re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', main)
    return {unescape(name): unescape(value) for name, value in found}


async def signed_in_again(page: Seen, visitor: Visitor, password: str = PASSWORD) -> Seen:
    form = {"email": "owner@example.org", "password": password}
    return await visitor.post("/login", hidden(page) | form)


async def test_what_was_typed_is_sent_by_a_button_after_signing_in(owner: Visitor) -> None:
    await owner.post("/logout")
    late = await owner.post(RENAME, {"name": HOSTILE}, Referer=f"http://localhost{SETTINGS}?a=b")
    assert (late.status, heading(late)) == (401, "You were signed out")
    assert late.headers["cache-control"] == "no-store"
    assert HOSTILE not in late.text
    wrong = await signed_in_again(late, owner, "wrong password")
    assert (wrong.status, heading(wrong)) == (401, "You were signed out")
    back = await signed_in_again(wrong, owner)
    assert (back.status, heading(back)) == (200, "You are signed in again")
    assert back.headers["cache-control"] == "no-store"
    assert HOSTILE not in back.text
    assert hidden(back) == {"name": HOSTILE}
    assert f'action="{RENAME}"' in back.text
    assert f'href="{SETTINGS}?a=b"' in back.text
    # Nothing happens by signing in alone.
    assert HOSTILE not in unescape((await owner.get(SETTINGS)).text)
    done = await owner.post(RENAME, hidden(back))
    assert (done.status, done.location) == (303, SETTINGS)
    assert HOSTILE in unescape((await owner.get(SETTINGS)).text)


async def test_a_secret_goes_into_no_page(owner: Visitor) -> None:
    await owner.post("/logout")
    form = {"current_password": "old and secret", "new_password": "new and secret"}
    late = await owner.post("/account/password", form)
    assert (late.status, heading(late)) == (401, "You were signed out")
    assert "and secret" not in late.text
    assert hidden(late) == {"next": "/"}
    assert "enter it again" in late.text
    assert (await signed_in_again(late, owner)).status == 303


async def test_what_a_page_of_somebody_else_sends_is_not_kept(owner: Visitor) -> None:
    await owner.post("/logout")
    owner.origin = "https://elsewhere.example"
    late = await owner.post(RENAME, {"name": "planted"})
    assert late.status == 401
    assert "planted" not in late.text
    assert "typed" not in hidden(late)


@pytest.mark.parametrize("again", ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere"])
async def test_a_sign_in_leads_no_form_elsewhere(owner: Visitor, again: str) -> None:
    kept = kept_form(RENAME, b"name=x")
    assert kept is not None
    form = {"email": "owner@example.org", "password": PASSWORD, "again": again, "typed": kept.typed}
    assert (await owner.post("/login", form)).status == 303


@pytest.mark.parametrize("page", ["http://[", "https://elsewhere.example//evil.example", "", "\\\\x"])
async def test_a_browser_that_names_no_page_of_ours_is_led_to_the_start(owner: Visitor, page: str) -> None:
    await owner.post("/logout")
    late = await owner.post(RENAME, {"name": "x"}, Referer=page)
    assert (late.status, hidden(late)["next"]) == (401, "/")


async def test_a_fragment_that_is_sent_late_stays_a_fragment(here: Replica) -> None:
    late = await Visitor.of(here).post(RENAME, {"name": "x"}, X_Part="1")
    assert (late.status, "<main" in late.text) == (401, False)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=60)), max_size=20))
def test_each_form_comes_back_as_it_was_typed(fields: list[tuple[str, str]]) -> None:
    kept = kept_form("/orgs/o/projects/p/x", urlencode(fields, errors="surrogatepass").encode())
    whole = not any(value for name, value in fields if name in SECRET_FIELDS)
    assert (kept is not None) is whole
    if kept is not None:
        assert list(kept.fields) == fields
        assert kept_again(kept.address, kept.typed) == kept


def test_more_than_can_be_kept_is_not_kept() -> None:
    assert kept_form(RENAME, b"name=" + b"x" * (TYPED_BYTES - 5)) is not None
    assert kept_form(RENAME, b"name=" + b"x" * (TYPED_BYTES - 4)) is None
    for typed in ("", "é", "!", "AAAAA", "/w=="):
        assert kept_again(RENAME, typed) in (None, kept_form(RENAME, b""))


def test_every_field_for_a_secret_is_named_as_one() -> None:
    named = {
        name
        for page in ROOMS.rglob("*.html")
        for tag in re.findall("<input[^>]*>", page.read_text())
        if 'type="password"' in tag
        for name in re.findall(r'\bname="([a-z_]+)"', tag)
    }
    called = {
        name
        for page in ROOMS.rglob("*.html")
        for name in re.findall(r'(?:field|entry|text)\("(\w+)", "[^"]*", "password"', page.read_text())
    }
    assert named | called >= {"password", "secret"}
    assert named | called <= SECRET_FIELDS
