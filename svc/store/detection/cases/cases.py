"""Cases as they are read: pages by state, and one with its findings, trail, exemplars and report.

Owns the columns of the table `detection_case` that are shown. The tool endpoint and the pages read; what
moves cases is in the modules beside this. A row read here holds `ruling`, which the MCP front takes out. A
mute that has ended reads as open, whether it was written down or not.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import EVIDENCE_ROLES, CaseState
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import latency_ms, plain, shown

#: Exemplar traces that a case shows.
EXEMPLARS_SHOWN: Final = 50
#: Findings that a case lists.
FINDINGS_LISTED: Final = 200
#: Steps of its trail that a case shows, the newest.
EVENTS_SHOWN: Final = 500

#: The order of reports `r` that are done, the one that stands on top first.
TOP_FIRST: Final = (
    "(coalesce(r.report ->> 'verdict', '') <> 'inconclusive') desc, r.engine = 'agent' desc,"
    " r.finished_at desc, r.id"
)

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
    "muted_until",
    "finding_id",
    "rca_report_id",
)

_REFERENCE: Final = re.compile(r"[Cc]-([1-9][0-9]{0,17})", re.ASCII)
_ENDED: Final = "c.state = 'muted' and c.muted_until <= {now}"
# An agent that waits for people, such as for a model to be chosen, does not keep back what was found before.
_REPORT_ID: Final = (
    "case when exists (select from agent_run a where a.project_id = c.project_id"
    " and a.report_id = c.rca_report_id and a.state = 'parked') then coalesce((select r.id from rca_report r"
    " where r.project_id = c.project_id and r.case_id = c.id and r.status = 'done'"
    f" order by {TOP_FIRST} limit 1), c.rca_report_id) else c.rca_report_id end"
)
#: Columns that a mute which has ended leaves as they are in an open case, and the report that stands.
_EFFECTIVE: Final = {
    "state": f"case when {_ENDED} then 'open' else c.state end as state",
    "muted_at": f"case when {_ENDED} then null else c.muted_at end as muted_at",
    "muted_until": f"case when {_ENDED} then null else c.muted_until end as muted_until",
    "rca_report_id": f"{_REPORT_ID} as rca_report_id",
}
_COLUMNS: Final = ", ".join(_EFFECTIVE.get(column, f"c.{column}") for column in CASE_COLUMNS)
#: How far the report of a case is, and whose it is; null when it has none.
_RCA: Final = ", ".join(
    f"(select r.{column} from rca_report r where r.project_id = c.project_id and r.id = ({_REPORT_ID}))"
    f" as rca_{column}"
    for column in ("status", "engine")
)


@attrs.define(eq=False)
class CaseStore:
    """Reads for the fronts. Raises `Outage`."""

    database: Database

    async def page(
        self,
        project_id: int,
        *,
        state: CaseState,
        detector: str | None,
        call_site_id: str | None,
        limit: int,
        cursor: str | None,
        now: datetime,
    ) -> dict[str, Any]:
        """`{cases, next_cursor}`: worst first, then newest; resolved ones by their closing, newest first."""
        keyset = _ORDERS[state]
        names = [name for name, _ in keyset.columns]
        where = Where.of(project_id, "c.")
        moment = where.value(now)
        where.equal("c.detector", detector)
        where.equal("c.call_site_id", call_site_id)
        where.after([f"c.{name}" for name in names], keyset.place(cursor))
        # One page and one row more, down the index of this order. The states stand there in so many words, so
        # that the index on resolved cases serves; mutes that have ended, a few, come by an index of theirs.
        order = f"order by {', '.join(f'c.{name} desc' for name in names)} limit {where.value(limit + 1)}"
        parts = [
            f"(select {_COLUMNS.format(now=moment)}, c.severity_rank, {_RCA} from detection_case c"
            f" where {where.sql()} and {part.format(now=moment)} {order})"
            for part in _PARTS[state]
        ]
        sql = f"select * from ({' union all '.join(parts)}) c {order}"
        rows = await self.database.fetch(sql, *where.values, timeout_s=READ_TIMEOUT_S)
        page, next_cursor = keyset.page(rows, limit)
        return {"cases": [_case_row(row) for row in page], "next_cursor": next_cursor}

    async def one(self, project_id: int, name: str, now: datetime) -> dict[str, Any] | None:
        """A case by its stored id or its reference, with findings, trail, exemplars and report; or None.

        Secrets: the answer holds `ruling`, which MCP must not show.
        """
        column, value = _key_of(name)
        if column is None:
            return None

        async def work(connection: Connection) -> dict[str, Any] | None:
            # The case, by one of its two keys.
            case = await connection.fetchrow(
                f"select {_COLUMNS.format(now='$3::timestamptz')}, c.ruling::text, {_RCA}"
                f" from detection_case c where c.project_id = $1 and c.{column} = $2",
                project_id,
                value,
                now,
            )
            if case is None:
                return None
            # Its trail: the newest steps, oldest first.
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
                "findings": await _findings(connection, project_id, case["id"]),
                "events": [
                    {**shown(row, ("id", "kind", "actor", "summary", "created_at"))} for row in events
                ],
                "exemplars": await _exemplars(connection, project_id, case["finding_id"]),
                "rca": await _rca(connection, project_id, case["rca_report_id"]),
                "rca_beside": await _beside(connection, project_id, case),
            }

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)

    async def beside(
        self, project_id: int, reference: str, state: CaseState, now: datetime
    ) -> tuple[str | None, str | None]:
        """The references before and behind a case in the list of a state, whether it still stands there."""
        keyset = _ORDERS[state]
        names = [name for name, _ in keyset.columns]
        column, value = _key_of(reference)
        if column is None:
            return None, None
        positions = await self.database.fetch(
            f"select {', '.join(names)} from detection_case where project_id = $1 and {column} = $2",
            project_id,
            value,
        )
        if not positions or None in tuple(positions[0]):
            return None, None
        position = [positions[0][name] for name in names]
        neighbours: list[str | None] = []
        for direction in ("asc", "desc"):
            where = Where.of(project_id, "c.")
            moment = where.value(now)
            where.after([f"c.{name}" for name in names], position, ascending=direction == "asc")
            # The one row next to it, down the index of this order.
            order = f"order by {', '.join(f'c.{name} {direction}' for name in names)} limit 1"
            parts = [
                f"(select c.number, {', '.join(f'c.{name}' for name in names)} from detection_case c"
                f" where {where.sql()} and {part.format(now=moment)} {order})"
                for part in _PARTS[state]
            ]
            sql = (
                f"select * from ({' union all '.join(parts)}) c"
                f" where {moment}::timestamptz is not null {order}"
            )
            rows = await self.database.fetch(sql, *where.values, timeout_s=READ_TIMEOUT_S)
            neighbours.append(f"C-{rows[0]['number']}" if rows else None)
        return neighbours[0], neighbours[1]

    async def id_of(self, project_id: int, name: str) -> UUID | None:
        """The stored id of a case by that or by its reference; None when there is none."""
        column, value = _key_of(name)
        if column is None:
            return None
        rows = await self.database.fetch(
            f"select id from detection_case where project_id = $1 and {column} = $2", project_id, value
        )
        return rows[0]["id"] if rows else None


#: What stands in each state; a mute that has ended is open.
_PARTS: Final[dict[CaseState, tuple[str, ...]]] = {
    "open": ("c.state = 'open'", _ENDED),
    "muted": ("c.state = 'muted' and (c.muted_until is null or c.muted_until > {now})",),
    "resolved": ("c.state = 'resolved'",),
}
_ORDERS: Final[dict[CaseState, Keyset]] = {
    "open": Keyset(
        "cases open", (("severity_rank", "small integer"), ("opened_at", "moment"), ("id", "uuid"))
    ),
    "muted": Keyset(
        "cases muted", (("severity_rank", "small integer"), ("opened_at", "moment"), ("id", "uuid"))
    ),
    "resolved": Keyset("cases resolved", (("resolved_at", "moment"), ("id", "uuid"))),
}  # fmt: skip


def _key_of(name: str) -> tuple[str | None, Any]:
    """The key column and value that a name of a case stands for."""
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


async def _findings(connection: Connection, project_id: int, case_id: UUID) -> list[dict[str, Any]]:
    # What the case lists: causes first, those that live before those that were, by age.
    rows = await connection.fetch(
        "select f.id, f.detector, l.role, l.explained_share, f.title, f.status from case_finding l"
        " join finding f on f.project_id = l.project_id and f.id = l.finding_id"
        " where l.project_id = $1 and l.case_id = $2"
        " order by l.role, f.closed_at is null desc, l.joined_at, f.id limit $3",
        project_id,
        case_id,
        FINDINGS_LISTED,
    )
    return [shown(row, ("id", "detector", "role", "explained_share", "title", "status")) for row in rows]


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


async def reports_in(connection: Connection, project_id: int, case_id: UUID) -> list[dict[str, Any]]:
    """The report of each engine that says most about a case, the one that stands on top first."""
    # A handful of rows, by the case's index.
    rows = await connection.fetch(
        "select * from (select distinct on (r.engine) r.engine, r.id, r.report, r.started_at, r.finished_at"
        " from rca_report r where r.project_id = $1 and r.case_id = $2 and r.status = 'done'"
        f" order by r.engine, {TOP_FIRST}) r order by {TOP_FIRST}",
        project_id,
        case_id,
    )
    return [{**dict(row.items()), "report": msgspec.json.decode(row["report"])} for row in rows]


async def _beside(connection: Connection, project_id: int, case: Any) -> dict[str, Any] | None:
    """What the other engine found, where both have looked; while an agent looks, what the rule found."""
    for report in await reports_in(connection, project_id, case["id"]):
        if report["engine"] != (case["rca_engine"] or report["engine"]):
            report_row = {"id": str(report["id"]), "engine": report["engine"], "report": report["report"]}
            return {**report_row, "finished_at": plain(report["finished_at"])}
    return None


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
