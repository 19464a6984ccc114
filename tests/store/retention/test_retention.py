"""Retention on a real PostgreSQL: what expires goes, what is cited stays, nobody has to wait for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from protocol.detection import RULE, Ref
from protocol.storage import Freed, Outage
from svc.domain.marks.table import MARK_NAMES
from svc.domain.queries.datasets import SPANS, TOOL_CALLS
from svc.domain.retention.terms import Override, Terms
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.postgres.database import Connection, Database
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from svc.store.reads.traces.traces import TraceReads
from svc.store.reads.usage.sessions import SessionReads
from svc.store.retention import days as expiry
from svc.store.retention import future
from svc.store.retention import projects as expiry_rest
from svc.store.retention.sweep import RetentionStore, read_override, write_override
from svc.store.spans.traces import PostgresTraceStore
from tests.store.as_json import JsonQueries
from tests.store.detection.detecting import AGENT, fire, opened, seen
from tests.store.reads.test_query import question
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, Clock, fetch, one, rows, store_of

TERM = 10
FOR_EVER = Terms(0, 0)
TERMS = Terms(TERM, TERM)
DAY = timedelta(days=1)
#: A text long enough to be stored as a message of its own when it is repeated.
LONG = "What is the meaning of this? " * 20


def trace_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def span_id(number: int) -> bytes:
    return (number + 1).to_bytes(8, "big")


def tool(number: int, start: datetime, **fields: Any) -> Any:
    said = [{"role": "user", "parts": [{"type": "text", "content": LONG}]}]
    attributes = {
        "session.id": f"s{number}",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.input.messages": said,
    }
    return one(number + 1, start=start, trace_id=trace_id(number), attributes=attributes, **fields)


@attrs.define
class Kept:
    """A store whose trace number n started n days ago, at noon, in a session of its own."""

    database: Database
    clock: Clock
    freed: list[Freed] = attrs.field(factory=list)

    async def sweep(self, terms: Terms = TERMS, now: datetime = NOW) -> dict[str, int]:
        """Rows and days freed, by table."""
        self.freed.clear()
        await RetentionStore(self.database, terms).sweep(now, self.freed.append)
        told: dict[str, int] = {}
        for step in self.freed:
            name = f"{step.table} days" if step.days else step.table
            told[name] = told.get(name, 0) + (step.days or step.rows)
        return {name: count for name, count in told.items() if count}

    async def ages(self, table: str, project_id: int = 1) -> set[int]:
        """How many days ago the rows of a daily table started."""
        found = await fetch(
            self.database, f"select started_at from {table} where project_id = $1", project_id
        )
        return {(NOW.date() - row["started_at"].date()).days for row in found}

    async def set_terms(self, project_id: int, traces: int | None, detections: int | None = None) -> None:
        await self.database.run(
            lambda connection: write_override(connection, project_id, Override(traces, detections))
        )

    async def settle(self) -> None:
        later = self.clock.now + timedelta(seconds=11)
        await settle_at(later, PostgresTraceStore(self.database))


AGES = (0, 1, TERM - 1, TERM, TERM + 1, TERM + 5)


@pytest.fixture
async def kept(store: Database) -> Kept:
    assert (await ProjectStore(store).make_default()).id == 1
    await fetch(
        store,
        "insert into project (id, org_id, slug, name) overriding system value"
        " select 2, id, 'other', '' from organization",
    )
    clock = Clock()
    for age in AGES:
        clock.now = NOW - age * DAY
        writer = store_of(store, clock)
        for project_id in (1, 2):
            # Twice: what is seen again becomes a message, and a re-sent span replaces the first.
            for _ in range(2):
                await writer.write(rows(tool(age, NOW - age * DAY), project=project_id))
    clock.now = NOW
    kept = Kept(store, clock)
    await kept.settle()
    return kept


async def test_days_past_their_term_are_dropped_whole_and_payloads_a_day_earlier(kept: Kept) -> None:
    freed = await kept.sweep()
    assert await kept.ages("span") == {0, 1, TERM - 1, TERM}
    assert await kept.ages("tool_call") == {0, 1, TERM - 1, TERM}
    assert await kept.ages("span_payload") == {0, 1, TERM - 1}
    assert await kept.ages("span_message") <= {0, 1, TERM - 1}
    assert freed["span days"] == 2
    assert freed["span_payload days"] == 3
    assert (freed["trace"], freed["session"]) == (4, 4)
    assert "span" not in freed, "no row was deleted one by one"
    names = await fetch(
        kept.database, "select from pg_class where relkind = 'r' and relname ~ '^span_[0-9]{8}$'"
    )
    assert len(names) == len(AGES) - 2


async def test_a_span_without_its_payload_says_so(kept: Kept) -> None:
    await kept.sweep()
    reads = SpanReads(kept.database)
    page = await reads.page(1, SpanFilter(), payload=False, limit=50, cursor=None)
    said = {
        (NOW.date() - datetime.fromisoformat(span["started_at"]).date()).days: span["payload_available"]
        for span in page["spans"]
    }
    assert said == {0: True, 1: True, TERM - 1: True, TERM: False}
    whole = await reads.one(1, trace_id(TERM), span_id(TERM))
    assert whole is not None
    assert whole["input"] is None
    assert not whole["payload_available"]


async def test_traces_and_sessions_go_with_their_last_span(kept: Kept) -> None:
    await kept.sweep()
    traces = TraceReads(kept.database, SpanReads(kept.database))
    assert await traces.one(1, trace_id(TERM), payload=False) is not None
    assert await traces.one(1, trace_id(TERM + 1), payload=False) is None
    sessions = await SessionReads(kept.database).page(1, limit=50, cursor=None)
    assert {row["id"] for row in sessions["sessions"]} == {f"s{age}" for age in AGES if age <= TERM}


async def test_zero_keeps_for_ever(kept: Kept) -> None:
    assert await kept.sweep(FOR_EVER) == {}
    assert await kept.ages("span_payload") == set(AGES)


async def test_a_second_sweep_finds_nothing_to_do(kept: Kept) -> None:
    await kept.sweep()
    assert await kept.sweep() == {}


async def test_a_project_with_a_shorter_term_loses_rows_and_leaves_the_others_theirs(kept: Kept) -> None:
    await kept.set_terms(1, 3)
    freed = await kept.sweep(Terms(30, 30))
    assert await kept.ages("span") == {0, 1}
    assert await kept.ages("span_payload") == {0, 1}
    assert await kept.ages("span", 2) == await kept.ages("span_payload", 2) == set(AGES)
    assert freed["span"] == 4
    assert "span days" not in freed


async def test_a_project_with_a_longer_term_keeps_the_days_it_has_rows_in(kept: Kept) -> None:
    await kept.set_terms(2, 0)
    freed = await kept.sweep()
    assert await kept.ages("span", 2) == set(AGES)
    assert await kept.ages("span") == {0, 1, TERM - 1, TERM}
    assert (freed["span"], freed["trace"]) == (2, 2)


async def test_a_project_that_has_no_rows_holds_no_day_back(kept: Kept) -> None:
    await fetch(
        kept.database,
        "insert into project (id, org_id, slug, name) overriding system value"
        " select 3, id, 'x', '' from organization",
    )
    await kept.set_terms(3, 0)
    assert (await kept.sweep())["span days"] == 2


async def test_a_term_of_one_day_keeps_yesterday(kept: Kept) -> None:
    await kept.sweep(Terms(1, 1))
    assert await kept.ages("span") == await kept.ages("span_payload") == {0, 1}


async def test_thinning_goes_on_batch_by_batch(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "BATCH_ROWS", 1)
    monkeypatch.setattr(expiry_rest, "BATCH_ROWS", 1)
    await kept.set_terms(1, 3)
    freed = await kept.sweep(Terms(30, 30))
    assert await kept.ages("span") == {0, 1}
    assert (freed["span"], freed["trace"], freed["session"]) == (4, 4, 4)
    assert max(step.rows for step in kept.freed) == 1


async def cite(kept: Kept, *refs: Ref, closed: bool = False) -> UUID:
    finding_id = await fire(kept.database, seen(), refs)
    if closed:
        await FindingStates(kept.database).recover(1, finding_id, NOW)
    return finding_id


@pytest.mark.parametrize(
    "ref", [Ref("member", trace_id=trace_id(TERM + 5)), Ref("baseline", session_id=f"s{TERM + 5}")]
)
async def test_what_an_open_finding_cites_is_kept_whole_until_it_closes(kept: Kept, ref: Ref) -> None:
    finding_id = await cite(kept, ref)
    before = await SpanReads(kept.database).one(1, trace_id(TERM + 5), span_id(TERM + 5))
    await kept.sweep()
    assert await kept.ages("span") == {0, 1, TERM - 1, TERM, TERM + 5}
    assert await kept.ages("tool_call") == {0, 1, TERM - 1, TERM, TERM + 5}
    assert await kept.ages("span", 2) == {0, 1, TERM - 1, TERM}
    after = await SpanReads(kept.database).one(1, trace_id(TERM + 5), span_id(TERM + 5))
    assert after == before
    assert after is not None
    assert LONG in str(after["input"])
    evidence = await EvidenceStore(kept.database).page(
        1, finding_id, role=None, count_only=True, limit=1, cursor=None
    )
    assert evidence is not None
    assert evidence["counts"] == evidence["recorded_counts"]
    assert await kept.sweep() == {}, "a day that went is not made again for what stayed"
    await FindingStates(kept.database).recover(1, finding_id, NOW)
    freed = await kept.sweep()
    assert (freed["span"], freed["trace"], freed["session"]) == (1, 1, 1)
    assert await kept.ages("span") == {0, 1, TERM - 1, TERM}
    assert TERM + 5 not in await kept.ages("span_message")


async def test_what_a_closed_finding_cites_goes(kept: Kept) -> None:
    await cite(kept, Ref("member", trace_id=trace_id(TERM + 5)), closed=True)
    await kept.sweep()
    assert await kept.ages("span") == {0, 1, TERM - 1, TERM}


async def test_an_unresolved_case_holds_what_its_findings_cite(kept: Kept) -> None:
    case = await opened(kept.database, seen(1))
    cites = await fire(kept.database, seen(2), [Ref("member", trace_id=trace_id(TERM + 5))])
    await CaseFindings(kept.database).join(1, case.id, cites, "effect", 0.9, RULE, NOW)
    await FindingStates(kept.database).recover(1, cites, NOW)
    await kept.sweep()
    assert TERM + 5 in await kept.ages("span")
    await CaseStates(kept.database).resolve(1, case.id, "fixed", AGENT, NOW)
    await kept.sweep()
    assert TERM + 5 not in await kept.ages("span")


async def test_the_trace_that_an_unresolved_case_is_about_is_kept(kept: Kept) -> None:
    await opened(kept.database, seen(1, subject_kind="trace", subject_id=trace_id(TERM + 5).hex()))
    await kept.sweep()
    assert TERM + 5 in await kept.ages("span")


async def test_a_sweep_writes_down_the_mutes_that_have_ended(kept: Kept) -> None:
    case = await opened(kept.database, seen())
    await CaseStates(kept.database).mute(1, case.id, AGENT, NOW, NOW + timedelta(minutes=1))
    await kept.sweep(now=NOW + timedelta(hours=1))
    assert [row["state"] for row in await fetch(kept.database, "select state from detection_case")] == [
        "open"
    ]


async def test_thinning_leaves_what_is_cited(kept: Kept) -> None:
    await kept.set_terms(1, 3)
    await cite(kept, Ref("member", trace_id=trace_id(TERM + 5)))
    await kept.sweep(Terms(30, 30))
    assert await kept.ages("span") == {0, 1, TERM + 5}
    whole = await SpanReads(kept.database).one(1, trace_id(TERM + 5), span_id(TERM + 5))
    assert whole is not None
    assert LONG in str(whole["input"])


async def test_counts_are_exact_before_and_after_the_cubes_follow(kept: Kept) -> None:
    cubes, queries = CubeStore(kept.database), JsonQueries(kept.database)
    await cubes.build(NOW + timedelta(hours=2), 1000)
    assert await queries.count(question()) == {"count": len(AGES)}
    await cite(kept, Ref("member", trace_id=trace_id(TERM + 5)))
    await kept.set_terms(2, 3)
    await kept.sweep(now=NOW + timedelta(hours=2))
    for _ in range(2):
        for dataset in (SPANS, TOOL_CALLS):
            asked = question() if dataset is SPANS else attrs.evolve(question(), dataset=dataset)
            assert await queries.count(asked) == {"count": 5}
        await cubes.build(NOW + timedelta(hours=2), 1000)
    assert await fetch(kept.database, "select from cube_dirty") == []


async def test_rows_of_no_regular_day_expire_too(kept: Kept) -> None:
    """A day older than any partition, as an import of old data brings."""
    await store_of(kept.database, kept.clock).write(rows(tool(77, NOW - 500 * DAY)))
    await kept.settle()
    assert 500 in await kept.ages("span")
    freed = await kept.sweep()
    assert 500 not in await kept.ages("span")
    assert freed["span"] == freed["span_payload"] == 1


async def test_rows_of_days_that_never_come_expire_by_when_they_were_stored(kept: Kept) -> None:
    """A clock that is years ahead: one trace stored long ago, one today, one that a finding cites."""
    times = {77: (TERM + 5, 4000), 78: (0, 4000), 79: (TERM + 5, 4001)}
    for number, (stored, ahead) in times.items():
        kept.clock.now = NOW - stored * DAY
        # Twice: what is seen again becomes a message.
        for _ in range(2):
            await store_of(kept.database, kept.clock).write(rows(tool(number, NOW + ahead * DAY)))
        await kept.settle()
    kept.clock.now = NOW
    # A trace of today with one span of such a day.
    late = one(99, trace_id=trace_id(0), start=NOW + 4002 * DAY)
    await store_of(kept.database, kept.clock).write(rows(late))
    await kept.settle()
    await cite(kept, Ref("member", trace_id=trace_id(79)))
    freed = await kept.sweep()
    assert await kept.ages("span") & {-4000, -4001, -4002} == {-4000, -4001, -4002}
    left = {row["trace_id"] for row in await fetch(kept.database, "select trace_id from span_default")}
    assert left == {trace_id(78), trace_id(79), trace_id(0)}
    for table in ("span_payload_default", "tool_call_default", "trace"):
        found = {row["trace_id"] for row in await fetch(kept.database, f"select trace_id from {table}")}
        assert found >= left - ({trace_id(0)} if table == "tool_call_default" else set()), table
        assert trace_id(77) not in found, table
    assert (freed["span"], freed["tool_call"], freed["span_payload"]) == (1, 1, 1)
    assert {row["id"] for row in await fetch(kept.database, "select id from session")} >= {"s78", "s79"}
    assert await kept.sweep() == {}
    later = NOW + (TERM + 1) * DAY
    await fetch(kept.database, "update trace set next_at = null")
    await kept.sweep(now=later)
    assert await kept.ages("span") & {-4000, -4001, -4002} == {-4001}
    assert {(NOW.date() - day).days for day in await days_of(kept, "span_message")} <= {-4001}
    assert {(NOW.date() - day).days for day in await days_of(kept, "span_payload")} == {-4001}


async def days_of(kept: Kept, table: str) -> set[date]:
    found = await fetch(kept.database, f"select started_at from {table}_default where project_id = 1")
    return {row["started_at"].date() for row in found}


async def test_what_has_just_been_written_late_is_not_lost_with_its_trace(kept: Kept) -> None:
    """A late span touches its trace: until the roller has seen it, and while its day lives, it stays."""
    await kept.set_terms(2, 0)
    await store_of(kept.database, kept.clock).write(
        rows(one(99, trace_id=trace_id(TERM + 1), start=NOW - (TERM + 1) * DAY))
    )
    await kept.sweep()
    assert len(await fetch(kept.database, "select from trace where trace_id = $1", trace_id(TERM + 1))) == 2
    await kept.settle()
    await kept.sweep()
    assert len(await fetch(kept.database, "select from trace where trace_id = $1", trace_id(TERM + 1))) == 1


async def test_the_disk_is_free_at_once(kept: Kept) -> None:
    await fetch(
        kept.database,
        "insert into span_payload (project_id, trace_id, started_at, frame, body)"
        " select 1, decode(md5(n::text), 'hex'), date_trunc('day', $1::timestamptz, 'UTC'), n,"
        " convert_to(repeat(md5(n::text), 200), 'UTF8') from generate_series(1, 2000) n",
        NOW - (TERM + 1) * DAY,
    )
    (before,) = await fetch(kept.database, "select pg_database_size(current_database()) as n")
    await kept.sweep()
    (after,) = await fetch(kept.database, "select pg_database_size(current_database()) as n")
    told = sum(step.bytes for step in kept.freed)
    assert told > 12_000_000
    assert before["n"] - after["n"] > 0.9 * 12_000_000


async def test_a_day_in_use_is_asked_for_again_and_nobody_waits_behind_it(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LOCK_WAIT", "50ms")
    monkeypatch.setattr(expiry, "LOCK_PAUSE_S", 0.01)
    reading, go_on = trio.Event(), trio.Event()

    async def reader() -> None:
        async def work(connection: Connection) -> None:
            await connection.fetch("select count(*) from span")
            reader_token.run_sync_soon(reading.set)
            while not go_on.is_set():
                await connection.fetch("select pg_sleep(0.02)")

        await kept.database.run(work)

    reader_token = trio.lowlevel.current_trio_token()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await reading.wait()
        await kept.sweep()
        assert TERM + 5 in await kept.ages("span"), "the reader holds the table"
        await store_of(kept.database, kept.clock).write(rows(tool(50, NOW)))
        go_on.set()
    await kept.sweep()
    assert TERM + 5 not in await kept.ages("span")


async def test_two_sweeps_at_once_do_the_work_of_one(kept: Kept) -> None:
    await kept.set_terms(1, 3)
    await cite(kept, Ref("member", trace_id=trace_id(TERM + 5)))
    steps: list[Freed] = []
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(RetentionStore(kept.database, TERMS).sweep, NOW, steps.append)
    assert await kept.ages("span") == {0, 1, TERM + 5}
    assert await kept.ages("span", 2) == {0, 1, TERM - 1, TERM}
    assert sum(step.rows for step in steps if step.table == "trace") == 5


async def test_a_sweep_cut_off_at_any_step_is_taken_up_by_the_next(kept: Kept) -> None:
    await kept.set_terms(1, 3)
    await cite(kept, Ref("member", trace_id=trace_id(TERM + 5)))
    steps = 0
    while True:
        steps += 1
        left = steps

        def cut(_freed: Freed) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Outage("cut off")

        try:
            await RetentionStore(kept.database, TERMS).sweep(NOW, cut)
        except Outage:
            continue
        break
    assert steps > 1
    assert await kept.ages("span") == {0, 1, TERM + 5}
    assert await kept.ages("span_payload") == {0, 1, TERM + 5}
    assert await kept.sweep() == {}


async def test_detections_have_a_term_of_their_own(kept: Kept) -> None:
    old, new = NOW - (TERM + 1) * DAY, NOW - (TERM - 1) * DAY
    for moment in (old, new):
        await fetch(
            kept.database,
            "insert into classifier_event (project_id, classifier_id, severity, subject_kind, summary,"
            " created_at) values (1, 'c', 'low', 'trace', 's', $1)",
            moment,
        )
        await fetch(
            kept.database,
            "insert into l1_eval values (1, date_trunc('hour', $1::timestamptz), 'c', 1)",
            moment,
        )
    ref = Ref("member", trace_id=trace_id(0))
    states, cases = FindingStates(kept.database), CaseStates(kept.database)
    for number, closed, at in ((1, True, old), (2, False, old), (3, True, new)):
        finding_id = await fire(kept.database, seen(number, onset_at=old, detected_at=at), [ref])
        if closed:
            await states.recover(1, finding_id, at)
    # Closed, but a case still lists it.
    linked = await opened(kept.database, seen(4, detected_at=old), [ref])
    await cases.resolve(1, linked.id, "fixed", AGENT, new)
    for number, at in ((5, old), (6, new)):
        case = await opened(kept.database, seen(number, detected_at=at))
        await cases.resolve(1, case.id, "fixed", AGENT, at)
    freed = await kept.sweep(Terms(0, TERM))
    assert freed == {
        "classifier_event": 1,
        "l1_eval": 1,
        "detection_case": 1,
        "finding_evidence": 1,
        # That of the case that went too.
        "finding": 2,
    }
    left = await fetch(kept.database, "select cause_key from finding order by 1")
    assert [row["cause_key"] for row in left] == ["Timeout-2", "Timeout-3", "Timeout-4", "Timeout-6"]
    assert len(await fetch(kept.database, "select from case_finding")) == 2
    assert len(await fetch(kept.database, "select from case_event")) == 4
    assert await kept.ages("span") == set(AGES)


async def test_what_is_known_of_exporters_has_the_term_of_traces(kept: Kept) -> None:
    for moment in (NOW - (TERM + 1) * DAY, NOW):
        await fetch(
            kept.database,
            "insert into exporter_day values (1, $1, 'x', '', '', '', '', '', $2, '{}')",
            moment.date(),
            moment,
        )
        await fetch(
            kept.database, "insert into rejection_day values (1, $1, 'r', 1, $2)", moment.date(), moment
        )
    freed = await kept.sweep()
    assert (freed["exporter_day"], freed["rejection_day"]) == (1, 1)
    for table in ("exporter_day", "rejection_day"):
        (row,) = await fetch(kept.database, f"select day from {table}")
        assert row["day"] == NOW.date()


async def test_dead_letters_and_hourly_rollups_have_the_term_of_traces(kept: Kept) -> None:
    for moment in (NOW - (TERM + 1) * DAY, NOW):
        await fetch(
            kept.database,
            "insert into dead_letter (project_id, reason, spans, received_at, body) values (1, 'r', 1,"
            " $1, '')",
            moment,
        )
        for granularity in ("hour", "day"):
            await fetch(
                kept.database,
                "insert into metric_rollup values (1, 'ingested_spans', $2, "
                " date_trunc($2, $1::timestamptz), 1)",
                moment,
                granularity,
            )
    freed = await kept.sweep()
    assert (freed["dead_letter"], freed["metric_rollup"]) == (1, 1)
    grains = await fetch(kept.database, "select granularity from metric_rollup order by 1")
    assert [row["granularity"] for row in grains] == ["day", "day", "hour"]


async def test_what_a_project_sets_is_replaced_both_at_once(kept: Kept) -> None:
    async def told() -> Override:
        return await kept.database.run(lambda connection: read_override(connection, 1))

    assert await told() == Override(None, None)
    await kept.set_terms(1, 3, 4)
    assert await told() == Override(3, 4)
    await kept.set_terms(1, None, 0)
    assert await told() == Override(None, 0)
    (_, first) = sorted(
        await RetentionStore(kept.database, TERMS).projects(), key=lambda p: p.slug != "other"
    )
    assert first.slug == "default"
    assert first.terms == Terms(TERM, 0)


async def test_the_sizes_are_told(kept: Kept) -> None:
    told: dict[str, Mapping[str, Any]] = {
        row["table"]: row for row in await RetentionStore(kept.database, TERMS).sizes()
    }
    assert told["span"]["days"] >= len(AGES)
    assert told["span"]["oldest"] == (NOW - (TERM + 5) * DAY).date()
    assert told["span_payload"]["bytes"] > 0


async def test_the_plan_of_a_sweep_reads_no_day_from_end_to_end(kept: Kept) -> None:
    day = (NOW - (TERM + 5) * DAY).date()
    name = f"span_{day:%Y%m%d}"
    await fetch(
        kept.database,
        f"insert into {name} (project_id, trace_id, span_id, kind, name, status, started_at, created_at,"
        " call_site_id, tagged, frame) select 1 + n % 2, decode(md5(n::text), 'hex'), '\\x01', 'llm', 'n',"
        " 'ok', $1, $1, 'c', true, 0 from generate_series(1, 20000) n",
        NOW - (TERM + 5) * DAY,
    )
    await fetch(
        kept.database,
        "insert into trace (project_id, trace_id, name, started_at, first_started_at, last_started_at,"
        " root_seen, call_site_id, span_count, error_count, status, unpriced_spans, created_at, stale,"
        " due_at)"
        " select 1, decode(md5(n::text), 'hex'), 'n', $1, $1, $1, true, 'c', 1, 0, 'ok', 0, $1, false, $1"
        " from generate_series(1, 20000) n",
        NOW,
    )
    await fetch(
        kept.database,
        "insert into span (project_id, trace_id, span_id, kind, name, status, started_at, created_at,"
        " call_site_id, tagged, frame) select 1 + n % 20, decode(md5(n::text), 'hex'), '\\x01', 'llm', 'n',"
        " 'ok', $1, $2, 'c', true, 0 from generate_series(1, 20000) n",
        NOW - 500 * DAY,
        NOW,
    )
    await fetch(
        kept.database,
        "insert into tool_call (project_id, trace_id, span_id, index, embedded, name, status, call_site_id,"
        " started_at, created_at) select 1 + n % 20, decode(md5(n::text), 'hex'), '\\x01', 0, false, 'n',"
        " 'ok', 'c', $1, $2 from generate_series(1, 20000) n",
        NOW - 500 * DAY,
        NOW,
    )
    await fetch(
        kept.database,
        "insert into span_payload (project_id, trace_id, started_at, frame, body)"
        " select 1 + n % 20, decode(md5(n::text), 'hex'), $1, 0, '' from generate_series(1, 20000) n",
        NOW - 500 * DAY,
    )
    await fetch(
        kept.database,
        "insert into span_message (project_id, hash, started_at, body)"
        " select 1 + n % 20, decode(md5(n::text), 'hex'), $1, '' from generate_series(1, 20000) n",
        NOW - 500 * DAY,
    )
    await fetch(
        kept.database,
        "insert into classifier_event (project_id, classifier_id, severity, subject_kind, subject_trace_id,"
        " summary) select 1 + n % 2, 'same_call_again', 'low', 'span', decode(md5(n::text), 'hex'), 's'"
        " from generate_series(1, 20000) n",
    )
    await fetch(kept.database, f"analyze {name}")
    await fetch(kept.database, "analyze trace")
    await fetch(kept.database, "analyze classifier_event")
    for table in ("span", "span_payload", "tool_call", "span_message"):
        await fetch(kept.database, f"analyze {table}_default")
    plans: list[str] = []
    later = NOW + 4 * DAY

    async def work(connection: Connection) -> None:
        for sql, values in (
            (expiry._HOURS.format(relation=name), (1,)),
            (expiry._owners("span", name), ([1, 2], None)),
            *(
                (
                    expiry_rest._TRACES.replace("{expired}", expired),
                    (1, NOW - DAY, NOW - 90 * DAY, b"", 2000, later, list(MARK_NAMES)),
                )
                for expired in (expiry_rest._PAST, expiry_rest._TO_COME)
            ),
            *(
                (
                    future._deletion(table, key, condition, counted=dataset is not None),
                    (1, later, NOW - DAY) if dataset is not None else (1, later),
                )
                for table, key, condition, dataset in future._TABLES
            ),
        ):
            plan = await connection.fetch(f"explain {sql}", *values)
            plans.append("\n".join(row[0] for row in plan))

    await kept.database.run(work)
    for plan in plans:
        assert not re.search(rf"Seq Scan on ({name}|trace|classifier_event|\w+_default)\b", plan), plan
