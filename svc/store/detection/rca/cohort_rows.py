"""What rows and payloads say of the traces of a cohort, some hundreds of traces at a time.

Owns: `Facts` and `facts_of`, bounded in traces and bytes. `cohorts` calls it, in a transaction that only
reads. Never knows whether a trace failed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from protocol.inflate import Unreadable
from protocol.otlp.reading import open_envelope
from svc.domain.detect.detectors.base import TOOL, tool
from svc.domain.detect.detectors.settled_trace import CALLED
from svc.domain.rca.attributes import (
    FIELDS,
    attributes_of_fields,
    attributes_of_span,
    joined,
    message_size,
    turn_word,
)
from svc.domain.traces.rollup import MODEL_CALLS
from svc.store.postgres.database import Connection
from svc.store.spans.payloads import read_envelopes

#: Earlier traces of a session that are counted.
TURNS_COUNTED: Final = 10
#: Calls of tools that one call reads.
CALLS_READ: Final = 20_000
#: Values of fields that one call reads, and fields of a project's own.
VALUES_READ: Final = 20_000
FIELDS_READ: Final = 20
#: What the payloads of one call may take together.
BYTES: Final = 4 * 1024 * 1024

# The traces, and how many of their session were before them.
_TRACES: Final = f"""
select t.trace_id, t.user_id, t.first_started_at, t.last_started_at,
    case when t.unpriced_spans = 0 then t.total_cost::double precision end as cost,
    case when t.session_id is not null then (select count(*) from (select from trace p
        where p.project_id = t.project_id and p.session_id = t.session_id and p.started_at < t.started_at
        limit {TURNS_COUNTED}) e) end as earlier
from trace t where t.project_id = $1 and t.trace_id = any($2::bytea[])
"""

# What their model calls add up to, each call once.
_CALLS: Final = """
select s.trace_id, count(*) as calls, array_agg(distinct s.provider) as providers,
    sum(coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0) + coalesce(s.cache_read_tokens, 0)
        + coalesce(s.cache_write_tokens, 0) + coalesce(s.reasoning_tokens, 0))::bigint as tokens,
    sum(coalesce(s.cache_read_tokens, 0))::bigint as cached,
    sum(extract(epoch from s.ended_at - s.started_at) * 1000)::double precision as ms
from span s where s.project_id = $1 and s.trace_id = any($2::bytea[]) and s.started_at between $3 and $4
    and s.kind = any($5::text[]) and s.usage_repeats is null
group by 1
"""

# The values of the fields that their spans have.
_FIELDS: Final = f"""
select distinct s.trace_id, v.field, v.value
from span s cross join lateral string_to_table(s.facets, null) as c (code)
join attribute_value v on v.project_id = s.project_id and v.code = c.code
where s.project_id = $1 and s.trace_id = any($2::bytea[]) and s.started_at between $3 and $4
    and s.facets is not null and v.field = any($5::text[]) and v.value <> '' limit {VALUES_READ}
"""

# How long their tools took. Put together with the names below here: joined there, while statistics are young,
# 500 traces took 18 s (measured 2026-11).
_TOOLS: Final = f"""
select s.trace_id, s.span_id, (extract(epoch from s.ended_at - s.started_at) * 1000)::double precision as ms
from span s where s.project_id = $1 and s.trace_id = any($2::bytea[]) and s.started_at between $3 and $4
    and s.kind = any($5::text[]) limit {CALLS_READ}
"""

# What they are called.
_NAMES: Final = f"""
select c.trace_id, c.span_id, c.name from tool_call c
where c.project_id = $1 and c.trace_id = any($2::bytea[]) and c.started_at between $3 and $4
    and not c.embedded limit {CALLS_READ}
"""

# The root of each, and its first model call.
_TOLD: Final = """
select distinct on (s.trace_id, s.kind = 'llm') s.trace_id, s.span_id, s.started_at, s.frame, s.kind
from span s where s.project_id = $1 and s.trace_id = any($2::bytea[]) and s.started_at between $3 and $4
    and (s.parent_span_id is null or s.kind = 'llm')
