"""Laws of cleaned text and values."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.text import clean, clean_value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(st.text())
def test_clean_text_holds_no_nul_and_is_otherwise_unchanged(text: str) -> None:
    cleaned = clean(text)
    assert "\x00" not in cleaned
    assert len(cleaned) == len(text)
    assert all(was in (now, "\x00") for was, now in zip(text, cleaned, strict=True))


def test_text_without_nul_is_the_same_object() -> None:
    text = "gen_ai.request.model"
    assert clean(text) is text


@given(VALUES)
def test_a_clean_value_is_json_without_nul(value: Any) -> None:
    written = json.dumps(clean_value(value), allow_nan=False)
    assert r"\u0000" not in written.replace("\\\\", "")


def test_what_json_lacks_is_written_in_words() -> None:
    value = {
        "k\x00": [float("nan"), float("inf"), float("-inf"), 1.5, True, None, 2**63 - 1],
        "data": b"\x00\xff",
        "nested": {"a": {"b": ("x\x00y",)}},
    }
    assert clean_value(value) == {
        "k\ufffd": ["NaN", "Infinity", "-Infinity", 1.5, True, None, 2**63 - 1],
        "data": "AP8=",
        "nested": {"a": {"b": ["x\ufffdy"]}},
    }
