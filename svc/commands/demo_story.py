"""Four weeks of a small shop's assistant, for `trace-svc demo --weeks`: the same traces every time.

Owns: `traces_of`, which makes a day's traces, `probe`, a trace by which a story that was sent is known, and
the three faults planted in the last week: a tool that fails for one tenant in a new way, a model that answers
another way and slower, and a token inside an answer. Ids come from the seed and the days that are left until
the end, only times from the end itself. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

Attributes = dict[str, str | int | float]

SEED: Final = 20_261
SERVICE: Final = "shop-assistant"
#: Sessions of a weekday; a weekend has less than half of them, and a trace has about three.
SESSIONS: Final = 75
WEEKEND: Final = 0.45
#: How busy each hour of the day is.
HOURS: Final = (1, 1, 1, 1, 1, 2, 3, 5, 8, 11, 12, 11, 9, 10, 11, 11, 10, 9, 8, 7, 6, 4, 3, 2)
#: Days before the end, and the hour: the second release, and the three faults.
RELEASED: Final = timedelta(days=11, hours=-9)
SLOWER: Final = timedelta(days=5, hours=-14)
FAILING: Final = timedelta(days=3, hours=-9)
#: The session whose first answer holds a token.
LEAKING: Final = "demo-2-20"

_TENANTS: Final = ("northwind", "northwind", "acme", "acme", "globex", "initech", "umbrella", "umbrella")
_FAILING_TENANT: Final = _TENANTS[0]
_OLD_MODEL: Final = "gpt-4o-2024-08-06"
_NEW_MODEL: Final = "gpt-4o-2024-11-20"
_PROMPT: Final = "You help customers of a shop. Look orders up before you answer. Never promise a date."
_QUESTIONS: Final = (
    "Which of my orders is late?",
    "Cancel the blue jacket, please.",
    "Where can I pick up my parcel?",
    "Why was I charged twice in October?",
)
_ANSWERS: Final = (
    "It left the warehouse two days late and arrives on Friday.",
    "Done: it is cancelled and refunded to your card.",
    "Your parcel waits at the corner shop until Saturday, 18:00.",
    "The second charge was a deposit; it went back on the 28th.",
)


def pairs(attributes: Attributes) -> list[KeyValue]:
    """Attributes as OTLP has them."""
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: str | int | float) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(double_value=value)


def as_json(value: Any) -> str:
    """A value as the text of an attribute."""
    return msgspec.json.encode(value).decode()


def request_of(resource: Attributes, scope: str, spans: list[Span]) -> ExportTraceServiceRequest:
    """One export request."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(pairs(resource))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = scope
    scope_spans.spans.extend(spans)
    return request


def probe(days: int) -> bytes:
    """The id of a trace of the last day, the same in a story of any length."""
    return next(traces_of(days - 1, days, datetime(2026, 1, 5, tzinfo=UTC))).spans[0].trace_id


@attrs.frozen
class StoryTrace:
    """One trace of the story: the resource that sends it, and its spans."""

    resource: Attributes
    spans: list[Span]


def traces_of(day: int, days: int, ends_at: datetime) -> Iterator[StoryTrace]:
    """The traces of one day, counted from 0, of a story that ends at a midnight."""
    dice = random.Random(f"{SEED} {day - days}")  # noqa: S311 - sample data
    midnight = ends_at - timedelta(days=days - day)
    share = WEEKEND if midnight.weekday() >= 5 else 1.0
    # All sessions of a day are thrown, whichever weekday it falls on, so that those that stay are the same.
    for session in range(SESSIONS):
        own = random.Random(f"{SEED} {day - days} {session}")  # noqa: S311 - sample data
        # The first one is always there: it holds the probe.
        is_drawn = dice.random() < share or session in (0, 20)
        hour = dice.choices(range(24), HOURS)[0]
        started_at = midnight + timedelta(hours=hour, seconds=dice.uniform(0, 3600))
        user = dice.randrange(120)
        if not is_drawn:
            continue
        for turn in range(own.choice((1, 2, 2, 3, 3, 4, 5))):
            yield _trace(own, started_at, ends_at, f"demo-{days - day}-{session}", user, turn)
            started_at += timedelta(seconds=own.uniform(20, 120))


def _trace(
    dice: random.Random, started_at: datetime, ends_at: datetime, session: str, user: int, turn: int
) -> StoryTrace:
    time_left = ends_at - started_at
    release = "4.3.0" if time_left <= RELEASED else "4.2.0"
    tenant = _TENANTS[user % len(_TENANTS)]
    identity: Attributes = {"session.id": session, "user.id": f"user-{user}", "tenant.id": tenant}
    recorder = _Telling(dice, started_at, identity)
    kind = dice.random()
    leak = session == LEAKING and turn == 0
    if kind < 0.5 or leak:
        _support(recorder, turn, failing=time_left <= FAILING and tenant == _FAILING_TENANT, leak=leak)
    elif kind < 0.8:
        _summary(recorder, _NEW_MODEL if time_left <= SLOWER else _OLD_MODEL)
    else:
        _classification(recorder)
    resource: Attributes = {
        "service.name": SERVICE,
        "service.version": release,
        "deployment.environment.name": "production",
    }
    return StoryTrace(resource, recorder.spans)


