"""A validation error says what would have been right at its place, and nothing where that is not certain."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from protocol.jsonrpc import PARSE_ERROR, Fault, read_messages
from protocol.refusals import BAD_REQUEST, Refused
from protocol.rest.query import CountBody, read_body
from protocol.validation import validation_text

Colour = Literal["red", "green"]


class Inner(msgspec.Struct, forbid_unknown_fields=True, rename={"low": "from"}):
    low: str | None = None
    colour: Colour | None = None


class Empty(msgspec.Struct, forbid_unknown_fields=True):
    pass


class One(msgspec.Struct, forbid_unknown_fields=True, tag=True):
    colour: Colour = "red"


class Other(msgspec.Struct, forbid_unknown_fields=True, tag=True):
    colour: Literal["blue"] = "blue"


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    colour: Colour = "red"
    inner: Inner | None = None
    several: list[Inner] = []
    by_name: dict[str, list[Colour]] = {}
    either: One | Other | None = None
    pair: tuple[int, Colour] = (0, "red")
    empty: Empty | None = None
    number: int = 0


@pytest.mark.parametrize(
    ("sent", "right"),
    [
        ({"colour": "blue"}, "; one of: green, red"),
        ({"inner": {"colour": "blue"}}, "; one of: green, red"),
        ({"inner": {"low": "x"}}, "; it takes: from, colour"),
        ({"several": [{}, {"colour": "blue"}]}, "; one of: green, red"),
        ({"several": [{"x": 1}]}, "; it takes: from, colour"),
        ({"by_name": {"x": ["red", "blue"]}}, "; one of: green, red"),
        ({"pair": [1, "blue"]}, "; one of: green, red"),
        ({"empty": {"x": 1}}, "; it takes: nothing"),
        ({"color": "red"}, "; it takes: colour, inner, several, by_name, either, pair, empty, number"),
        # Which of two is meant only the tag says.
        ({"either": {"type": "One", "x": 1}}, ""),
        ({"number": "x"}, ""),
    ],
)
def test_what_would_have_been_right_is_said_behind_the_error(sent: dict[str, Any], right: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(sent, Outer)
    assert validation_text(caught.value, Outer) == f"{caught.value}{right}"


def test_more_names_than_anybody_reads_are_left_out() -> None:
    wide = msgspec.defstruct("wide", [f"f{n}" for n in range(41)], forbid_unknown_fields=True)
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"x": 1}, wide)
    assert validation_text(caught.value, wide) == str(caught.value)


HALVES = [
    (rb'{"dataset": "\ud800"}', r"\ud800"),
    (rb'{"dataset": "\uDFFF and more"}', r"\uDFFF"),
    (rb'{"dataset": "\ud83d and more text"}', r"\ud83d"),
    (rb'{"dataset": "\ud83d\n and more text"}', r"\ud83d"),
    (rb'{"dataset": "\ude00\ud83d"}', r"\ude00"),
    (rb'{"dataset": "\ud83d\ude00 \\\ud83d\u0041"}', r"\ud83d"),
    (rb'{"\ud800": "spans"}', r"\ud800"),
    (rb'{"dataset": "spans", "filters": {"name": "\u0041\ud800"}}', r"\ud800"),
]


@pytest.mark.parametrize(("body", "escape"), HALVES, ids=[repr(body) for body, _ in HALVES])
def test_half_of_a_character_is_called_so_by_the_query_api_and_by_mcp(body: bytes, escape: str) -> None:
    text = f"a text in it holds half of a character: {escape}, a surrogate without its pair"
    with pytest.raises(Refused) as refused:
        read_body(body, CountBody)
    assert refused.value.refusal == BAD_REQUEST.saying(f"the body cannot be read: {text}")
    assert read_messages(body) == Fault(PARSE_ERROR, f"the body is not JSON: {text}")


@pytest.mark.parametrize(
    "body", [rb'{"dataset": "\\ud800', rb'{"dataset": "\ud83d\ude00', rb'{"dataset": "\ud8', b'{"dataset": "']
)
def test_a_body_that_is_cut_off_is_called_so(body: bytes) -> None:
    with pytest.raises(Refused, match="the body cannot be read: Input data was truncated"):
        read_body(body, CountBody)
