"""Laws of the mapping of a span to its row, whatever dialect it speaks."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.json import read_json
from protocol.otlp.reading import WireSpan, read_protobuf, walk
from svc.domain.calendar import EPOCH
from svc.domain.dialects import _CLAIMS, DIALECTS, PRECEDENCE
from svc.domain.dialects.dialect import Field
from svc.domain.intake.mapping import map_span
from svc.domain.intake.payload import payload_of
from svc.domain.spans.span import Kind, SpanRow, instant
from svc.domain.spans.values import count, money
from svc.domain.traces.rollup import roll_up
from tests.domain import BOOK, START_NS, buckets, event, mapped, wire

CAPTURES = Path(__file__).parents[4] / "shared" / "captures"

# --- real exporters --------------------------------------------------------------------------------------


def capture(name: str) -> list[WireSpan]:
    path = CAPTURES / name
    if not path.exists():
        pytest.skip(f"capture {name} is not here")
    body = path.read_bytes()
    return list(walk(read_json(body) if path.suffix == ".json" else read_protobuf(body)))


@pytest.mark.parametrize(
    ("name", "traces", "tokens_in", "tokens_out", "cost"),
    [
        ("v1-traces_001_openinference.pb", 6, 485, 120, "0.0019001"),
        ("v1-traces_004_official-genai.pb", 6, 485, 120, "0.0019001"),
        ("v1-traces_005_pydanticai.pb", 1, 240, 60, "0.00095"),
        ("v1-traces_008_aisdk-OpenTelemetry.pb", 1, 240, 60, "0.00095"),
        ("v1-traces_013_jsjson.json", 1, 12, 0, "0"),
    ],
)
def test_a_real_exporters_traces_add_up_to_their_true_usage(
    name: str, traces: int, tokens_in: int, tokens_out: int, cost: str
) -> None:
    rows: dict[bytes, list[SpanRow]] = defaultdict(list)
    for span in capture(name):
        rows[span.trace_id].append(map_span(span, BOOK))
    rollups = [roll_up(trace) for trace in rows.values()]
    assert len(rollups) == traces
    assert tokens_in == sum(
        (r.input_tokens or 0) + (r.cache_read_tokens or 0) + (r.cache_write_tokens or 0) for r in rollups
    )
    assert tokens_out == sum((r.output_tokens or 0) + (r.reasoning_tokens or 0) for r in rollups)
    assert sum(r.total_cost or 0 for r in rollups) == Decimal(cost)


def test_the_captured_kinds_models_and_calls_are_read() -> None:
    rows = [map_span(span, BOOK) for span in capture("v1-traces_008_aisdk-OpenTelemetry.pb")]
    assert sorted(row.kind for row in rows) == ["agent", "llm", "llm", "step", "step", "tool"]
    chat, tool = rows[0], rows[1]
    assert (chat.provided_model_name, chat.model_id, chat.provider) == ("gpt-4o-2024-08-06", "gpt-4o", "fake")
    assert [(call.name, call.call_id) for call in chat.tool_calls + tool.tool_calls] == [
        ("get_weather", "call_1"),
        ("get_weather", "call_1"),
    ]
    assert (tool.input_preview, tool.output_preview) == ('{"city":"Paris"}', '{"temp":21}')


def test_a_failed_call_has_its_model_but_no_cost_source() -> None:
    failed = map_span(capture("v1-traces_001_openinference.pb")[-1], BOOK)
    assert (failed.status, failed.error_type) == ("error", "openai.AuthenticationError")
    assert (failed.provided_model_name, failed.model_id) == ("gpt-4o", "gpt-4o")
    assert (failed.cost_source, failed.total_cost, failed.has_usage()) == (None, None, False)


# --- the table -------------------------------------------------------------------------------------------


def test_every_field_of_the_table_is_known_and_every_dialect_stands_in_it_once() -> None:
    fields = set(get_args(Field))
    assert set(PRECEDENCE) <= fields
    assert all(set(dialect.keys) <= fields for dialect in DIALECTS)
    assert len({dialect.name for dialect in DIALECTS}) == len(DIALECTS)


def test_each_field_goes_to_its_own_winner_when_a_span_speaks_several_dialects() -> None:
    row = mapped(
        {
            "gen_ai.operation.name": "chat",
            "openinference.span.kind": "AGENT",
            "gen_ai.conversation.id": "conversation",
            "session.id": "session",
            "gen_ai.response.model": "gpt-4o",
            "llm.model_name": "",
            "agent.name": "node",
            "gen_ai.agent.name": "planner",
            "operation.cost": 0.5,
        }
    )
    assert (row.kind, row.session_id, row.provided_model_name) == ("agent", "session", "gpt-4o")
    assert (row.call_site_id, row.total_cost) == ("unknown_service/planner/chat", Decimal("0.5"))


# --- kind, status, identity ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({}, "step"),
        ({"gen_ai.tool.name": "search"}, "tool"),
        ({"gen_ai.tool.call.id": "call_1"}, "tool"),
        ({"gen_ai.request.model": "gpt-4o"}, "step"),
        ({"gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 1}, "llm"),
        ({"gen_ai.request.model": "gpt-4o", "gen_ai.prompt": "hi"}, "llm"),
        ({"gen_ai.request.model": "", "gen_ai.usage.input_tokens": 1}, "step"),
        ({"gen_ai.operation.name": "agent_step"}, "step"),
        ({"gen_ai.operation.name": "no such", "gen_ai.tool.name": "search"}, "tool"),
        ({"mcp.method.name": "tools/call"}, "mcp"),
        ({"mcp.method.name": "tools/list"}, "step"),
        ({"gen_ai.operation.name": "execute_tool", "mcp.method.name": "tools/call"}, "mcp"),
        ({"gen_ai.operation.name": "execute_tool", "mcp.session.id": "s"}, "mcp"),
        ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "mcp"}, "mcp"),
        ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}, "tool"),
        ({"openinference.span.kind": "TOOL", "mcp.method.name": "tools/call"}, "mcp"),
        ({"openinference.span.kind": "UNKNOWN", "gen_ai.operation.name": "chat"}, "llm"),
    ],
)
def test_the_kind_follows_the_first_sign_that_speaks(attributes: dict[str, Any], kind: str) -> None:
    assert mapped(attributes).kind == kind


def test_of_what_is_no_tool_only_status_two_is_an_error_and_only_an_error_has_an_error_type() -> None:
    gone_wrong = (event("exception", **{"exception.type": "ValueError", "exception.message": "no"}),)
    for code in (0, 1, 3):
        row = mapped({"error.type": "timeout"}, status_code=code, events=gone_wrong)
        assert (row.status, row.error_type, row.error_message) == ("ok", None, None)
    row = mapped({}, status_code=2, events=gone_wrong)
    assert (row.status, row.error_type, row.error_message) == ("error", "ValueError", "no")
    row = mapped({"error.type": "timeout"}, status_code=2, status_message="late", events=gone_wrong)
    assert (row.status, row.error_type, row.error_message) == ("error", "timeout", "late")
    assert mapped({}, status_code=2).error_type is None


def test_the_exception_that_ended_the_span_is_its_error() -> None:
    events = tuple(event("exception", **{"exception.type": name}) for name in ("Retried", "Final"))
    assert mapped({}, status_code=2, events=events).error_type == "Final"


def test_session_and_user_fall_back_to_the_resource() -> None:
    resource = {"session.id": 7, "user.id": "u"}
    row = mapped({"session.id": ""}, resource=resource)
    assert (row.session_id, row.user_id) == ("7", "u")
    assert mapped({"enduser.id": "e"}, resource=resource).user_id == "e"


def test_long_identifiers_stay_distinct_and_fit_an_index() -> None:
    one, two = mapped({"session.id": "s" * 20_000}), mapped({"session.id": "s" * 20_001})
    assert one.session_id is not None
    assert one.session_id != two.session_id
    assert len(one.session_id) == 177
    assert one.session_id.endswith(hashlib.sha256(b"s" * 20_000).hexdigest()[:16])
    assert mapped({"session.id": "s" * 200}).session_id == "s" * 200
    assert mapped(name="n" * 300).name == "n" * 200


def test_a_span_without_name_end_or_order_still_makes_a_row() -> None:
    row = mapped(name="", end_ns=0)
    assert (row.name, row.ended_at) == ("unknown", None)
    backwards = mapped(end_ns=START_NS - 1)
    assert backwards.ended_at == backwards.started_at
    assert mapped(start_ns=2**64 - 1, end_ns=2**64 - 1).started_at.year == 2554


def test_nul_in_any_text_becomes_the_replacement_character() -> None:
    row = mapped(
        {
            "session.id": "a\0b",
            "svc.call_site.id": "c\0d",
            "gen_ai.prompt": "e\0f",
            "gen_ai.request.model": "g\0h",
            "gen_ai.provider.name": "i\0j",
        },
        name="k\0l",
        status_code=2,
        status_message="m\0n",
    )
    texts = [value for value in msgspec.structs.astuple(row) if isinstance(value, str)]
    assert sum("\ufffd" in text for text in texts) == 7
    assert not any("\0" in text for text in texts)


# --- tokens ----------------------------------------------------------------------------------------------


def usage(given: Any, answered: Any, read: Any = None, written: Any = None, thought: Any = None) -> SpanRow:
    return mapped(
        {
            "gen_ai.usage.input_tokens": given,
            "gen_ai.usage.output_tokens": answered,
            "gen_ai.usage.cache_read.input_tokens": read,
            "gen_ai.usage.cache_write.input_tokens": written,
            "gen_ai.usage.reasoning.output_tokens": thought,
        }
    )


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ((120, 30, 100, None, 12), (20, 18, 100, None, 12)),
        ((120, 30, 60, 40, None), (20, 30, 60, 40, None)),
        ((20, 30, 60, 40, None), (20, 30, 60, 40, None)),
        ((100, 30, 60, 60, None), (0, 30, 60, 60, None)),
        ((10, 5, None, None, 9), (10, 0, None, None, 9)),
        ((None, None, 5, None, None), (None, None, 5, None, None)),
        ((0, 0, 0, 0, 0), (0, 0, 0, 0, 0)),
    ],
)
def test_inclusive_totals_become_disjoint_buckets(said: tuple[Any, ...], kept: tuple[Any, ...]) -> None:
    assert buckets(usage(*said)) == kept


@pytest.mark.parametrize("value", [12, 12.0, "12", " 12 ", "12.0", "1.2e1"])
def test_a_count_is_read_from_any_spelling_of_it(value: Any) -> None:
    assert count(value) == 12


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -1.0,
        "-1",
        1.5,
        "1.5",
        float("nan"),
        float("inf"),
        "nan",
        "inf",
        True,
        None,
        "",
        "x",
        2**53 + 1,
        2.0**60,
        "1_0",
        "٣",
        [],
        {},
        b"1",
        "9" * 5000,
    ],
)
def test_what_is_no_count_is_absent(value: Any) -> None:
    assert count(value) is None


counts = st.none() | st.integers(0, 2**53)


@given(counts, counts, counts, counts, counts)
def test_disjoint_buckets_never_exceed_nor_lose_what_was_reported(
    given_: int | None, answered: int | None, read: int | None, written: int | None, thought: int | None
) -> None:
    row = usage(given_, answered, read, written, thought)
    assert all(bucket is None or bucket >= 0 for bucket in buckets(row))
    assert buckets(row)[2:] == (read, written, thought)
    assert (row.input_tokens is None) == (given_ is None)
    assert (row.output_tokens is None) == (answered is None)
    if given_ is not None and (read or 0) + (written or 0) <= given_:
        assert row.input_tokens == given_ - (read or 0) - (written or 0)
    if answered is not None and (thought or 0) <= answered:
        assert row.output_tokens == answered - (thought or 0)


# --- cost ------------------------------------------------------------------------------------------------

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.response.model": "gpt-4o-2024-08-06",
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read.input_tokens": 100,
}


def test_a_cost_comes_from_the_exporter_before_the_book_and_total_is_the_sum_of_buckets() -> None:
    inferred = mapped(CALL)
    assert (inferred.cost_source, inferred.total_cost) == ("inferred", Decimal("0.000475"))
    assert (inferred.input_cost, inferred.output_cost) == (Decimal("0.00005"), Decimal("0.0003"))
    assert inferred.cache_read_cost == Decimal("0.000125")
    given_ = mapped({**CALL, "operation.cost": 2})
    assert (given_.cost_source, given_.total_cost, given_.input_cost) == ("provided", Decimal(2), None)


def test_usage_of_an_unknown_model_is_unpriced_and_never_free() -> None:
    row = mapped({**CALL, "gen_ai.response.model": "house-model-7"})
    assert (row.cost_source, row.total_cost, row.model_id) == ("unpriced", None, None)


def test_no_usage_is_neither_priced_nor_unpriced() -> None:
    row = mapped({"gen_ai.operation.name": "chat", "gen_ai.request.model": "house-model-7"})
    assert (row.cost_source, row.total_cost) == (None, None)
    nothing = mapped(
        {**CALL, "gen_ai.response.model": "house-model-7"}
        | {key: 0 for key in CALL if key.startswith("gen_ai.usage.")}
    )
    assert (nothing.cost_source, nothing.total_cost) == (None, None)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "NaN", -0.01, 1e9, True, "", "1_0", "x", [], None]
)
def test_what_is_no_money_is_absent(value: Any) -> None:
    assert money(value) is None


def test_money_keeps_twelve_fractional_digits() -> None:
    assert money(0.000475) == money("0.000475") == Decimal("0.000475")
    assert money("0.1234567890123") == Decimal("0.123456789012")
    assert str(money(-0.0)) == "0E-12"
    assert money("1e-999999") == 0


# --- hostile input ---------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=8)
    | st.sampled_from(
        [
            "[",
            "{}",
            '[{"role":"user"}]',
            '{"type":[]}',
            '[{"role":"user","parts":[{"type":"text"}]}]',
            '"\\ud800"',
            '[{"role":"user","content":"\\ud800"}]',
            "[" * 5000,
            "NaN",
            "1e400",
            "\x00",
            '[{"type":{}}]',
            "[[[[[1]]]]]",
        ]
    )
)
words = st.sampled_from(
    [
        "role",
        "parts",
        "content",
        "type",
        "text",
        "tool_calls",
        "function",
        "name",
        "id",
        "message",
        "kwargs",
        "arguments",
        "finish_reason",
        "tool_call_id",
        "summary",
        "image_url",
        "source",
        "data",
        "input",
    ]
)
types = st.sampled_from(
    ["text", "tool_call", "tool_result", "reasoning", "image_url", "user", "human", "blob"]
)
values = st.recursive(
    scalars | types,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5),
    max_leaves=12,
)
indexed_keys = st.builds(
    "{}.{}.{}".format,
    st.sampled_from(["llm.input_messages", "llm.output_messages"]),
    st.sampled_from(["0", "1", "10", "4294967295", "9" * 40, "-1", "x", "", "__proto__", "²"]),
    st.sampled_from(
        [
            "message.role",
            "message.content",
            "message",
            "",
            "message.tool_calls.0.tool_call.function.name",
            "message.contents.1.message_content.text",
            "message.contents.x",
            "message.tool_calls.0",
        ]
    ),
)
hostile = st.dictionaries(st.sampled_from(sorted(_CLAIMS)) | indexed_keys, values, max_size=12)
event_names = st.sampled_from(
    [
        "gen_ai.choice",
        "gen_ai.user.message",
        "gen_ai.tool.message",
        "exception",
        "gen_ai.content.prompt",
        "gen_ai.client.inference.operation.details",
    ]
)
event_keys = st.sampled_from(
    [
        "message",
        "content",
        "tool_calls",
        "role",
        "id",
        "exception.type",
        "gen_ai.prompt",
        "gen_ai.input.messages",
    ]
)


@given(st.integers(0, 2**64 - 1) | st.integers(2**33 * 10**9 - 10**7, 2**33 * 10**9 + 10**7))
def test_a_time_is_that_of_the_wire_cut_to_microseconds(unix_ns: int) -> None:
    assert instant(unix_ns) == EPOCH + timedelta(microseconds=unix_ns // 1000)


@given(
    hostile, st.tuples(event_names, st.dictionaries(event_keys, values, max_size=4)), st.sampled_from([0, 2])
)
def test_nothing_a_client_can_send_breaks_the_mapping_or_the_payload(
    attributes: dict[str, Any], said: tuple[str, dict[str, Any]], status_code: int
) -> None:
    span = wire(attributes, events=(event(said[0], **said[1]),), status_code=status_code, resource=attributes)
    before = repr(span)
    row = map_span(span, BOOK)
    assert row.kind in get_args(Kind)
    assert row.call_site_id
    assert all(bucket is None or bucket >= 0 for bucket in buckets(row))
    assert (row.cost_source in ("provided", "inferred")) == (row.total_cost is not None)
    for text in (each for one in (row, *row.tool_calls) for each in msgspec.structs.astuple(one)):
        if isinstance(text, str):
            assert len(text.encode()) <= 4 * 1000
            assert "\0" not in text
    for call in row.tool_calls:
        assert call.name
    payload = payload_of(span)
    assert set(payload["attributes"]) == set(attributes)
    # Values are shared between spans that repeat them: whoever reads a span leaves it as it was.
    assert repr(span) == before


def test_a_span_makes_at_most_a_thousand_tool_calls() -> None:
    calls = [{"type": "tool_call", "id": str(i), "name": "t"} for i in range(1500)]
    row = mapped(
        {"gen_ai.operation.name": "chat", "gen_ai.output.messages": [{"role": "assistant", "parts": calls}]}
    )
    assert len(row.tool_calls) == 1000
    assert [call.index for call in row.tool_calls] == list(range(1000))


def test_the_tier_that_was_granted_prices_the_call_and_is_kept() -> None:
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 10**6,
        "gen_ai.openai.request.service_tier": "priority",
    }
    asked = mapped(call)
    granted = mapped({**call, "openai.response.service_tier": "flex"})
    assert (asked.total_cost, asked.service_tier) == (Decimal("2.5"), "priority")
    assert (granted.total_cost, granted.service_tier) == (Decimal("0.625"), "flex")
    assert mapped({**call, "openai.response.service_tier": ["flex"]}).service_tier == "priority"


def test_a_span_names_the_prices_it_was_worked_out_from() -> None:
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 1}
    assert mapped(call).price_book == BOOK.version
    assert mapped({**call, "gen_ai.request.model": "unheard-of"}).price_book == BOOK.version
    assert mapped({**call, "operation.cost": 0.5}).price_book is None
    assert mapped({"gen_ai.operation.name": "chat"}).price_book is None


@pytest.mark.parametrize(
    "said",
    [
        {"llm.token_count.prompt": 100, "llm.token_count.prompt_details.audio": 40},
        {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.details.input_audio_tokens": 40},
        {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.input_token_details": "{'audio': 40}"},
        {"langfuse.observation.usage_details": '{"input": 60, "input_audio_tokens": 40, "total": 100}'},
        {
            "langfuse.observation.usage_details": '{"prompt_tokens": 100, "completion_tokens": 0,'
            ' "prompt_tokens_details": {"audio_tokens": 40}}'
        },
    ],
)
def test_audio_tokens_are_read_in_each_dialect_that_tells_them(said: dict[str, Any]) -> None:
    row = mapped({"gen_ai.request.model": "gpt-realtime", "gen_ai.provider.name": "openai", **said})
    assert (row.input_tokens, row.input_audio_tokens) == (100, 40)
    assert row.input_cost == (60 * Decimal(4) + 40 * Decimal(32)) / 10**6
