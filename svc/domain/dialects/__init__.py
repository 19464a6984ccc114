"""The table of dialects: which there are, and who wins which field.

Owns: `DIALECTS`, `PRECEDENCE` and `read`. The mapper and the read side call `read` once a span. A new
dialect is one more file in this package, its name in `DIALECTS`, and a row in `PRECEDENCE` where its word
should weigh otherwise. Never looks at a span as a whole: a span may speak several dialects, and each field
goes to the first that says it.

However many dialects there are, reading costs one look-up an attribute: the table is turned round at import,
from keys to the fields they may fill.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, get_args

import attrs

from protocol.otlp import WireSpan
from svc.domain.dialects import genai, general, openinference, pydantic_ai
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found, Messages, Reader
from svc.domain.values import count, money, present, text

_OPENINFERENCE: Final = openinference.DIALECT
_GENAI: Final = genai.DIALECT
_PYDANTIC_AI: Final = pydantic_ai.DIALECT
_GENERAL: Final = general.DIALECT

#: Every dialect, in the order that holds for each field, and for messages, unless `PRECEDENCE` says
#: otherwise.
DIALECTS: Final[tuple[Dialect, ...]] = (_OPENINFERENCE, _GENAI, _PYDANTIC_AI, _GENERAL)

#: Who is heard first, field by field; dialects not named follow in the order of `DIALECTS`.
PRECEDENCE: Final[Mapping[Field, tuple[Dialect, ...]]] = {
    # `session.id` before `gen_ai.conversation.id` (contract §3).
    "session_id": (_GENERAL, _GENAI),
    "user_id": (_GENERAL,),
    # An agent's own name says more than the node of a graph, and both more than a function.
    "named": (_GENAI, _OPENINFERENCE, _PYDANTIC_AI, _GENERAL),
    # pydantic-ai's answer is what the run returned; `output.value` beside it is a wrapper's.
    "output_value": (_PYDANTIC_AI, _OPENINFERENCE, _GENAI),
}

_READERS: Final[Mapping[Field, Reader]] = {
    "input_tokens": count,
    "output_tokens": count,
    "cache_read_tokens": count,
    "cache_write_tokens": count,
    "reasoning_tokens": count,
    "input_cost": money,
    "output_cost": money,
    "cache_read_cost": money,
    "cache_write_cost": money,
    "total_cost": money,
    "mcp": present,
    "tool_arguments": present,
    "tool_result": present,
    "input_value": present,
    "output_value": present,
}

_KEYS_PER_DIALECT: Final = 1 << 10

_Claim = tuple[Field, int, Reader]


def _turned_round() -> tuple[dict[str, tuple[int, tuple[_Claim, ...]]], dict[tuple[str, Field], int]]:
    """From each key to its dialects, as bits, and its claims; and the rank of derived values."""
    bits: dict[str, int] = {}
    claims: dict[str, list[_Claim]] = {}
    derived: dict[tuple[str, Field], int] = {}
    for index, dialect in enumerate(DIALECTS):
        for mark in dialect.marks:
            bits[mark] = bits.get(mark, 0) | 1 << index
    for field in get_args(Field):
        first = PRECEDENCE.get(field, ())
        order = (*first, *(dialect for dialect in DIALECTS if dialect not in first))
        for place, dialect in enumerate(order):
            rank = place * _KEYS_PER_DIALECT
            for key in dialect.keys.get(field, ()):
                reader = dialect.readers.get(key) or _READERS.get(field, text)
                claims.setdefault(key, []).append((field, rank, reader))
                bits[key] = bits.get(key, 0) | 1 << DIALECTS.index(dialect)
                rank += 1
            derived[dialect.name, field] = rank
    return {key: (bits[key], tuple(claims.get(key, ()))) for key in bits}, derived


_CLAIMS, _DERIVED_RANKS = _turned_round()

#: Attributes that start so belong to `provided_usage`.
USAGE_PREFIXES: Final = tuple(prefix for dialect in DIALECTS for prefix in dialect.usage_prefixes)


@attrs.define(eq=False)
class Reading:
    """What attributes say: the fields found, and the dialects spoken, as bits by place in `DIALECTS`."""

    found: Found
    spoken: int

    def input_messages(self, span: WireSpan) -> list[Any] | None:
        """What the model was given, as the first dialect that knows says it."""
        return _first(_sources(self.spoken)[0], span)

    def output_messages(self, span: WireSpan) -> list[Any] | None:
        """What the model answered, as the first dialect that knows says it."""
        return _first(_sources(self.spoken)[1], span)

    def instructions(self, attributes: Attributes) -> Any:
        """The system's instructions that stand beside the messages, as sent, or None."""
        for key in _sources(self.spoken)[2]:
            if (value := present(attributes.get(key))) is not None:
                return value
        return None


def read(attributes: Attributes) -> Reading:
    """What the attributes say, each field from the first dialect by `PRECEDENCE` that says it."""
    found: Found = {}
    ranks: dict[Field, int] = {}
    spoken = 0
    claimed = _CLAIMS.get
    for key, raw in attributes.items():
        if (entry := claimed(key)) is None:
            continue
        spoken |= entry[0]
        for field, rank, reader in entry[1]:
            if field in found and rank > ranks[field]:
                continue
            if (value := reader(raw)) is not None:
                found[field] = value
                ranks[field] = rank
    for dialect in _deriving(spoken):
        for field, value in dialect.derive(attributes, found):  # type: ignore[misc]  # chosen for having one
            rank = _DERIVED_RANKS[dialect.name, field]
            if value is not None and (field not in found or rank < ranks[field]):
                found[field] = value
                ranks[field] = rank
    return Reading(found, spoken)


def _speakers(spoken: int) -> tuple[Dialect, ...]:
    return tuple(dialect for index, dialect in enumerate(DIALECTS) if spoken >> index & 1)


@functools.lru_cache(1024)
def _deriving(spoken: int) -> tuple[Dialect, ...]:
    return tuple(dialect for dialect in _speakers(spoken) if dialect.derive is not None)


@functools.lru_cache(1024)
def _sources(spoken: int) -> tuple[tuple[Messages, ...], tuple[Messages, ...], tuple[str, ...]]:
    speakers = _speakers(spoken)
    return (
        tuple(dialect.input_messages for dialect in speakers if dialect.input_messages is not None),
        tuple(dialect.output_messages for dialect in speakers if dialect.output_messages is not None),
        tuple(key for dialect in speakers for key in dialect.instructions),
    )


def _first(sources: tuple[Messages, ...], span: WireSpan) -> list[Any] | None:
    for source in sources:
        if (messages := source(span)) is not None:
            return messages
    return None
