"""How to reach a PostgreSQL server, or one of several that stand for each other: the address and its URL.

Owns the two spellings of the URL, that of JDBC and that of libpq. The settings check a URL with `parse_url`,
the store connects by the `Address`, which goes to each of our processes that connects.
Never resolves a name and never connects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

#: Name, address or socket folder, and port.
Host = tuple[str, int]

#: Which server is wanted, in the words of libpq.
Target = Literal["any", "primary", "read-write", "read-only", "standby", "prefer-standby"]

#: Those that accept a server which cannot be written to.
READS_ONLY: Final[frozenset[Target]] = frozenset({"read-only", "standby", "prefer-standby"})

_LIBPQ: Final = "target_session_attrs"
_JDBC: Final = "targetServerType"
#: What JDBC calls them; it still accepts the older words.
_JDBC_TARGETS: Final[dict[str, Target]] = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "slave": "standby",
    "prefersecondary": "prefer-standby",
    "preferslave": "prefer-standby",
}

_PORT: Final = 5432


@attrs.frozen
class Address:
    """A PostgreSQL server. `host` is a name, an address or a socket folder; `further` are tried as well.

    Secrets: it holds the password, which `repr` and `label` leave out.
    """

    host: str
    port: int
    user: str
    password: str = attrs.field(repr=False)
    database: str
    tls: str | None = None
    further: tuple[Host, ...] = ()
    target: Target | None = None

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All servers, in the order in which they are given."""
        return (self.host, self.port), *self.further

    def label(self) -> str:
        """The address as the log and `doctor` may show it."""
        return f"{self.user}@{shown(self.hosts)}/{self.database}"


def shown(hosts: tuple[Host, ...]) -> str:
    """Servers as texts show them."""
    return ",".join(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name, port in hosts)


def parse_url(url: str, *, user: str = "", password: str = "", database: str = "") -> Address:
    """An address from `jdbc:postgresql://…` or `postgresql://…`; what the URL leaves out is filled in.

    Of several servers the one that can be written to is wanted, unless the URL says otherwise. Raises
    `ValueError` for anything else.
    """
    parts = urlsplit(url.removeprefix("jdbc:"))
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ValueError
    login, _, servers = parts.netloc.rpartition("@")
    name, _, word = login.partition(":")
    query = dict(parse_qsl(parts.query))
    first, *further = _hosts(servers)
    target = _target(query)
    if target is None and further:
        target = "read-write"
    return Address(
        host=first[0],
        port=first[1],
        user=unquote(name) or query.get("user", user),
        password=unquote(word) or query.get("password", password),
        database=unquote(parts.path.lstrip("/")) or database,
        tls=query.get("sslmode"),
        further=tuple(further),
        target=target,
    )


def _hosts(servers: str) -> Iterator[Host]:
    for server in servers.split(","):
        parts = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:/\s]+))(?::([0-9]{1,5}))?", server)
        if parts is None:
            raise ValueError
        port = int(parts[3] or _PORT)
        if not 1 <= port <= 65_535:
            raise ValueError
        yield (parts[1] or parts[2]).lower(), port


def _target(query: dict[str, str]) -> Target | None:
    if _LIBPQ in query:
        for target in get_args(Target):
            if query[_LIBPQ] == target:
                choice: Target = target
                return choice
        raise ValueError
    if _JDBC in query:
        if query[_JDBC].lower() not in _JDBC_TARGETS:
            raise ValueError
        return _JDBC_TARGETS[query[_JDBC].lower()]
    return None
