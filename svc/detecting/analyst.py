"""The analyst: makes a report by rule for each case that opens, one at a time.

Owns the rhythm, the lease and the counts; a round of the detecting process. What is due stands in the
database, so a restart loses nothing: a report in hand is claimed again once its lease is over, by whichever
replica comes first. A case that cannot be analysed costs nobody else a report. What is said in a report is a
rule of the domain (`svc.domain.rca.report`); `RuleReports` makes it of two cohorts, in a thread of its own,
never two at a time in one process.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

import attrs
import trio

from protocol.detection import RULE, DueCase, RcaLease, RcaStarted
from protocol.storage import Outage
from svc.domain.rca.report import report_of
from svc.store.detection.rca.cohorts import CohortStore
from svc.store.detection.rca.reports import RcaStore
from svc.store.postgres.database import Database

log = logging.getLogger(__name__)

#: Between two looks: a report stands within a minute of its case.
ROUND_S: Final = 15.0
#: A lease holds for 60 s by the store's clock.
RENEW_S: Final = 20.0
#: One report takes no longer; one of 5,431 traces took 1.1 to 1.7 s (measured 2026-11).
ANALYSIS_TIMEOUT_S: Final = 120.0


#: Failures are counted by their reason behind this.
FAILED: Final = "failed."

#: One report is computed at a time: the other cores have spans to store.
_computing: Final = trio.CapacityLimiter(1)


class ReportStore(Protocol):
    """Where the analyst finds cases without a report by rule, and makes one. All verbs raise `Outage`."""

    async def due(self) -> Sequence[DueCase]: ...

    async def start(self, project_id: int, case_id: UUID, now: datetime) -> RcaStarted | None: ...

    async def claim(self, now: datetime) -> RcaLease | None: ...

    async def renew(self, lease: RcaLease) -> RcaLease | None: ...

    async def release(self, lease: RcaLease, *, refund: bool) -> bool: ...

    async def analyse(self, lease: RcaLease, now: datetime) -> dict[str, Any] | str:
        """The report, or a sentence when there is nothing to analyse."""
        ...

    async def finish(self, lease: RcaLease, outcome: dict[str, Any] | str, now: datetime) -> bool: ...


class CaseAnalyst:
    """Looks every `ROUND_S`, begins what is due, and makes all reports that nobody holds.

    `counts` go up by what was done: reports `begun`, `reports` made, leases `lost`, failures.
    """

    def __init__(self, *, store: ReportStore, now: Callable[[], datetime], counts: Counter[str]) -> None:
        self._store, self._now, self._counts = store, now, counts

    async def round(self) -> float:
        """One look; the seconds to rest. Raises `Outage`."""
        for case in await self._store.due():
            start = await self._store.start(case.project_id, case.case_id, self._now())
            self._counts["begun"] += start is not None and start.new
        while (lease := await self._store.claim(self._now())) is not None:
            await self._report(lease)
        return ROUND_S

    async def _report(self, lease: RcaLease) -> None:
        outcome = await self._outcome(lease)
        if outcome is not None and await self._store.finish(lease, outcome, self._now()):
            if isinstance(outcome, str):
                self._counts[FAILED + outcome] += 1
            else:
                self._counts["reports"] += 1
        else:
            self._counts["lost"] += 1

    async def _outcome(self, lease: RcaLease) -> dict[str, Any] | str | None:
        """The report, or why there is none; None when the lease was lost meanwhile."""
        outcome: dict[str, Any] | str | None = f"it took longer than {round(ANALYSIS_TIMEOUT_S)} s"
        try:
            with trio.move_on_after(ANALYSIS_TIMEOUT_S):
                outcome = await self._held(lease)
        except Outage:
            await self._store.release(lease, refund=True)
            raise
        except Exception as error:  # what one case does to the rule must not cost the others their reports
            log.warning("an automatic report failed: %s", type(error).__name__)
            outcome = f"the rule failed ({type(error).__name__})"
        return outcome

    async def _held(self, lease: RcaLease) -> dict[str, Any] | str | None:
        """Analyse while the lease is renewed beside it."""
        outcome: dict[str, Any] | str | None = None
        trouble: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._renewing, lease, nursery.cancel_scope)
            try:
                outcome = await self._store.analyse(lease, self._now())
            except Exception as error:  # told outside of the nursery, alone and not in a group
                trouble = error
            nursery.cancel_scope.cancel()
        if trouble is not None:
            raise trouble
        return outcome

    async def _renewing(self, lease: RcaLease, scope: trio.CancelScope) -> None:
        while True:
            await trio.sleep(RENEW_S)
            try:
                renewal = await self._store.renew(lease)
            except Outage:
                # The analysis will meet it too; a lease that runs out is claimed by the next.
                continue
            if renewal is None:
                scope.cancel()


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
