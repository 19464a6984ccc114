"""Which tool calls failed: by status, type, exception and the result's own word, and by nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.spans.tool_results import MAX_RESULT_CHARS, failure_in
from svc.domain.spans.values import MESSAGE_CHARS, NAME_CHARS
from tests.domain import event, mapped

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def outcome(attributes: dict[str, Any], **fields: Any) -> tuple[str, str | None, str | None]:
    row = mapped(TOOL | attributes, **fields)
    (call,) = row.tool_calls
    assert (call.status, call.error_type, call.error_message) == (
        row.status,
        row.error_type,
        row.error_message,
    )
    return row.status, row.error_type, row.error_message


def result(value: Any) -> dict[str, Any]:
    return {"gen_ai.tool.call.result": value if isinstance(value, str) else json.dumps(value)}


BOOM = [{"type": "image"}, {"type": "text", "text": "boom"}]


@pytest.mark.parametrize("status_code", [0, 1, 2])
@pytest.mark.parametrize(
    ("attributes", "events", "told"),
    [
        ({"error.type": "timeout"}, (), ("timeout", None)),
        ({"exception.type": "ValueError", "exception.message": "no"}, (), ("ValueError", "no")),
        ({}, (event("exception", **{"exception.type": "E", "exception.message": "m"}),), ("E", "m")),
        ({}, (event("exception"),), (None, None)),
        (result({"isError": True, "content": BOOM}), (), ("tool_error", "boom")),
        (result({"content": "late", "is_error": True}), (), ("tool_error", "late")),
        (result({"error": "rate_limited"}), (), ("rate_limited", "rate_limited")),
        (result({"error": "no user 17"}), (), ("tool_error", "no user 17")),
        (result({"error": {"code": -32602, "message": "bad q"}}), (), ("-32602", "bad q")),
        (result({"error": {"type": "Quota", "code": 429}}), (), ("Quota", None)),
        (result({"error": True, "message": "no"}), (), ("tool_error", "no")),
        (result({"id": 1, "result": {"isError": True, "content": BOOM}}), (), ("tool_error", "boom")),
        (result('  \n{"error": "refused"}'), (), ("refused", "refused")),
        (result('{"error": "refused", "score": NaN}'), (), ("refused", "refused")),
    ],
)
def test_every_source_of_failure_fails_a_tools_span_and_its_call(
    attributes: dict[str, Any], events: Any, told: tuple[str | None, str | None], status_code: int
) -> None:
    assert outcome(attributes, events=events, status_code=status_code) == ("error", *told)


@pytest.mark.parametrize("kind", [{}, {"mcp.method.name": "tools/call"}])
@pytest.mark.parametrize("key", ["gen_ai.tool.call.result", "output.value", "tool_response"])
def test_a_result_is_looked_at_wherever_its_dialect_puts_it(kind: dict[str, Any], key: str) -> None:
    for value in ('{"isError": true}', {"isError": True}):
        assert outcome({**kind, key: value})[:2] == ("error", "tool_error")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "error: the file is gone",
        "Error",
        "[]",
        "{}",
        '{"rows": []}',
        '{"error": null, "rows": [1]}',
        '{"error": "", "rows": [1]}',
        '{"error": false}',
        '{"error": {}}',
        '{"isError": false}',
        '{"isError": "true"}',
        '{"isError": 1}',
        '{"log": {"error": "an entry"}}',
        '{"text": "it said \\"isError\\": true"}',
        '[{"error": "of one item"}]',
        '{"errors": ["x"]}',
        '{"error": "cut sho',
        '{"result": {"result": {"error": "too deep"}}}',
    ],
)
def test_an_empty_result_prose_and_errors_inside_the_data_are_no_failure(value: str) -> None:
    assert outcome(result(value), end_ns=2**62) == ("ok", None, None)


def test_what_the_span_says_comes_before_what_its_result_says() -> None:
    gone = (event("exception", **{"exception.type": "E"}),)
    said = result({"error": {"type": "R", "message": "from the result"}})
    assert outcome(said, events=gone) == ("error", "E", "from the result")
    assert outcome({"error.type": "T", **said}, events=gone, status_message="S") == ("error", "T", "S")


def test_only_a_tool_fails_by_anything_but_its_status() -> None:
    gone = (event("exception", **{"exception.type": "E"}),)
    for attributes in ({}, {"gen_ai.operation.name": "chat"}, {"openinference.span.kind": "AGENT"}):
        said = {**attributes, "error.type": "timeout", "output.value": '{"isError": true}'}
        row = mapped(said, events=gone)
        assert (row.status, row.error_type, row.error_message) == ("ok", None, None)


def test_a_call_whose_failing_result_stands_in_the_answer_has_failed() -> None:
    parts = [
        {"type": "server_tool_use", "id": "a", "name": "search", "input": {}},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "b"}]},
        {"type": "server_tool_use", "id": "b", "name": "search", "input": {}},
        {"type": "tool_result", "tool_use_id": "b", "is_error": True, "content": BOOM},
        {"type": "server_tool_use", "id": "c", "name": "search", "input": {}},
        {"type": "tool_result", "tool_use_id": "c", "content": '{"error": "refused"}'},
        {"type": "server_tool_use", "name": "search", "input": {}},
        {"type": "tool_result", "content": '{"error": "whose"}'},
    ]
    answered = json.dumps([{"role": "assistant", "content": parts}])
    row = mapped({"gen_ai.operation.name": "chat", "gen_ai.output.messages": answered})
    assert (row.status, row.error_type) == ("ok", None)
    assert [(call.call_id, call.status, call.error_type, call.error_message) for call in row.tool_calls] == [
        ("a", "ok", None, None),
        ("b", "error", "tool_error", "boom"),
        ("c", "error", "refused", "refused"),
        (None, "ok", None, None),
    ]


def test_types_and_messages_are_bounded_and_long_results_are_not_looked_at() -> None:
    status, error_type, message = outcome(result({"error": {"type": "T" * 9000, "message": "m" * 9000}}))
    assert (status, len(error_type or ""), len(message or "")) == ("error", NAME_CHARS, MESSAGE_CHARS)
    padded = json.dumps({"error": "x", "rows": "y" * MAX_RESULT_CHARS})
    assert outcome(result(padded)) == ("ok", None, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "isError", "is_error", "result", "content", "message", "text"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_a_result_reads_alike_as_json_and_structured(value: Any) -> None:
    text = json.dumps(value)
    told = failure_in(value)
    # `NaN` is not equal to itself, and text cannot hold what JSON cannot.
    assert (failure_in(text) is None) == (told is None) or not isinstance(value, dict)
    if isinstance(value, dict) and told is not None and "\ud800" not in repr(value):
        again = failure_in(text)
        assert again is not None
        assert again[0] == told[0]


@given(st.text() | st.binary() | json_values, st.text(max_size=40))
def test_no_result_whatever_it_is_stops_the_mapping(value: Any, tail: str) -> None:
    for sent in (value, json.dumps(value, default=str) + tail, '{"error":' + tail, "{" * 5000):
        status, error_type, message = outcome({"output.value": sent, "gen_ai.tool.call.result": tail})
        assert (status == "error") or (error_type, message) == (None, None)
        row = mapped(TOOL | {"gen_ai.tool.call.result": sent})
        assert "\x00" not in (row.error_type or "") + (row.error_message or "")


def test_a_result_nested_without_end_is_a_success() -> None:
    for deep in ('{"result":' * 100_000, '{"error":null,"a":' + "[" * 100_000 + "]" * 100_000 + "}"):
        assert failure_in(deep[: MAX_RESULT_CHARS - 1]) is None