class _Telling:
    """Spans one after the other under a root."""

    def __init__(self, dice: random.Random, at: datetime, who: Attributes) -> None:
        self.dice, self.spans, self.who = dice, [], who  # type: tuple[random.Random, list[Span], Attributes]
        self._at_ns = int(at.timestamp() * 1e6) * 1000
        self._trace_id = dice.randbytes(16)

    def span(self, name: str, took_s: float, attributes: Attributes, error: str | None = None) -> None:
        """The first one is the root, which ends with the last of the others."""
        root = self.spans[0] if self.spans else None
        span = Span(
            trace_id=self._trace_id,
            span_id=self.dice.randbytes(8),
            parent_span_id=b"" if root is None else root.span_id,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL if root is None else Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=self._at_ns,
            end_time_unix_nano=self._at_ns + int(took_s * 1e9),
            attributes=pairs(self.who | attributes),
        )
        if error is not None:
            span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=error))
        self.spans.append(span)
        if root is not None:
            self._at_ns = span.end_time_unix_nano
            root.end_time_unix_nano = max(root.end_time_unix_nano, self._at_ns)

    def took(self, usual_s: float) -> float:
        """A duration around the usual one."""
        return usual_s * self.dice.lognormvariate(0, 0.35)


def _chat(
    model: tuple[str, str, str], inputs: list[Any], outputs: list[Any], tokens: tuple[int, int, int]
) -> Attributes:
    provider, request_model, response_model = model
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": request_model,
        "gen_ai.response.model": response_model,
        "gen_ai.input.messages": as_json(inputs),
        "gen_ai.output.messages": as_json([{"role": "assistant", "parts": outputs, "finish_reason": "stop"}]),
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.cache_read.input_tokens": tokens[1],
        "gen_ai.usage.output_tokens": tokens[2],
    }


def _text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def _support(recorder: _Telling, turn: int, *, failing: bool, leak: bool) -> None:
    """A model, a tool, an answer."""
    dice = recorder.dice
    which = dice.randrange(4)
    order = 7000 + dice.randrange(900)
    model = ("openai", "gpt-4o-mini", "gpt-4o-mini-2024-07-18")
    site: Attributes = {"svc.call_site.id": "support"}
    recorder.span(
        "invoke_agent support",
        0.0,
        {**site, "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"},
    )
    call = {"type": "tool_call", "id": f"call-{order}", "name": "lookup_order", "arguments": {"order": order}}
    inputs = [_text("system", _PROMPT), _text("user", _QUESTIONS[which])]
    size = 700 + 180 * turn + dice.randrange(120)
    recorder.span(
        "chat gpt-4o-mini", recorder.took(0.9), _chat(model, inputs, [call], (size, 512, 28)) | site
    )
    refused = failing and dice.random() < 0.8
    error = "quota of the carrier's service is used up" if refused else None
    if error is None and dice.random() < 0.03:
        error = "the order service did not answer"
    tool: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup_order",
        "gen_ai.tool.call.id": f"call-{order}",
        "gen_ai.tool.call.arguments": as_json({"order": order}),
    }
    if error is None:
        tool["gen_ai.tool.call.result"] = as_json({"order": order, "late": bool(order % 3)})
    else:
        tool["error.type"] = "QuotaExceededError" if refused else "TimeoutError"
    recorder.span("execute_tool lookup_order", recorder.took(0.25), tool, error)
    answer = _ANSWERS[which]
    if leak:
        # Made here, so that no whole token stands in this file.
        answer += (
            f" (debug: key {'AK' + 'IA'}{''.join(dice.choices('ABCDEFGHJKLMNPQRSTUVWXYZ234567', k=16))})"
        )
    inputs = [*inputs, {"role": "assistant", "parts": [call]}]
    outputs = [{"type": "text", "content": answer}]
    recorder.span(
        "chat gpt-4o-mini", recorder.took(1.2), _chat(model, inputs, outputs, (size + 90, 640, 60)) | site
    )


def _summary(recorder: _Telling, answering: str) -> None:
    """One call of a larger model, which becomes slower when another one answers."""
    dice = recorder.dice
    site: Attributes = {"svc.call_site.id": "ticket-summary"}
    recorder.span("summarise_ticket", 0.0, {**site, "gen_ai.operation.name": "invoke_workflow"})
    tokens = (1500 + dice.randrange(900), 0, 140 + dice.randrange(60))
    inputs = [_text("system", "Summarise the ticket as JSON."), _text("user", _QUESTIONS[dice.randrange(4)])]
    outputs = [
        {"type": "text", "content": as_json({"summary": _ANSWERS[dice.randrange(4)], "urgent": False})}
    ]
    took = recorder.took(4.4 if answering == _NEW_MODEL else 2.2)
    recorder.span("chat gpt-4o", took, _chat(("openai", "gpt-4o", answering), inputs, outputs, tokens) | site)


def _classification(recorder: _Telling) -> None:
    """One call of another maker's model."""
    dice = recorder.dice
    site: Attributes = {"svc.call_site.id": "intent"}
    recorder.span("classify_intent", 0.0, {**site, "gen_ai.operation.name": "invoke_workflow"})
    inputs = [_text("system", "Name the intent in one word."), _text("user", _QUESTIONS[dice.randrange(4)])]
    outputs = [{"type": "text", "content": dice.choice(("delivery", "refund", "account"))}]
    model = ("anthropic", "claude-haiku-4-5", "claude-haiku-4-5-20251001")
    recorder.span(
        "chat claude-haiku-4-5", recorder.took(0.5), _chat(model, inputs, outputs, (260, 0, 4)) | site
    )
