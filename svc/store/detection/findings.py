"""Findings and their evidence: written by detectors, read by everyone.

Owns the tables `finding` and `finding_evidence`. Evidence is one compact row a reference; bodies are never
copied. A finding read here holds its triage ruling, which the MCP front takes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.detection import EVIDENCE_ROLES, TRIAGE_SOURCES, Cause, EvidenceRole, Ref, Triage
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import plain

#: Findings that a listing shows of each triage source (spec, "Limits").
FINDINGS_SHOWN: Final = 200

EVIDENCE_ORDER: Final = Keyset("evidence", (("role", "small integer"), ("position", "integer")))

#: Stored columns and the names they are shown under.
_HEADLINE: Final = {
    "id": "id",
    "title": "title",
    "detector": "detector",
    "cause_kind": "cause_kind",
    "cause_key": "cause_key",
    "call_site_id": "call_site_id",
    "status": "status",
    "first_seen_at": "first_seen_at",
    "last_seen_at": "last_seen_at",
    "trace_count": "trace_count",
    "recurrences": "recurrences",
    "triage_status": "triageStatus",
    "triage_verdict": "triageVerdict",
    "triage_action": "triageAction",
    "triage_summary": "triageSummary",
    "triaged_at": "triagedAt",
}
_COLUMNS: Final = ", ".join((*_HEADLINE, "triage_citations::text"))

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


@attrs.define(eq=False)
class FindingStore:
    """Writes for detectors, reads for the fronts. All verbs raise `Outage`."""

    database: Database

    async def open(self, project_id: int, cause: Cause, refs: Sequence[Ref]) -> UUID:
        """Write a finding with its evidence. The same cause seen again keeps its id, evidence and counts."""
        recorded = dict.fromkeys(EVIDENCE_ROLES, 0)
        for ref in refs:
            recorded[ref.role] += 1

        async def work(connection: Connection) -> UUID:
            # The finding; `xmax = 0` tells a new row from one seen again.
            row: Any = await connection.fetchrow(
                "insert into finding (project_id, title, detector, cause_kind, cause_key, call_site_id,"
                " status, first_seen_at, last_seen_at, trace_count, triage_source, confirmed, evidence,"
                " recorded_counts) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,"
                " $13::text::jsonb, $14::text::jsonb)"
                " on conflict (project_id, detector, cause_kind, cause_key) do update set"
                " last_seen_at = greatest(finding.last_seen_at, excluded.last_seen_at),"
                " trace_count = excluded.trace_count, recurrences = finding.recurrences + 1"
                " returning id, (xmax = 0) as inserted",
                project_id,
                cause.title,
                cause.detector,
                cause.cause_kind,
                cause.cause_key,
                cause.call_site_id,
                cause.status,
                cause.first_seen_at,
                cause.last_seen_at,
                cause.trace_count,
                cause.triage_source,
                cause.confirmed,
                msgspec.json.encode(cause.evidence).decode(),
                msgspec.json.encode(recorded).decode(),
            )
            if row["inserted"]:
                await connection.copy_records_to_table(
                    "finding_evidence",
                    columns=(
                        "project_id", "finding_id", "role", "position", "rank", "session_id", "trace_id",
                        "span_id",
                    ),
                    records=[
                        (
                            project_id,
                            row["id"],
                            EVIDENCE_ROLES.index(ref.role) + 1,
                            position,
                            ref.rank,
                            ref.session_id,
                            ref.trace_id,
                            ref.span_id,
                        )
                        for position, ref in enumerate(refs)
                    ],
                )  # fmt: skip
            found: UUID = row["id"]
            return found

        return await self.database.run(work)

    async def rule(self, project_id: int, finding_id: UUID, triage: Triage, now: datetime) -> bool:
        """Keep what triage decided; a later decision takes the place of an earlier one. False: no finding."""

        async def work(connection: Connection) -> bool:
            # The five hidden fields, and the one that says that they are there.
            ruled = await connection.fetchval(
                "update finding set triage_status = 'ruled', triage_verdict = $3, triage_action = $4,"
                " triage_summary = $5, triage_citations = $6::text::jsonb, triaged_at = $7, confirmed = $8"
                " where project_id = $1 and id = $2 returning true",
                project_id,
                finding_id,
                triage.verdict,
                triage.action,
                triage.summary,
                msgspec.json.encode(list(triage.citations)).decode(),
                now,
                triage.confirmed,
            )
            return bool(ruled)

        return await self.database.run(work)

    async def set_status(self, project_id: int, finding_id: UUID, status: str) -> bool:
        """Open or close a finding: in one of `CLOSED_STATUSES` it no longer keeps what it cites."""

        async def work(connection: Connection) -> bool:
            # The finding, by its key.
            changed = await connection.fetchval(
                "update finding set status = $3 where project_id = $1 and id = $2 returning true",
                project_id,
                finding_id,
                status,
            )
            return bool(changed)

        return await self.database.run(work)

    async def list(
        self,
        project_id: int,
        *,
        status: str | None,
        call_site_id: str | None,
        detector: str | None,
        confirmed_only: bool,
    ) -> dict[str, Any]:
        """`{findings, withheld}`, newest first: at most 200 of each triage source, without a marker.

        `withheld` counts the findings that match but are not confirmed, when only confirmed ones are shown.
        Secrets: rows hold the triage ruling, which MCP must not show.
        """
        where = Where.of(project_id)
        where.equal("status", status)
        where.equal("call_site_id", call_site_id)
        where.equal("detector", detector)
        shown = f"{where.sql()} and confirmed" if confirmed_only else where.sql()

        async def work(connection: Connection) -> tuple[list[Any], int]:
            rows: list[Any] = []
            for source in TRIAGE_SOURCES:
                # The newest of one source, down its index.
                rows += await connection.fetch(
                    f"select {_COLUMNS} from finding where {shown} and triage_source = '{source}'"
                    f" order by last_seen_at desc, id desc limit {FINDINGS_SHOWN}",
                    *where.values,
                )
            if not confirmed_only:
                return rows, 0
            # What the same question would show beside these.
            withheld = await connection.fetchval(
                f"select count(*) from finding where {where.sql()} and not confirmed"
                " and triage_source in ('rule', 'agent')",
                *where.values,
            )
            return rows, withheld

        rows, withheld = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        rows.sort(key=lambda row: (row["last_seen_at"], row["id"]), reverse=True)
        return {"findings": [_finding_row(row) for row in rows], "withheld": withheld}

    async def one(self, project_id: int, finding_id: UUID) -> dict[str, Any] | None:
        """A finding with its evidence parsed, or None.

        Secrets: it holds the triage ruling, which MCP must not show.
        """
        # The finding, by its key.
        rows = await self.database.fetch(
            f"select {_COLUMNS}, evidence::text from finding where project_id = $1 and id = $2",
            project_id,
            finding_id,
            timeout_s=READ_TIMEOUT_S,
        )
        if not rows:
            return None
        return {**_finding_row(rows[0]), "evidence": msgspec.json.decode(rows[0]["evidence"])}

    async def evidence(
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
            # What the detector wrote at finding-open.
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

        found = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        if found is None:
            return None
        recorded, counted, rows = found
        page, next_cursor = EVIDENCE_ORDER.page(rows, limit)
        none: dict[str, int] = dict.fromkeys(EVIDENCE_ROLES, 0)
        return {
            "refs": [_ref(row) for row in page],
            "next_cursor": next_cursor,
            "counts": none | {EVIDENCE_ROLES[row["role"] - 1]: row["n"] for row in counted},
            "recorded_counts": none | msgspec.json.decode(recorded),
        }


def _finding_row(row: Any) -> dict[str, Any]:
    citations = row["triage_citations"]
    return {
        **{name: plain(row[column]) for column, name in _HEADLINE.items()},
        "triageCitations": None if citations is None else msgspec.json.decode(citations),
    }


def _ref(row: Any) -> dict[str, Any]:
    """`{role, grain, session_id?, trace_id?, span_id?, rank?}` (spec): what is not there is left out."""
    grain = "span" if row["span_id"] is not None else "trace" if row["trace_id"] is not None else "session"
    ids = {name: plain(row[name]) for name in ("session_id", "trace_id", "span_id", "rank")}
    known = {name: value for name, value in ids.items() if value is not None}
    return {"role": EVIDENCE_ROLES[row["role"] - 1], "grain": grain, **known}
