"""What an encoder is to be asked, and what came of it.

Owns the table `encode_due`. Tallying fills it, the rounds of `frustration` and `groundedness` empty it:
read some traces, ask about them outside any transaction, then write firings and take the places away in one.
A crash anywhere before that asks again. Never keeps a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.detection import Firing
from protocol.otlp.reading import WireSpan
from svc.domain.detect.detectors.encoded import ENCODED, Sample
from svc.store.aggregates.rollups import note_evals
from svc.store.detection.cases.firings import write_firings
from svc.store.detection.counting.settled_traces import DueTrace, settled_traces
from svc.store.postgres.database import Connection, Database

#: Traces that one round asks about, and that wait at most: an encoder that is away for long misses the
#: oldest.
ROUND_TRACES: Final = 100
WAITING_TRACES: Final = 100_000
PROJECTS: Final = 1_000

# Whose traces wait for a detector.
_WAITING: Final = """
select distinct d.project_id as id from encode_due d
where d.detector = $1
  and not exists (select from project p where p.id = d.project_id and p.deleted_at is not null) limit $2
"""

# The oldest of them.
_DUE: Final = """
select place, trace_id from encode_due where project_id = $1 and detector = $2 order by place limit $3
"""

# What waits behind too many others.
_TRIM: Final = """
delete from encode_due where project_id = $1 and detector = $2 and place <= (
    select place from encode_due where project_id = $1 and detector = $2
    order by place desc offset $3 limit 1)
"""

# Asked about, or not to be asked about.
_DONE: Final = "delete from encode_due where project_id = $1 and detector = $2 and place = any($3::bigint[])"


@attrs.frozen(eq=False)
class EncodeBatch:
    """Places in the queue, and the samples of the traces behind them, each with its trace and its session."""

    places: Sequence[int]
    samples: Sequence[tuple[bytes, str | None, Sample]]


def _payloads(trace: DueTrace) -> dict[bytes, WireSpan]:
    return {row.span_id: span for row, span, _ in trace.payloads()}


@attrs.define(eq=False)
class EncodeStore:
    """All verbs raise `Outage`."""

    database: Database

    async def waiting(self, detector: str) -> Sequence[int]:
        """Projects with traces that an encoder is to be asked about."""
        return [row["id"] for row in await self.database.fetch(_WAITING, detector, PROJECTS)]

    async def take(self, project_id: int, detector: str) -> EncodeBatch:
        """The oldest traces that wait, as samples; those that have nothing to ask about have none."""

        async def work(connection: Connection) -> EncodeBatch:
            queue_rows = await connection.fetch(_DUE, project_id, detector, ROUND_TRACES)
            ids = list(dict.fromkeys(row["trace_id"] for row in queue_rows))
            traces = await settled_traces(connection, project_id, ids, frozenset({"llm", "retrieval"}))
            # Those that are there but did not fit into this round stay for the next.
            sessions = {
                row["trace_id"]: row["session_id"]
                for row in await connection.fetch(
                    "select trace_id, session_id from trace"
                    " where project_id = $1 and trace_id = any($2::bytea[])",
                    project_id,
                    ids,
                )
            }
            settled_ids = {trace.trace_id for trace in traces}
            sample, _ = ENCODED[detector]
            samples = [(trace.trace_id, sample(trace.rows, _payloads(trace))) for trace in traces]
            return EncodeBatch(
                [
                    r["place"]
                    for r in queue_rows
                    if r["trace_id"] in settled_ids or r["trace_id"] not in sessions
                ],
                [
                    (trace_id, sessions.get(trace_id), sample)
                    for trace_id, sample in samples
                    if sample is not None
                ],
            )

        return await self.database.run(work, readonly=True, snapshot=True)

    async def done(
        self, project_id: int, detector: str, places: Sequence[int], firings: Sequence[Firing], now: datetime
    ) -> None:
        """Write what came of these places, and take them away; count what was looked at."""

        async def work(connection: Connection) -> None:
            if firings:
                await write_firings(connection, project_id, firings, now)
            status: Any = await connection.execute(_DONE, project_id, detector, list(places))
            evaluations = int(status.rpartition(" ")[2])
            if evaluations:
                await note_evals(connection, project_id, {detector: evaluations}, now)
            await connection.execute(_TRIM, project_id, detector, WAITING_TRACES)

        await self.database.run(work)
