"""The usage that a provider's answer holds, where an instrumentation passes it on as the provider wrote it.

Owns: `usage_in`, totals and parts in the objects of OpenAI (chat and responses), Anthropic, Google, Bedrock
and LangChain; `details_in`, the parts alone; `agreeing`, what of an object belongs to the totals that a span
gives itself; `opened` and `usage_of_answer`, which find the object in text. The dialects call it. Totals that
an instrumentation gives come first: providers count them differently. Never raises over what a client sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from svc.domain.dialects.dialect import Field, Found
from svc.domain.spans.values import count, decoded

#: Usage that is longer than this is none.
USAGE_CHARS: Final = 4000

_GIVEN_PARTS: Final = (
    "prompt_tokens_details",
    "input_tokens_details",
    "input_token_details",
    "inputTokenDetails",
)
_PARTS: Final[tuple[tuple[tuple[str, ...], tuple[tuple[str, Field], ...]], ...]] = (
    (
        _GIVEN_PARTS,
        (
            ("cached_tokens", "cache_read_tokens"),
            ("cache_read", "cache_read_tokens"),
            ("cacheReadTokens", "cache_read_tokens"),
            ("cache_write_tokens", "cache_write_tokens"),
            ("cache_creation_tokens", "cache_write_tokens"),
            ("cache_creation", "cache_write_tokens"),
            ("cacheWriteTokens", "cache_write_tokens"),
            ("audio_tokens", "input_audio_tokens"),
            ("audio", "input_audio_tokens"),
        ),
    ),
    (
        (
            "completion_tokens_details",
            "output_tokens_details",
            "output_token_details",
            "outputTokenDetails",
        ),
        (
            ("reasoning_tokens", "reasoning_tokens"),
            ("reasoning", "reasoning_tokens"),
            ("reasoningTokens", "reasoning_tokens"),
            ("audio_tokens", "output_audio_tokens"),
            ("audio", "output_audio_tokens"),
        ),
    ),
)
_OWN: Final[tuple[tuple[str, Field], ...]] = (
    ("cache_read_input_tokens", "cache_read_tokens"),
    ("cached_input_tokens", "cache_read_tokens"),
    ("cache_creation_input_tokens", "cache_write_tokens"),
    ("cache_write_input_tokens", "cache_write_tokens"),
    ("cacheReadInputTokens", "cache_read_tokens"),
    ("cacheWriteInputTokens", "cache_write_tokens"),
    ("cachedInputTokens", "cache_read_tokens"),
    ("cached_content_token_count", "cache_read_tokens"),
    ("cachedContentTokenCount", "cache_read_tokens"),
    ("cachedContentTokens", "cache_read_tokens"),
    ("reasoning_tokens", "reasoning_tokens"),
    ("reasoningTokens", "reasoning_tokens"),
    ("reasoning_output_tokens", "reasoning_tokens"),
    ("thoughts_token_count", "reasoning_tokens"),
    ("thoughtsTokenCount", "reasoning_tokens"),
)
_GIVEN: Final = (
    "input_tokens",
    "prompt_tokens",
    "inputTokens",
    "promptTokens",
    "prompt_token_count",
    "promptTokenCount",
)
_ANSWERED: Final = (
    "output_tokens",
    "completion_tokens",
    "outputTokens",
    "completionTokens",
    "candidates_token_count",
    "candidatesTokenCount",
)
_TOTAL: Final = ("total_tokens", "totalTokens", "total_token_count", "totalTokenCount")
#: Anthropic and Bedrock count cached tokens beside the input, unless their total says otherwise.
_BESIDE: Final = (
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cacheReadInputTokens",
    "cacheWriteInputTokens",
)
#: Google counts beside the answer what was thought, and beside the prompt what its own tools were given.
_THOUGHT: Final = ("thoughts_token_count", "thoughtsTokenCount")
_TOOLS: Final = ("tool_use_prompt_token_count", "toolUsePromptTokenCount")
#: How long the cache keeps what is written, in the words of Anthropic, LangChain and LangSmith.
_AN_HOUR: Final = ("ephemeral_1h_input_tokens", "ephemeral_1hr_input_tokens")
_FIVE_MINUTES: Final = ("ephemeral_5m_input_tokens",)
#: All that `details_in` may yield.
DETAILS: Final[tuple[Field, ...]] = (
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
)


def opened(value: Any, most_chars: int = USAGE_CHARS) -> dict[str, Any]:
    """The object in a value, written as JSON or as Python prints a dict; empty when there is none."""
    if type(value) is str:
        if len(value) > most_chars:
            return {}
        value = decoded(value.replace("'", '"').replace("None", "null") if "'" in value else value)
    return value if type(value) is dict else {}


def details_in(usage: Mapping[str, Any]) -> Iterable[tuple[Field, int]]:
    """What was read from and written to the cache, thought, heard and spoken, each at most once.

    Zeros are told where they stand: the provider says that it was none.
    """
    counts: dict[Field, int] = {}
    for names, fields in _PARTS:
        for part in names:
            if type(details := usage.get(part)) is dict:
                for key, field in fields:
                    if (tokens := count(details.get(key))) is not None:
                        counts.setdefault(field, tokens)
                if part in _GIVEN_PARTS:
                    _note_writes(counts, details)
                    _note_writes(counts, details.get("cache_creation_token_details"))
    for key, field in _OWN:
        if (tokens := count(usage.get(key))) is not None:
            counts[field] = max(tokens, counts.get(field, 0))
    _note_writes(counts, usage.get("cache_creation"))
    if type(details := usage.get("cacheDetails")) is list:
        _note_writes(counts, _by_life(details))
    return counts.items()


def writes_in(record: Mapping[str, Any], total: Any = None) -> tuple[int | None, int | None]:
    """What went into the cache in all, and for an hour, where a record has a count for each lifetime.

    `total` is what the provider says beside it; LangChain says 0 there, so that nothing is counted twice.
    """
    hour_tokens, minute_tokens = _first(record, _AN_HOUR), _first(record, _FIVE_MINUTES)
    write_tokens = count(total)
    if hour_tokens is None and minute_tokens is None:
        return write_tokens, None
    return max(write_tokens or 0, (hour_tokens or 0) + (minute_tokens or 0)), hour_tokens


def _note_writes(counts: dict[Field, int], record: Any) -> None:
    if type(record) is not dict:
        return
    write_tokens, hour_tokens = writes_in(record, counts.get("cache_write_tokens"))
    if write_tokens is not None:
        counts["cache_write_tokens"] = write_tokens
    if hour_tokens is not None:
        counts["cache_write_1h_tokens"] = hour_tokens


def _by_life(details: list[Any]) -> dict[str, Any]:
    """Bedrock's list of lifetimes as Anthropic's record."""
    lives = [detail for detail in details if type(detail) is dict]
    return {f"ephemeral_{detail.get('ttl')}_input_tokens": detail.get("inputTokens") for detail in lives}


def usage_in(usage: Mapping[str, Any]) -> dict[Field, int]:
    """The inclusive totals of usage and their parts, as far as an object of any provider gives them."""
    counts: dict[Field, int] = dict(details_in(usage))
    input_tokens, output_tokens, total = (
        _first(usage, _GIVEN),
        _first(usage, _ANSWERED),
        _first(usage, _TOTAL),
    )
    if input_tokens is not None:
        cached = counts.get("cache_read_tokens", 0) + counts.get("cache_write_tokens", 0)
        is_exclusive = any(key in usage for key in _BESIDE)
        if is_exclusive and (total is None or total == input_tokens + (output_tokens or 0) + cached):
            input_tokens += cached
        counts["input_tokens"] = input_tokens + (_first(usage, _TOOLS) or 0)
    reasoning = _first(usage, _THOUGHT) or 0
    if output_tokens is not None or reasoning:
        counts["output_tokens"] = (output_tokens or 0) + reasoning
    return counts


def agreeing(usage: Mapping[str, Any], fields: Found) -> Iterable[tuple[Field, int]]:
    """What of an object a span has not said itself, and the totals it gave without their parts, corrected.

    An object whose totals are others than the span's counts something else, and says nothing.
    """
    counts = usage_in(usage)
    for field, keys in (("input_tokens", _GIVEN), ("output_tokens", _ANSWERED)):
        total = fields.get(field)  # type: ignore[call-overload]  # literals
        if total is not None and total not in (counts.get(field), _first(usage, keys)):  # type: ignore[call-overload]
            return
    yield from counts.items()


class _Answer(msgspec.Struct):
    """The fields of a provider's answer that hold usage; all others are passed over, not built."""

    usage: Any = None
    usage_metadata: Any = None
    usageMetadata: Any = None


_answer: Final = msgspec.json.Decoder(_Answer)


def usage_of_answer(value: Any) -> dict[str, Any]:
    """The usage object in a provider's answer, given as JSON or structured; empty when there is none."""
    if type(value) is dict:
        usage = value.get("usage") or value.get("usage_metadata") or value.get("usageMetadata")
    elif type(value) is str and '"usage' in value:
        try:
            answer = _answer.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return {}
        usage = answer.usage or answer.usage_metadata or answer.usageMetadata
    else:
        return {}
    return usage if type(usage) is dict else {}


def _first(usage: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    return next((tokens for key in keys if (tokens := count(usage.get(key))) is not None), None)
