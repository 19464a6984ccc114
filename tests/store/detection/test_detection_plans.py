"""Lists of cases and findings read down their indexes, however many there are."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from protocol.detection import RULE, Cause, Ref
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.cases.findings import FindingStore
from svc.store.detection.cases.inbox import InboxReads
from svc.store.detection.cases.references import ReferenceStore
from svc.store.detection.rca.reports import RcaStore
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from tests.conftest import filled_once
from tests.store.detection.detecting import AGENT, NOISE, confirm, fire, seen
from tests.store.reads.test_reads import Explaining
from tests.store.spans.test_writing import fetch

DAY = datetime(2026, 11, 1, tzinfo=UTC)
SOME_FINDING = UUID(int=20)


@pytest.fixture
async def detected(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """Two projects of 10,000 cases and findings each, and twenty refs behind each of a thousand findings."""
    async with filled_once(served, "much_detected", _fill) as database:
        yield database


async def _fill(store: Database) -> None:
    async def work(connection: Connection) -> None:
        # Cases in all states, every severity, many detectors.
        await connection.execute(
            "insert into detection_case (project_id, number, detector, subject_kind, subject_id,"
            " subject_label, call_site_id, state, title, basis, severity, onset_at, opened_at, last_seen_at,"
            " resolved_at, muted_at, muted_until)"
            " select 1 + n % 2, n, 'd' || n % 20, 'call_site', 's' || n, 's', 'site' || n % 100,"
            " (array['open', 'muted', 'resolved'])[1 + n % 3], 't', 'b',"
            " (array['low', 'medium', 'high'])[1 + n / 2 % 3], $1, $1::timestamptz + n * interval '1 s', $1,"
            " case when n % 3 = 2 then $1::timestamptz + n * interval '1 s' end,"
            " case when n % 3 = 1 then $1::timestamptz end,"
            # Every other mute has an end, and of a hundred one has ended.
            " case when n % 6 = 4 then $1::timestamptz + (n % 100 - 4) * interval '1 h' end"
            " from generate_series(1, 20000) n",
            DAY,
        )
        # Findings of both sources, nearly all of them confirmed and, of ten, nine closed.
        await connection.execute(
            "insert into finding (project_id, id, title, detector, cause_kind, cause_key, call_site_id,"
            " status, closed_at, first_seen_at, last_seen_at, onset_at, trace_count, triage_source,"
            " confirmed, severity, reference)"
            " select 1 + n % 2, lpad(to_hex(n), 32, '0')::uuid, 't', 'd' || n % 20, 'k', 'c' || n / 4,"
            " 'site' || n % 100, case when n / 2 % 10 > 0 then 'closed' else 'confirmed' end,"
            " case when n / 2 % 10 > 0 then $1::timestamptz end,"
            " $1, $1::timestamptz + n * interval '1 s', $1, 1,"
            " (array['rule', 'agent'])[1 + n / 2 % 2], n % 100 > 0, 0.5, 'r' || n"
            " from generate_series(1, 20000) n",
            DAY,
        )
        # Each stands in a case, two in some of them.
        await connection.execute(
            "insert into case_finding (project_id, finding_id, case_id, role, joined_at)"
            " select f.project_id, f.id, c.id, 'cause', $1 from (select *, row_number() over"
            " (partition by project_id order by id) as n from finding) f join (select *, row_number() over"
            " (partition by project_id order by number) as n from detection_case) c"
            " on c.project_id = f.project_id and c.n = greatest(f.n - f.n % 5, 1)",
            DAY,
        )
        # Trails, and references that were to move, of which a few are still.
        await connection.execute(
            "insert into case_event (project_id, case_id, kind, actor, summary, created_at)"
            " select project_id, id, 'opened', 'rule', '', $1 from detection_case",
            DAY,
        )
        await connection.execute(
            "insert into reference_move (project_id, detector, reference, from_at, finding_id, asked_by,"
            " asked_at, applied_at) select project_id, detector, reference, $1, id, 'ann', $1,"
            " case when id > lpad(to_hex(20), 32, '0')::uuid then $1::timestamptz end from finding",
            DAY,
        )
        # Reports, of which a few run.
        await connection.execute(
            "insert into rca_report (project_id, case_id, status, report, started_at)"
            " select project_id, id, case when number > 20 then 'done' else 'running' end,"
            " case when number > 20 then '{}'::jsonb end, $1 from detection_case",
            DAY,
        )
        # What is behind them: twenty refs each, of sessions, traces and spans.
        await connection.execute(
            "insert into finding_evidence (project_id, finding_id, role, position, session_id, trace_id,"
            " span_id) select project_id, id, 1 + n % 5, n, 's' || n,"
            " case when n % 3 > 0 then decode(lpad(to_hex(n), 32, '0'), 'hex') end,"
            " case when n % 3 > 1 then decode(lpad(to_hex(n), 16, '0'), 'hex') end"
            " from finding, generate_series(1, 20) n where id < lpad(to_hex(1000), 32, '0')::uuid"
        )
        # Traces of one span, and sessions.
        await connection.execute(
            "insert into span (project_id, trace_id, span_id, kind, name, status, started_at, created_at,"
            " call_site_id, tagged, frame)"
            " select 1 + n % 2, decode(lpad(to_hex(n), 32, '0'), 'hex'),"
            " decode(lpad(to_hex(n), 16, '0'), 'hex'), 'llm', 'n', 'ok', $1, $1, 'site', true, n"
            " from generate_series(1, 20000) n",
            DAY,
        )
        await connection.execute(
            "insert into trace (project_id, trace_id, name, started_at, first_started_at, last_started_at,"
            " root_seen, call_site_id, span_count, error_count, status, unpriced_spans, created_at, stale,"
            " due_at) select project_id, trace_id, name, started_at, started_at, started_at, true,"
            " call_site_id, 1, 0, status, 0, created_at, false, created_at from span"
        )
        await connection.execute(
            "insert into session select 1 + n % 2, 's' || n, null, $1, $1 from generate_series(1, 20000) n",
            DAY,
        )

    async def analyze(connection: Connection) -> None:
        await connection.execute("analyze")

    await store.run(work)
    await store.run(analyze, transaction=False)


def lists_of(explaining: Any) -> dict[str, Any]:
    cases, findings = CaseStore(explaining), FindingStore(explaining)

    def of_cases(state: Any, **asked: Any) -> Any:
        asked = {"detector": None, "call_site_id": None, "cursor": None, "now": DAY, **asked}
        return cases.page(1, state=state, limit=50, **asked)

    def of_findings(**asked: Any) -> Any:
        asked = {"status": None, "call_site_id": None, "detector": None, "confirmed_only": False, **asked}
        return findings.list(1, **asked)

    async def second_page(state: Any) -> Any:
        first = await of_cases(state)
        return await of_cases(state, cursor=first["next_cursor"])

    inbox = InboxReads(explaining)

    async def beside_cases() -> Any:
        page = await of_cases("open")
        return await inbox.around(1, [case["id"] for case in page["cases"]])

    return {
        "open cases": lambda: of_cases("open"),
        "muted cases": lambda: of_cases("muted"),
        "resolved cases": lambda: of_cases("resolved"),
        "the second page of open cases": lambda: second_page("open"),
        "the second page of resolved cases": lambda: second_page("resolved"),
        "open cases of a detector": lambda: of_cases("open", detector="d1"),
        "open cases of a call site": lambda: of_cases("open", call_site_id="site1"),
        "all findings": lambda: of_findings(),
        "findings of a status": lambda: of_findings(status="open"),
        "findings of a detector": lambda: of_findings(detector="d1"),
        "findings of a call site": lambda: of_findings(call_site_id="site1"),
        "a finding": lambda: findings.one(1, SOME_FINDING),
        "live findings": lambda: findings.live(1),
        "a case": lambda: cases.one(1, "C-20", DAY),
        "cases by state, counted": lambda: inbox.counts(1, DAY),
        "what nobody confirmed": lambda: inbox.withheld(1, 50),
        "what stands beside a page of cases": beside_cases,
        "the case of a finding": lambda: inbox.case_of(1, SOME_FINDING),
        "traces that a report cites": lambda: inbox.cited(1, [f"{n:032x}" for n in range(1, 50)]),
        "pending moves": lambda: ReferenceStore(explaining).pending(1),
        "evidence": lambda: EvidenceStore(explaining).page(
            1, SOME_FINDING, role=None, count_only=False, limit=100, cursor=None
        ),
    }


#: What no statement may read from end to end.
LARGE = {"detection_case", "finding", "finding_evidence", "case_finding", "case_event", "reference_move"}
LARGE |= {"rca_report", "trace", "session", "span", "span_default"}


@pytest.mark.parametrize("read", lists_of(None))
async def test_no_list_of_what_was_detected_reads_or_sorts_a_whole_project(
    detected: Database, read: str
) -> None:
    explaining = Explaining(detected)
    await lists_of(explaining)[read]()
    assert explaining.plans
    for plan in explaining.plans:
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan))
        assert not scanned & LARGE, plan
        for rows_sorted in re.findall(r"^\s*(?:->\s+)?Sort .*rows=(\d+)", plan, re.MULTILINE):
            assert int(rows_sorted) <= 1100, plan


async def test_what_is_withheld_is_counted_without_reading_the_project(detected: Database) -> None:
    explaining = Explaining(detected)
    counted = await FindingStore(explaining).list(  # type: ignore[arg-type]
        1, status=None, call_site_id=None, detector=None, confirmed_only=True
    )
    assert counted["withheld"] == 200
    assert not any("Sort" in plan for plan in explaining.plans)


async def the(store: Database, table: str, condition: str) -> UUID:
    (row,) = await fetch(store, f"select id from {table} where project_id = 1 and {condition} limit 1")
    found: UUID = row["id"]
    return found


LISTED = "exists (select from case_finding l where l.finding_id = finding.id)"
BUSY = f"status = 'confirmed' and {LISTED}"


def verbs_of(explaining: Any, store: Database) -> dict[str, Any]:
    findings, lists, states = FindingStates(explaining), CaseFindings(explaining), CaseStates(explaining)

    async def raise_one(**fields: Any) -> Any:
        (row,) = await fetch(
            store,
            "select detector, cause_kind, cause_key from finding f where project_id = 1 and closed_at is null"
            " and exists (select from case_finding l join detection_case c on c.id = l.case_id"
            " where l.finding_id = f.id and c.state = 'open') limit 1",
        )
        refs = [Ref("member", trace_id=bytes([n]) * 16) for n in range(50)]
        what = seen(
            seen_at=DAY + timedelta(days=9), recurrences=10_000, severity=0.9, cause=Cause(*row.values())
        )
        assert (await findings.fire(1, what, refs)).did == "raised"

    async def open_one() -> None:
        live = await fire(store, seen())
        await confirm(store, live)
        await lists.open(1, live, RULE, DAY)

    async def on_open(verb: Any, *arguments: Any, state: str = "open") -> None:
        where = "and exists (select from case_finding l join finding f on f.id = l.finding_id where l.case_id"
        where = f"state = '{state}' {where} = detection_case.id and f.closed_at is null)"
        await verb(1, await the(store, "detection_case", where), *arguments)

    async def join_one() -> None:
        loose = await fire(store, seen(2))
        await on_open(lists.join, loose, "effect", 0.5, RULE, DAY)

    async def of_finding(verb: Any, *arguments: Any) -> None:
        await verb(1, await the(store, "finding", BUSY), *arguments)

    async def analyse() -> None:
        reports = RcaStore(explaining)
        await reports.due()
        await on_open(reports.start, AGENT, DAY)
        lease = await reports.claim(DAY)
        assert lease is not None
        assert await reports.renew(lease)
        assert await reports.finish(lease, {}, AGENT, DAY)

    return {
        "a report": analyse,
        "a first firing": lambda: findings.fire(1, seen(7), [Ref("member", trace_id=b"1" * 16)]),
        "a later firing": raise_one,
        "a ruling": lambda: of_finding(findings.rule, NOISE, AGENT, DAY),
        "an expected finding": lambda: of_finding(findings.expect, AGENT, DAY),
        "a recovery": lambda: of_finding(findings.recover, DAY),
        "a case opened": open_one,
        "a finding joined": join_one,
        "a mute": lambda: on_open(states.mute, AGENT, DAY),
        "an unmute": lambda: on_open(states.unmute, AGENT, DAY, state="muted"),
        "mutes ended": lambda: states.end_mutes(1, DAY),
        "a resolution": lambda: on_open(states.resolve, "done", AGENT, DAY),
        "an absorption": lambda: on_open(states.absorb, "", AGENT, DAY),
    }


@pytest.fixture
async def busy(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """The same, for those who write."""
    async with filled_once(served, "much_detected_and_moved", _fill) as database:
        yield database


@pytest.mark.parametrize("verb", verbs_of(None, None))  # type: ignore[arg-type]
async def test_no_verb_reads_a_whole_project_to_move_one_thing(busy: Database, verb: str) -> None:
    explaining = Explaining(busy)
    await verbs_of(explaining, busy)[verb]()
    assert len(explaining.plans) > 2, "it found nothing to do"
    for plan in explaining.plans:
        assert not set(re.findall(r"Seq Scan on (\w+)", plan)) & LARGE, plan
