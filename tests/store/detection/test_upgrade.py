"""Findings and cases of an earlier schema live on as what they were."""

from __future__ import annotations

from datetime import timedelta

from protocol.detection import RULE, Opened
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.findings import FindingStore
from svc.store.postgres.database import Database
from svc.store.postgres.migrate import migrate
from tests.store.detection.detecting import LATER, execute, fire, seen
from tests.store.spans.test_writing import NOW, fetch


async def test_findings_and_cases_from_before_keep_status_evidence_and_case(empty_database: Database) -> None:
    store = empty_database
    await migrate(store, up_to=19)
    for number, status in enumerate(("open", "closed", "open"), 1):
        await execute(
            store,
            "insert into finding (project_id, title, detector, cause_kind, cause_key, status, first_seen_at,"
            " last_seen_at, trace_count, triage_source, confirmed)"
            " values (1, $1, 'tool-errors', 'error_type', $2, $3, $4, $4, 3, 'rule', $5)",
            f"cause {number}",
            f"Timeout-{number}",
            status,
            NOW,
            number < 3,
        )
    await execute(
        store,
        "insert into finding_evidence (project_id, finding_id, role, position, trace_id)"
        " select 1, id, 2, n, decode(repeat('01', 16), 'hex') from finding, generate_series(0, 1) n",
    )
    await execute(
        store,
        "insert into detection_case (project_id, number, detector, subject_kind, subject_id, subject_label,"
        " title, basis, severity, onset_at, opened_at, last_seen_at, finding_id) select 1, 1, 'tool-errors',"
        " 'call_site', 's', 'S', 't', 'b', 'high', $1, $1, $1, id from finding where title = 'cause 1'",
        NOW,
    )
    await execute(store, "insert into case_counter (project_id, last_number) values (1, 1)")
    assert (await migrate(store))[0] == 20
    found = await fetch(store, "select title, status, closed_at is null as live from finding order by title")
    assert [tuple(row) for row in found] == [
        ("cause 1", "confirmed", True),
        ("cause 2", "closed", False),
        ("cause 3", "withheld", True),
    ]
    assert len(await fetch(store, "select from finding_evidence")) == 3
    # The live one grows, the closed one returns, and the case is known and has not grown worse.
    live = {one.cause.key: one for one in await FindingStore(store).live(1)}
    first = await fire(store, seen(1, detected_at=LATER, severity=0.8))
    assert first == live["Timeout-1"].id
    assert await fire(store, seen(2, detected_at=LATER, onset_at=NOW + timedelta(minutes=1))) not in live
    case = await CaseFindings(store).open(1, first, RULE, LATER)
    assert isinstance(case, Opened)
    assert (case.reference, case.how) == ("C-1", "known")
    told = await CaseStore(store).one(1, "C-1", LATER)
    assert told is not None
    assert (told["severity"], told["events"]) == ("high", [])
