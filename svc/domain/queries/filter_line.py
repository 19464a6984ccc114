"""Filters by fields of a dataset as one line has them: `status:error attr.tenant.id:acme user_id:null`.

Explore, the charts kept of it and the form of an alert rule read and write a line alike. Which fields a
dataset has is for the caller to know. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from protocol.rest.query import FilterValue

_NAME: Final = r'[a-z_]+|attr\.[^\s:"]{1,120}'
_TOKEN: Final = re.compile(rf'({_NAME}):("(?:[^"\\]|\\.)*"|\S+)|("(?:[^"\\]|\\.)*"|\S+)')
_NULL: Final = "null"


@attrs.frozen
class LineToken:
    """A part of a line: a field with its value, or a text, whose name is blank. `text` is as it was typed."""

    name: str
    value: str | None
    text: str


def read_line(typed: str) -> list[LineToken]:
    """The parts of a line, in their order. A plain `null` is no value."""
    tokens = []
    for name, value, text in _TOKEN.findall(typed):
        if name:
            tokens.append(LineToken(name, None if value == _NULL else _unquoted(value), f"{name}:{value}"))
        else:
            tokens.append(LineToken("", None, _unquoted(text)))
    return tokens


def as_token(name: str, value: FilterValue) -> str:
    """A filter as it is typed."""
    if value is None:
        return f"{name}:{_NULL}"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'{name}:"{_NULL}"' if text == _NULL else f"{name}:{_quoted(text)}"


def as_line(filters: Mapping[str, FilterValue]) -> str:
    """Filters as one line has them."""
    return " ".join(as_token(name, value) for name, value in filters.items())


def can_be_typed(name: str) -> bool:
    """Whether a line can hold this name: attributes may be called anything."""
    return re.fullmatch(_NAME, name) is not None


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if len(value) > 1 and value[0] == value[-1] == '"' else value


def _quoted(value: str) -> str:
    """A value as it is typed: in quotation marks where it needs them."""
    if value and not re.search(r'[\s"\\]', value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
