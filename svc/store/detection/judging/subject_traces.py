"""The traces that a subject counts, failing or not: how widely they are spread, and what they cost.

Owns reads of `trace_fold` by subject for whoever judges sizes, of which no failing traces are kept. Bounded:
a question looks at `PAGES` pages of a project's traces. Never decides of a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from svc.domain.detect.findings.bucket import Watched
from svc.domain.rca.cohort import Cohort, Unit
from svc.domain.rca.parts import Factor, cost_factors
from svc.store.detection.counting.tallies import unpacked
from svc.store.detection.judging.judge_evidence import SESSIONS_OF, Breadth
from svc.store.detection.rca.cohort_rows import facts_of
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: Traces that one page looks at, and pages of one question: a subject with a hundredth of the traffic still
#: shows a thousand traces.
PAGE: Final = 5_000
PAGES: Final = 20
#: Traces of a side that a cost is taken apart by, and with how few it is left alone.
COST_TRACES: Final = 300
LEAST_COST_TRACES: Final = 30

# A page of traces by the slot of their first span, with what each was counted as.
_FOLDS: Final = f"""
select slot, trace_id, body from trace_fold
where project_id = $1 and slot >= $2 and slot < $3 and (slot, trace_id) > ($4, $5)
order by slot, trace_id limit {PAGE}
"""

# The same backwards, from before a place on.
_FOLDS_BACK: Final = f"""
select slot, trace_id, body from trace_fold
where project_id = $1 and slot >= $2 and (slot, trace_id) < ($3, $4)
order by slot desc, trace_id desc limit {PAGE}
"""


@attrs.define(eq=False)
class SubjectTraceStore:
    """All verbs raise `Outage`; slots are half open, `[first, end)`."""

    database: Database

    async def members(
        self,
        project_id: int,
        bucket: Watched,
        first: int,
        end: int,
        limit: int,
        details: frozenset[str] | None = None,
    ) -> Sequence[tuple[int, bytes]]:
        """Slot and id of the first traces that a subject counts, or those of some of its details."""
        ids = await self._ids(project_id, bucket, details)
        traces: list[tuple[int, bytes]] = []
        position: tuple[int, bytes] = first, b""
        for _ in range(PAGES):
            page = await self._read(_FOLDS, project_id, first, end, *position)
            traces += [
                (row["slot"], row["trace_id"])
                for row in page
                if any(entry[0] in ids for entry in unpacked(row["body"]))
            ]
            if len(page) < PAGE or len(traces) >= limit:
                break
            position = page[-1]["slot"], page[-1]["trace_id"]
        return traces[:limit]

    async def newest(
        self,
        project_id: int,
        bucket: Watched,
        first: int,
        end: int,
        *,
        failing: bool,
        details: frozenset[str] | None = None,
    ) -> bytes | None:
        """The newest trace that fails, or is counted at all; with `details` what has one of them fails."""
        ids = await self._ids(project_id, bucket, details if failing else None)
        flagged = failing and details is None
        position: tuple[int, bytes] = end, b""
        for _ in range(PAGES):
            page = await self._read(_FOLDS_BACK, project_id, first, *position)
            for row in page:
                if any(entry[0] in ids and (entry[4] or not flagged) for entry in unpacked(row["body"])):
                    return bytes(row["trace_id"])
            if len(page) < PAGE:
                break
            position = page[-1]["slot"], page[-1]["trace_id"]
        return None

    async def _ids(self, project_id: int, bucket: Watched, details: frozenset[str] | None) -> set[int]:
        # The buckets of the subject.
        rows = await self._read(
            "select id, detail from tally_bucket where project_id = $1 and measure = $2 and subject = $3",
            project_id,
            bucket.measure,
            bucket.subject,
        )
        return {row["id"] for row in rows if details is None or row["detail"] in details}

    async def spread(
        self, project_id: int, bucket: Watched, first: int, end: int, details: frozenset[str] | None = None
    ) -> Breadth:
        """How widely a subject is seen, or some of its details, by its first `SESSIONS_OF` traces."""
        traces = await self.members(project_id, bucket, first, end, SESSIONS_OF, details)
        # By key, one after the other; a trace outside any session is one of its own.
        sessions = await self._read(
            "select count(distinct coalesce(t.session_id, encode(n.trace_id, 'hex'))) as n"
            " from unnest($2::bytea[]) as n (trace_id)"
            " left join trace t on t.project_id = $1 and t.trace_id = n.trace_id",
            project_id,
            [trace_id for _, trace_id in traces],
        )
        return Breadth(len({slot for slot, _ in traces}), len(traces), sessions[0]["n"])

    async def cost_factors(
        self, project_id: int, bucket: Watched, before: tuple[int, int], after: tuple[int, int]
    ) -> Sequence[Factor]:
        """What made a cost change from one range of slots to another, by the first traces of each; nothing
        where too few are left.
        """
        sides = []
        for first, end in (before, after):
            ids = await self.members(project_id, bucket, first, end, COST_TRACES)
            if len(ids) < LEAST_COST_TRACES:
                return ()

            async def read(
                connection: Connection, ids: Sequence[tuple[int, bytes]] = ids
            ) -> tuple[Unit, ...]:
                facts = await facts_of(
                    connection, project_id, [trace_id for _, trace_id in ids], payloads=False
                )
                return tuple(
                    Unit(
                        trace_id,
                        slot,
                        calls=facts[trace_id].calls,
                        tokens=facts[trace_id].tokens,
                        cached_tokens=facts[trace_id].cached_tokens,
                        cost=facts[trace_id].cost,
                    )
                    for slot, trace_id in ids
                    if trace_id in facts
                )

            units = await self.database.run(read, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
            sides.append(Cohort(units, first, end, len(units)))
        return cost_factors(*sides)

    async def _read(self, statement: str, *values: Any) -> list[Any]:
        return await self.database.fetch(statement, *values, timeout_s=READ_TIMEOUT_S)
