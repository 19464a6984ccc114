"""Cases: opened by detectors with a reference of their own, moved by people, read by everyone.

Owns the tables `detection_case`, `case_event`, `case_counter` and `rca_report`. Detectors call `open`; the
tool endpoint and the pages read. A row read here holds `ruling`, which the MCP front takes out.

Ordering: whoever opens a case locks the counter of its project first. So two detectors that see the same
thing open one case, and references `C-1`, `C-2`, … have neither gaps nor races.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import EVIDENCE_ROLES, CaseState, Detection, Opened
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import latency_ms, plain, shown

#: Exemplar traces that a case shows.
EXEMPLARS_SHOWN: Final = 50
#: Steps of its trail that a case shows, the newest.
EVENTS_SHOWN: Final = 500

CASE_COLUMNS: Final = (
    "id",
    "number",
    "detector",
    "subject_kind",
    "subject_id",
    "subject_label",
    "call_site_id",
    "metric",
    "state",
    "title",
    "basis",
    "severity",
    "onset_at",
    "current_value",
    "baseline_value",
    "delta",
    "opened_at",
    "last_seen_at",
    "resolved_at",
    "resolution",
    "resolution_reason",
    "muted_at",
    "finding_id",
    "rca_report_id",
)

_REFERENCE: Final = re.compile(r"[Cc]-([1-9][0-9]{0,17})", re.ASCII)
_COLUMNS: Final = ", ".join(f"c.{column}" for column in CASE_COLUMNS)
#: How far the report of a case is; null when it has none.
_RCA: Final = (
    "(select r.status from rca_report r where r.project_id = c.project_id and r.id = c.rca_report_id)"
    " as rca_status"
)


@attrs.define(eq=False)
class CaseStore:
    """Writes for detectors, reads for the fronts. All verbs raise `Outage`."""

    database: Database

    async def open(self, project_id: int, seen: Detection, now: datetime) -> Opened:
        """Open a case, or bring the living one of the same detector, subject and metric up to date."""

        async def work(connection: Connection) -> Opened:
            # The counter, locked until the commit; see Ordering above.
            last = await connection.fetchval(
                "insert into case_counter (project_id, last_number) values ($1, 0)"
                " on conflict (project_id) do update set last_number = case_counter.last_number"
                " returning last_number",
                project_id,
            )
            # The living case, seen once more.
            known = await connection.fetchrow(
                "update detection_case set last_seen_at = greatest(last_seen_at, $6),"
                " current_value = $7, baseline_value = $8, delta = $9,"
                " severity = $10, finding_id = coalesce($11, finding_id)"
                " where project_id = $1 and detector = $2 and subject_kind = $3 and subject_id = $4"
                " and metric = $5 and state <> 'resolved' returning id, number",
                project_id,
                seen.detector,
                seen.subject_kind,
                seen.subject_id,
                seen.metric or "",
                now,
                seen.current_value,
                seen.baseline_value,
                seen.delta,
                seen.severity,
                seen.finding_id,
            )
            if known is not None:
                return Opened(known["id"], f"C-{known['number']}", new=False)
            case_id = await _insert(connection, project_id, last + 1, seen, now)
            # The number is taken.
            await connection.execute(
                "update case_counter set last_number = $2 where project_id = $1", project_id, last + 1
            )
            await note(connection, project_id, case_id, "opened", seen.detector, seen.title, now)
            return Opened(case_id, f"C-{last + 1}", new=True)

        return await self.database.run(work)

    async def page(
        self,
        project_id: int,
        *,
        state: CaseState,
        detector: str | None,
        call_site_id: str | None,
        limit: int,
        cursor: str | None,
    ) -> dict[str, Any]:
        """`{cases, next_cursor}`: worst first, then newest; resolved ones by their closing, newest first."""
        keyset = _ORDERS[state]
        names = [name for name, _ in keyset.columns]
        where = Where.of(project_id, "c.")
        # In so many words, so that the index on resolved cases serves.
        where.add(f"c.state = '{state}'")
        where.equal("c.detector", detector)
        where.equal("c.call_site_id", call_site_id)
        where.after([f"c.{name}" for name in names], keyset.place(cursor))
        # One page and one row more, down the index of this order.
        sql = (
            f"select {_COLUMNS}, c.severity_rank, {_RCA} from detection_case c where {where.sql()}"
            f" order by {', '.join(f'c.{name} desc' for name in names)} limit {where.value(limit + 1)}"
        )
        rows = await self.database.fetch(sql, *where.values, timeout_s=READ_TIMEOUT_S)
        page, next_cursor = keyset.page(rows, limit)
        return {"cases": [_case_row(row) for row in page], "next_cursor": next_cursor}

    async def one(self, project_id: int, name: str) -> dict[str, Any] | None:
        """A case by its stored id or its reference, with its trail, exemplars and report; or None.

        Secrets: the answer holds `ruling`, which MCP must not show.
        """
        column, value = _named(name)
        if column is None:
            return None

        async def work(connection: Connection) -> dict[str, Any] | None:
            # The case, by one of its two keys.
            case = await connection.fetchrow(
                f"select {_COLUMNS}, c.ruling::text, {_RCA} from detection_case c"
                f" where c.project_id = $1 and c.{column} = $2",
                project_id,
                value,
            )
            if case is None:
                return None
            # Its trail: the newest steps, told in their order.
            events = await connection.fetch(
                "select id, kind, actor, summary, created_at from (select * from case_event"
                " where project_id = $1 and case_id = $2 order by id desc limit $3) e order by id",
                project_id,
                case["id"],
                EVENTS_SHOWN,
            )
            return {
                **_case_row(case),
                "ruling": None if case["ruling"] is None else msgspec.json.decode(case["ruling"]),
                "events": [
                    {**shown(row, ("id", "kind", "actor", "summary", "created_at"))} for row in events
                ],
                "exemplars": await _exemplars(connection, project_id, case["finding_id"]),
                "rca": await _rca(connection, project_id, case["rca_report_id"]),
            }

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)


_ORDERS: Final[dict[CaseState, Keyset]] = {
    "open": Keyset(
        "cases open", (("severity_rank", "small integer"), ("opened_at", "moment"), ("id", "uuid"))
    ),
    "muted": Keyset(
        "cases muted", (("severity_rank", "small integer"), ("opened_at", "moment"), ("id", "uuid"))
    ),
    "resolved": Keyset("cases resolved", (("resolved_at", "moment"), ("id", "uuid"))),
}  # fmt: skip


async def note(
    connection: Connection,
    project_id: int,
    case_id: UUID,
    kind: str,
    actor: str,
    summary: str,
    now: datetime,
) -> None:
    """Add a step to the trail of a case, in the transaction of what it tells. Never the text of a ruling."""
    # One step.
    await connection.execute(
        "insert into case_event (project_id, case_id, kind, actor, summary, created_at)"
        " values ($1, $2, $3, $4, $5, $6)",
        project_id,
        case_id,
        kind,
        actor,
        summary,
        now,
    )


async def _insert(
    connection: Connection, project_id: int, number: int, seen: Detection, now: datetime
) -> UUID:
    # A new case, open.
    case_id: UUID = await connection.fetchval(
        "insert into detection_case (project_id, number, detector, subject_kind, subject_id, subject_label,"
        " call_site_id, metric, title, basis, severity, onset_at, current_value, baseline_value, delta,"
        " opened_at, last_seen_at, finding_id)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16, $17)"
        " returning id",
        project_id,
        number,
        seen.detector,
        seen.subject_kind,
        seen.subject_id,
        seen.subject_label,
        seen.call_site_id,
        seen.metric or "",
        seen.title,
        seen.basis,
        seen.severity,
        seen.onset_at,
        seen.current_value,
        seen.baseline_value,
        seen.delta,
        now,
        seen.finding_id,
    )
    return case_id


def _named(name: str) -> tuple[str | None, Any]:
    """The column and value that a case is asked for by."""
    match = _REFERENCE.fullmatch(name.strip())
    if match is not None:
        return "number", int(match[1])
    try:
        return "id", UUID(name.strip())
    except ValueError:
        return None, None


def _case_row(row: Any) -> dict[str, Any]:
    fields = shown(row, CASE_COLUMNS)
    number = fields.pop("number")
    return {
        "id": fields.pop("id"),
        "reference": f"C-{number}",
        **fields,
        "metric": fields["metric"] or None,
        # One that failed is no report: with its id the case would read as if it were still running.
        "rca_report_id": fields["rca_report_id"] if row["rca_status"] in ("running", "done") else None,
        "rca_available": row["rca_status"] == "done",
    }


async def _exemplars(
    connection: Connection, project_id: int, finding_id: UUID | None
) -> list[dict[str, Any]]:
    if finding_id is None:
        return []
    # The exemplars of its finding whose traces are still there.
    rows = await connection.fetch(
        "select e.trace_id, e.rank, t.name, t.started_at, t.ended_at, t.total_cost from finding_evidence e"
        " join trace t on t.project_id = e.project_id and t.trace_id = e.trace_id"
        " where e.project_id = $1 and e.finding_id = $2 and e.role = $3 order by e.position limit $4",
        project_id,
        finding_id,
        EVIDENCE_ROLES.index("exemplar") + 1,
        EXEMPLARS_SHOWN,
    )
    return [
        {
            "trace_id": row["trace_id"].hex(),
            "role": "exemplar",
            "rank": row["rank"],
            "name": row["name"],
            "duration_ms": latency_ms(row["started_at"], row["ended_at"]),
            "cost": plain(row["total_cost"]),
            "started_at": plain(row["started_at"]),
        }
        for row in rows
    ]


async def _rca(connection: Connection, project_id: int, report_id: UUID | None) -> Any:
    """The report, or None while it runs and when there is none (spec, "Semantics that must hold")."""
    if report_id is None:
        return None
    # The report, once it is done.
    text = await connection.fetchval(
        "select report::text from rca_report where project_id = $1 and id = $2 and status = 'done'",
        project_id,
        report_id,
    )
    return None if text is None else msgspec.json.decode(text)
