"""What detectors, triage and people do to a store under test, in a line each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs

from protocol.detection import RULE, Author, Cause, Detection, Firing, Opened, Ref, Ruled, Triage
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.firings import write_firings
from svc.store.postgres.database import Connection, Database
from tests.store.spans.test_writing import NOW

MISSING: Final = UUID(int=0)
LATER: Final = NOW + timedelta(hours=1)
ANN: Final = Author("person", "ann@example.com")
BOB: Final = Author("person", "bob@example.com")
AGENT: Final = Author("agent", "triage")
REAL: Final = Triage("positive", "confirm", "it is real")
NOISE: Final = Triage("negative", "reject", "it is noise")


async def record_firings(store: Database, project_id: int, firings: Iterable[Firing], now: datetime) -> None:
    """Have a classifier fire."""
    await store.run(lambda connection: write_firings(connection, project_id, firings, now))


def seen(number: int = 1, **fields: Any) -> Detection:
    """A failing tool, the same for the same number."""
    made = Detection(
        Cause("tool-errors", "error_type", f"Timeout-{number}"),
        title=f"cause {number}",
        basis="measured",
        severity=0.5,
        subject_kind="call_site",
        subject_id=f"site-{number}",
        subject_label=f"Site {number}",
        detected_at=NOW,
        onset_at=NOW - timedelta(minutes=30),
        trace_count=3,
        metric="error_rate",
        call_site_id=f"site-{number}",
        reference=f"tool:{number}",
    )
    return attrs.evolve(made, **fields)


async def fire(store: Database, what: Detection, refs: Iterable[Ref] = (), project_id: int = 1) -> UUID:
    return (await FindingStates(store).fire(project_id, what, refs)).finding_id


async def confirm(store: Database, finding_id: UUID, project_id: int = 1, by: Author = RULE) -> None:
    ruled = await FindingStates(store).rule(project_id, finding_id, REAL, by, NOW)
    assert isinstance(ruled, Ruled), ruled


async def opened(
    store: Database, what: Detection, refs: Iterable[Ref] = (), *, project_id: int = 1, at: Any = None
) -> Opened:
    """The case of a finding that fires and is confirmed."""
    finding_id = await fire(store, what, refs, project_id)
    await confirm(store, finding_id, project_id)
    found = await CaseFindings(store).open(project_id, finding_id, RULE, at or what.detected_at)
    assert isinstance(found, Opened), found
    return found


async def execute(store: Database, sql: str, *values: Any) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute(sql, *values)

    await store.run(work)
