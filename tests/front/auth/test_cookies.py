"""What is sealed comes back whole or not at all; who a request comes from is never what it merely says."""

from __future__ import annotations

from ipaddress import ip_network

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from protocol.rest.accounts import email_key
from protocol.rest.orgs import is_slug, slug_of
from svc.front.api.accounts.sso import path_here
from svc.front.auth.client import Surroundings
from svc.front.auth.cookies import Seal, clear_session, session_secret, set_attempt, set_session
from svc.front.auth.limits import NAMES_BOUND, Limit

SEAL = Seal.of("a long and private text")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_what_is_sealed_is_opened(secret: bytes) -> None:
    sealed = SEAL.close(secret)
    assert SEAL.open(sealed) == secret
    assert Seal.of("another").open(sealed) is None
    assert Seal.of("a long and private text", b"another purpose").open(sealed) is None


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 79), st.sampled_from("AZaz09-_.=%é"))
def test_a_cookie_with_any_character_changed_is_none(secret: bytes, position: int, other: str) -> None:
    sealed = SEAL.close(secret)
    assert len(sealed) == 80
    touched = sealed[:position] + other + sealed[position + 1 :]
    assert (session_secret(SEAL, f"svc_session={touched}", secure=False) is None) is (touched != sealed)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_may_stand_where_a_cookie_should(text: str) -> None:
    assert SEAL.open(text) is None
    assert session_secret(SEAL, text, secure=True) is None


def test_a_planted_cookie_beside_the_true_one_changes_nothing() -> None:
    secret = b"s" * 32
    cookie = set_session(SEAL.close(secret), secure=False).partition(";")[0]
    for header in (f"svc_session=planted; {cookie}", f"{cookie}; svc_session=planted", f"a=b;{cookie};c=d"):
        assert session_secret(SEAL, header, secure=False) == secret


def test_over_tls_only_a_cookie_that_a_browser_binds_to_this_host_is_read() -> None:
    secret = b"s" * 32
    cookies = {secure: set_session(SEAL.close(secret), secure=secure) for secure in (True, False)}
    assert cookies[True].startswith("__Host-svc_session=")
    # What the prefix asks for (RFC 6265bis §4.1.3.2); with anything else a browser throws the cookie away.
    for cookie in (cookies[True], clear_session(secure=True), set_attempt("x", 9, secure=True)):
        assert cookie.startswith("__Host-")
        assert "; Path=/;" in cookie
        assert cookie.endswith("; Secure")
        assert "domain" not in cookie.lower()
    for sent, cookie in cookies.items():
        for secure in (True, False):
            opened = session_secret(SEAL, cookie.partition(";")[0], secure=secure)
            assert opened == (secret if sent is secure else None)


PROXIED = Surroundings(proxies=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")))


@settings(deadline=None)
@given(st.text(max_size=100), st.ip_addresses().map(str))
def test_whoever_is_no_proxy_is_whom_they_connect_as(forwarded: str, peer: str) -> None:
    headers = {"x-forwarded-for": forwarded, "x-forwarded-proto": "https"}
    client = Surroundings().client(peer, "http", headers)
    assert (client.address, client.secure) == (peer, False)


@settings(deadline=None)
@given(st.lists(st.ip_addresses().map(str)), st.ip_addresses(v=4, network="203.0.113.0/24").map(str))
def test_what_a_client_prepends_to_the_chain_does_not_count(forged: list[str], true: str) -> None:
    headers = {"x-forwarded-for": ", ".join([*forged, true, "10.1.2.3"])}
    assert PROXIED.client("10.0.0.1", "http", headers).address == true


@settings(deadline=None)
@given(st.text(max_size=300))
def test_a_slug_is_made_of_any_name(name: str) -> None:
    assert is_slug(slug_of(name))


@settings(deadline=None)
@given(st.emails())
def test_an_address_compares_with_itself_in_any_letter_case(email: str) -> None:
    key = email_key(email)
    if key is not None:
        assert email_key(key) == key == email_key(f"  {email.upper()} ") or not email.isascii()


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_path_leads_off_this_origin(wanted: str) -> None:
    path = path_here(wanted)
    assert path.startswith("/")
    assert not path.startswith(("//", "/\\"))
    assert path.isprintable()


async def test_a_limit_lets_go_of_a_name_when_its_window_is_over(autojump_clock: MockClock) -> None:
    limit = Limit(2, 10.0)
    assert [limit.count("a") for _ in range(3)] == [None, None, 10]
    assert limit.count("b") is None
    await trio.sleep(9.5)
    assert limit.count("a") == 1
    await trio.sleep(0.6)
    assert limit.count("a") is None


async def test_a_limit_remembers_a_bounded_number_of_names(autojump_clock: MockClock) -> None:
    limit = Limit(1, 10.0)
    for number in range(NAMES_BOUND + 1):
        assert limit.count(str(number)) is None
    assert limit.count("0") is None
    assert limit.count(str(NAMES_BOUND)) is not None
