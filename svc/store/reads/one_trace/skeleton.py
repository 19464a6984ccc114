"""One trace as columns: what its page draws of every span, as one JSON document that PostgreSQL builds.

Called by the page of a trace. A row for each span would cost Python five times as much for thirty thousand
spans (web.md §4), so the arrays are made where the rows are. Bounded in spans and in time; what is left out
is counted. Payloads are never read here.

The document: `v` is 1, `n` spans are here of `total`, `t0` is the first start in µs since 1970, `names`,
`kinds` and `models` are dictionaries. The columns, in order of start: `id` hexadecimal and joined; `parent`
the distance back to the parent (negative where the child began first, 0 without one here); `kind`, `name`
and `model` as places in their dictionaries (a model's plus one, 0 for none); `dstart` µs since the span
before; `dur` µs (-1 without an end); `tokens` of all buckets; `cost` in billionths of a dollar (-1 without a
price); `flags`. `err` are pairs of a failed span's place and what went wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec

from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import SETTLED, trace_row
from svc.store.spans.availability import SPAN_AVAILABLE, STORED_TRACE, TRACE_AVAILABLE

#: Spans of one document; more are reached by a narrower range.
MOST_SPANS: Final = 100_000
#: How long one of these questions may take.
TIMEOUT_S: Final = 15.0
#: Spans of which previews are asked at once.
MOST_PREVIEWS: Final = 200

#: Failed spans among which the first cause is looked for.
MOST_FAILED: Final = 500

#: Bits of `flags`.
FAILED: Final = 1
ORPHAN: Final = 2
REPEATS: Final = 4

_NAME_CHARS: Final = 120
_ERROR_CHARS: Final = 80
_COLUMNS: Final = ", ".join((*STORED_TRACE, "root_seen", "due_at"))


@attrs.frozen
class TraceHead:
    """The roll-up row of a trace, and what its page says beside it."""

    fields: dict[str, Any]
    first_started_at: datetime
    last_started_at: datetime
    root_seen: bool
    #: Changes with everything that the row says.
    version: str
    #: Whether any payload of it is still there.
    payload_available: bool
    #: When its last batch came, as far as told by when it is due.
    due_at: datetime

    @property
    def settled(self) -> bool:
        """Whether nobody will look at it again."""
        return bool(self.fields["is_settled"])


@attrs.frozen
class TraceRange:
    """A part of a trace's time, both ends inside; None is open."""

    low: datetime | None = None
    high: datetime | None = None

    def __bool__(self) -> bool:
        return self.low is not None or self.high is not None


@attrs.define(eq=False)
class SkeletonReads:
    """Reads what is drawn of one trace of one project."""

    database: Database

    async def head(self, project_id: int, trace_id: bytes) -> TraceHead | None:
        """The trace, or None."""
        rows = await self.database.fetch(
            # The roll-up by its key, and a look at whether its days still hold a payload of it.
            f"select {_COLUMNS}, md5(concat(t, {SETTLED})) as version, {TRACE_AVAILABLE} as payload_available"
            " from trace t where project_id = $1 and trace_id = $2",
            project_id,
            trace_id,
            timeout_s=TIMEOUT_S,
        )
        if not rows:
            return None
        row = rows[0]
        return TraceHead(
            trace_row(row, payload_available=row["payload_available"]),
            row["first_started_at"],
            row["last_started_at"],
            row["root_seen"],
            row["version"],
            row["payload_available"],
            row["due_at"],
        )

    async def document(
        self, project_id: int, trace_id: bytes, head: TraceHead, within: TraceRange, most: int = MOST_SPANS
    ) -> bytes:
        """The document of a trace's spans, or of those that overlap a part of its time."""
        where = of_trace(project_id, trace_id, head)
        if within.low is not None:
            where.add(f"(ended_at is null or ended_at >= {where.value(within.low)})")
        if within.high is not None:
            where.add(f"started_at <= {where.value(within.high)}")
        sql = _DOCUMENT.format(where=where.sql(), limit=where.value(most))

        async def work(connection: Connection) -> tuple[str, int]:
            # Lists and sets of a size that nobody guesses well: hashes, never loops within loops.
            await connection.execute("set local enable_nestloop = off; set local enable_mergejoin = off")
            (row,) = await connection.fetch(sql, *where.values)
            if row["n"] < most and not within:
                return row["document"], row["n"]
            all_spans = of_trace(project_id, trace_id, head)
            # All of its spans, by the key.
            total: int = await connection.fetchval(
                f"select count(*) from span where {all_spans.sql()}", *all_spans.values
            )
            return row["document"], total

        document, total = await self.database.run(work, readonly=True, snapshot=True, timeout_s=TIMEOUT_S)
        head_fields = {"v": 1, "total": total, "settled": head.settled}
        return msgspec.json.encode(head_fields)[:-1] + b"," + document.encode()[1:]

    async def opening_span(self, project_id: int, trace_id: bytes, head: TraceHead) -> str | None:
        """The span to look at first, hexadecimal: the first that failed by itself, else the last model call.

        A span whose child failed too did not fail by itself. None where there is neither.
        """
        where = of_trace(project_id, trace_id, head)
        if head.fields["error_count"]:
            rows = await self.database.fetch(
                # Failed spans of one trace, by its key.
                f"select span_id, parent_span_id from span where {where.sql()} and status = 'error'"
                f" order by started_at, span_id limit {MOST_FAILED}",
                *where.values,
                timeout_s=TIMEOUT_S,
            )
            above = {row["parent_span_id"] for row in rows}
            origins = (row["span_id"] for row in rows if row["span_id"] not in above)
            return next((span_id.hex() for span_id in origins), None)
        rows = await self.database.fetch(
            # Calls of models in one trace, by its key.
            f"select span_id from span where {where.sql()} and kind = 'llm'"
            " order by started_at desc, span_id desc limit 1",
            *where.values,
            timeout_s=TIMEOUT_S,
        )
        return rows[0]["span_id"].hex() if rows else None

    async def previews(
        self, project_id: int, trace_id: bytes, head: TraceHead, span_ids: Sequence[bytes]
    ) -> dict[str, tuple[str | None, str | None]]:
        """What some spans were asked and answered, in short, by hexadecimal id; null where it aged out."""
        where = of_trace(project_id, trace_id, head)
        where.add(f"span_id = any({where.value(list(span_ids[:MOST_PREVIEWS]))}::bytea[])")
        rows = await self.database.fetch(
            # Each by its key.
            "select span_id, case when payload_available then input_preview end as input_preview,"
            f" case when payload_available then output_preview end as output_preview from (select s.*,"
            f" {SPAN_AVAILABLE} from (select * from span where {where.sql()}) s) s",
            *where.values,
            timeout_s=TIMEOUT_S,
        )
        return {row["span_id"].hex(): (row["input_preview"], row["output_preview"]) for row in rows}


