"""Langfuse's SDKs: observations with their own types, usage and cost.

Owns: the keys under `langfuse.*`. Called by the table of dialects. `usage_details` has free keys: in
Langfuse's own, `input` leaves out what was cached and `output` what was thought; OpenAI's usage, which its
integrations pass on as it came, leaves out nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import DETAILS
from svc.domain.spans.documents import documents_in
from svc.domain.spans.messages import conversation, messages_in
from svc.domain.spans.span import Kind
from svc.domain.spans.values import count, decoded, milliseconds, money, present, unquoted

#: A `span` or an `event` is anything, so other signs decide.
TYPES: Final[Mapping[str, Kind]] = {
    "generation": "llm",
    "embedding": "embedding",
    "agent": "agent",
    "tool": "tool",
    "chain": "step",
    "retriever": "retrieval",
    "evaluator": "step",
    "guardrail": "guardrail",
}

_USAGE: Final = "langfuse.observation.usage_details"
_COST: Final = "langfuse.observation.cost_details"
_INPUT: Final = "langfuse.observation.input"
_OUTPUT: Final = "langfuse.observation.output"
_TYPE: Final = "langfuse.observation.type"
#: Ways to say the whole; of several the first counts.
_WHOLES: Final = (
    ("input", "input_tokens", "prompt_tokens", "inputTokens", "promptTokens", "prompt"),
    ("output", "output_tokens", "completion_tokens", "outputTokens", "completionTokens", "completion"),
)
#: What is cached for an hour, as a part beside its whole and as one of two parts.
_AN_HOUR: Final = ("cache_creation_ephemeral_1h_input_tokens", "input_cache_creation_1h")
#: A longer key, or more keys than these, are no usage.
_KEY_CHARS: Final = 64
_MOST_KEYS: Final = 100

_Amount = TypeVar("_Amount", int, Decimal)


def _kind(value: Any) -> Kind | None:
    return TYPES.get(value.lower()) if type(value) is str else None


def _failed(value: Any) -> bool | None:
    return True if type(value) is str and value.upper() == "ERROR" else None


@functools.lru_cache(1024)
def _part_of(key: str) -> Field | None:
    """The bucket that a key of Langfuse's own details belongs to. Keys are remembered: pass short ones."""
    key = key.lower()
    if "priority" in key or "total" in key or key.startswith("cache_creation_ephemeral"):
        # A tier or a part of what another key says already.
        return None
    if "cach" in key:
        return "cache_write_tokens" if "creat" in key or "writ" in key else "cache_read_tokens"
    if "reasoning" in key or "thought" in key:
        return "reasoning_tokens"
    if key.startswith(("input", "prompt")):
        return "input_tokens"
    return "output_tokens" if key.startswith(("output", "completion")) else None


def _sums(details: dict[str, Any], reader: Callable[[Any], _Amount | None]) -> dict[Field, _Amount]:
    sums: dict[Field, _Amount] = {}
    again = {key for names in _WHOLES for key in [name for name in names if name in details][1:]}
    for key in list(details)[:_MOST_KEYS]:
        part = None if key in again or len(key) > _KEY_CHARS else _part_of(key)
        if part is not None and (amount := reader(details[key])) is not None:
            sums[part] = sums[part] + amount if part in sums else amount
    return sums


def _within(details: dict[str, Any], *path: str) -> int | None:
    value: Any = details
    for key in path:
        value = value.get(key) if type(value) is dict else None
    return count(value)


def _openai_usage(details: dict[str, Any], input_key: str, output_key: str) -> Iterable[tuple[Field, Any]]:
    yield "input_tokens", count(details.get(input_key))
    yield "output_tokens", count(details.get(output_key))
    yield "cache_read_tokens", _within(details, f"{input_key}_details", "cached_tokens")
    yield "reasoning_tokens", _within(details, f"{output_key}_details", "reasoning_tokens")
    yield "input_audio_tokens", _within(details, f"{input_key}_details", "audio_tokens")
    yield "output_audio_tokens", _within(details, f"{output_key}_details", "audio_tokens")


