"""Which page a request comes from, and what stands for the other end of a connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.front.auth.client import Client, Surroundings

HERE = Surroundings()
PUBLIC = Surroundings(origins=frozenset({"https://traces.example.org"}), always_secure=True)


def over(scheme: str, address: str = "192.0.2.1") -> Client:
    return Client(address, scheme, scheme == "https")


@pytest.mark.parametrize("host", ["traces.local", "traces.local:8000", "[::1]:8000", "127.0.0.1"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_page_is_ours_only_over_the_scheme_it_was_served_by(scheme: str, host: str) -> None:
    other = "http" if scheme == "https" else "https"
    assert HERE.is_ours({"origin": f"{scheme}://{host}", "host": host}, over(scheme))
    for crossed in (
        {"origin": f"{other}://{host}", "host": host},
        {"origin": f"{other}://{host}", "host": host, "x-forwarded-proto": other},
    ):
        assert not HERE.is_ours(crossed, over(scheme))
        assert HERE.is_foreign(crossed, over(scheme))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_page_under_the_public_name_is_ours_over_https_alone(scheme: str) -> None:
    # Upstream ends TLS: the last hop speaks http, the browser's page does not.
    host = {"host": "traces.example.org"}
    assert PUBLIC.is_ours({"origin": "https://traces.example.org", **host}, over(scheme))
    plain = {"origin": "http://traces.example.org", **host}
    assert PUBLIC.is_ours(plain, over("https")) is False


@pytest.mark.parametrize(
    ("site", "origin", "ours"),
    [
        ("same-origin", "https://evil.example", True),
        ("same-origin", None, True),
        ("same-site", "http://traces.local", False),
        ("cross-site", "http://traces.local", False),
        ("none", "http://traces.local", False),
        (None, "http://traces.local", True),
        (None, "https://traces.local", False),
        (None, None, False),
    ],
)
def test_what_the_browser_says_of_the_site_is_preferred_to_the_origin(
    site: str | None, origin: str | None, ours: bool
) -> None:
    said = {"host": "traces.local"}
    if site is not None:
        said["sec-fetch-site"] = site
    if origin is not None:
        said["origin"] = origin
    assert HERE.is_ours(said, over("http")) is ours


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://traces.local:80", "traces.local"),
        ("http://traces.local", "traces.local:80"),
        ("HTTP://TRACES.local", "traces.LOCAL"),
    ],
)
def test_the_usual_port_and_the_letter_case_make_no_difference(origin: str, host: str) -> None:
    assert HERE.is_ours({"origin": origin, "host": host}, over("http"))


@pytest.mark.parametrize(
    "origin", ["http://traces.local:443", "ftp://traces.local", "null", "http://[", "//traces.local"]
)
def test_another_port_or_what_is_no_origin_is_foreign(origin: str) -> None:
    assert HERE.is_foreign({"origin": origin, "host": "traces.local"}, over("http"))


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["http", "https"]))
def test_a_page_that_is_ours_names_our_scheme(origin: str, host: str, scheme: str) -> None:
    if HERE.is_ours({"origin": origin, "host": host}, over(scheme)):
        assert origin.lower().startswith(scheme + ":")


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_limits_count_by_what_a_client_cannot_easily_change(address: str, place: str) -> None:
    assert over("http", address).place == place
