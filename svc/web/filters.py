"""The filter bar of the list of traces: typed tokens to what the store is asked, and back to text.

`status:error model:gpt-4o latency:>5s "refund"`: a token is a name, a colon and a value, quoted where it
holds spaces; what is none is the text searched for. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast, get_args

import attrs

from protocol.rest.query import Q_MAX
from svc.domain.span import Kind
from svc.store.reads.traces import TraceFilter
from svc.web.ranges import TimeRange

_TOKEN: Final = re.compile(r'(?:([a-z_]+):)?("(?:[^"\\]|\\.)*"|\S+)')
_LATENCY: Final = re.compile(r"([<>])=?\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_COST: Final = re.compile(r"([<>])=?\s*\$?\s*(\d*\.?\d+)")
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


class WrongValue(Exception):
    """A value that its filter cannot take; the text says what it takes."""


def _status(value: str) -> dict[str, Any]:
    if value not in ("ok", "error"):
        raise WrongValue("status is ok or error")
    return {"status": value}


def _kind(value: str) -> dict[str, Any]:
    if value not in get_args(Kind):
        raise WrongValue(f"kind is one of {', '.join(get_args(Kind))}")
    return {"kind": cast(Kind, value)}


def _latency(value: str) -> dict[str, Any]:
    match = _LATENCY.fullmatch(value)
    if match is None:
        raise WrongValue("latency is such as >5s, <300ms or >2m")
    try:
        bound = timedelta(seconds=float(match[2]) * _UNITS_S[match[3] or "s"])
    except OverflowError:
        raise WrongValue("no trace takes that long") from None
    return {"slower_than" if match[1] == ">" else "faster_than": bound}


def _cost(value: str) -> dict[str, Any]:
    match = _COST.fullmatch(value)
    try:
        bound = Decimal(match[2]) if match and len(match[2]) <= 20 else None
    except InvalidOperation:
        bound = None
    if match is None or bound is None:
        raise WrongValue("cost is such as >0.01 or <$2")
    return {"dearer_than" if match[1] == ">" else "cheaper_than": bound}


def _unpriced(value: str) -> dict[str, Any]:
    if value not in ("yes", "no"):
        raise WrongValue("unpriced is yes or no")
    return {"unpriced": value == "yes"}


def _text(field: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {field: value}


@attrs.frozen
class FilterField:
    """One name of the bar: what it does, with an example, and how its value is read."""

    name: str
    says: str
    example: str
    read: Callable[[str], dict[str, Any]]


FIELDS: Final = {
    field.name: field
    for field in (
        FilterField("status", "failed or not", "error", _status),
        FilterField("site", "call site of one of its spans", "support.answer", _text("call_site_id")),
        FilterField("model", "model of one of its spans", "gpt-4o", _text("model")),
        FilterField("kind", "kind of one of its spans", "tool", _kind),
        FilterField("latency", "how long it took", ">5s", _latency),
        FilterField("cost", "what it cost, in USD", ">0.01", _cost),
        FilterField("session", "its session", "s-8841", _text("session_id")),
        FilterField("user", "its user", "u-17", _text("user_id")),
        FilterField("unpriced", "whether a price is not known", "yes", _unpriced),
    )
}


@attrs.frozen
class Token:
    """One chip of the bar."""

    name: str
    value: str

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.name}:{quoted(self.value)}"


@attrs.frozen
class Filters:
    """What the bar says: chips, the text searched for, and what of it could not be read."""

    tokens: Sequence[Token]
    text: str
    asked: Mapping[str, Any]
    wrong: Sequence[str]

    def __str__(self) -> str:
        """As it is typed."""
        return " ".join([*map(str, self.tokens), *([quoted(self.text)] if self.text else [])])

    def without(self, token: Token) -> str:
        """The bar without one chip."""
        return str(attrs.evolve(self, tokens=[other for other in self.tokens if other is not token]))

    def with_(self, name: str, value: str) -> str:
        """The bar with a value of a field, in the place of an earlier one."""
        kept = [token for token in self.tokens if token.name != name]
        return str(attrs.evolve(self, tokens=[*kept, Token(name, value)]))

    def over(self, range_: TimeRange) -> TraceFilter:
        """What the store is asked, over a range."""
        return self.between(range_.low, range_.high)

    def between(self, low: datetime | None, high: datetime | None) -> TraceFilter:
        """What the store is asked, between two instants."""
        return TraceFilter(low=low, high=high, q=self.text or None, **self.asked)


def quoted(value: str) -> str:
    """A value as it is typed: in quotation marks where it needs them."""
    if value and not re.search(r'[\s"\\]', value) and not _is_token(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_token(value: str) -> bool:
    name, colon, _ = value.partition(":")
    return bool(colon) and name in FIELDS


def read_filters(typed: str) -> Filters:
    """The filters of a bar. What cannot be read is named and asks for nothing."""
    tokens: list[Token] = []
    words: list[str] = []
    asked: dict[str, Any] = {}
    wrong: list[str] = []
    for name, raw in _TOKEN.findall(typed[: 2 * Q_MAX]):
        value = re.sub(r"\\(.)", r"\1", raw[1:-1]) if len(raw) > 1 and raw[0] == raw[-1] == '"' else raw
        field = FIELDS.get(name)
        if field is None:
            # Such as https://… or a word with a colon: text.
            words.append(f"{name}:{value}" if name else value)
            continue
        try:
            asked |= field.read(value)
        except WrongValue as error:
            wrong.append(str(error))
            continue
        tokens.append(Token(name, value))
    text = " ".join(words)
    if len(text) > Q_MAX:
        wrong.append(f"a text of at most {Q_MAX:,} characters is searched for")
        text = ""
    return Filters(tokens, text, asked, wrong)
