"""The shapes a span takes inside the service once its dialect has been read.

Owns: `SpanRow` (one stored span), `ToolCall` (one stored tool call) and the closed lists of kinds and
cost sources. The mapper makes them, the roll-up reads them, the store writes them. Never reads OTLP
itself and never touches the clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, get_args

import msgspec

from svc.domain.calendar import EPOCH

Kind = Literal[
    "llm",
    "reasoning",
    "tool",
    "mcp",
    "retrieval",
    "embedding",
    "reranker",
    "agent",
    "workflow",
    "plan",
    "memory",
    "handoff",
    "guardrail",
    "step",
]
#: The kinds of spans that are model calls and runs of tools, the usual one first.
MODEL_KINDS: Final[tuple[Kind, ...]] = ("llm", "reasoning", "embedding")
TOOL_KINDS: Final[tuple[Kind, ...]] = ("tool", "mcp")
Status = Literal["ok", "error"]
CostSource = Literal["provided", "inferred", "inferred_maker", "unpriced"]

#: Why the usage of a span is shown but not summed into its trace (contract §3).
Repeats = Literal["descendant", "response", "twin"]

#: What a span is beside its ids: the columns that every list of spans shows first, in this order.
HeadColumn = Literal[
    "parent_span_id",
    "kind",
    "name",
    "status",
    "error_type",
    "call_site_id",
    "session_id",
    "user_id",
    "provided_model_name",
    "model_id",
    "provider",
    "started_at",
    "ended_at",
]
HEAD_COLUMNS: Final[tuple[HeadColumn, ...]] = get_args(HeadColumn)

TOKEN_BUCKETS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)

#: Below this (the year 2242) a double tells one microsecond from the next, and a time made of one takes half
#: as long as one added to the epoch (0.23 and 0.51 µs, November 2026).
_EXACT_NS: Final = 2**33 * 10**9

#: Calls of an answer have indexes below this. Those from it on stand in a request, because the earlier answer
#: that asks for them does not say so.
FIRST_IN_REQUEST: Final = 1000


def instant(unix_ns: int) -> datetime:
    """The aware UTC time of a Unix time in nanoseconds, cut to microseconds (what the database keeps)."""
    if 0 <= unix_ns < _EXACT_NS:
        return datetime.fromtimestamp(unix_ns // 1000 / 1e6, UTC)
    return EPOCH + timedelta(microseconds=unix_ns // 1000)


# Not frozen: the mapper owns a row until it hands it on; the roll-up sets `usage_repeats` and `cost_source`.
# Structs, built by position, because they are built once a span on the hot path: 0.3 µs instead of 2.0 for
# attrs' class and forty keywords (November 2026).
class ToolCall(msgspec.Struct, eq=False, gc=False):
    """One call of a tool: a `tool` or `mcp` span itself, or a call found only in an llm span's messages."""

    index: int
    name: str
    call_id: str | None
    status: Status
    error_type: str | None
    error_message: str | None


class SpanRow(msgspec.Struct, eq=False, gc=False):
    """One span as it is stored (contract §3).

    Ids are bytes (16 and 8 long). Token buckets are disjoint and null when nobody reported them. Costs are
    USD; `total_cost` is the sum of the four cost buckets, or what the exporter gave. Audio tokens are
    parts of the input and the output bucket, what is cached for an hour of the cache writes. `price_book`
    names the prices that were asked, where any were. `attributes` are the fields of `svc.domain.attributes`,
    field and value in turn; the store makes `facets` of them, a character for each.
    """

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes | None
    kind: Kind
    name: str
    status: Status
    error_type: str | None
    error_message: str | None
    started_at: datetime
    ended_at: datetime | None
    call_site_id: str
    tagged: bool
    session_id: str | None
    user_id: str | None
    provided_model_name: str | None
    model_id: str | None
    provider: str | None
    response_id: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    input_cost: Decimal | None
    output_cost: Decimal | None
    cache_read_cost: Decimal | None
    cache_write_cost: Decimal | None
    total_cost: Decimal | None
    cost_source: CostSource | None
    input_preview: str | None
    output_preview: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    usage_repeats: Repeats | None = None
    service_tier: str | None = None
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    price_book: str | None = None
    facets: str | None = None
    attributes: tuple[str, ...] = ()

    def has_usage(self) -> bool:
        """Whether any of the five token buckets was reported."""
        return not (
            self.input_tokens is None
            and self.output_tokens is None
            and self.cache_read_tokens is None
            and self.cache_write_tokens is None
            and self.reasoning_tokens is None
        )

    def priced_by(self) -> CostSource | None:
        """What `cost_source` says of a span whose usage counts: a repeat's is cleared, its costs are not."""
        if self.cost_source is not None:
            return self.cost_source
        if self.total_cost is not None:
            return "provided" if self.price_book is None else "inferred"
        return None if self.price_book is None else "unpriced"

    def mark(self, repeats: Repeats | None) -> None:
        """Say whether its usage repeats another's. A repeat is neither given, inferred nor unpriced."""
        self.cost_source = self.priced_by() if repeats is None else None
        self.usage_repeats = repeats

    def belong(self, session_id: str | None, user_id: str | None) -> bool:
        """Take the session and the user of its trace where it names none itself; whether that changed it."""
        before = self.session_id, self.user_id
        self.session_id, self.user_id = before[0] or session_id, before[1] or user_id
        return before != (self.session_id, self.user_id)
