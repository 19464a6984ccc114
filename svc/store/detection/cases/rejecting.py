"""Rejecting findings because somebody says that nothing is wrong, and taking that back.

Owns the column `overruled` of the table `finding`: what was decided of a finding before it was rejected, so
that whoever takes the rejection back finds it as it was. Called by the verbs of cases and of findings, inside
their transactions and in the project's turn. Never moves a case.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from protocol.detection import Author
from svc.store.postgres.database import Connection

#: What a rejection overwrites, as a value of `overruled`.
OVERRULED: Final = (
    "jsonb_build_object('confirmed', confirmed, 'confirmed_at', confirmed_at, 'status', triage_status,"
    " 'verdict', triage_verdict, 'action', triage_action, 'summary', triage_summary,"
    " 'citations', triage_citations, 'at', triaged_at, 'kind', ruled_by_kind, 'by', ruled_by)"
)


async def reject(
    connection: Connection,
    project_id: int,
    finding_ids: Sequence[UUID],
    reason: str,
    by: Author,
    now: datetime,
) -> None:
    """Close live findings as no issue: what they saw since their onset is told no more."""
    # The ruling of whoever says so, in the place of an earlier one.
    await connection.execute(
        f"update finding set overruled = {OVERRULED}, triage_status = 'done', triage_verdict = 'negative',"
        " triage_action = 'reject', triage_summary = $3, triage_citations = '[]', triaged_at = $4,"
        " ruled_by_kind = $5, ruled_by = $6, status = 'rejected', confirmed = false, confirmed_at = null,"
        " closed_at = $4, closed_by = $6, closed_as = 'rejected'"
        " where project_id = $1 and id = any($2::uuid[])",
        project_id,
        list(finding_ids),
        reason,
        now,
        by.kind,
        by.name,
    )


async def take_back(connection: Connection, project_id: int, finding_ids: Sequence[UUID]) -> None:
    """Give findings that were rejected the ruling that they had before."""
    # Field by field, as they were kept.
    await connection.execute(
        "update finding set confirmed = (overruled->>'confirmed')::boolean,"
        " confirmed_at = (overruled->>'confirmed_at')::timestamptz, triage_status = overruled->>'status',"
        " triage_verdict = overruled->>'verdict', triage_action = overruled->>'action',"
        " triage_summary = overruled->>'summary', triage_citations = nullif(overruled->'citations', 'null'),"
        " triaged_at = (overruled->>'at')::timestamptz, ruled_by_kind = overruled->>'kind',"
        " ruled_by = overruled->>'by', overruled = null"
        " where project_id = $1 and id = any($2::uuid[]) and overruled is not null",
        project_id,
        list(finding_ids),
    )
