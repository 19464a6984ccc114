"""Lists of cases and findings read down their indexes, however many there are."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from svc.store.detection.cases import CaseStore
from svc.store.detection.findings import FindingStore
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from tests.conftest import filled_once
from tests.store.reads.test_reads import Explaining

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
            " resolved_at)"
            " select 1 + n % 2, n, 'd' || n % 20, 'call_site', 's' || n, 's', 'site' || n % 100,"
            " (array['open', 'muted', 'resolved'])[1 + n % 3], 't', 'b',"
            " (array['low', 'medium', 'high'])[1 + n / 2 % 3], $1, $1::timestamptz + n * interval '1 s', $1,"
            " case when n % 3 = 2 then $1::timestamptz + n * interval '1 s' end"
            " from generate_series(1, 20000) n",
            DAY,
        )
        # Findings of both sources, nearly all of them confirmed.
        await connection.execute(
            "insert into finding (project_id, id, title, detector, cause_kind, cause_key, call_site_id,"
            " status, first_seen_at, last_seen_at, trace_count, triage_source, confirmed)"
            " select 1 + n % 2, lpad(to_hex(n), 32, '0')::uuid, 't', 'd' || n % 20, 'k', 'c' || n,"
            " 'site' || n % 100, 'open', $1, $1::timestamptz + n * interval '1 s', 1,"
            " (array['rule', 'agent'])[1 + n / 2 % 2], n % 100 > 0 from generate_series(1, 20000) n",
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
        asked = {"detector": None, "call_site_id": None, "cursor": None, **asked}
        return cases.page(1, state=state, limit=50, **asked)

    def of_findings(**asked: Any) -> Any:
        asked = {"status": None, "call_site_id": None, "detector": None, "confirmed_only": False, **asked}
        return findings.list(1, **asked)

    async def second_page(state: Any) -> Any:
        first = await of_cases(state)
        return await of_cases(state, cursor=first["next_cursor"])

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
        "evidence": lambda: findings.evidence(
            1, SOME_FINDING, role=None, count_only=False, limit=100, cursor=None
        ),
    }


@pytest.mark.parametrize("read", lists_of(None))
async def test_no_list_of_what_was_detected_reads_or_sorts_a_whole_project(
    detected: Database, read: str
) -> None:
    explaining = Explaining(detected)
    await lists_of(explaining)[read]()
    assert explaining.plans
    for plan in explaining.plans:
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan))
        whole = {"detection_case", "finding", "finding_evidence", "trace", "session", "span", "span_default"}
        assert not scanned & whole, plan
        for rows_sorted in re.findall(r"^\s*(?:->\s+)?Sort .*rows=(\d+)", plan, re.MULTILINE):
            assert int(rows_sorted) <= 1100, plan


async def test_what_is_withheld_is_counted_without_reading_the_project(detected: Database) -> None:
    explaining = Explaining(detected)
    counted = await FindingStore(explaining).list(  # type: ignore[arg-type]
        1, status=None, call_site_id=None, detector=None, confirmed_only=True
    )
    assert counted["withheld"] == 200
    assert not any("Sort" in plan for plan in explaining.plans)