order by s.trace_id, s.kind = 'llm', s.started_at, s.span_id
"""


@attrs.define(eq=False)
class Facts:
    """What is known of one trace beside what it was tallied as."""

    attributes: dict[str, str] = attrs.field(factory=dict)
    calls: int = 0
    tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    repeats: int = 0
    tool_ms: dict[str, float] = attrs.field(factory=dict)
    model_ms: float = 0.0


async def facts_of(
    connection: Connection, project_id: int, trace_ids: Sequence[bytes], *, payloads: bool
) -> dict[bytes, Facts]:
    """The facts of these traces, of those that are still there; with what payloads say if asked to."""
    facts_by_trace: dict[bytes, Facts] = {}
    rows = await connection.fetch(_TRACES, project_id, trace_ids)
    if not rows:
        return facts_by_trace
    for row in rows:
        facts = facts_by_trace[row["trace_id"]] = Facts(cost=row["cost"])
        if row["user_id"] is not None:
            facts.attributes["user"] = row["user_id"]
        if row["earlier"] is not None:
            facts.attributes["session_turn"] = turn_word(row["earlier"] + 1)
    within = (
        project_id,
        list(facts_by_trace),
        min(row["first_started_at"] for row in rows),
        max(row["last_started_at"] for row in rows),
    )
    for row in await connection.fetch(_CALLS, *within, sorted(MODEL_CALLS)):
        facts = facts_by_trace[row["trace_id"]]
        facts.calls, facts.tokens, facts.cached_tokens = row["calls"], row["tokens"], row["cached"]
        facts.model_ms = row["ms"] or 0.0
        if providers := [provider for provider in row["providers"] if provider is not None]:
            facts.attributes["provider"] = joined(providers)
    await _read_fields(connection, within, facts_by_trace)
    await _read_tools(connection, within, facts_by_trace)
    if payloads:
        await _read_payloads(connection, within, facts_by_trace)
    return facts_by_trace


async def _read_fields(
    connection: Connection, within: tuple[Any, ...], facts_by_trace: Mapping[bytes, Facts]
) -> None:
    # The project's own, those that most spans have first.
    own_fields = await connection.fetch(
        "select coalesce(called, field) as called from attribute_key where project_id = $1"
        " and state = 'promoted' order by spans desc, field limit $2",
        within[0],
        FIELDS_READ,
    )
    asked = [*FIELDS, *(row["called"] for row in own_fields)]
    values: defaultdict[bytes, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in await connection.fetch(_FIELDS, *within, asked):
        values[row["trace_id"]][row["field"]].add(row["value"])
    for trace_id, fields in values.items():
        facts_by_trace[trace_id].attributes |= attributes_of_fields(fields)


async def _read_tools(
    connection: Connection, within: tuple[Any, ...], facts_by_trace: Mapping[bytes, Facts]
) -> None:
    durations = {
        (row["trace_id"], row["span_id"]): row["ms"] or 0.0
        for row in await connection.fetch(_TOOLS, *within, sorted(CALLED))
    }
    calls: Counter[tuple[bytes, str]] = Counter()
    for row in await connection.fetch(_NAMES, *within):
        facts, bare = facts_by_trace[row["trace_id"]], tool(row["name"]).removeprefix(TOOL)
        calls[row["trace_id"], bare] += 1
        facts.repeats = max(facts.repeats, calls[row["trace_id"], bare])
        ms = durations.get((row["trace_id"], row["span_id"]), 0.0)
        facts.tool_ms[bare] = facts.tool_ms.get(bare, 0.0) + ms


async def _read_payloads(
    connection: Connection, within: tuple[Any, ...], facts_by_trace: Mapping[bytes, Facts]
) -> None:
    rows = await connection.fetch(_TOLD, *within)
    kinds = {(row["trace_id"], row["span_id"]): row["kind"] for row in rows}
    keys = [(row["trace_id"], row["span_id"], row["started_at"], row["frame"]) for row in rows]
    for identity, envelope in (await read_envelopes(connection, within[0], keys, BYTES)).items():
        # Of what is too long only the length is there.
        if not isinstance(envelope, bytes):
            continue
        try:
            span = open_envelope(envelope)
        except Unreadable:
            continue
        facts = facts_by_trace[identity[0]]
        facts.attributes |= attributes_of_span(span)
        if kinds[identity] == "llm" and (size := message_size(span)) is not None:
            facts.attributes["message_size"] = size
