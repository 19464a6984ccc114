"""Which traces are on each side of a comparison: how many, and what a sample of them is, by a fixed rule.

Called by `svc.store.reads.usage.compare`. A sample is the traces whose ids end smallest: ends are random
whoever makes them, some ids begin with the time. What a trace says by itself groups of traces count
(`svc.store.reads.traces.trace_groups`); what one of its spans must have, spans by column know, by the ends of
ids (`svc.store.reads.questions.columns.traces`). Where those are too many to be looked up, the number of
traces is an estimate. Only where neither knows, the spans of each trace are looked into.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Final

import attrs

from svc.store.postgres.clauses import Where
from svc.store.postgres.database import Connection, Database, left_s
from svc.store.reads.questions.columns.asked import AskedColumns, Grouping, asked_of_columns
from svc.store.reads.questions.columns.traces import TraceEnds, trace_ends
from svc.store.reads.traces.ids_by_end import AskedIds, ids_by_end
from svc.store.reads.traces.trace_drawing import MOST_BUCKETS, ORIGIN
from svc.store.reads.traces.trace_groups import buckets_left, grouped
from svc.store.reads.usage.compared_sides import Side, SpansKey, question_of
from svc.store.reads.usage.vitals import PLAN_ANEW

if TYPE_CHECKING:
    from svc.domain.queries.ids_by_end import IdsByEnd

#: Traces looked at on each side.
SAMPLED_TRACES: Final = 5_000
#: Ends of ids that columns name of a side at most: enough for a sample where half of them are of its range.
MOST_ENDS: Final = 12_000
#: So many times a sample of ids are looked up at first, since chance takes some, and are kept for more looks.
_SPARE: Final = 1.06
_KEPT: Final = 4
MOST_IDS: Final = 100_000
#: Where fewer of the traces have a failed span, failed spans tell which.
_FEW_FAIL: Final = 0.2
#: One bucket for all there is.
_EVER: Final = timedelta(days=365_000)
_END: Final = "substring(t.trace_id from 9)"
#: What of a trace there is to read of a sample.
_COLUMNS: Final = (
    "t.trace_id, t.created_at, t.first_started_at, t.last_started_at, t.started_at, t.ended_at, t.status,"
    " t.error_count, t.total_cost, t.total_tokens, t.span_count"
)


@attrs.frozen
class SampledTraces:
    """How many traces a side has, whether that is an estimate, and what was read of its sample.

    With `but_comparison` those of comparison, all of which are among them, are counted as well.
    """

    matched: int
    estimated: bool
    row: Any = attrs.field(eq=False)
    but_comparison: bool = False

    def less(self, others: SampledTraces) -> SampledTraces:
        """Without these, which are among them."""
        matched = max(0, self.matched - others.matched)
        if others.estimated:
            matched = _three_digits(matched)
        return SampledTraces(matched, self.estimated or others.estimated, self.row)

    def without(self, comparison: SampledTraces) -> SampledTraces:
        """Without those of comparison that are counted as well."""
        return self.less(comparison) if self.but_comparison else self


@attrs.frozen
class _SideByEnds:
    """A side, and by what ends the ids of its traces are known, where spans tell them."""

    side: Side
    ends: TraceEnds | None = None

    def of_trace(self, where: Where) -> list[str]:
        """What the row of a trace `t` tells."""
        clauses = self.side.of_trace(where)
        if self.ends is not None:
            clauses.append(f"{_END} = any({where.value(self.ends.ends)}::bytea[])")
        return clauses


@attrs.define(eq=False)
class ComparedTraces:
    """The traces of two sides of one project; a trace of both is one of comparison. Made for one question.

    Of each sample the aggregates `figures` are read, over rows `t` with what of a trace there is to read.
    """

    project_id: int
    baseline: Side
    comparison: Side
    figures: str
    _asked: dict[SpansKey, AskedColumns] = attrs.field(factory=dict, init=False)
    _ends: dict[SpansKey, TraceEnds | None] = attrs.field(factory=dict, init=False)

    async def prepare(self, database: Database, until_s: float) -> None:
        """Ask columns for what spans must have. Raises `Outage`, also when it is later than `until_s`."""
        sides = (self.baseline, self.comparison)
        for key in {side.key for side in sides if side.key}:
            # Both sides at once where they ask their spans for the same.
            question = question_of(self.project_id, [side for side in sides if side.key == key])
            if question is not None:
                self._asked[key] = await asked_of_columns(database, question, Grouping())
        keys = [key for key in self._asked if any(side.filters for side in sides if side.key == key)]
        ends = await database.run_all(
            [partial(self._ends_of, key=key) for key in keys], timeout_s=left_s(until_s)
        )
        self._ends.update(zip(keys, ends, strict=True))

    async def of_baseline(self, connection: Connection) -> SampledTraces:
        """The traces of baseline."""
        return await self._sampled(connection, self.baseline, self.comparison)

    async def of_comparison(self, connection: Connection) -> SampledTraces:
        """The traces of comparison."""
        return await self._sampled(connection, self.comparison, None)

    async def _ends_of(self, connection: Connection, key: SpansKey) -> TraceEnds | None:
        asked = self._asked.get(key)
        return None if asked is None else await trace_ends(connection, asked, MOST_ENDS)

    async def _sampled(self, connection: Connection, side: Side, without: Side | None) -> SampledTraces:
        # Each is planned for the range and the ids that it asks.
        await connection.execute(PLAN_ANEW)
        if without is not None and side.both(without) is None:
            without = None
        keys = [by_spans.key for by_spans in (side, without) if by_spans is not None and by_spans.filters]
        if any(self._ends.get(key) is None for key in keys):
            return await self._looked_into(connection, side, without)
        theirs = None
        if without is not None:
            theirs = _SideByEnds(without, self._ends[without.key] if without.filters else None)
        if side.filters:
            return await self._by_ends(connection, _SideByEnds(side, self._ends[side.key]), theirs)
        return await self._by_themselves(connection, side, theirs)

    async def _looked_into(self, connection: Connection, side: Side, without: Side | None) -> SampledTraces:
        """By a look into the spans of each trace: where there are few, or for what no column has."""
        where = Where.of(self.project_id, "t.")
        where.clauses += [*side.of_trace(where), *side.of_spans(where)]
        if without is not None:
            clauses = [*without.of_trace(where), *without.of_spans(where)]
            where.add(f"not ({' and '.join(clauses) or 'true'})")
        row = await self._read(connection, where)
        return SampledTraces(row["fitting"], False, row)

    async def _by_ends(
        self, connection: Connection, mine: _SideByEnds, theirs: _SideByEnds | None
    ) -> SampledTraces:
        """Of a side whose spans must have something."""
        ids = await self._ids(connection, mine, theirs)
        size = ceil(_SPARE * SAMPLED_TRACES)
        if ids.limit is None:
            row = await self._read(connection, self._among(ids.smallest(ids.fitting), mine, theirs))
            return SampledTraces(row["fitting"], False, row)
        for most in (size, ids.most):
            candidates = ids.smallest(most)
            row = await self._read(connection, self._among(candidates, mine, theirs))
            if row["sampled"] == SAMPLED_TRACES or most >= ids.fitting:
                break
        share = row["fitting"] / max(len(candidates), 1)
        return SampledTraces(_three_digits(share * ids.fitting * ids.came / max(ids.below, 1)), True, row)

    async def _by_themselves(
        self, connection: Connection, side: Side, theirs: _SideByEnds | None
    ) -> SampledTraces:
        """Of a side that a trace tells by itself."""
        matched = in_range = await self._counted(connection, side)
        if side != side.in_an_index:
            in_range = await self._counted(connection, side.in_an_index)
        sizes, but_comparison, ends = SampledTraces(matched, False, None), False, None
        if side.failed_spans and matched < _FEW_FAIL * in_range:
            ends = await self._ends_of(connection, side.key)
        shared = None if theirs is None else side.both(theirs.side)
        if shared is not None and theirs is not None:
            but_comparison = attrs.evolve(theirs.side, filters=()) == shared
            if not but_comparison:
                sizes = sizes.less(await self._of_both(connection, shared, theirs))
        ids_a_trace = 1 if ends is not None else in_range / max(sizes.matched, 1)
        mine, size = _SideByEnds(side, ends), ceil(_SPARE * SAMPLED_TRACES * ids_a_trace)
        ids = await self._ids(connection, mine, theirs, most=min(_KEPT * size, MOST_IDS))
        for most in (size, ids.most):
            row = await self._read(connection, self._among(ids.smallest(most), mine, theirs))
            if row["sampled"] == SAMPLED_TRACES or most >= ids.fitting:
                return attrs.evolve(sizes, row=row, but_comparison=but_comparison)
        # So few of so many that each is looked at.
        row = await self._read(connection, self._among(None, mine, theirs))
        return attrs.evolve(sizes, row=row, but_comparison=but_comparison)

    async def _of_both(self, connection: Connection, shared: Side, theirs: _SideByEnds) -> SampledTraces:
        """How many traces are as both sides ask."""
        if theirs.ends is None:
            return SampledTraces(await self._counted(connection, shared), False, None)
        return await self._by_ends(connection, _SideByEnds(shared, theirs.ends), None)

    async def _counted(self, connection: Connection, side: Side) -> int:
        """How many traces there are of a side that a trace tells by itself, as their groups know."""
        where = Where.of(self.project_id, "t.")
        where.clauses += side.of_trace(where)
        built = await grouped(connection, self.project_id, side.traces)
        if built is None:
            count: int = await connection.fetchval(
                f"select count(*) from trace t where {where.sql()}", *where.values
            )
            return count
        raw = where.sql(), where.values
        return sum(
            row["count"]
            for row in await buckets_left(connection, side.traces, built, raw, _EVER, ORIGIN, MOST_BUCKETS)
        )

    async def _ids(
        self, connection: Connection, mine: _SideByEnds, theirs: _SideByEnds | None, most: int = MOST_ENDS
    ) -> IdsByEnd:
        """Ids in whose rows it is to be looked whether they are of the side."""
        side = mine.side
        return await ids_by_end(
            connection,
            self.project_id,
            AskedIds(
                side.low,
                side.high,
                most,
                failed=side.status == "error",
                limit=_limit(mine, theirs),
                ends=None if mine.ends is None else mine.ends.ends,
            ),
        )

    def _among(self, ids: list[bytes] | None, mine: _SideByEnds, theirs: _SideByEnds | None) -> Where:
        """The traces of a side and not of the other that are among these; None for all."""
        where = Where.of(self.project_id, "t.")
        if ids is not None:
            where.add(f"t.trace_id = any({where.value(ids)}::bytea[])")
        where.clauses += mine.side.of_trace(where)
        if (limit := _limit(mine, theirs)) is not None:
            where.add(f"{_END} < {where.value(limit)}")
        if theirs is not None:
            where.add(f"not ({' and '.join(theirs.of_trace(where)) or 'true'})")
        return where

    async def _read(self, connection: Connection, where: Where) -> Any:
        """The figures of those that end smallest, how many those are, and how many there are of all."""
        return await connection.fetchrow(
            f"select {self.figures}, count(*) as sampled, coalesce(max(t.fitting), 0) as fitting from"
            f" (select {_COLUMNS}, count(*) over () as fitting from trace t where {where.sql()}"
            f" order by {_END}, t.trace_id limit {where.value(SAMPLED_TRACES)}) as t",
            *where.values,
        )


def _limit(mine: _SideByEnds, theirs: _SideByEnds | None) -> bytes | None:
    """From which end on columns named no more traces of either."""
    ends = [side.ends for side in (mine, theirs) if side is not None and side.ends is not None]
    return min((side_ends.limit for side_ends in ends if side_ends.limit is not None), default=None)


def _three_digits(number: float) -> int:
    """No more than an estimate is sure of."""
    return int(round(number, 2 - floor(log10(number)))) if number >= 1 else 0
