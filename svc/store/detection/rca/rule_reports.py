"""Reports by rule: begun, claimed and ended as any report, made of two cohorts.

Owns: `RuleReports`, which implements the `ReportStore` port over `RcaStore` and `CohortStore`. The
analyst calls it. The computing happens in a thread of its own; never two at a time in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from protocol.detection import RULE, DueCase, RcaLease, RcaStarted
from svc.domain.rca.report import report_of
from svc.store.detection.rca.cohorts import CohortStore
from svc.store.detection.rca.reports import RcaStore
from svc.store.postgres.database import Database

#: One report is computed at a time: the other cores have spans to store.
_computing: Final = trio.CapacityLimiter(1)


@attrs.define(eq=False)
class RuleReports:
    """All verbs raise `Outage`."""

    database: Database
    _reports: RcaStore = attrs.field(init=False)
    _cohorts: CohortStore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reports, self._cohorts = RcaStore(self.database), CohortStore(self.database)

    async def due(self) -> Sequence[DueCase]:
        """Unresolved cases without a report by rule since they opened."""
        return await self._reports.due()

    async def start(self, project_id: int, case_id: UUID, now: datetime) -> RcaStarted | None:
        """Begin the report of a case that is due; not new when somebody else did."""
        return await self._reports.start(project_id, case_id, RULE, now, if_due=True)

    async def claim(self, now: datetime) -> RcaLease | None:
        """Hold a report that nobody holds, whoever began it."""
        return await self._reports.claim(now, engine="rule")

    async def renew(self, lease: RcaLease) -> RcaLease | None:
        """Hold on to it; None: it is lost."""
        return await self._reports.renew(lease)

    async def release(self, lease: RcaLease, *, refund: bool) -> bool:
        """Let go of it, for the next to claim."""
        return await self._reports.release(lease, refund=refund)

    async def analyse(self, lease: RcaLease, now: datetime) -> dict[str, Any] | str:
        """The report, or a sentence when there is nothing to analyse.

        Cancellation: waits for the thread.
        """
        cohorts = await self._cohorts.of_case(lease.project_id, lease.case_id, now)
        if isinstance(cohorts, str):
            return cohorts
        return await trio.to_thread.run_sync(
            report_of,
            cohorts.claim,
            cohorts.before,
            cohorts.after,
            cohorts.marks,
            limiter=_computing,
        )

    async def finish(self, lease: RcaLease, outcome: dict[str, Any] | str, now: datetime) -> bool:
        """End it. False: it was lost."""
        return await self._reports.finish(lease, outcome, RULE, now)
