"""Evidence of findings: one compact row a reference, appended while a finding lives; bodies are never copied.

Owns the table `finding_evidence`. A firing appends to it in its own transaction, whose project's turn it has;
everyone reads. A reference that stands in a role already is not written again, so that a firing may be told
twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import EVIDENCE_ROLES, EvidenceRole, Ref
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import plain

EVIDENCE_ORDER: Final = Keyset("evidence", (("role", "small integer"), ("position", "integer")))
#: References written by one statement. Only a stretch with something new in it takes places.
BATCH: Final = 1_000

#: A reference survives while it can be opened: its span, or the trace of one that names no span, or the
#: session of one that names no trace. Looked up one by one, 2 us each (measured November 2026): joined, the
#: planner reads all traces there are.
_SURVIVES: Final = (
    "case when e.trace_id is null then exists (select from session s where s.project_id = e.project_id"
    " and s.id = e.session_id offset 0)"
    " when e.span_id is null then exists (select from trace t where t.project_id = e.project_id"
    " and t.trace_id = e.trace_id offset 0)"
    " else exists (select from trace t join span p on p.project_id = t.project_id"
    " and p.trace_id = t.trace_id and p.span_id = e.span_id"
    " and p.started_at between t.first_started_at and t.last_started_at"
    " where t.project_id = e.project_id and t.trace_id = e.trace_id offset 0) end"
)


async def append(connection: Connection, project_id: int, finding_id: UUID, refs: Iterable[Ref]) -> None:
    """Write references behind those that are there, and count what was new in `recorded_counts`."""
    # Where the next one goes, and what is recorded so far.
    row: Any = await connection.fetchrow(
        "select next_position, recorded_counts::text as recorded from finding"
        " where project_id = $1 and id = $2",
        project_id,
        finding_id,
    )
    position: int = row["next_position"]
    recorded: dict[str, int] = dict.fromkeys(EVIDENCE_ROLES, 0) | msgspec.json.decode(row["recorded"])
    written = iter(refs)
    while batch := list(islice(written, BATCH)):
        # One stretch; what stands there already is passed over, by the index that knows: looked up before,
        # the planner takes another one while statistics are young (16 s for 12,000, measured 2026-11).
        added = await connection.fetch(
            "with added as (insert into finding_evidence (project_id, finding_id, role, position, rank,"
            " session_id, trace_id, span_id)"
            " select $1, $2, n.role, $3 + n.place - 1, n.rank, n.session_id, n.trace_id, n.span_id"
            " from unnest($4::smallint[], $5::integer[], $6::text[], $7::bytea[], $8::bytea[])"
            " with ordinality as n (role, rank, session_id, trace_id, span_id, place)"
            " on conflict do nothing returning role, position)"
            " select role, count(*) as n, max(position) as last from added group by 1",
            project_id,
            finding_id,
            position,
            [EVIDENCE_ROLES.index(ref.role) + 1 for ref in batch],
            [ref.rank for ref in batch],
            [ref.session_id for ref in batch],
            [ref.trace_id for ref in batch],
            [ref.span_id for ref in batch],
        )
        for group in added:
            position = max(position, group["last"] + 1)
            recorded[EVIDENCE_ROLES[group["role"] - 1]] += group["n"]
    if position != row["next_position"]:
        await connection.execute(
            "update finding set next_position = $3, recorded_counts = $4::text::jsonb"
            " where project_id = $1 and id = $2",
            project_id,
            finding_id,
            position,
            msgspec.json.encode(recorded).decode(),
        )


async def cited(connection: Connection, project_id: int, finding_id: UUID) -> frozenset[bytes]:
    """The traces that a finding names as witnesses."""
    rows = await connection.fetch(
        "select distinct trace_id from finding_evidence where project_id = $1 and finding_id = $2"
        f" and role = {EVIDENCE_ROLES.index('witness') + 1} and trace_id is not null",
        project_id,
        finding_id,
    )
    return frozenset(row["trace_id"] for row in rows)


@attrs.define(eq=False)
class EvidenceStore:
    """Reads for the fronts. Raises `Outage`."""

    database: Database

    async def page(
        self,
        project_id: int,
        finding_id: UUID,
        *,
        role: EvidenceRole | None,
        count_only: bool,
        limit: int,
        cursor: str | None,
    ) -> dict[str, Any] | None:
        """`{refs, next_cursor, counts, recorded_counts}`, one ref a measured row; None: no finding."""
        where = Where.of(project_id, "e.")
        where.equal("e.finding_id", finding_id)
        where.equal("e.role", None if role is None else EVIDENCE_ROLES.index(role) + 1)
        where.add(_SURVIVES)
        where.after(["e.role", "e.position"], EVIDENCE_ORDER.place(cursor), ascending=True)

        async def work(connection: Connection) -> Any:
            # What the detector wrote.
            recorded = await connection.fetchval(
                "select recorded_counts::text from finding where project_id = $1 and id = $2",
                project_id,
                finding_id,
            )
            if recorded is None:
                return None
            # What survives of it, by role.
            counted = await connection.fetch(
                "select e.role, count(*) as n from finding_evidence e"
                f" where e.project_id = $1 and e.finding_id = $2 and {_SURVIVES} group by 1",
                project_id,
                finding_id,
            )
            if count_only:
                return recorded, counted, []
            # One page and one row more, in the order the detector wrote.
            return (
                recorded,
                counted,
                await connection.fetch(
                    "select e.role, e.position, e.rank, e.session_id, e.trace_id, e.span_id"
                    f" from finding_evidence e where {where.sql()}"
                    f" order by e.role, e.position limit {where.value(limit + 1)}",
                    *where.values,
                ),
            )

        reading = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        if reading is None:
            return None
        recorded, counted, rows = reading
        page, next_cursor = EVIDENCE_ORDER.page(rows, limit)
        none: dict[str, int] = dict.fromkeys(EVIDENCE_ROLES, 0)
        return {
            "refs": [_ref(row) for row in page],
            "next_cursor": next_cursor,
            "counts": none | {EVIDENCE_ROLES[row["role"] - 1]: row["n"] for row in counted},
            "recorded_counts": none | msgspec.json.decode(recorded),
        }


def _ref(row: Any) -> dict[str, Any]:
    """`{role, grain, session_id?, trace_id?, span_id?, rank?}` (spec): what is not there is left out."""
    grain = "span" if row["span_id"] is not None else "trace" if row["trace_id"] is not None else "session"
    ids = {name: plain(row[name]) for name in ("session_id", "trace_id", "span_id", "rank")}
    identifiers = {name: value for name, value in ids.items() if value is not None}
    return {"role": EVIDENCE_ROLES[row["role"] - 1], "grain": grain, **identifiers}
