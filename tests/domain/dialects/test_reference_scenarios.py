"""What the GenAI conventions' own reference scenarios emit ends up in our fields, name by name.

The conventions (repository open-telemetry/semantic-conventions-genai) have 46 runnable scenarios; the
`data.json` of each, under `reference/scenarios`, says which spans and events a library must emit, with which
attributes. `reference_scenarios.json` holds these names as stored in November 2026: of each scenario one or
two versions, by the first digits of their commits, since kinds of spans were renamed in between. There
`@list` stands for a list of names, `.name` for `gen_ai.name`, `-.name` takes a name out of a list; kinds that
share their names share a line. What values look like is from the conventions' registry (model/gen-ai,
model/a2a). Two scenarios emit nothing yet.

`READ` says in which field of ours an attribute arrives, `KEPT` why it is in none: it stays an attribute that
one can filter by. A name in neither table fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from protocol.otlp.limits import DEFAULT_LIMITS
from protocol.otlp.reading import WireEvent, WireSpan, read_clean, walk
from svc.domain.attributes.reading import AttributeReader, says
from svc.domain.feedback.entries import Feedback, from_span
from svc.domain.intake.mapping import map_span
from svc.domain.intake.payload import payload_of
from svc.domain.log_events.table import UNKNOWN
from svc.domain.log_events.translation import translated
from svc.domain.spans.span import Kind, SpanRow
from tests.domain import BOOK, START_NS, wire
from tests.domain.dialects.reference_values import VALUES
from tests.log_bodies import as_json, logs, record

_FILE = json.loads(Path(__file__).with_name("reference_scenarios.json").read_text(encoding="utf-8"))
SCENARIOS: dict[str, dict[str, Any]] = _FILE["scenarios"]

Names = frozenset[str]


def named(line: str) -> Names:
    """The attribute names of a line."""
    names: set[str] = set()
    without: set[str] = set()
    for word in line.split():
        if word.startswith("@"):
            names |= named(_FILE["lists"][word[1:]])
        elif word.startswith("-"):
            without |= named(word[1:])
        else:
            names.add(f"gen_ai{word}" if word.startswith(".") else word)
    return frozenset(names - without)


def emitted(scenario: str, what: str) -> Iterator[tuple[str, Names]]:
    """The kinds of spans of a scenario, or its events, with their attribute names."""
    for kinds, line in SCENARIOS[scenario].get(what, {}).items():
        for kind in kinds.split():
            yield kind, named(line)


#: By their kind of span: the operation that it names, and our kind.
KINDS: dict[str, tuple[str | None, Kind]] = {
    **dict.fromkeys(("inference", "gen_ai.inference.client", "gen_ai.client.inference"), ("chat", "llm")),
    "generate_live_content": ("generate_live_content", "llm"),
    "gen_ai.realtime_inference.client": ("realtime_inference", "llm"),
    "speech_to_text": ("speech_to_text", "llm"),
    "text_to_speech": ("text_to_speech", "llm"),
    **dict.fromkeys(("embeddings", "gen_ai.embeddings.client"), ("embeddings", "embedding")),
    **dict.fromkeys(("retrieval", "gen_ai.retrieval.client"), ("retrieval", "retrieval")),
    **dict.fromkeys(("execute_tool", "gen_ai.execute_tool.internal"), ("execute_tool", "tool")),
    **dict.fromkeys(("create_agent", "gen_ai.create_agent.client"), ("create_agent", "agent")),
    **dict.fromkeys(("invoke_agent_client", "gen_ai.invoke_agent.client"), ("invoke_agent", "agent")),
    **dict.fromkeys(("invoke_agent_internal", "gen_ai.invoke_agent.internal"), ("invoke_agent", "agent")),
    **dict.fromkeys(("invoke_workflow", "gen_ai.invoke_workflow.internal"), ("invoke_workflow", "workflow")),
    **dict.fromkeys(("plan", "gen_ai.plan.internal"), ("plan", "plan")),
    **dict.fromkeys(("memory", "gen_ai.memory.client"), ("search_memory", "memory")),
    "gen_ai.run_step.internal": ("run_step", "step"),
    "gen_ai.apply_guardrail.client": ("apply_guardrail", "guardrail"),
    # A request between agents names no operation; the work is told by the agent's own span below it.
    "a2a.client": (None, "step"),
    "a2a.server": (None, "step"),
}

#: What becomes of an event that comes as a log record: a step with its messages, feedback, or the reason for
#: which it is dropped. On a span each is kept as it came.
EVENTS: dict[str, str] = {
    "gen_ai.client.inference.operation.details": "messages",
    "gen_ai.evaluation.result": "feedback",
    # The span that each belongs to tells the call; none holds messages or a rating.
    "gen_ai.client.live_session.started": UNKNOWN,
    "gen_ai.client.live_session.ended": UNKNOWN,
    "gen_ai.client.realtime_session.started": UNKNOWN,
    "gen_ai.client.realtime_session.ended": UNKNOWN,
    "gen_ai.content.storage.result": UNKNOWN,
    "gen_ai.execution.state.changed": UNKNOWN,
    "gen_ai.guardrail.result": UNKNOWN,
}

_PARAMETERS = (
    *("choice.count", "encoding_formats", "frequency_penalty", "max_tokens", "presence_penalty"),
    *("previous_response.id", "reasoning.level", "seed", "stop_sequences", "stream", "temperature"),
    *("top_k", "top_p"),
)

#: Where an attribute arrives: in the stored row, the payload as it is shown, the fields that one filters by,
#: or a feedback entry.
READ: dict[str, str] = {
    "gen_ai.operation.name": "fields/operation",
    "gen_ai.provider.name": "row/provider",
    "gen_ai.request.model": "row/provided_model_name",
    "gen_ai.response.model": "row/provided_model_name",
    "gen_ai.response.id": "row/response_id",
    "gen_ai.response.finish_reasons": "payload/finish_reasons",
    "gen_ai.response.time_to_first_chunk": "payload/time_to_first_token_ms",
    "gen_ai.conversation.id": "row/session_id",
    "gen_ai.agent.name": "payload/agent",
    "gen_ai.workflow.name": "payload/workflow",
    "gen_ai.input.messages": "row/input_preview",
    "gen_ai.output.messages": "row/output_preview",
    "gen_ai.system_instructions": "payload/input/0/parts/0/text",
    "gen_ai.prompt.name": "fields/prompt_name",
    "gen_ai.prompt.version": "fields/prompt_version",
    "gen_ai.tool.name": "row/tool_calls/0/name",
    "gen_ai.tool.call.id": "row/tool_calls/0/call_id",
    "gen_ai.tool.description": "payload/tool/description",
    "gen_ai.tool.call.arguments": "payload/tool/arguments",
    "gen_ai.tool.call.result": "payload/tool/result",
    # It tells tools over MCP from others.
    "gen_ai.tool.type": "row/kind",
    "gen_ai.retrieval.query.text": "row/input_preview",
    "gen_ai.retrieval.documents": "payload/documents/0/id",
    "gen_ai.memory.query.text": "row/input_preview",
    "gen_ai.memory.records": "payload/output",
    "gen_ai.usage.input_tokens": "row/input_tokens",
    "gen_ai.usage.output_tokens": "row/output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "row/cache_read_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "row/cache_write_tokens",
    "gen_ai.usage.reasoning.output_tokens": "row/reasoning_tokens",
    "gen_ai.usage.audio.input_tokens": "row/input_audio_tokens",
    "gen_ai.usage.audio.cache_read.input_tokens": "row/input_audio_tokens",
    "gen_ai.usage.audio.output_tokens": "row/output_audio_tokens",
    "gen_ai.usage.input_audio_tokens": "row/input_audio_tokens",
    "gen_ai.usage.output_audio_tokens": "row/output_audio_tokens",
    "gen_ai.evaluation.name": "feedback/name",
    "gen_ai.evaluation.score.value": "feedback/number",
    "gen_ai.evaluation.score.label": "feedback/category",
    "gen_ai.evaluation.explanation": "feedback/text",
    **{f"gen_ai.request.{name}": f"payload/parameters/{name}" for name in _PARAMETERS},
}

KEPT: dict[str, str] = {
    **dict.fromkeys(("client.address", "client.port", "server.address", "server.port"), "network plumbing"),
    "error.type": "here of an event alone; a span's is its error type",
    **dict.fromkeys(
        ("a2a.message.id", "a2a.message.reference_task_ids", "a2a.task.id", "a2a.tenant"),
        "an id for one request",
    ),
    "a2a.method.name": "the name of the span",
    "a2a.protocol.version": "of the transport",
    "a2a.task.state": "the state of the task; the request that reads it did not fail",
    "gen_ai.agent.description": "a text for people",
    "gen_ai.agent.id": "an agent goes by its name; ids may be made for a run",
    "gen_ai.agent.version": "the release is the application's",
    "gen_ai.agent.invocation.status": "status and error type of the span say it",
    **dict.fromkeys(
        (
            *("gen_ai.agent.capability", "gen_ai.agent.drift.method", "gen_ai.agent.drift.score"),
            *("gen_ai.agent.public_key.algorithm", "gen_ai.agent.scan.method", "gen_ai.agent.scan.verdict"),
            *("gen_ai.agent.trust.method", "gen_ai.agent.trust.score"),
        ),
        "what a governance tool says of the agent",
    ),
    **dict.fromkeys(
        ("gen_ai.main_agent.description", "gen_ai.main_agent.id", "gen_ai.main_agent.name"),
        "of the resource; spans name their own agent",
    ),
    "gen_ai.conversation.compacted": "a fact about the history",
    "gen_ai.data_source.id": "an id for one source",
    "gen_ai.embeddings.dimension.count": "a setting of the model",
    "gen_ai.external_ref": "an id of another system",
    **dict.fromkeys(
        ("gen_ai.input.messages_ref", "gen_ai.output.messages_ref", "gen_ai.system_instructions_ref"),
        "content stored elsewhere, which is not fetched",
    ),
    "gen_ai.content.storage.status": "of the store that holds content",
    **dict.fromkeys(
        (
            *("gen_ai.execution.state.changed_key.count", "gen_ai.execution.state.changed_keys"),
            "gen_ai.execution.state.version",
        ),
        "the state of a graph between steps",
    ),
    **dict.fromkeys(
        (
            *("gen_ai.guardrail.component.name", "gen_ai.guardrail.content.input.value"),
            *("gen_ai.guardrail.policy.rule.id", "gen_ai.guardrail.result.type"),
            *("gen_ai.guardrail.result.value", "gen_ai.guardrail.risk.category"),
            "gen_ai.guardrail.risk.score",
        ),
        "verdicts in each provider's own words",
    ),
    **dict.fromkeys(
        ("gen_ai.memory.record.count", "gen_ai.memory.record.id", "gen_ai.memory.store.id"),
        "beside the records",
    ),
    "gen_ai.output.type": "asked for; the messages show what came",
    "gen_ai.retrieval.top_k": "asked for; the documents show what came",
    **dict.fromkeys(
        (
            *("gen_ai.skill.description", "gen_ai.skill.name", "gen_ai.skill.resource.path"),
            *("gen_ai.skill.script.path", "gen_ai.skill.source.uri"),
        ),
        "the tool's span names the tool that loads it",
    ),
    **dict.fromkeys(("gen_ai.speech.input.language", "gen_ai.speech.voice"), "a setting of the model"),
    "gen_ai.step.name": "the name of the span",
    "gen_ai.tool.definitions": "compared as it stands by the detectors of new tools",
    **dict.fromkeys(
        (
            *("gen_ai.usage.text.input_tokens", "gen_ai.usage.text.output_tokens"),
            *("gen_ai.usage.image.input_tokens", "gen_ai.usage.text.cache_read.input_tokens"),
            "gen_ai.usage.image.cache_read.input_tokens",
        ),
        "parts of the totals without a price of their own",
    ),
}


def uncached(sent: Mapping[str, Any]) -> int:
    """The input that was neither read from the cache nor written to it."""
    cached = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens")
    return int(sent["gen_ai.usage.input_tokens"] - sum(sent.get(key, 0) for key in cached))


def heard(sent: Mapping[str, Any]) -> int:
    """The audio among it."""
    audio, cached = "gen_ai.usage.audio.input_tokens", "gen_ai.usage.audio.cache_read.input_tokens"
    return int(sent[audio] - sent.get(cached, 0))


#: What arrives where it is not what was sent.
ARRIVES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "gen_ai.request.model": lambda sent: sent.get("gen_ai.response.model", sent["gen_ai.request.model"]),
    "gen_ai.response.time_to_first_chunk": lambda _: 250,
    "gen_ai.input.messages": lambda _: "Weather in Paris?",
    "gen_ai.output.messages": lambda _: "It is 21C.",
    "gen_ai.system_instructions": lambda _: "Be brief.",
    "gen_ai.tool.type": lambda _: "tool",
    "gen_ai.retrieval.documents": lambda _: "doc_123",
    "gen_ai.usage.input_tokens": uncached,
    "gen_ai.usage.output_tokens": lambda sent: (
        sent["gen_ai.usage.output_tokens"] - sent.get("gen_ai.usage.reasoning.output_tokens", 0)
    ),
    "gen_ai.usage.audio.input_tokens": heard,
    "gen_ai.usage.audio.cache_read.input_tokens": heard,
}

#: What instrumentations capture only when they are told to.
_CONTENT = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.usage.")


@attrs.frozen
class Arrived:
    """A span, and all that we make of it."""

    span: WireSpan
    row: SpanRow
    payload: dict[str, Any]
    fields: dict[str, str]
    feedback: Feedback | None = None

    @classmethod
    def of(cls, span: WireSpan) -> Arrived:
        row = map_span(span, BOOK)
        pairs = AttributeReader().pairs(1, span, row)
        entries = from_span(span)
        fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
        return cls(span, row, payload_of(span), fields, entries[0] if entries else None)

    def at(self, path: str) -> Any:
        found: Any = self
        for step in path.split("/"):
            if isinstance(found, list | tuple):
                found = found[int(step)]
            else:
                found = found.get(step) if isinstance(found, dict) else getattr(found, step)
        return found


def is_structured(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict))


def written(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The same with structured values as JSON, as exporters write them that cannot send such."""
    return {name: json.dumps(value) if is_structured(value) else value for name, value in sent.items()}


