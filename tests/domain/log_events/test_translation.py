"""Log events of coding agents become spans of a session: a trace for each prompt, nothing counted twice."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.inflate import TooLarge, Unreadable
from protocol.otlp.admission import Form
from protocol.otlp.limits import DEFAULT_LIMITS, Limit, Limits, OverLimit
from protocol.otlp.log_records import JSON_BYTES
from protocol.otlp.reading import WireSpan, read_clean, walk
from svc.domain.intake.mapping import map_span
from svc.domain.log_events import content as log_content
from svc.domain.log_events.table import AGENTS, NO_MESSAGES, NO_SESSION, NO_SPAN, OF_A_SPAN, PART, UNKNOWN
from svc.domain.log_events.translation import counted, translated
from svc.domain.pricing.prices import PriceBook
from svc.domain.spans.span import SpanRow
from tests import log_bodies
from tests.domain import buckets
from tests.log_bodies import START_NS, Tree, as_json, as_protobuf, logs, record

BODIES = {
    "claude_code": log_bodies.claude_code,
    "codex": log_bodies.codex,
    "gemini_cli": log_bodies.gemini_cli,
}
PRICES = PriceBook()


def spans_of(body: Tree) -> list[WireSpan]:
    """The spans of a body, the same in both encodings."""
    in_json, screening = translated(as_json(body), "json", DEFAULT_LIMITS)
    in_protobuf, again = translated(as_protobuf(body), "protobuf", DEFAULT_LIMITS)
    spans = list(walk(read_clean(in_protobuf)))
    assert [span.raw for span in walk(read_clean(in_json))] == [span.raw for span in spans]
    assert screening == again
    assert screening.accepted == len(spans)
    return spans


def rows_of(body: Tree) -> dict[str, SpanRow]:
    """What the spans of a body are read as, by name."""
    rows = {}
    for span in spans_of(body):
        row = map_span(span, PRICES)
        rows[f"{span.name}{' failed' if row.status == 'error' else ''}"] = row
    return rows


def test_a_prompt_of_claude_code_is_a_trace_with_its_calls_and_tools() -> None:
    spans = spans_of(log_bodies.claude_code())
    assert len({span.trace_id for span in spans}) == 1
    (root,) = (span for span in spans if not span.parent_span_id)
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    rows = rows_of(log_bodies.claude_code())
    assert {name: row.kind for name, row in rows.items()} == {
        "invoke_agent claude-code": "agent",
        f"chat {log_bodies.CLAUDE_MODEL}": "llm",
        "Bash: accept": "step",
        "execute_tool Bash failed": "tool",
        "assistant_response": "step",
        f"chat {log_bodies.CLAUDE_MODEL} failed": "llm",
    }
    assert {row.session_id for row in rows.values()} == {"session-1"}
    assert {row.user_id for row in rows.values()} == {"somebody"}
    assert rows["invoke_agent claude-code"].input_preview == "mend the build"
    assert rows["assistant_response"].output_preview == "It is mended."
    call = rows[f"chat {log_bodies.CLAUDE_MODEL}"]
    assert (call.provider, call.provided_model_name) == ("anthropic", log_bodies.CLAUDE_MODEL)
    assert buckets(call) == (10, 20, 1000, 200, None)
    assert (call.total_cost, call.priced_by()) == (Decimal("0.0123"), "provided")
    assert call.ended_at is not None
    assert (call.ended_at - call.started_at).total_seconds() == 1.5
    tool = rows["execute_tool Bash failed"]
    (said,) = tool.tool_calls
    assert (said.name, said.call_id, said.status, said.error_type) == (
        "Bash",
        "toolu_1",
        "error",
        "ShellError",
    )
    failed = rows[f"chat {log_bodies.CLAUDE_MODEL} failed"]
    assert (failed.error_type, failed.error_message) == ("529", "Overloaded")


def test_a_conversation_of_codex_is_a_trace_with_its_usage_counted_once() -> None:
    rows = rows_of(log_bodies.codex())
    call = rows[f"chat {log_bodies.CODEX_MODEL}"]
    # Codex counts as OpenAI does: input with what was cached, output with what was reasoned.
    assert buckets(call) == (60, 40, 30, 10, 10)
    assert call.total_cost is not None
    assert call.total_cost > 0
    assert [name for name, row in rows.items() if any(buckets(row))] == [f"chat {log_bodies.CODEX_MODEL}"]
    assert {row.session_id for row in rows.values()} == {"conversation-1"}
    (tool,) = rows["execute_tool shell"].tool_calls
    assert (tool.name, tool.call_id, tool.status) == ("shell", "call-conversation-1", "ok")
    assert [name for name, row in rows.items() if row.tool_calls] == ["execute_tool shell"]
    assert rows[f"chat {log_bodies.CODEX_MODEL} failed"].error_message == "busy"
    # A text that the user told Codex to keep is no text of the prompt.
    assert rows["invoke_agent codex"].input_preview is None


def test_a_turn_that_codex_names_is_a_trace_of_its_own() -> None:
    body = log_bodies.codex()
    for number, item in enumerate(body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]):
        item["attributes"].append({"key": "turn.id", "value": {"stringValue": str(number // 5)}})
    assert len({span.trace_id for span in spans_of(body)}) == 2


def test_a_prompt_of_gemini_cli_counts_thoughts_and_what_tools_gave() -> None:
    rows = rows_of(log_bodies.gemini_cli())
    call = rows[f"chat {log_bodies.GEMINI_MODEL}"]
    assert buckets(call) == (47, 10, 60, None, 5)
    assert call.output_preview == "because"
    assert rows["invoke_agent gemini-cli"].input_preview == "why"
    assert rows["execute_tool read_file"].status == "ok"
    failed = rows["execute_tool run failed"]
    assert (failed.error_type, failed.error_message) == ("ENOENT", "no such file")
    assert rows[f"chat {log_bodies.GEMINI_MODEL} failed"].error_type == "RESOURCE_EXHAUSTED"
    assert {row.session_id for row in rows.values()} == {"gemini-1"}


PIECES = (
    '[{"candidates":[{"content":{"parts":[{"text":"I think","thought":true},{"text":"be"}]}}]},'
    '{"candidates":[{"content":{"parts":[{"text":"cause"}]}}],"usageMetadata":{"totalTokenCount":3}},{}]'
)


@pytest.mark.parametrize(
    ("said", "shown"), [(PIECES, "because"), ("[not JSON", "[not JSON"), ("[1]", "[1]"), ("plain", "plain")]
)
def test_an_answer_of_gemini_cli_in_pieces_is_its_text(said: str, shown: str) -> None:
    body = log_bodies.gemini_cli()
    for item in body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        for pair in item["attributes"]:
            if pair["key"] == "response_text":
                pair["value"]["stringValue"] = said
    assert rows_of(body)[f"chat {log_bodies.GEMINI_MODEL}"].output_preview == shown


@pytest.mark.parametrize("agent", sorted(BODIES))
def test_every_event_of_the_table_stands_in_a_body_of_its_agent(agent: str) -> None:
    rules = next(rules for rules in AGENTS if rules.agent == agent)
    records = BODIES[agent]()["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    written = str(records)
    assert [name for name in rules.events if name.partition(".")[2] not in written] == []


@pytest.mark.parametrize("agent", sorted(BODIES))
def test_an_export_sent_again_and_cut_otherwise_gives_the_same_spans(agent: str) -> None:
    body = BODIES[agent]()
    spans = [span.raw for span in spans_of(body)]
    assert [span.raw for span in spans_of(body)] == spans
    identities = {(span.trace_id, span.span_id) for span in spans_of(body)}
    assert len(identities) == len(spans)
    scoped = body["resourceLogs"][0]["scopeLogs"][0]
    apart = []
    for item in scoped["logRecords"]:
        alone = {"resourceLogs": [body["resourceLogs"][0] | {"scopeLogs": [scoped | {"logRecords": [item]}]}]}
        apart += [span.raw for span in spans_of(alone)]
    assert apart == spans


def test_two_sessions_share_no_span() -> None:
    for make in BODIES.values():
        first, second = ({span.span_id for span in spans_of(make(name))} for name in ("one", "two"))
        assert not first & second


def drop(*fields: Any, **named: Any) -> tuple[tuple[str, int], ...]:
    body = logs("x", "", [record(*fields, **named)])
    _, screening = translated(as_json(body), "json", DEFAULT_LIMITS)
    assert screening.accepted == screening.rejected == 0
    return screening.dropped


def test_what_becomes_no_span_is_dropped_by_a_reason() -> None:
    prompt = {"event.name": "claude_code.user_prompt"}
    assert drop(START_NS, "GET /", {}) == ((UNKNOWN, 1),)
    assert drop(START_NS, "", prompt) == ((NO_SESSION, 1),)
    ids = {"traceId": "ab" * 16, "spanId": "cd" * 8}
    assert drop(START_NS, "", prompt | {"session.id": "s"}, **ids) == ((OF_A_SPAN, 1),)
    assert drop(START_NS, "", {"event.name": "gen_ai.choice"}, **ids) == ((NO_MESSAGES, 1),)
    assert drop(START_NS, "", {"event.name": log_content.DETAILS, "gen_ai.usage.input_tokens": 1}, **ids) == (
        (NO_MESSAGES, 1),
    )
    assert drop(START_NS, "", {"event.name": "gen_ai.choice"}) == ((NO_SPAN, 1),)
    failed = {
        "event.name": "gen_ai.evaluation.result",
        "gen_ai.evaluation.name": "x",
        "error.type": "timeout",
    }
    assert drop(START_NS, "", failed, **ids) == (("holds no result of an evaluation", 1),)
    piece = {"event.name": "codex.sse_event", "conversation.id": "c", "event.kind": "response.created"}
    assert drop(START_NS, "", piece) == ((PART, 1),)
    assert drop(0, "", prompt | {"session.id": "s"}) == (("has no time", 1),)


IDS = {"traceId": "ab" * 16, "spanId": "cd" * 8}
ASKED, ANSWERED = [{"role": "user", "content": "why"}], [{"role": "assistant", "content": "because"}]


def steps_of(records: list[Tree]) -> list[WireSpan]:
    """The steps of content events, which have ids and so are written in JSON."""
    made, screening = translated(as_json(logs("app", "openai", records)), "json", DEFAULT_LIMITS)
    assert screening.refused == 0
    again, _ = translated(as_json(logs("app", "openai", records)), "json", DEFAULT_LIMITS)
    assert again == made
    return list(walk(read_clean(made)))


def test_the_messages_of_a_call_are_a_step_under_its_span_and_count_nothing() -> None:
    said = {
        "event.name": log_content.DETAILS,
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.input.messages": json.dumps(ASKED),
        "gen_ai.output.messages": json.dumps(ANSWERED),
    }
    (step,) = steps_of([record(START_NS, "", said, **IDS)])
    assert (step.trace_id, step.parent_span_id) == (b"\xab" * 16, b"\xcd" * 8)
    row = map_span(step, PRICES)
    assert (row.kind, row.input_preview, row.output_preview) == ("step", "why", "because")
    assert not any(buckets(row))
    assert row.provided_model_name is None


def test_older_events_hold_one_message_each() -> None:
    def kvlist(**members: Any) -> Tree:
        return {
            "kvlistValue": {"values": [{"key": key, "value": content} for key, content in members.items()]}
        }

    why, because = log_bodies.value("why"), log_bodies.value("because")
    choice = kvlist(
        index=log_bodies.value(0), message=kvlist(role=log_bodies.value("assistant"), content=because)
    )
    records = [
        record(START_NS, "", {}, eventName="gen_ai.user.message", **IDS) | {"body": kvlist(content=why)},
        record(START_NS, "", {}, eventName="gen_ai.choice", **IDS) | {"body": choice},
        record(START_NS, "", {"content": "be brief"}, eventName="gen_ai.system.message", **IDS),
    ]
    rows = {span.name: map_span(span, PRICES) for span in steps_of(records)}
    assert rows["user.message"].input_preview == "why"
    assert rows["choice"].output_preview == "because"
    assert {row.kind for row in rows.values()} == {"step"}
    assert len(rows) == 3


def test_a_time_may_stand_in_an_attribute_alone() -> None:
    said = {
        "event.name": "claude_code.user_prompt",
        "session.id": "s",
        "event.timestamp": "2026-11-26T01:02:03.004Z",
    }
    (span,) = spans_of(logs("x", "", [record(0, "", said)]))
    assert span.start_ns == 1_795_654_923_004_000_000


def test_claude_code_before_prompt_ids_has_a_trace_for_each_session() -> None:
    body = log_bodies.claude_code()
    for item in body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        item["attributes"] = [pair for pair in item["attributes"] if pair["key"] != "prompt.id"]
    spans = spans_of(body)
    assert len({span.trace_id for span in spans}) == 1
    assert not any(span.parent_span_id for span in spans)


@pytest.mark.parametrize(
    ("form", "limit"),
    [
        *(("protobuf", limit) for limit in ("spans", "groups", "attributes", "values", "depth")),
        # The size and the depth of JSON bound its values.
        *(("json", limit) for limit in ("spans", "groups", "attributes", "depth")),
    ],
)
def test_a_logs_body_over_a_limit_is_refused_by_its_name(form: Form, limit: Limit) -> None:
    body = log_bodies.claude_code()
    records = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    deep: Any = "x"
    for _ in range(9):
        deep = [deep]
    pairs = [{"key": f"key {number}", "value": log_bodies.value("x" * 40)} for number in range(30)]
    records[0]["attributes"] += [*pairs, {"key": "deep", "value": log_bodies.value(deep)}]
    limits = Limits(**{limit: 4 if limit == "depth" else 1 if limit == "groups" else 5})  # type: ignore[arg-type]
    with pytest.raises(OverLimit, match=limit):
        translated(as_json(body) if form == "json" else as_protobuf(body), form, limits)


def test_json_of_logs_has_a_size_of_its_own() -> None:
    body = as_json(logs("x", "", [])) + b" " * JSON_BYTES
    with pytest.raises(TooLarge):
        translated(body, "json", DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"resourceSpans":[]}', b'{"resourceLogs":3}', b'{"resourceLogs":[3]}']
)
def test_what_is_no_logs_body_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        translated(body, "json", DEFAULT_LIMITS)
    with pytest.raises(Unreadable):
        translated(b"\xff" + body, "protobuf", DEFAULT_LIMITS)


def test_a_damaged_record_is_dropped_alone() -> None:
    whole = as_protobuf(log_bodies.codex())
    body = whole.replace(b"[REDACTED]", b"[REDACT\xff\xff]")
    assert body != whole
    _, screening = translated(body, "protobuf", DEFAULT_LIMITS)
    assert ("cannot be read", 1) in screening.dropped
    assert screening.accepted == 6


@pytest.mark.parametrize("points", [0, 3])
def test_data_points_are_counted_and_nothing_is_kept(points: int) -> None:
    body = log_bodies.gauge(points)
    in_json = counted(as_json(body), "json", DEFAULT_LIMITS)
    assert in_json == counted(log_bodies.metrics_protobuf(body), "protobuf", DEFAULT_LIMITS)
    assert in_json[0] == b""
    assert in_json[1].refused == points
    assert in_json[1].message() == ("3 of 3 data points refused: metrics are not kept (3)" if points else "")


NAMES = st.sampled_from([name for rules in AGENTS for name in rules.events])
KEYS = st.sampled_from(
    [
        "session.id",
        "conversation.id",
        "prompt.id",
        "prompt_id",
        "duration_ms",
        "success",
        "error",
        "error.message",
        "event.sequence",
        "event.kind",
        "event.timestamp",
        "model",
        "tool_name",
        "call_id",
        "input_tokens",
        "input_token_count",
        "cost_usd",
        "status_code",
    ]
)
VALUES = st.one_of(
    st.text(max_size=8),
    st.integers(-(2**62), 2**62),
    st.booleans(),
    st.floats(),
    st.lists(st.text(max_size=3)),
)
EVENTS = st.tuples(NAMES, st.dictionaries(KEYS, VALUES, max_size=8), st.integers(0, 2**63 - 1))


def record_of(name: str, said: dict[str, Any], time_ns: int) -> Tree:
    return record(time_ns, "", {**said, "event.name": name})


@given(st.lists(EVENTS, max_size=6))
@example([("codex.api_request", {"conversation.id": "c1", "error.message": ["x"]}, 1)])
def test_whatever_events_say_each_is_one_span_or_one_drop_and_every_span_can_be_stored(
    events: list[tuple[str, dict[str, Any], int]],
) -> None:
    body = as_protobuf(logs("x", "", [record_of(*event) for event in events]))
    made, screening = translated(body, "protobuf", DEFAULT_LIMITS)
    assert screening.accepted + screening.refused == len(events)
    assert screening.rejected == 0
    spans = list(walk(read_clean(made)))
    assert len(spans) == screening.accepted
    for span in spans:
        assert span.start_ns <= span.end_ns
        map_span(span, PRICES)


def test_the_makers_of_bodies_are_those_of_the_table() -> None:
    assert set(BODIES) == {rules.agent for rules in AGENTS}
