"""Laws of tallying: each settled trace is counted once, whatever happens to it and to whoever counts
it.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from protocol.detection_rounds import Tallied
from protocol.storage import Freed, Outage
from svc.domain.detect.detectors import table
from svc.domain.detect.detectors.base import MEASURES, OTHER, Observation, slot_of
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, SLOTS_PER_HOUR
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.counting import settled_traces, tallies, tallying
from svc.store.detection.counting.tallies import TallyStore
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.detection.counting.tidying import FINE, let_go, to_hours
from svc.store.detection.judging import due
from svc.store.postgres.database import Connection, Database
from svc.store.spans.traces import PostgresTraceStore
from tests.actors.every_await import Strike
from tests.domain.detect.secrets.test_secrets import POSITIVES
from tests.store.spans.test_rework import BOOK, DEAR, execute, rework_of
from tests.store.spans.test_rework import run as rework
from tests.store.spans.test_writing import NOW, PROJECT, fetch, on_server, one, rows, store_of

CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 900,
    "svc.call_site.id": "writer",
}
#: The writer as the only agent of a story calls it.
WRITER = "agent:writer › invoke_agent"


def story(number: int, *, failing: bool = False, at: datetime = NOW) -> list[Any]:
    """A trace of an agent, a model call and a tool."""
    trace_id = number.to_bytes(16, "big")
    said = [{"role": "assistant", "parts": [{"type": "text", "content": f'{{"total": {number}}}'}]}]
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.arguments": {"q": number % 3},
        # Of five one is marked, as long as its span says that it went well.
        "gen_ai.tool.call.result": "404 Not Found" if number % 5 == 1 else "a row",
    }
    error = (
        {"attributes": tool | {"error.type": "Timeout"}, "status_code": 2}
        if failing
        else {"attributes": tool}
    )
    agent = {"gen_ai.operation.name": "invoke_agent", "svc.call_site.id": "desk"}
    second = timedelta(seconds=1)
    return [
        one(1, trace_id=trace_id, start=at, took_s=9 + number % 5, name="invoke_agent", attributes=agent),
        one(
            2,
            trace_id=trace_id,
            start=at + second,
            parent=1,
            name="chat",
            attributes=CHAT | {"gen_ai.output.messages": said},
        ),
        one(3, trace_id=trace_id, start=at + 2 * second, parent=1, name="execute_tool look", **error),
    ]


async def write(store: Database, *spans: Any, came: datetime = NOW) -> None:
    await store_of(store, lambda: came).write(rows(*spans, came=came))


async def settle(store: Database, at: datetime = NOW + timedelta(minutes=5)) -> None:
    traces = PostgresTraceStore(store)
    for _ in range(3):
        await traces.settle(at, 10_000)


async def tally_all(store: Database, queue: PostgresTallyQueue | None = None) -> Tallied:
    """Tally until nothing waits; the sums of all rounds."""
    queue = queue or PostgresTallyQueue(store)
    total = Tallied()
    while await queue.waiting():
        done = await queue.tally(PROJECT)
        assert done.held
        total = attrs.evolve(
            total,
            traces=total.traces + done.traces,
            again=total.again + done.again,
            left_out=total.left_out + done.left_out,
            unread=total.unread + done.unread,
        )
    return total


async def counted(store: Database) -> dict[str, Any]:
    """All that tallying has written, by names instead of numbers."""
    cells = await fetch(
        store,
        "select b.measure, b.subject, b.detail, t.slot, t.bin, t.units, t.failures"
        " from tally t join tally_bucket b on b.project_id = t.project_id and b.id = t.bucket_id"
        " order by 1, 2, 3, 4, 5",
    )
    witnesses = await fetch(
        store,
        "select b.measure, b.subject, w.slot, w.trace_id, w.spans, w.signature"
        " from tally_witness w join tally_bucket b on b.project_id = w.project_id and b.id = w.bucket_id"
        " order by 1, 2, 3, 4",
    )
    rows = await fetch(store, "select trace_id, slot, spans, texts from trace_fold order by trace_id")
    # What is stated of a trace, in whose session and when.
    marks = await fetch(
        store,
        "select id, classifier_id, version, confidence, subject_session_id, subject_trace_id,"
        " subject_span_id, cause_span_id, call_site_id, summary from classifier_event order by id",
    )
    return {"cells": cells, "witnesses": witnesses, "folds": rows, "marks": marks}


async def recounted(store: Database) -> dict[str, Any]:
    """What there would be if all were tallied for the first time now."""
    await execute(
        store,
        "delete from tally",
        "delete from tally_witness",
        "delete from tally_bucket",
        "delete from trace_fold",
        "delete from fold_due",
        "delete from classifier_event",
        "insert into fold_due (project_id, trace_id) select project_id, trace_id from trace"
        " order by md5(trace_id)",
    )
    await tally_all(store)
    return await counted(store)


async def begin(store: Database) -> None:
    assert (await ProjectStore(store).make_default()).id == PROJECT


def cell(found: dict[str, Any], measure: str, subject: str) -> list[tuple[int, int]]:
    return [
        (r["units"], r["failures"])
        for r in found["cells"]
        if (r["measure"], r["subject"]) == (measure, subject)
    ]


async def test_settled_traces_are_counted_and_unsettled_ones_are_not(store: Database) -> None:
    await begin(store)
    for number in range(1, 7):
        await write(store, *story(number, failing=number % 3 == 0))
    assert await PostgresTallyQueue(store).waiting() == []
    await settle(store)
    assert await PostgresTallyQueue(store).waiting() == [PROJECT]
    done = await tally_all(store)
    assert (done.traces, done.again, done.left_out, done.unread) == (6, 0, 0, 0)
    found = await counted(store)
    assert cell(found, "tool_error_rate", "tool:look") == [(6, 2)]
    assert sum(units for units, _ in cell(found, "turn_duration", "site:desk")) == 6
    assert sum(units for units, _ in cell(found, "turn_cost", "site:desk")) == 6
    assert cell(found, "output_shape", WRITER) == [(6, 0)]
    failing = [w["spans"] for w in found["witnesses"] if w["measure"] == "tool_error_rate"]
    assert failing == [[(3).to_bytes(8, "big")]] * 2
    assert await fetch(store, "select from fold_due") == []


async def test_what_is_read_back_is_what_was_counted(store: Database) -> None:
    await begin(store)
    for number in range(1, 7):
        await write(store, *story(number, failing=number == 5, at=NOW + timedelta(minutes=number)))
    await settle(store, NOW + timedelta(hours=1))
    await tally_all(store)
    reads, first = TallyStore(store), slot_of(NOW)
    rates = await reads.rates(PROJECT, ("tool_error_rate", "tool:look", ""), first, first + 9)
    assert rates.slots.tolist() == [first, first + 1]
    assert (rates.units.tolist(), rates.failures.tolist()) == ([4, 2], [0, 1])
    sizes = await reads.sizes(PROJECT, ("tool_duration", "tool:look", ""), first, first + 1)
    assert (sizes.slots.tolist(), sizes.counts.tolist()) == ([first], [4])
    (failing,) = await reads.witnesses(PROJECT, ("tool_error_rate", "tool:look", ""), first, first + 9)
    assert (failing.trace_id, failing.signature) == ((5).to_bytes(16, "big"), "Timeout")
    assert await reads.names(PROJECT, "seen_release") == []
    assert await reads.names(PROJECT, "answered_model") == [("site:writer", '["gpt-4o","gpt-4o"]')]
    members, after = await reads.members(PROJECT, ("tool_error_rate", "tool:look", ""), first, first + 9)
    assert (len(members), after) == (6, None)


async def test_a_trace_that_changes_is_counted_as_it_is_and_once(store: Database) -> None:
    await begin(store)
    await write(store, *story(1, failing=True)[:2])
    await settle(store)
    await tally_all(store)
    assert cell(await counted(store), "tool_error_rate", "tool:look") == []
    for again, failing in enumerate((True, False, True), start=1):
        # Sent again, ending later each time, so that it replaces what is there.
        late = story(1, failing=failing)[2]
        late.end_time_unix_nano += again * 10_000_000_000
        await write(store, late)
        await settle(store)
        done = await tally_all(store)
        assert (done.traces, done.again) == (1, 1)
        found = await counted(store)
        assert cell(found, "tool_error_rate", "tool:look") == [(1, int(failing))]
        # Of its failure, or of the mark that it has where it says that it went well.
        (witness,) = found["witnesses"]
        assert (witness["measure"] == "tool_error_rate") == failing
        assert found == await recounted(store)


@pytest.mark.parametrize("seed", range(6))
async def test_any_order_any_repetition_and_any_crash_end_in_the_same_numbers(
    store: Database, seed: int
) -> None:
    """Spans in any pieces, re-sent and late; tallying cut off anywhere; other prices; against a recount."""
    await begin(store)
    dice = random.Random(seed)
    clock = MockClock()
    queues = [PostgresTallyQueue(store), PostgresTallyQueue(store)]
    spans = [
        span for n in range(1, 25) for span in story(n, failing=n % 4 == 0, at=NOW + timedelta(minutes=3 * n))
    ]
    spans += dice.sample(spans, 20)
    dice.shuffle(spans)
    while spans:
        size = dice.randint(1, 9)
        piece, spans = spans[:size], spans[size:]
        for span in piece:
            span.end_time_unix_nano += dice.choice((0, 0, 3_000_000_000))
        await write(store, *piece)
        await settle(store, NOW + timedelta(hours=2))
        strike = Strike(dice.randint(1, 90), clock)
        trio.lowlevel.add_instrument(strike)
        queue = dice.choice(queues)
        await strike.run(lambda queue=queue: queue.tally(PROJECT))  # type: ignore[misc,arg-type]
        trio.lowlevel.remove_instrument(strike)
        if dice.random() < 0.3:
            # The other replica finds the project held, until it has been given up.
            await execute(store, "update fold_state set held_until = now() - interval '1 second'")
        if dice.random() < 0.2:
            await rework(rework_of(store, "reprice", dice.choice((DEAR, BOOK))), apply=True)
    await execute(store, "update fold_state set holder = null")
    await tally_all(store)
    found = await counted(store)
    assert sum(units for units, _ in cell(found, "tool_error_rate", "tool:look")) > 10
    assert found == await recounted(store)


async def test_a_fold_that_is_killed_at_any_await_has_counted_all_or_nothing(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Between any two traces, too.
    monkeypatch.setattr(tallying, "_TURN_S", -1.0)
    await begin(store)
    for number in range(1, 4):
        await write(store, *story(number, failing=number == 2))
    await settle(store)
    queue, clock = PostgresTallyQueue(store), MockClock()
    empty = await counted(store)
    await queue.tally(PROJECT)
    whole = await counted(store)
    at, struck = 0, 0
    while True:
        at += 1
        await execute(store, *_RESET)
        strike = Strike(at, clock)
        trio.lowlevel.add_instrument(strike)
        await strike.run(lambda: queue.tally(PROJECT))  # type: ignore[arg-type]
        trio.lowlevel.remove_instrument(strike)
        now = await counted(store)
        assert now in (empty, whole)
        await tally_all(store, queue)
        assert await counted(store) == whole
        if not strike.fell:
            break
        struck += 1
    assert struck > 4


@attrs.define
class Failing:
    """A connection that is lost at its n-th statement."""

    connection: Connection
    left: list[int]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.connection, name)
        if name not in ("execute", "fetch", "fetchval", "fetchrow", "copy_records_to_table"):
            return found

        async def counted(*arguments: Any, **options: Any) -> Any:
            self.left[0] -= 1
            if self.left[0] == 0:
                raise ConnectionError("lost")
            return await found(*arguments, **options)

        return counted


async def test_a_fold_whose_connection_is_lost_at_any_statement_has_counted_all_or_nothing(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    await write(store, *story(1), *story(2, failing=True))
    await settle(store)
    queue, run = PostgresTallyQueue(store), store.run
    await queue.tally(PROJECT)
    late = story(1, failing=True)[2]
    late.end_time_unix_nano += 10_000_000_000
    await write(store, late)
    await settle(store)
    before = await counted(store)
    left = [0]

    async def losing(work: Any, **options: Any) -> Any:
        return await run(lambda connection: work(Failing(connection, left)), **options)

    lost = 0
    while True:
        left[0] = lost + 1
        monkeypatch.setattr(store, "run", losing)
        try:
            done = await queue.tally(PROJECT)
        except Outage:
            lost += 1
        else:
            break
        finally:
            monkeypatch.setattr(store, "run", run)
        assert await counted(store) == before
    assert (done.traces, done.again) == (1, 1)
    # Holding, six that read, and what writes.
    assert lost > 12
    assert await counted(store) == await recounted(store)


_RESET = (
    "delete from tally",
    "delete from tally_witness",
    "delete from tally_bucket",
    "delete from trace_fold",
    "delete from fold_due",
    "delete from classifier_event",
    "insert into fold_due (project_id, trace_id) select project_id, trace_id from trace",
)


async def test_new_prices_change_what_was_counted_of_costs_and_nothing_else(store: Database) -> None:
    await begin(store)
    for number in range(1, 6):
        await write(store, *story(number))
    await settle(store)
    await tally_all(store)
    before = await counted(store)
    await rework(rework_of(store, "reprice", DEAR), apply=True)
    await settle(store)
    assert (await tally_all(store)).again == 5
    after = await counted(store)
    differing = {r["measure"] for r in before["cells"] if r not in after["cells"]}
    assert differing == {"turn_cost"}
    assert after == await recounted(store)


async def test_two_replicas_never_fold_a_project_at_once(store: Database) -> None:
    await begin(store)
    await write(store, *story(1), *story(2))
    await settle(store)
    one_of_us, other = PostgresTallyQueue(store), PostgresTallyQueue(store)
    done: list[Tallied] = []

    async def run(queue: PostgresTallyQueue) -> None:
        done.append(await queue.tally(PROJECT))

    async with trio.open_nursery() as nursery:
        for queue in (one_of_us, other, one_of_us, other):
            nursery.start_soon(run, queue)
    assert sum(round_.traces for round_ in done) == 2
    assert not all(round_.held for round_ in done)
    assert await counted(store) == await recounted(store)


async def test_who_lost_a_project_while_looking_writes_nothing(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    slow, quick = PostgresTallyQueue(store), PostgresTallyQueue(store)
    whole = table.observe

    def taken(*arguments: Any) -> Any:
        # Between the two transactions: long gone, says the clock.
        lost.set()
        return whole(*arguments)

    lost = trio.Event()
    monkeypatch.setattr(tallying, "observe", taken)
    stolen = trio.Event()
    hold = PostgresTallyQueue._write

    async def late(self: PostgresTallyQueue, connection: Connection, *rest: Any) -> Tallied:
        if self is slow:
            assert stolen.is_set()
        return await hold(self, connection, *rest)

    monkeypatch.setattr(PostgresTallyQueue, "_write", late)
    run = store.run

    async def interleaved(work: Any, **options: Any) -> Any:
        if lost.is_set() and not stolen.is_set():
            stolen.set()
            await execute(store, "update fold_state set held_until = now() - interval '1 second'")
            assert (await quick.tally(PROJECT)).traces == 1
        return await run(work, **options)

    monkeypatch.setattr(store, "run", interleaved)
    assert not (await slow.tally(PROJECT)).held
    assert stolen.is_set()
    assert await counted(store) == await recounted(store)


async def test_spans_that_age_out_leave_what_was_counted(store: Database) -> None:
    await begin(store)
    await write(store, *story(1, failing=True), *story(2))
    await settle(store)
    await tally_all(store)
    before = await counted(store)
    await execute(
        store,
        "delete from span where trace_id = '\\x00000000000000000000000000000001' and kind = 'tool'",
        "delete from span_payload where trace_id = '\\x00000000000000000000000000000002'",
        "update trace set stale = true, next_at = first_started_at",
    )
    await settle(store)
    assert (await tally_all(store)).traces == 0
    assert await counted(store) == before


async def test_a_trace_that_has_gone_only_gives_up_its_place(store: Database) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    await execute(store, "delete from trace")
    assert (await tally_all(store)).traces == 0
    assert (await counted(store))["cells"] == []


async def test_a_deleted_projects_traces_are_left_to_the_purge(store: Database) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    await execute(store, "update project set deleted_at = now()")
    assert await PostgresTallyQueue(store).waiting() == []


async def test_a_detector_that_raises_costs_the_others_nothing(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    broken = attrs.evolve(DETECTORS["cost_drift"], observe=lambda *_: [][0])
    monkeypatch.setattr(table, "DETECTORS", {**DETECTORS, "cost_drift": broken})
    done = await PostgresTallyQueue(store).tally(PROJECT)
    assert done.failures == {"cost_drift": 1}
    found = await counted(store)
    assert cell(found, "turn_cost", "site:desk") == []
    assert cell(found, "tool_error_rate", "tool:look") == [(1, 0)]


async def test_a_schema_of_the_taxonomy_judges_answers_and_a_reference_out_of_it_is_not_followed(
    store: Database,
) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    await execute(
        store,
        "insert into call_site_intent (project_id, call_site_id, intent, output_schema)"
        """ values (1, 'writer', '', '{"required": ["name"]}')""",
    )
    await tally_all(store)
    assert cell(await counted(store), "malformed_rate", WRITER) == [(1, 1)]
    await execute(
        store,
        """update call_site_intent set output_schema = '{"$ref": "http://127.0.0.1:1/schema.json"}'""",
        "insert into fold_due (project_id, trace_id) select project_id, trace_id from trace",
    )
    await tally_all(store)
    assert cell(await counted(store), "malformed_rate", WRITER) == []
    assert cell(await counted(store), "output_shape", WRITER) == [(1, 0)]


async def test_of_a_planted_secret_only_what_may_be_told_is_in_any_table_of_the_fold(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await begin(store)
    told = {form: make() for form, make in POSITIVES.items()}
    for number, (text, _) in enumerate(told.values(), start=1):
        spans = story(number)
        attributes = CHAT | {"gen_ai.output.messages": [{"role": "assistant", "content": f"see: {text}"}]}
        arguments = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "push"}
        arguments["gen_ai.tool.call.arguments"] = text
        trace_id = number.to_bytes(16, "big")
        spans[1] = one(2, trace_id=trace_id, parent=1, name="chat", attributes=attributes)
        spans[2] = one(3, trace_id=trace_id, parent=1, name="execute_tool push", attributes=arguments)
        await write(store, *spans)
    await settle(store)
    await tally_all(store, PostgresTallyQueue(store, secret_key=b"k" * 32))
    found = await fetch(
        store, "select distinct detail from tally_bucket where measure in ('secret_high', 'secret_low')"
    )
    assert {row["detail"] for row in found} >= told.keys()
    stored = caplog.text
    for table_name in ("tally", "tally_bucket", "tally_witness", "trace_fold", "fold_due", "fold_state"):
        for row in await fetch(
            store, f"select t::text as whole, row_to_json(t)::text as json from {table_name} t"
        ):
            stored += row["whole"] + row["json"]
    for form, (_, token) in told.items():
        for part in (token, token[5:], token[-12:]):
            assert part not in stored, form
            assert part.encode().hex() not in stored, form


# --- bounds -----------------------------------------------------------------------------------------------


async def test_a_round_takes_so_many_traces_and_spans_and_says_that_there_is_more(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    for number in range(1, 8):
        await write(store, *story(number))
    await settle(store)
    queue = PostgresTallyQueue(store)
    monkeypatch.setattr(settled_traces, "ROUND_TRACES", 2)
    assert (done := await queue.tally(PROJECT)).traces == 2
    assert done.more
    monkeypatch.setattr(settled_traces, "ROUND_TRACES", 200)
    monkeypatch.setattr(settled_traces, "ROUND_SPANS", 7)
    assert (done := await queue.tally(PROJECT)).traces == 2
    assert done.more
    monkeypatch.setattr(settled_traces, "ROUND_SPANS", 2)
    # One trace may be larger than any round.
    assert (done := await queue.tally(PROJECT)).traces == 1
    monkeypatch.setattr(settled_traces, "ROUND_BYTES", 10)
    done = await queue.tally(PROJECT)
    assert (done.traces, done.unread, done.more) == (1, 2, True)
    monkeypatch.undo()
    assert (await tally_all(store, queue)).traces == 1


async def test_of_a_huge_trace_only_so_many_payloads_are_read(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    monkeypatch.setattr(settled_traces, "TRACE_TEXTS", 1)
    done = await PostgresTallyQueue(store).tally(PROJECT)
    assert (done.traces, done.spans, done.unread) == (1, 3, 1)
    await write(store, *story(2))
    await settle(store)
    monkeypatch.setattr(settled_traces, "TRACE_SPANS", 2)
    done = await PostgresTallyQueue(store).tally(PROJECT)
    assert (done.traces, done.spans, done.unread) == (1, 2, 0)


async def test_details_beyond_their_bound_are_counted_together_and_subjects_beyond_theirs_are_told(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    monkeypatch.setattr(tallies, "DETAILS", 3)

    def seen(subject: str, detail: str) -> Observation:
        return Observation("seen_prompt", subject, 100, detail=detail)

    async def resolve(connection: Connection) -> tuple[dict[Any, int], int]:
        asked = [seen("site:a", str(n)) for n in range(7)]
        found = await tallies.resolve(connection, PROJECT, asked)
        return {one.detail: found.ids[one.measure, one.subject, one.detail] for one in asked}, found.left_out

    ids, left_out = await store.run(resolve)
    assert (len(ids), len(set(ids.values())), left_out) == (7, 4, 0)
    names = await TallyStore(store).names(PROJECT, "seen_prompt")
    assert names == [("site:a", "0"), ("site:a", "1"), ("site:a", "2"), ("site:a", OTHER)]
    assert (await store.run(resolve))[0] == ids
    monkeypatch.setattr(tallies, "BUCKETS", 5)

    async def more(connection: Connection) -> tuple[int, int]:
        found = await tallies.resolve(connection, PROJECT, [seen(f"site:{n}", "x") for n in range(4)])
        return len(found.ids), found.left_out

    assert await store.run(more) == (1, 3)


# --- age --------------------------------------------------------------------------------------------------


async def test_old_tallies_stand_in_hours_and_read_as_such_at_any_moment(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    monkeypatch.setattr("svc.store.detection.counting.tidying.STEP_BUCKETS", 2)
    old = NOW - FINE - timedelta(days=3)
    for number in range(1, 9):
        await write(store, *story(number, failing=number == 3, at=old + timedelta(minutes=20 * number)))
    await write(store, *story(20))
    await settle(store)
    await tally_all(store)
    reads, name = TallyStore(store), ("tool_error_rate", "tool:look", "")
    first, end = slot_of(old), slot_of(NOW) + 1
    fine = await reads.rates(PROJECT, name, first, end)
    clock = on_server(lambda: NOW)
    seen = []
    for step in range(50):
        if not await to_hours(store, PROJECT, clock):
            break
        seen.append(await reads.rates(PROJECT, name, first, end))
        # What changes meanwhile is counted where it belongs.
        late = story(3, failing=step % 2 == 0, at=old + timedelta(minutes=60))[2]
        late.end_time_unix_nano += step * 5_000_000_000
        await write(store, late)
        await settle(store)
        await tally_all(store)
    assert len(seen) > 3
    hours = await reads.rates(PROJECT, name, first, end)
    assert set((hours.slots[:-1] % SLOTS_PER_HOUR).tolist()) == {0}
    assert int(fine.slots[-1]) == int(hours.slots[-1])
    assert fine.units.sum() == hours.units.sum() == 9
    assert all(one.units.tolist() == hours.units.tolist() for one in seen)
    assert await counted(store) == await recounted(store)
    assert not await to_hours(store, PROJECT, clock)


async def test_what_was_let_go_is_not_counted_again(store: Database) -> None:
    await begin(store)
    old = NOW - timedelta(days=2)
    await write(store, *story(1, failing=True, at=old), *story(2, failing=True))
    await settle(store)
    await tally_all(store)
    freed: list[Freed] = []
    await let_go(store, PROJECT, NOW - timedelta(days=1), freed.append)
    assert {one.table for one in freed} == {"tally", "tally_witness"}
    kept = await counted(store)
    assert cell(kept, "tool_error_rate", "tool:look") == [(1, 1)]
    assert len(kept["witnesses"]) == 1
    late = story(1, at=old)[2]
    late.end_time_unix_nano += 30_000_000_000
    await write(store, late)
    await settle(store)
    assert (await tally_all(store)).again == 1
    again = await counted(store)
    assert (again["cells"], again["witnesses"]) == (kept["cells"], kept["witnesses"])
    await let_go(store, PROJECT, NOW + timedelta(days=SLOTS_PER_DAY), freed.append)
    assert (await counted(store))["cells"] == []
    assert await TallyStore(store).names(PROJECT, "tool_error_rate") == []


async def test_what_is_known_of_subjects_goes_with_the_last_that_was_counted_of_them(store: Database) -> None:
    await begin(store)
    await write(store, *story(1, at=NOW - timedelta(days=2)), *story(2))
    await settle(store)
    await tally_all(store)
    gone, here = ("tool:gone", "tool:look")
    cursor = slot_of(NOW)
    for subject in (gone, here):
        for place, at in (("bucket_state", cursor), ("bucket_checkpoint", cursor - 400)):
            await execute(
                store,
                f"insert into {place} values"
                f" ({PROJECT}, 'tool_error', 'tool_error_rate', '{subject}', {at}, '')",
            )
    await execute(
        store,
        f"insert into bucket_checkpoint values"
        f" ({PROJECT}, 'tool_error', 'tool_error_rate', '{here}', {cursor - 5}, '')",
    )
    freed: list[Freed] = []
    await let_go(store, PROJECT, NOW - timedelta(days=1), freed.append)
    states = await fetch(store, "select subject from bucket_state")
    checkpoints = await fetch(store, "select subject, cursor from bucket_checkpoint")
    # What stood at a midnight before the horizon can be gone on from by nobody.
    assert [tuple(row.values()) for row in states] == [(here,)]
    assert [tuple(row.values()) for row in checkpoints] == [(here, cursor - 5)]
    assert {"bucket_state", "bucket_checkpoint"} < {one.table for one in freed}


async def test_what_waits_is_found_by_an_index(store: Database) -> None:
    """Whatever waits and however many traces there are, no statement of a round reads a table whole."""
    await begin(store)
    await execute(
        store,
        "insert into fold_due (project_id, trace_id) select 1 + n % 3, sha256(n::text::bytea)"
        " from generate_series(1, 20000) n",
        "insert into tally_bucket (project_id, measure, subject) select 1, 'loop_rate', n::text"
        " from generate_series(1, 5000) n",
        "insert into trace_fold select 1, sha256(n::text::bytea), n, 1, 1, ''"
        " from generate_series(1, 20000) n",
        "insert into tally select 1, b.id, n, 0, 1, 0 from tally_bucket b, generate_series(1, 10) n",
        "insert into fold_state (project_id) values (1)",
        "insert into tally_due select 1 + n % 3, 'd' || n % 9, n, 1, 1 from generate_series(1, 20000) n",
        "analyze",
    )
    for sql, values in (
        (tallying._WAITING, (10,)),
        (due._WAITING, ("d3", 10)),
        (settled_traces._DUE, (1, 200)),
        (tallying._TAKE, (1, list(range(200)))),
        (tallying._FOLDED, (1, [bytes(32)] * 200)),
        (tallies._READ, (1, "loop_rate", "7", "", 0, 10)),
    ):
        plan = await fetch(store, f"explain {sql}", *values)
        whole = [
            row[0]
            for row in plan
            if "Seq Scan" in row[0] and "project" not in row[0] and "fold_state" not in row[0]
        ]
        assert whole == [], sql


async def test_every_measure_of_a_story_is_known(store: Database) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    await tally_all(store)
    assert {row["measure"] for row in (await counted(store))["cells"]} <= MEASURES.keys()


async def test_each_detector_says_how_many_traces_it_looked_at(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store)
    broken = attrs.evolve(DETECTORS["cost_drift"], observe=lambda *_: [][0])
    monkeypatch.setattr(table, "DETECTORS", {**DETECTORS, "cost_drift": broken})
    for number in (1, 2, 3):
        await write(store, *story(number))
    await settle(store)
    await tally_all(store)
    evals = await fetch(store, "select classifier_id, sum(n)::int as n from l1_eval group by 1")
    looking = {name for name, detector in DETECTORS.items() if detector.observe is not None}
    assert {row["classifier_id"]: row["n"] for row in evals} == dict.fromkeys(looking - {"cost_drift"}, 3)
