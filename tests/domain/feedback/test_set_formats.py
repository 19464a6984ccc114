"""Formats of sets: the shapes that evaluation tools document, whatever was asked and answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.feedback.set_formats import FORMATS

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def line(**fields: Any) -> dict[str, Any]:
    metadata = {"set_id": "s", "trace_id": "t", "span_id": None}
    usual = {
        "id": "t",
        "input": "Where?",
        "output": "Here",
        "note": None,
        "metadata": metadata,
        "feedback": [],
    }
    return usual | fields


def items(name: Any, *lines: dict[str, Any]) -> list[Any]:
    format_ = FORMATS[name]

    def values(index: int) -> list[Any]:
        return [json.loads(format_.encoded("the set", entry, index)) for entry in lines]

    if not format_.columns:
        return values(0)
    return [{column: values(index) for index, column in enumerate(format_.columns)}]


@pytest.mark.parametrize(
    ("asked", "messages"),
    [
        ("Where?", [("user", "Where?")]),
        ([{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Where?"}],
         [("system", "Be kind"), ("user", "Where?")]),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "A"}, {"text": "B"}]}]},
         [("user", "A\nB")]),
        ([{"role": "user", "parts": [{"type": "text", "content": "A"}, {"type": "text", "text": "B"}]}],
         [("user", "A\nB")]),
        ([{"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm"}, {"content": "Yes"}]}],
         [("assistant", "Yes")]),
        ([{"role": "assistant", "parts": [{"type": "tool_call", "name": "f"}]}],
         [("assistant", '[{"type":"tool_call","name":"f"}]')]),
        ({"order": 7}, [("user", '{"order":7}')]),
        (None, [("user", "")]),
    ],
)  # fmt: skip
def test_a_sample_of_openai_is_a_conversation_and_a_text(asked: Any, messages: list[tuple[str, str]]) -> None:
    (sample,) = items("openai_evals", line(input=asked, output=[{"role": "assistant", "content": "Here"}]))
    assert [(message["role"], message["content"]) for message in sample["input"]] == messages
    assert sample["ideal"] == "Here"


def test_an_answer_in_parts_is_a_text() -> None:
    answered = [{"role": "assistant", "parts": [{"type": "text", "content": "Here"}]}]
    (sample,) = items("openai_evals", line(output=answered))
    assert sample["ideal"] == "Here"


def test_an_upload_to_phoenix_holds_objects_in_columns_of_one_length() -> None:
    (upload,) = items("phoenix", line(), line(input={"q": 1}, output=None))
    assert upload["inputs"] == [{"input": "Where?"}, {"q": 1}]
    assert upload["outputs"] == [{"output": "Here"}, {"output": None}]
    assert upload["span_ids"] == [None, None]


@given(asked=ANY_JSON, answered=ANY_JSON)
def test_every_format_takes_whatever_was_said(asked: Any, answered: Any) -> None:
    for name in FORMATS:
        for item in items(name, line(input=asked, output=answered)):
            assert isinstance(item, dict)
    (item,) = items("langfuse", line(input=asked, output=answered))
    assert (item["input"], item["expectedOutput"]) == (asked, answered)
