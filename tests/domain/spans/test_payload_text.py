"""A text is found in a span that was not opened, however JSON has written it and in any case."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.reading import envelope, walk
from svc.domain.spans.payload_text import finder
from tests.wire import request, span

TEXTS = st.text(
    st.one_of(st.sampled_from('aZ é"\\\n/ßΣς你😀'), st.characters(exclude_categories=["Cs", "Cc"])),
    min_size=1,
    max_size=12,
)


@given(before=TEXTS, text=TEXTS, after=TEXTS, depth=st.integers(0, 2), escapes=st.booleans())
def test_a_text_is_found_within_json_of_json_with_or_without_escapes(
    before: str, text: str, after: str, depth: int, escapes: bool
) -> None:
    said = f"{before}{text}{after}"
    for _ in range(depth):
        said = json.dumps({"content": said}, ensure_ascii=escapes)
    assert finder(text)(said.encode())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("REFUND policy", "our Refund Policy is"),
        ("Élan", '{"content": "\\u00c9lan vital"}'),
        ("élan", "ÉLAN"),
        ("😀 ok", '{"content": "\\ud83d\\ude00 ok"}'),
        ('said "no"', '[{"content": "He said \\"no\\"."}]'),
        ("R&D a<b", '{"content": "R\\u0026D a\\u003cb"}'),
        ("don't", '{"content": "don\\u0027t"}'),
        ("https://x.example/y", '{"content": "https:\\/\\/x.example\\/y"}'),
        ("one\ntwo", '[{"arguments": "{\\"text\\": \\"one\\\\ntwo\\"}"}]'),
    ],
)
def test_a_text_is_found_as_people_type_it(text: str, said: str) -> None:
    assert finder(text)(said.encode())
    assert not finder(f"{text}!")(said.encode())


def test_a_text_is_found_anywhere_in_what_a_span_said() -> None:
    sent = span(
        "chat",
        {"input.value": "where is my parcel", "shop.order": "A-7031"},
        status_code=2,
        status_message="upstream closed",
    )
    (came,) = map(envelope, walk(request(sent, resource={"service.name": "shop"})))
    for text in ("my PARCEL", "a-7031", "upstream closed", "shop"):
        assert finder(text)(came), text
    assert not finder("my  parcel")(came)


def test_what_is_no_text_is_no_character_and_backslashes_are_read_once() -> None:
    assert not finder("\ufffd")(b"\x80\xff\x00")
    assert finder("\ufffd")("before \ufffd after".encode())
    # Tried again from each of its own, this would take minutes.
    hostile = ("\\u00e9" + "\\" * 1_000_000).encode()
    assert not finder("é1")(hostile)
    assert finder("é")(hostile)