def check(arrived: Arrived, sent: Mapping[str, Any], where: str) -> None:
    """Each attribute is where the tables say."""
    for name, value in sent.items():
        assert (name in READ) != (name in KEPT), f"{where}: {name} has no entry, or two"
        if name in READ:
            as_sent = VALUES[name] if is_structured(VALUES[name]) else value
            expected = ARRIVES[name](sent) if name in ARRIVES else as_sent
            assert arrived.at(READ[name]) == expected, (where, name)
        else:
            assert arrived.payload["attributes"][name] == value, (where, name)
            for member in value if isinstance(value, list) else [value]:
                if not isinstance(member, dict):
                    typed = str(member).lower() if type(member) is bool else str(member)
                    assert says(arrived.span, name, typed), (where, name)


def check_span(kind: str, names: Names) -> None:
    operation, our_kind = KINDS[kind]
    sent = {name: VALUES[name] for name in names - {"gen_ai.operation.name"}}
    if operation is not None:
        assert "gen_ai.operation.name" in names
        sent["gen_ai.operation.name"] = operation
    for encoded in (written(sent), sent):
        arrived = Arrived.of(wire(encoded, name=operation or "SendMessage"))
        assert (arrived.row.kind, arrived.row.status) == (our_kind, "ok"), kind
        check(arrived, encoded, kind)
    row = arrived.row
    totals = (sent.get("gen_ai.usage.input_tokens", 0), sent.get("gen_ai.usage.output_tokens", 0))
    counted = (
        (row.input_tokens or 0) + (row.cache_read_tokens or 0) + (row.cache_write_tokens or 0),
        (row.output_tokens or 0) + (row.reasoning_tokens or 0),
    )
    assert counted == totals, f"{kind}: a token is counted twice, or not at all"
    for audio, bucket in (
        (row.input_audio_tokens, row.input_tokens),
        (row.output_audio_tokens, row.output_tokens),
    ):
        assert (audio or 0) <= (bucket or 0), kind
    bare = {name: value for name, value in sent.items() if not name.startswith(_CONTENT)}
    assert Arrived.of(wire(bare)).row.kind == our_kind, f"{kind}: its kind depends on what is captured"


