"""The URL of a database says the same in the spelling of JDBC and in that of libpq."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.database_address import Address, Host, parse_url
from svc.config.types import DB_URL

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]{1,10})?", fullmatch=True)
HOSTS = st.tuples(
    st.one_of(NAMES, st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)), st.integers(1, 65_535)
)
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


def written(host: Host, *, bare: bool = False) -> str:
    name = f"[{host[0]}]" if ":" in host[0] else host[0]
    return name if bare and host[1] == 5432 else f"{name}:{host[1]}"


@given(st.lists(HOSTS, min_size=1, max_size=4), WORDS, WORDS, WORDS, st.booleans())
def test_what_is_written_into_a_url_is_read_from_it(
    hosts: list[Host], user: str, password: str, database: str, in_query: bool
) -> None:
    user_, password_, database_ = (quote(word, safe="") for word in (user, password, database))
    servers = ",".join(written(host, bare=True) for host in hosts)
    url = (
        f"jdbc:postgresql://{servers}/{database_}?user={user_}&password={password_}"
        if in_query
        else f"postgresql://{user_}:{password_}@{servers}/{database_}"
    )
    address = parse_url(url)
    assert address.hosts == tuple(hosts)
    assert (address.user, address.password, address.database) == (user, password, database)


@given(st.lists(HOSTS, min_size=1, max_size=4), WORDS)
def test_the_label_names_every_server_and_not_the_password(hosts: list[Host], word: str) -> None:
    (first, *further) = hosts
    address = Address(*first, "user", f"planted-{word}", "db", further=tuple(further))
    assert all(written(host) in address.label() for host in hosts)
    assert "planted-" not in address.label() + repr(address)


def test_what_a_url_leaves_out_is_filled_in() -> None:
    address = parse_url("postgresql://A.example,b", user="u", password="p", database="d")
    assert address.hosts == (("a.example", 5432), ("b", 5432))
    assert (address.user, address.password, address.database, address.tls) == ("u", "p", "d", None)
    assert parse_url("postgresql://a/?sslmode=require").tls == "require"


@pytest.mark.parametrize(
    ("query", "target"),
    [
        ("target_session_attrs=read-write", "read-write"),
        ("target_session_attrs=primary", "primary"),
        ("target_session_attrs=prefer-standby", "prefer-standby"),
        ("target_session_attrs=any", "any"),
        ("targetServerType=primary", "primary"),
        ("targetServerType=master", "primary"),
        ("targetServerType=secondary", "standby"),
        ("targetServerType=preferSecondary", "prefer-standby"),
        ("targetServerType=any", "any"),
        # A service writes: of several servers any one would not do.
        ("", "read-write"),
    ],
)
def test_both_spellings_say_which_server_is_wanted(query: str, target: str) -> None:
    assert parse_url(f"jdbc:postgresql://a:1,b:2/db?{query}").target == target


def test_a_single_server_is_taken_as_it_is() -> None:
    assert parse_url("postgresql://a/db").target is None
    assert parse_url("postgresql://a/db?targetServerType=primary").target == "primary"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://a/db",
        "a:5432/db",
        "postgresql:///db",
        "postgresql://a:0/db",
        "postgresql://a:65536/db",
        "postgresql://a:port/db",
        "postgresql://a,,b/db",
        "postgresql://a,/db",
        "postgresql://[::1,b/db",
        "postgresql://::1/db",
        "postgresql://a,b/db?targetServerType=leader",
        "postgresql://a,b/db?target_session_attrs=master",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    assert DB_URL.read("postgresql://a:1,b:2/db")
    with pytest.raises(ValueError, match=r"^$|port|IPv6"):
        DB_URL.read(url)
