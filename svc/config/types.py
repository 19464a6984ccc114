"""The types of settings: how a text of the environment becomes a value, and what is expected in words.

Owns `Type` and one constant for each kind of value. `svc.config.table` gives every row one of them. Reads no
environment, prints nothing.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from protocol.database_address import parse_url


@attrs.frozen
class Type:
    """How a text becomes a value, and how the expected form is described. `read` raises on a bad text."""

    label: str
    expected: str
    read: Callable[[str], Any]


def _text(raw: str) -> str:
    return raw


def _blank_or_text(raw: str) -> str | None:
    return raw or None


def _long_text(raw: str) -> str:
    if len(raw) < 16:
        raise ValueError
    return raw


def _boolean(raw: str) -> bool:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[raw.lower()]


def _within(low: int, high: int) -> Callable[[str], int]:
    def read(raw: str) -> int:
        value = int(raw)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


def _one_of(*choices: str) -> Callable[[str], str | None]:
    def read(raw: str) -> str | None:
        for choice in choices:
            if raw.lower() == choice.lower():
                return choice
        raise ValueError

    return read


def _optionally(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda raw: parse(raw) if raw else None


def _seconds(raw: str) -> float:
    value = float(raw)
    if not 0 <= value <= 86_400:
        raise ValueError
    return value


def _a_month(raw: str) -> float:
    value = float(raw)
    if not 0.01 <= value <= 1_000:
        raise ValueError
    return value


def _clock(raw: str) -> time:
    if not re.fullmatch(r"\d\d:\d\d", raw):
        raise ValueError
    return time(int(raw[:2]), int(raw[3:]))


def _host_port(raw: str) -> tuple[str, int]:
    host, colon, port = raw.rpartition(":")
    host = host.strip("[]")
    if not colon or not host:
        raise ValueError
    return host, _within(0, 65_535)(port)


def _hostname(raw: str) -> str | None:
    if not raw:
        return None
    label = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
    if len(raw) > 253 or not re.fullmatch(rf"{label}(\.{label})*", raw.lower()):
        raise ValueError
    return raw.lower()


def _base_path(raw: str) -> str:
    if raw and not re.fullmatch(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*){1,8}", raw):
        raise ValueError
    return raw


def _url(*schemes: str) -> Callable[[str], str]:
    def read(raw: str) -> str:
        parts = urlsplit(raw)
        if parts.scheme not in schemes or not parts.hostname or parts.port == 0:
            raise ValueError
        return raw

    return read


def _database_url(raw: str) -> str:
    parse_url(raw)
    return raw


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """The parts of `s3://bucket/prefix`. Raises `ValueError` for anything else."""
    parts = re.fullmatch(
        r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9!_.*'()=-]{1,200}){0,20})/?", url
    )
    if parts is None or {".", ".."} & set(parts[2].split("/")):
        raise ValueError
    return parts[1], parts[2].removeprefix("/")


def _s3_url(raw: str) -> str:
    bucket_and_prefix(raw)
    return raw.rstrip("/")


def _web_address(raw: str) -> str:
    parts = urlsplit(_url("http", "https")(raw))
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError
    return raw.rstrip("/")


def _mail_address(raw: str) -> str:
    if not re.fullmatch(r"[^@\s<>,;:\"\\()\[\]]{1,64}@[A-Za-z0-9.-]{1,250}", raw, re.ASCII):
        raise ValueError
    return raw


def _networks(raw: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(word) for word in raw.split())


def _headers(raw: str) -> tuple[tuple[str, str], ...]:
    headers = []
    for part in filter(None, (part.strip() for part in raw.split(","))):
        name, equals, value = part.partition("=")
        name, value = unquote(name.strip()).lower(), unquote(value.strip())
        if not equals or not re.fullmatch(r"[a-z0-9!#$%&'*+.^_`|~-]+", name) or not value.isprintable():
            raise ValueError
        headers.append((name, value))
    return tuple(headers)


def _key32(raw: str) -> bytes:
    key = b64decode(raw, validate=True)
    if len(key) != 32:
        raise ValueError
    return key


def _keys32(raw: str) -> tuple[bytes, ...]:
    return tuple(_key32(word) for word in re.split(r"[\s,]+", raw.strip()) if word)


def _brokers(raw: str) -> str:
    for broker in raw.split(","):
        _host_port(broker.strip())
    return raw


def _path(raw: str) -> Path:
    return Path(raw).expanduser().absolute()


def _program(raw: str) -> str:
    return str(_path(raw)) if "/" in raw else raw


TEXT = Type("text", "a text", _text)
OPTIONAL = Type("text", "a text, or blank", _blank_or_text)
BOOLEAN = Type("boolean", "true or false", _boolean)
PORT = Type("port", "a port, 1 to 65535", _within(1, 65_535))
DAYS = Type("integer", "a whole number of days, 0 or more", _within(0, 36_500))
BYTES = Type("integer", "a whole number of bytes, 1024 or more", _within(1024, 2**50))
COUNT = Type("integer", "a whole number, 1 or more", _within(1, 10**9))
COUNT_OR_NONE = Type("integer", "a whole number, 0 or more", _within(0, 10**9))
BYTES_OR_NONE = Type("integer", "a whole number of bytes, 0 or more", _within(0, 2**50))
SECONDS = Type("number", "a number of seconds, 0 to 86400", _seconds)
PER_MONTH = Type("number", "a number from 0.01 to 1000", _a_month)
BIND = Type("host:port", "host:port, such as 127.0.0.1:8000", _host_port)
HOSTNAME = Type("hostname", "a bare hostname without scheme, port or path", _hostname)
BASE_PATH = Type("text", "a path such as /traces, without a slash at its end", _base_path)
WEB_URL = Type("URL", "an http or https URL", _optionally(_url("http", "https")))
HEARTBEAT_URL = Type("URL", "an http or https URL", _url("http", "https"))
DIRECTORY_URL = Type("URL", "an https URL", _url("https"))
DB_URL = Type("URL", "jdbc:postgresql://… or postgresql://…", _optionally(_database_url))
S3_URL = Type("URL", "s3://bucket/prefix, or blank", _optionally(_s3_url))
ENDPOINT = Type("URL", "an http or https URL without user and password", _optionally(_web_address))
MAIL_URL = Type("URL", "an smtp or smtps URL", _optionally(_url("smtp", "smtps")))
OWN_KEY = Type("base64", "base64 of exactly 32 bytes, such as `openssl rand -base64 32` prints", _key32)
MAIL_ADDRESS = Type("address", "a bare mail address, as alerts@example.org", _optionally(_mail_address))
PASSPHRASE = Type("text", "a text of at least 16 characters, or blank", _optionally(_long_text))
CLOCK = Type("HH:MM", "a time of day as 03:10", _clock)
OWN_PASSWORD = Type("text", "a text of at least 16 characters", _long_text)
KEYS32 = Type("base64 list", "base64 keys of exactly 32 bytes each, separated by spaces", _keys32)
NETWORKS = Type("CIDR list", "networks in CIDR form, separated by spaces", _networks)
OPTIONAL_NETWORKS = Type("CIDR list", "networks in CIDR form, separated by spaces", _optionally(_networks))
HEADERS = Type("name=value list", "name=value, several separated by commas, odd characters as %XX", _headers)
BROKERS = Type("host:port list", "host:port, several separated by commas", _brokers)
FOLDER = Type("path", "a path", _path)
FILE = Type("path", "a path, or blank", _optionally(_path))
PROGRAM = Type("path", "a program, by its name or its path", _program)


def integer(low: int, high: int) -> Type:
    """A whole number between two bounds, both allowed."""
    return Type("integer", f"a whole number from {low} to {high}", _within(low, high))


def one_of(*choices: str, blank: bool = False) -> Type:
    """One word of a closed list, in any letter case; `blank` allows the empty value."""
    expected = "one of " + ", ".join(choices) + (", or blank" if blank else "")
    parse = _one_of(*choices)
    return Type(" \\| ".join(choices), expected, _optionally(parse) if blank else parse)