def of_trace(project_id: int, trace_id: bytes, head: TraceHead) -> Where:
    """The spans of a trace; its bounds name the days to look into."""
    where = Where.of(project_id)
    where.equal("trace_id", trace_id)
    where.within("started_at", head.first_started_at, head.last_started_at)
    return where


async def first_rows(
    database: Database, sql: str, project_id: int, trace_id: bytes, head: TraceHead, most: int
) -> tuple[list[Any], bool]:
    """The first rows of a trace, and whether there are more.

    The statement has the project and the trace as $1 and $2, the bounds of its days as $3 and $4, and the
    number of rows to read as $5.
    """
    bounds = head.first_started_at, head.last_started_at
    rows = await database.fetch(sql, project_id, trace_id, *bounds, most + 1, timeout_s=TIMEOUT_S)
    return rows[:most], len(rows) > most


#: The spans in order, numbered; a dictionary of what repeats, told apart by one look at each span; the
#: columns, each an array in that order. With epochs as numerics, three dictionaries and each id encoded by
#: itself it took a tenth more CPU (measured November 2026).
_DOCUMENT: Final = f"""
with picked as (
    select span_id, parent_span_id, kind, left(name, {_NAME_CHARS}) as name,
        coalesce(provided_model_name, model_id, '') as model, status, error_type, error_message,
        usage_repeats, cost_source, total_cost, started_at,
        (date_part('epoch', started_at) * 1000000)::bigint as start_us,
        (date_part('epoch', ended_at) * 1000000)::bigint as end_us,
        coalesce(input_tokens, 0) + coalesce(output_tokens, 0) + coalesce(cache_read_tokens, 0)
            + coalesce(cache_write_tokens, 0) + coalesce(reasoning_tokens, 0) as tokens
    from span where {{where}} order by started_at, span_id limit {{limit}}),
placed as materialized (
    select row_number() over told as i, start_us - lag(start_us, 1, start_us) over told as dstart, picked.*
    from picked window told as (order by started_at, span_id)),
alike as materialized (
    select name, kind, model, dense_rank() over (order by name) - 1 as name_place,
        dense_rank() over (order by kind) - 1 as kind_place,
        dense_rank() over (order by nullif(model, '') nulls first)
            - case when bool_or(model = '') over () then 1 else 0 end as model_place
    from (select distinct name, kind, model from placed) as n),
failed as (
    select json_build_array(i - 1,
        left(coalesce(nullif(error_type, ''), error_message, ''), {_ERROR_CHARS})) as pair
    from placed where status = 'error' order by i),
drawn as (
    select p.i, p.span_id, p.start_us, p.dstart, alike.name_place as name, alike.kind_place as kind,
        alike.model_place as model,
        case when p.end_us is null then -1 else greatest(p.end_us - p.start_us, 0) end as dur,
        coalesce(p.i - above.i, 0) as parent,
        case when p.usage_repeats is null then p.tokens else 0 end as tokens,
        case when p.usage_repeats is not null then 0 when p.cost_source = 'unpriced' then -1
            when p.total_cost is null then 0 else round(p.total_cost * 1000000000)::bigint end as cost,
        case when p.status = 'error' then {FAILED} else 0 end
            | case when p.parent_span_id is not null and above.i is null then {ORPHAN} else 0 end
            | case when p.usage_repeats is not null then {REPEATS} else 0 end as flags
    from placed p join alike using (name, kind, model)
    left join placed above on above.span_id = p.parent_span_id
    order by p.i)
select count(*) as n, json_build_object('n', count(*), 't0', coalesce(min(start_us), 0),
    'names', (select coalesce(json_agg(name order by place), '[]')
        from (select distinct name, name_place as place from alike) as n),
    'kinds', (select coalesce(json_agg(kind order by place), '[]')
        from (select distinct kind, kind_place as place from alike) as k),
    'models', (select coalesce(json_agg(model order by place), '[]')
        from (select distinct model, model_place as place from alike where model <> '') as m),
    'id', coalesce(encode(string_agg(span_id, ''), 'hex'), ''), 'parent', array_to_json(array_agg(parent)),
    'kind', array_to_json(array_agg(kind)), 'name', array_to_json(array_agg(name)),
    'model', array_to_json(array_agg(model)), 'dstart', array_to_json(array_agg(dstart)),
    'dur', array_to_json(array_agg(dur)), 'tokens', array_to_json(array_agg(tokens)),
    'cost', array_to_json(array_agg(cost)), 'flags', array_to_json(array_agg(flags)),
    'err', (select coalesce(json_agg(pair), '[]') from failed))::text as document from drawn
"""