def check_event(event: str, names: Names) -> None:
    sent = {name: VALUES[name] for name in names}
    assert not names - READ.keys() - KEPT.keys(), event
    about = wire({"gen_ai.operation.name": "chat"}, events=(WireEvent(event, START_NS, sent),))
    on_span = Arrived.of(about)
    assert on_span.payload["events"][0]["attributes"] == sent
    ids = {"traceId": "01" * 16, "spanId": "02" * 8}
    body, screening = translated(
        as_json(logs("app", "", [record(START_NS, "", sent, eventName=event, **ids)])), "json", DEFAULT_LIMITS
    )
    if EVENTS[event] == UNKNOWN:
        assert screening.dropped == ((UNKNOWN, 1),), event
        return
    (span,) = walk(read_clean(body))
    assert (span.trace_id, span.parent_span_id) == (about.trace_id, about.span_id)
    logged = Arrived.of(span)
    assert logged.row.kind == "step"
    assert not logged.row.has_usage(), "the span of the call says its tokens"
    if EVENTS[event] == "feedback":
        for arrived in (on_span, logged):
            check(arrived, sent, event)
            assert arrived.feedback is not None
            assert (arrived.feedback.trace_id, arrived.feedback.span_id) == (about.trace_id, about.span_id)
        return
    for arrived in (on_span, logged):
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            assert arrived.at(READ[name]) == ARRIVES[name](sent), (event, name)


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_what_a_scenario_emits_arrives_in_our_fields(scenario: str) -> None:
    for kind, names in emitted(scenario, "spans"):
        check_span(kind, names)
    for event, names in emitted(scenario, "events"):
        check_event(event, names)
    said = {name: VALUES[name] for name in named(SCENARIOS[scenario].get("resource", ""))}
    span = wire({"gen_ai.operation.name": "chat"}, resource=said)
    assert payload_of(span)["resource"]["attributes"] == said
    assert all(name in KEPT and says(span, name, value) for name, value in said.items())


def test_the_tables_name_what_the_scenarios_emit_and_nothing_else() -> None:
    spans = [pair for scenario in SCENARIOS for pair in emitted(scenario, "spans")]
    events = [pair for scenario in SCENARIOS for pair in emitted(scenario, "events")]
    resources = [named(SCENARIOS[scenario].get("resource", "")) for scenario in SCENARIOS]
    names = {name for _, listed in (*spans, *events) for name in listed}.union(*resources)
    assert len(SCENARIOS) == 46
    assert {kind for kind, _ in spans} == KINDS.keys()
    assert {event for event, _ in events} == EVENTS.keys()
    assert not READ.keys() & KEPT.keys()
    assert names == READ.keys() | KEPT.keys()
    assert names == VALUES.keys()
