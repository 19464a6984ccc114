"""What traces are narrowed to, and the clauses that say so over their rows. Pure.

Pages (`svc.store.reads.traces`), counts (`svc.store.reads.trace_counts`) and what stands behind both
(`svc.store.reads.trace_search`, `svc.store.reads.trace_groups`) share them, so that they say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import attrs

from svc.domain.span import Kind, Status
from svc.store.aggregates.trace_values import HELD
from svc.store.postgres.clauses import Where

#: Texts and ids of a trace that `q` looks into, its own id apart, and where its spans have them.
TEXTS: Final = ("name", "input_preview", "output_preview", "session_id", "user_id")


@attrs.frozen
class TraceFilter:
    """What a page of traces is narrowed to; None asks for nothing. The range is inclusive on `started_at`.

    Model, kind and call site ask for traces that hold a span of it; the others are of the trace itself. A
    trace at a bound of duration or cost is within it.
    """

    model: str | None = None
    kind: Kind | None = None
    call_site_id: str | None = None
    status: Status | None = None
    low: datetime | None = None
    high: datetime | None = None
    q: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    slower_than: timedelta | None = None
    faster_than: timedelta | None = None
    dearer_than: Decimal | None = None
    cheaper_than: Decimal | None = None
    #: Whether the price of any of its spans is not known.
    unpriced: bool | None = None
    #: Whether any of its spans failed, whatever became of the trace.
    failed_spans: bool | None = None
    #: Values that are left out: pairs of a field of this class and what it is not.
    without: Sequence[tuple[str, str]] = ()

    @property
    def by_value(self) -> bool:
        """Whether it asks for something, a text apart, that no index on traces narrows."""
        by_index = attrs.evolve(self, status=None, low=None, high=None, session_id=None, q=None)
        return by_index != TraceFilter()

    @property
    def by_span(self) -> bool:
        """Whether it asks for what spans of a trace hold, which is a look into them for each trace."""
        by_value = any(getattr(self, name) is not None for name in HELD)
        return by_value or any(field in HELD for field, _ in self.without)


@attrs.frozen
class HeldValue:
    """A value that a span of the trace has in one of some fields, as the parameter `placeholder`."""

    fields: Sequence[str]
    value: str
    placeholder: str

    def clause(self) -> str:
        """That a trace `t` has it."""
        return holding(self.condition)

    @property
    def condition(self) -> str:
        """That a span `s` has it."""
        return " or ".join(f"s.{field} = {self.placeholder}" for field in self.fields)


def holding(condition: str) -> str:
    """That a span `s` of a trace `t` of project `$1` meets a condition."""
    # `offset 0` keeps it one look into the trace's own spans instead of a join with all of them.
    return (
        "exists (select from span s where s.project_id = $1 and s.trace_id = t.trace_id"
        f" and s.started_at between t.first_started_at and t.last_started_at and ({condition}) offset 0)"
    )


def asked_for(
    near: Where, q: str | None, held: Iterable[tuple[Sequence[str], str | None]]
) -> tuple[str, list[HeldValue]]:
    """The clause that a trace has the text in its name, a preview or an id, and what it holds.

    Their parameters are added to those of `near`.
    """
    text = Where([], near.values)
    text.contains((*(f"coalesce({column}, '')" for column in TEXTS), "encode(trace_id, 'hex')"), q)
    return text.sql(), [
        HeldValue(fields, value, near.value(value)) for fields, value in held if value is not None
    ]


def narrowed_by_index(project_id: int, asked: TraceFilter) -> Where:
    """What an index on traces narrows: status, session, range."""
    where = Where.of(project_id)
    if asked.status is not None:
        # In so many words, not as a parameter, so that the index on failed traces serves.
        where.add("status = 'error'" if asked.status == "error" else "status = 'ok'")
    where.equal("session_id", asked.session_id)
    where.within("started_at", asked.low, asked.high)
    return where


def of_its_own(near: Where, asked: TraceFilter) -> str:
    """What a trace says by itself and no index narrows; its parameters are added to those of `near`."""
    own = Where([], near.values)
    own.equal("user_id", asked.user_id)
    if asked.slower_than is not None:
        own.add(f"ended_at - started_at >= {own.value(asked.slower_than)}::interval")
    if asked.faster_than is not None:
        own.add(f"ended_at - started_at <= {own.value(asked.faster_than)}::interval")
    own.within_numbers("total_cost", asked.dearer_than, asked.cheaper_than)
    if asked.unpriced is not None:
        own.add("unpriced_spans > 0" if asked.unpriced else "unpriced_spans = 0")
    if asked.failed_spans is not None:
        own.add("error_count > 0" if asked.failed_spans else "error_count = 0")
    conditions = []
    for field, value in asked.without:
        if field in HELD:
            conditions.append(HeldValue(HELD[field], value, own.value(value)).condition)
        else:
            own.add(f"{_OWN[field]} is distinct from {own.value(value)}")
    if conditions:
        # One look for all of them: to begin to look costs 2 ms over the days of a month.
        own.add(f"not {holding(' or '.join(conditions))}")
    return own.sql()


def both(*clauses: str) -> str:
    """The clauses that there are, joined."""
    return " and ".join(clause for clause in clauses if clause)


#: Fields of a filter that ask for what the trace itself has; the others ask for what some span has.
_OWN: Final = {"session_id": "session_id", "user_id": "user_id"}


def held_by_spans(asked: TraceFilter) -> list[tuple[Sequence[str], str | None]]:
    """What some span of the trace has, and in which of its fields."""
    return [(fields, getattr(asked, name)) for name, fields in HELD.items()]