def _usage(details: dict[str, Any]) -> Iterable[tuple[Field, Any]]:
    if "input" not in details and not any("cach" in key.lower() for key in details):
        for input_key, output_key in (
            ("prompt_tokens", "completion_tokens"),
            ("input_tokens", "output_tokens"),
        ):
            if input_key in details:
                yield from _openai_usage(details, input_key, output_key)
                return
    sums = _sums(details, count)
    cache_read, cache_write = sums.get("cache_read_tokens"), sums.get("cache_write_tokens")
    reasoning = sums.get("reasoning_tokens")
    yield "cache_read_tokens", cache_read
    yield "cache_write_tokens", cache_write
    yield (
        "cache_write_1h_tokens",
        next((tokens for key in _AN_HOUR if (tokens := count(details.get(key))) is not None), None),
    )
    yield "reasoning_tokens", reasoning
    yield "input_audio_tokens", count(details.get("input_audio_tokens"))
    yield "output_audio_tokens", count(details.get("output_audio_tokens"))
    if (uncached := sums.get("input_tokens")) is not None:
        yield "input_tokens", uncached + (cache_read or 0) + (cache_write or 0)
    if (visible := sums.get("output_tokens")) is not None:
        yield "output_tokens", visible + (reasoning or 0)


def _cost(details: dict[str, Any]) -> Iterable[tuple[Field, Any]]:
    sums = _sums(details, money)
    cache_read, cache_write = sums.get("cache_read_tokens"), sums.get("cache_write_tokens")
    uncached = sums.get("input_tokens")
    output_costs = [sums[part] for part in ("output_tokens", "reasoning_tokens") if part in sums]
    yield "cache_read_cost", cache_read
    yield "cache_write_cost", cache_write
    yield "input_cost", None if uncached is None else uncached + (cache_read or 0) + (cache_write or 0)
    yield "output_cost", sum(output_costs, Decimal(0)) if output_costs else None
    yield "total_cost", money(details.get("total"))


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """Usage and cost, added up to inclusive totals, and what a tool was called with."""
    if type(details := decoded(attributes.get(_USAGE))) is dict:
        yield from _usage(details)
    if type(details := decoded(attributes.get(_COST))) is dict:
        yield from _cost(details)
    if attributes.get(_TYPE) == "tool":
        yield "tool_arguments", present(attributes.get(_INPUT))
        yield "tool_result", present(attributes.get(_OUTPUT))


def _messages(span: WireSpan, key: str, role: str) -> list[Any] | None:
    kind = span.attributes.get(_TYPE)
    if kind in ("tool", "retriever", "embedding"):
        return None
    value = span.attributes.get(key)
    opened = decoded(value)
    # Of a generation plain text is what was said, of anything else a value.
    return messages_in(value, role) if kind == "generation" and opened is None else conversation(opened)


def input_messages(span: WireSpan) -> list[Any] | None:
    """The conversation that an observation was given; of a generation plain text too."""
    return _messages(span, _INPUT, "user")


def output_messages(span: WireSpan) -> list[Any] | None:
    """The conversation that an observation answered; of a generation plain text too."""
    return _messages(span, _OUTPUT, "assistant")


def documents(span: WireSpan) -> list[Any] | None:
    """What a retriever found."""
    return documents_in(span.attributes.get(_OUTPUT)) if span.attributes.get(_TYPE) == "retriever" else None


def _first_token_ms(value: Any, span: WireSpan) -> float | None:
    value = unquoted(value)
    if type(value) is not str or len(value) > 64:
        return None
    try:
        first_token = datetime.fromisoformat(value)
        return milliseconds(first_token.timestamp() * 1000 - span.start_ns / 1e6, 1)
    except (ValueError, OverflowError, OSError):
        return None


DIALECT: Final = Dialect(
    name="langfuse",
    title="Langfuse",
    keys={
        "kind": (_TYPE,),
        "response_model": ("langfuse.observation.model.name",),
        "session_id": ("langfuse.session.id",),
        "user_id": ("langfuse.user.id",),
        "named": ("langfuse.trace.name",),
        "failed": ("langfuse.observation.level",),
        "error_message": ("langfuse.observation.status_message",),
        "input_value": (_INPUT, "langfuse.trace.input"),
        "output_value": (_OUTPUT, "langfuse.trace.output"),
    },
    readers={_TYPE: _kind, "langfuse.observation.level": _failed},
    derive=derive,
    derives=(
        "input_tokens",
        "output_tokens",
        *DETAILS,
        "input_cost",
        "output_cost",
        "cache_read_cost",
        "cache_write_cost",
        "total_cost",
        "tool_arguments",
        "tool_result",
    ),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=(_INPUT,),
    output_keys=(_OUTPUT,),
    details={
        "workflow": ("langfuse.trace.name",),
        "time_to_first_token_ms": ("langfuse.observation.completion_start_time",),
        "parameters": ("langfuse.observation.model.parameters",),
    },
    detail_readers={"langfuse.observation.completion_start_time": _first_token_ms},
    documents=documents,
    counting="exclusive",
    marks=(_USAGE, _COST),
    usage_prefixes=(_USAGE, _COST),
    reads=("langfuse.*",),
)
