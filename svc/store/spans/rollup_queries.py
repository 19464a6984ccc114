"""The statements that roll a large trace up where its spans are.

Called by `svc.store.spans.large_traces`, with the key of a trace and the bounds of `started_at` as `$1` to
`$4`. What they say of a trace is what `svc.domain.traces.rollup` and `svc.domain.traces.tool_calls` say; the
functions that follow the links between spans are made by step 166 of the schema.
"""

from __future__ import annotations

from typing import Final

from svc.domain.traces.rollup import MOST_TOKENS

#: Marks spans whose usage turned out to repeat (or no longer to repeat) another's, and drops tool calls that
#: another span reports too. The rows say in which hours what changed came, by dataset, and when the trace is
#: due as soon as it is locked; none without the trace.
#:
#: Ordering: the trace is locked once it is known what changes, which takes most of the time, and before any
#: span is, as writers do it.
MARK: Final = """
with repeats as materialized (select * from trace_repeat_changes($1, $2, $3, $4)),
calls as materialized (select * from trace_repeated_calls($1, $2, $3, $4)),
held as materialized (
    select due_at from trace where project_id = $1 and trace_id = $2
        and (select count(*) from repeats) + (select count(*) from calls) >= 0 for update
), marked as (
    update span s set usage_repeats = c.repeats, cost_source = case when c.repeats is null
        then span_priced_by(s.cost_source, s.total_cost, s.price_book) end
    from repeats c
    where s.project_id = $1 and s.trace_id = $2 and s.started_at between $3 and $4
      and s.span_id = c.span_id and s.started_at = c.started_at and exists (select from held)
    returning s.created_at
), dropped as (
    delete from tool_call t using calls c
    where t.project_id = $1 and t.trace_id = $2 and t.started_at between $3 and $4
      and t.span_id = c.span_id and t.index = c.index and t.started_at = c.started_at
      and exists (select from held)
    returning t.created_at
), changed as (
    select distinct 'spans' as dataset, date_trunc('hour', created_at) as hour from marked
    union all
    select distinct 'tool_calls', date_trunc('hour', created_at) from dropped
)
select held.due_at, changed.dataset, changed.hour from held left join changed on true
"""


def _bounded(tokens: str) -> str:
    return f"(case when {tokens} > {MOST_TOKENS} then {MOST_TOKENS} else {tokens} end)::bigint"


def _tokens(name: str) -> str:
    return f"{_bounded(f'sum({name}) filter (where usage_repeats is null)')} as {name}"


def _cost(name: str) -> str:
    return f"sum({name}) filter (where usage_repeats is null) as {name}"


def _first(name: str, at: str, *, where: str, order: str = "") -> str:
    """The value of the span that starts at a moment of `total`, and is such a one."""
    return (
        f"(select {name} from span where project_id = $1 and trace_id = $2 and started_at = total.{at}"
        f" and {where} order by span_id {order} limit 1)"
    )


#: What a tool gave back is nobody's answer.
_SPEAKS: Final = "kind not in ('tool', 'mcp')"


def _preview(name: str, which: str, order: str, speaks: str = "true") -> str:
    """What the head shows, unless it is a wrapper that shows an object (`svc.domain.traces.rollup._turn`)."""
    any_span = _first(name, f"{which}_at", where=f"{name} <> '' and {speaks}", order=order)
    model = _first(name, f"model_{which}_at", where=f"{name} <> '' and kind = 'llm'", order=order)
    return (
        f"case when head.{name} <> '' and not (head.kind in ('step', 'workflow')"
        f" and left(head.{name}, 1) in ('{{', '[')) then head.{name}"
        f" else coalesce({model}, {any_span}, head.{name}) end as {name}"
    )


#: The roll-up of a trace whose repeats are marked, one row with the columns of a trace; none without spans.
ROLL_UP: Final = f"""
with total as (
    select count(*)::integer as span_count,
        (count(*) filter (where status = 'error'))::integer as error_count,
        min(started_at) as started_at, max(ended_at) as ended_at,
        {_tokens("input_tokens")}, {_tokens("output_tokens")}, {_tokens("cache_read_tokens")},
        {_tokens("cache_write_tokens")}, {_tokens("reasoning_tokens")},
        {_cost("input_cost")}, {_cost("output_cost")}, {_cost("total_cost")},
        {_cost("cache_read_cost")}, {_cost("cache_write_cost")},
        (count(*) filter (where usage_repeats is null
            and span_priced_by(cost_source, total_cost, price_book) = 'unpriced'))::integer as unpriced_spans,
        min(started_at) filter (where parent_span_id is null) as root_at,
        min(started_at) filter (where session_id <> '') as session_at,
        min(started_at) filter (where user_id <> '') as user_at,
        min(started_at) filter (where tagged) as tagged_at,
        min(started_at) filter (where input_preview <> '') as input_at,
        min(started_at) filter (where input_preview <> '' and kind = 'llm') as model_input_at,
        max(started_at) filter (where output_preview <> '' and {_SPEAKS}) as output_at,
        max(started_at) filter (where output_preview <> '' and kind = 'llm') as model_output_at
    from span where project_id = $1 and trace_id = $2 and started_at between $3 and $4
), orphan as (
    select min(s.started_at) as orphan_at from span s
    where s.project_id = $1 and s.trace_id = $2 and s.started_at between $3 and $4
        and exists (select from total where root_at is null)
        and not exists (select from span p where p.project_id = $1 and p.trace_id = $2
            and p.started_at between $3 and $4 and p.span_id = s.parent_span_id)
), head as (
    select s.* from total, orphan, lateral (
        select s.name, s.kind, s.status, s.session_id, s.user_id, s.call_site_id, s.tagged, s.input_preview,
            s.output_preview
        from span s where s.project_id = $1 and s.trace_id = $2
            and s.started_at = coalesce(total.root_at, orphan.orphan_at, total.started_at)
            and case when total.root_at is not null then s.parent_span_id is null
                when orphan.orphan_at is not null then not exists (select from span p where p.project_id = $1
                    and p.trace_id = $2 and p.started_at between $3 and $4 and p.span_id = s.parent_span_id)
                else true end
        order by s.span_id limit 1) s
)
select head.name, total.started_at, total.ended_at, total.root_at is not null as root_seen,
    coalesce(nullif(head.session_id, ''), {_first("session_id", "session_at", where="session_id <> ''")})
        as session_id,
    coalesce(nullif(head.user_id, ''), {_first("user_id", "user_at", where="user_id <> ''")}) as user_id,
    case when head.tagged then head.call_site_id
        else coalesce({_first("call_site_id", "tagged_at", where="tagged")}, head.call_site_id)
        end as call_site_id,
    total.span_count, total.error_count,
    case when total.root_at is not null then head.status when total.error_count > 0 then 'error' else 'ok' end
        as status,
    total.input_tokens, total.output_tokens, total.cache_read_tokens, total.cache_write_tokens,
    total.reasoning_tokens,
    (select {_bounded("sum(tokens)")} from unnest(array[total.input_tokens, total.output_tokens,
        total.cache_read_tokens, total.cache_write_tokens, total.reasoning_tokens]) as bucket (tokens))
        as total_tokens,
    (select sum(cost) from unnest(array[total.input_cost, total.cache_read_cost, total.cache_write_cost])
        as bucket (cost)) as input_cost,
    total.output_cost, total.total_cost, total.unpriced_spans,
    {_preview("input_preview", "input", "asc")}, {_preview("output_preview", "output", "desc", _SPEAKS)}
from total, head
"""
