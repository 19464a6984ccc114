"""The identity rule, the days, the order of writers: spans written to a real PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

import attrs
import pytest
import trio

from protocol.otlp.reading import WireSpan
from protocol.storage import Batch, StoreRefused, Written
from svc.domain.intake.batches import StoredSpan, decoder
from svc.domain.pricing.prices import PriceBook
from svc.store.postgres.clock import Clock as ServerClock
from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.postgres.rows import IS_SETTLED
from svc.store.spans import trace_rollups
from svc.store.spans.call_sites import CallSites
from svc.store.spans.payloads import read_payloads
from svc.store.spans.session_calls import SESSION_TRACES
from svc.store.spans.trace_rollups import SMALL_SPANS
from svc.store.spans.traces import PostgresTraceStore
from svc.store.spans.writing import SpanStore
from tests.store.settling import settle_at
from tests.wire import request, span

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PROJECT = 1
TRACE = bytes(range(1, 17))
DECODE = decoder(PriceBook())


def ns(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000


def rows(*spans: Any, project: int = PROJECT, came: datetime = NOW, **fields: Any) -> list[StoredSpan]:
    body = request(*spans, **fields).SerializeToString()
    return list(chain.from_iterable(DECODE(Batch(project, body, len(spans), came, 0.0))))


def one(
    number: int = 1, *, start: datetime = NOW, took_s: float = 1.0, parent: int = 0, **fields: Any
) -> Any:
    return span(
        span_id=number.to_bytes(8, "big"),
        trace_id=fields.pop("trace_id", TRACE),
        parent=parent.to_bytes(8, "big") if parent else b"",
        start_ns=ns(start),
        end_ns=ns(start) + int(took_s * 1e9),
        **fields,
    )


class Clock:
    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


def store_of(database: Database, clock: Clock | None = None) -> SpanStore:
    return SpanStore(database, DayPartitions(database), CallSites(), on_server(clock or Clock()))


def on_server(clock: Callable[[], datetime]) -> ServerClock:
    """A clock of a test as the store asks it."""

    async def read(_connection: Connection) -> datetime:
        return clock()

    return read


async def fetch(database: Database, sql: str, *values: Any) -> list[Any]:
    async def work(connection: Connection) -> list[Any]:
        return await connection.fetch(sql, *values)

    return await database.run(work)


async def payloads(database: Database) -> dict[tuple[bytes, bytes], WireSpan]:
    """The payload of every stored span."""

    async def work(connection: Connection) -> dict[tuple[bytes, bytes], WireSpan]:
        rows = await connection.fetch("select trace_id, span_id, started_at, frame from span")
        return await read_payloads(connection, PROJECT, [tuple(row.values()) for row in rows])

    return await database.run(work)


async def test_a_span_and_its_payload_come_back_as_they_were_sent(store: Database) -> None:
    sent = one(attributes={"gen_ai.request.model": "gpt-4o", "odd": [1, {"a": None}]}, name="chat")
    assert await store_of(store).write(rows(sent)) == Written(stored=1, duplicates=0)
    (row,) = await fetch(store, "select name from span")
    assert row["name"] == "chat"
    (whole,) = (await payloads(store)).values()
    assert whole.raw == sent.SerializeToString()


async def test_the_same_batch_twice_is_stored_once(store: Database) -> None:
    spans = store_of(store)
    assert await spans.write(rows(one(1), one(2, parent=1))) == Written(2, 0)
    assert await spans.write(rows(one(1), one(2, parent=1))) == Written(0, 2)
    assert len(await fetch(store, "select from span")) == 2
    assert len(await fetch(store, "select from span_payload")) == 1


async def test_what_is_sent_again_to_the_byte_writes_nothing(store: Database) -> None:
    """An exporter that tries again after a time-out costs a look: no row is written, no trace due again."""
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    attributes = {"session.id": "s", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
    sent = (one(1, attributes=attributes), one(2, parent=1, attributes={"input.value": "long " * 100}))
    await spans.write(rows(*sent))
    await settle_at(clock.now + timedelta(seconds=11), traces)
    tables = ("span", "tool_call", "trace", "session", "span_payload", "span_message", "fold_due")

    async def versions() -> dict[str, list[tuple[str, str]]]:
        return {
            table: [
                (str(row["ctid"]), row["version"])
                for row in await fetch(store, f"select ctid, xmin::text as version from {table} order by 1")
            ]
            for table in tables
        }

    before = await versions()
    assert await spans.write(rows(*sent)) == Written(0, 2)
    assert await versions() == before
    # Beside something new of the trace, only that is written.
    assert await spans.write(rows(*sent, one(3, parent=1))) == Written(1, 2)
    after = await versions()
    assert after["trace"] != before["trace"]
    assert set(before["span"]) < set(after["span"])
    assert len(after["span"]) == 3


async def test_a_resent_span_of_the_same_end_and_other_content_replaces(store: Database) -> None:
    spans = store_of(store)
    await spans.write(rows(one(1, name="before")))
    assert await spans.write(rows(one(1, name="after_"))) == Written(0, 1)
    assert [row["name"] for row in await fetch(store, "select name from span")] == ["after_"]
    # Another scope or resource is other content too.
    await spans.write(rows(one(1, name="after_"), resource={"service.name": "other"}))
    (whole,) = (await payloads(store)).values()
    assert whole.resource.attributes == {"service.name": "other"}


async def test_a_resent_span_with_a_later_end_replaces_and_keeps_its_first_created_at(
    store: Database,
) -> None:
    spans = store_of(store)
    await spans.write(rows(one(name="first", took_s=1)))
    (before,) = await fetch(store, "select created_at from span")
    assert await spans.write(rows(one(name="second", took_s=2))) == Written(0, 1)
    (after,) = await fetch(store, "select name, created_at from span")
    assert (after["name"], after["created_at"]) == ("second", before["created_at"])


async def test_a_resent_span_with_an_earlier_end_changes_nothing(store: Database) -> None:
    spans = store_of(store)
    await spans.write(rows(one(name="first", took_s=2)))
    assert await spans.write(rows(one(name="older", took_s=1))) == Written(0, 1)
    (row,) = await fetch(store, "select name from span")
    assert row["name"] == "first"


async def test_a_resent_span_of_another_day_is_still_the_same_span(store: Database) -> None:
    spans = store_of(store)
    await spans.write(rows(one(start=NOW - timedelta(days=1))))
    assert await spans.write(rows(one(start=NOW))) == Written(0, 1)
    (row,) = await fetch(store, "select started_at from span")
    assert row["started_at"] == NOW
    assert len(await fetch(store, "select from span_payload")) == 1


async def test_a_frame_goes_when_its_last_span_was_sent_again_and_not_before(store: Database) -> None:
    spans = store_of(store)

    def sent(number: int, took_s: int) -> Any:
        return one(number, parent=number - 1, name=f"{number} took {took_s}", took_s=took_s)

    async def state() -> tuple[set[str], int]:
        names = {span.name for span in (await payloads(store)).values()}
        return names, len(await fetch(store, "select from span_payload"))

    await spans.write(rows(sent(1, 1), sent(2, 1)))
    assert await state() == ({"1 took 1", "2 took 1"}, 1)
    await spans.write(rows(sent(2, 2)))
    assert await state() == ({"1 took 1", "2 took 2"}, 2)
    await spans.write(rows(sent(1, 2), sent(2, 1)))
    assert await state() == ({"1 took 2", "2 took 2"}, 2)
    await spans.write(rows(sent(1, 3), sent(2, 3)))
    assert await state() == ({"1 took 3", "2 took 3"}, 1)


async def test_a_trace_around_midnight_has_a_frame_on_each_day(store: Database) -> None:
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    sent = [one(number, start=midnight + timedelta(seconds=number - 3)) for number in range(1, 5)]
    await store_of(store).write(rows(*sent))
    found = await fetch(store, "select started_at from span_payload order by 1")
    assert [row["started_at"] for row in found] == [midnight - timedelta(days=1), midnight]
    assert {span.raw for span in (await payloads(store)).values()} == {
        span.SerializeToString() for span in sent
    }


async def test_one_group_may_hold_a_span_twice(store: Database) -> None:
    assert await store_of(store).write(rows(one(name="a", took_s=1), one(name="b", took_s=3))) == Written(
        1, 1
    )
    (row,) = await fetch(store, "select name from span")
    assert row["name"] == "b"


async def test_equal_ids_in_two_projects_are_two_spans(store: Database) -> None:
    spans = store_of(store)
    await spans.write(rows(one(), project=1) + rows(one(), project=2))
    assert await spans.write(rows(one(), project=2)) == Written(0, 1)
    assert len(await fetch(store, "select from span")) == 2


async def test_writers_of_one_trace_at_once_store_each_span_once(store: Database) -> None:
    spans = store_of(store)
    done: list[Written] = []

    async def write(first: int) -> None:
        done.append(await spans.write(rows(*(one(n) for n in range(first, first + 20)))))

    async with trio.open_nursery() as nursery:
        for first in (1, 5, 10, 15, 1, 5):
            nursery.start_soon(write, first)
    assert len(await fetch(store, "select distinct span_id from span")) == 34
    assert len(await fetch(store, "select from span")) == 34
    assert sum(written.stored for written in done) == 34


async def test_writers_of_many_traces_at_once_do_not_deadlock(store: Database) -> None:
    spans = store_of(store)
    traces = [bytes([n]) * 16 for n in range(1, 30)]

    async def write(order: list[bytes], number: int) -> None:
        attributes = {"session.id": "one for all"}
        await spans.write(rows(*(one(number, trace_id=t, attributes=attributes) for t in order)))

    async with trio.open_nursery() as nursery:
        for number in range(1, 9):
            nursery.start_soon(write, traces if number % 2 else traces[::-1], number)
    assert len(await fetch(store, "select from span")) == 8 * 29
    assert len(await fetch(store, "select from session")) == 1


async def test_writers_of_many_old_days_at_once_trip_over_no_day_that_another_makes(store: Database) -> None:
    days = 24

    async def write(number: int, order: int) -> None:
        # A writer a replica: each finds out for itself which days there are.
        spans = store_of(store)
        for back in range(0, days, 3)[::order]:
            some = [NOW - timedelta(days=10 + back + more) for more in range(3)]
            await spans.write(
                rows(
                    *(
                        one(number, trace_id=bytes([n + 1, back + 1]) * 8, start=at)
                        for n, at in enumerate(some)
                    )
                )
            )

    async with trio.open_nursery() as nursery:
        for number in range(1, 9):
            nursery.start_soon(write, number, 1 if number % 2 else -1)
    assert len(await fetch(store, "select from span")) == 8 * days


@pytest.mark.parametrize(
    "start",
    [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(2500, 1, 1, tzinfo=UTC), NOW + timedelta(days=30)],
)
async def test_times_outside_the_window_go_to_the_default_partition(store: Database, start: datetime) -> None:
    await store_of(store).write(rows(one(start=start)))
    (row,) = await fetch(store, "select tableoid::regclass::text as part, started_at from span")
    assert (row["part"], row["started_at"]) == ("span_default", start)


async def test_a_day_made_later_takes_its_rows_out_of_the_default_partition(store: Database) -> None:
    ahead = NOW + timedelta(days=30)
    await store_of(store).write(rows(one(start=ahead)))
    await DayPartitions(store).make_days(ahead)
    (row,) = await fetch(store, "select tableoid::regclass::text as part from span")
    assert row["part"] == f"span_{ahead:%Y%m%d}"
    (payload,) = await fetch(store, "select tableoid::regclass::text as part from span_payload")
    assert payload["part"] == f"span_payload_{ahead:%Y%m%d}"


async def test_a_new_trace_stands_complete_at_once(store: Database) -> None:
    usage = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 7,
    }
    spans = attrs.evolve(store_of(store), clock=server_clock)
    await spans.write(rows(one(1, name="root"), one(2, parent=1, attributes=usage)))
    (trace,) = await fetch(store, f"select *, {IS_SETTLED} from trace")
    assert (trace["name"], trace["span_count"], trace["total_tokens"]) == ("root", 2, 7)
    assert not trace["is_settled"]


async def test_a_trace_settles_two_seconds_after_its_last_batch_when_its_root_is_there(
    store: Database,
) -> None:
    clock = Clock()
    await store_of(store, clock).write(rows(one(1)))
    traces = PostgresTraceStore(store)
    assert (await traces.settle(clock.now + timedelta(seconds=1.9), 10)).seen == 0
    assert (await traces.settle(clock.now + timedelta(seconds=2.1), 10)).settled == 1


async def test_a_trace_without_its_root_settles_after_ten_seconds(store: Database) -> None:
    clock = Clock()
    await store_of(store, clock).write(rows(one(2, parent=1)))
    traces = PostgresTraceStore(store)
    assert (await traces.settle(clock.now + timedelta(seconds=9.9), 10)).settled == 0
    assert (await traces.settle(clock.now + timedelta(seconds=10.1), 10)).settled == 1


async def test_a_late_span_unsettles_its_trace_and_it_is_rolled_up_anew(store: Database) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    await spans.write(rows(one(2, parent=1, name="child")))
    await traces.settle(clock.now + timedelta(seconds=11), 10)
    await spans.write(rows(one(1, name="root", status_code=2)))
    (open_again,) = await fetch(store, f"select {IS_SETTLED} from trace")
    assert not open_again["is_settled"]
    await settle_at(clock.now + timedelta(seconds=11), traces)
    (trace,) = await fetch(store, f"select *, {IS_SETTLED} from trace")
    assert trace["is_settled"]
    assert (trace["name"], trace["span_count"], trace["status"], trace["stale"]) == (
        "root",
        2,
        "error",
        False,
    )


async def test_usage_of_an_agent_that_arrives_after_its_models_is_not_counted_twice(store: Database) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    usage = {
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.request.model": "gpt-4o",
    }
    await spans.write(rows(one(2, parent=1, attributes={"gen_ai.operation.name": "chat", **usage})))
    await spans.write(rows(one(1, attributes={"gen_ai.operation.name": "invoke_agent", **usage})))
    await settle_at(clock.now + timedelta(seconds=11), traces)
    (trace,) = await fetch(store, "select total_tokens from trace")
    assert trace["total_tokens"] == 110
    repeats = await fetch(store, "select usage_repeats, cost_source from span order by span_id")
    # What repeats is neither inferred nor unpriced, though it was when it came.
    assert [tuple(row) for row in repeats] == [("descendant", None), (None, "inferred")]


async def test_an_agent_whose_models_lose_their_usage_is_priced_again(store: Database) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    usage = {"gen_ai.usage.input_tokens": 100, "gen_ai.request.model": "gpt-4o"}
    chat = {"gen_ai.operation.name": "chat"}
    await spans.write(
        rows(
            one(1, attributes={"gen_ai.operation.name": "invoke_agent", **usage}),
            one(2, parent=1, attributes={**chat, **usage}),
        )
    )
    told = "select usage_repeats, cost_source from span order by span_id"
    assert [tuple(row) for row in await fetch(store, told)] == [("descendant", None), (None, "inferred")]
    await spans.write(rows(one(2, parent=1, attributes=chat)))
    await settle_at(clock.now + timedelta(seconds=11), traces)
    assert [tuple(row) for row in await fetch(store, told)] == [(None, "inferred"), (None, None)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("session", ["s", "t"])
async def test_a_call_that_one_trace_of_a_session_asks_for_and_another_runs_is_one_call(
    store: Database, order: tuple[int, int], session: str
) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    call = {"type": "tool_call", "id": "c1", "name": "look_up", "arguments": {}}
    chat = {
        "session.id": "s",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.output.messages": [{"role": "assistant", "parts": [call]}],
    }
    tool = {
        "session.id": session,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call_id": "c1",
    }
    parts = [one(2, attributes=chat), one(3, attributes=tool, trace_id=b"\x07" * 16)]
    for place in order:
        await spans.write(rows(parts[place]))
        await settle_at(clock.now + timedelta(seconds=11), traces)
    calls = await fetch(store, "select embedded from tool_call order by 1")
    # Of another session it is another call.
    assert [row["embedded"] for row in calls] == ([False] if session == "s" else [False, True])


async def test_of_a_session_of_many_traces_those_nearest_to_the_call_are_looked_at(store: Database) -> None:
    clock = Clock()
    call = {"type": "tool_call", "id": "c0", "name": "look_up", "arguments": {}}
    chat = {
        "session.id": "s",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.output.messages": [{"role": "assistant", "parts": [call]}],
    }
    sent = [one(2, attributes=chat)]
    for number in range(2 * SESSION_TRACES):
        tool = {
            "session.id": "s",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look_up",
            "gen_ai.tool.call_id": f"c{number}",
        }
        trace_id = (100 + number).to_bytes(16, "big")
        sent.append(one(3, start=NOW + number * timedelta(minutes=2), attributes=tool, trace_id=trace_id))
    await store_of(store, clock).write(rows(*sent))
    await settle_at(clock.now + timedelta(seconds=11), PostgresTraceStore(store))
    calls = await fetch(store, "select embedded from tool_call")
    assert [row["embedded"] for row in calls] == [False] * 2 * SESSION_TRACES


async def test_an_embedded_tool_call_that_a_later_tool_span_tells_is_one_call(store: Database) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    call = {"type": "tool_call", "id": "c1", "name": "look_up", "arguments": {}}
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.output.messages": [{"role": "assistant", "parts": [call]}],
    }
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.id": "c1",
    }
    await spans.write(rows(one(2, parent=1, attributes=chat)))
    assert len(await fetch(store, "select from tool_call")) == 1
    await spans.write(rows(one(3, parent=1, attributes=tool), one(1)))
    await settle_at(clock.now + timedelta(seconds=11), traces)
    calls = await fetch(store, "select embedded, name from tool_call")
    assert [(row["embedded"], row["name"]) for row in calls] == [(False, "look_up")]


async def test_a_session_keeps_its_first_and_last_activity(store: Database) -> None:
    spans = store_of(store)
    chat = {"session.id": "s", "user.id": "u"}
    for number, minutes in ((1, 10), (2, 0), (3, 30)):
        start = NOW + timedelta(minutes=minutes)
        await spans.write(rows(one(number, trace_id=bytes([number]) * 16, start=start, attributes=chat)))
    (session,) = await fetch(store, "select * from session")
    assert (session["id"], session["user_id"]) == ("s", "u")
    assert session["started_at"] == NOW
    assert session["last_activity_at"] == NOW + timedelta(minutes=30, seconds=1)


async def test_a_session_ends_with_the_last_span_of_its_traces_whichever_batch_names_it(
    store: Database,
) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    await spans.write(rows(one(1, attributes={"session.id": "s"})))
    await spans.write(rows(one(2, parent=1, took_s=300.0, start=NOW - timedelta(seconds=1))))
    await settle_at(clock.now + timedelta(minutes=1), traces)
    (session,) = await fetch(store, "select * from session")
    assert session["last_activity_at"] == NOW + timedelta(seconds=299)
    assert session["started_at"] == NOW - timedelta(seconds=1)


async def test_a_session_that_its_only_trace_left_is_no_session(store: Database) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    shared = {"trace_id": bytes([9]) * 16, "attributes": {"session.id": "kept"}}
    await spans.write(rows(one(1, **shared), one(2, parent=7, attributes={"session.id": "left"})))
    await spans.write(rows(one(3, trace_id=bytes([8]) * 16, parent=7, attributes=shared["attributes"])))
    assert {row["id"] for row in await fetch(store, "select id from session")} == {"kept", "left"}
    # Roots say which session their traces belong to.
    root = {"attributes": {"session.id": "joined"}}
    await spans.write(rows(one(7, **root), one(7, trace_id=bytes([8]) * 16, **root)))
    await settle_at(clock.now + timedelta(minutes=1), traces)
    found = await fetch(
        store,
        "select id, count(t.trace_id) as n from session s left join trace t"
        " on t.session_id = s.id group by 1 order by 1",
    )
    assert [tuple(row) for row in found] == [("joined", 2), ("kept", 1)]


WHOSE: Final = "select span_id, session_id, user_id from span order by span_id"


async def test_spans_are_of_the_session_and_the_user_that_the_root_of_their_trace_names(
    store: Database,
) -> None:
    root = {"session.id": "s", "user.id": "ada"}
    own = {"user.id": "bob"}
    await store_of(store).write(
        rows(one(1, attributes=root), one(2, parent=1), one(3, parent=2, attributes=own))
    )
    found = [(row["session_id"], row["user_id"]) for row in await fetch(store, WHOSE)]
    assert found == [("s", "ada"), ("s", "ada"), ("s", "bob")]


@pytest.mark.parametrize("small_spans", [SMALL_SPANS, 1])
async def test_a_root_that_comes_last_says_it_of_the_spans_before_it_and_behind_it(
    store: Database, monkeypatch: pytest.MonkeyPatch, small_spans: int
) -> None:
    monkeypatch.setattr(trace_rollups, "SMALL_SPANS", small_spans)
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    # A child that knows more than the others says it for itself alone until the root is there.
    await spans.write(rows(one(2, parent=1, attributes={"session.id": "s"}), one(3, parent=1)))
    assert [row["session_id"] for row in await fetch(store, WHOSE)] == ["s", None]
    await spans.write(rows(one(1, attributes={"session.id": "s", "user.id": "ada"})))
    for large in (False, True):
        await settle_at(clock.now + timedelta(minutes=1), attrs.evolve(traces, large=large))
    assert {(row["session_id"], row["user_id"]) for row in await fetch(store, WHOSE)} == {("s", "ada")}
    await spans.write(rows(one(4, parent=1)))
    assert [row["user_id"] for row in await fetch(store, WHOSE)] == ["ada"] * 4
    # What came again to the byte is a duplicate, whoever it is of.
    assert await spans.write(rows(one(4, parent=1))) == Written(stored=0, duplicates=1)


async def test_as_long_as_no_root_came_and_more_may_come_no_span_takes_what_another_names(
    store: Database,
) -> None:
    clock = Clock()
    spans, traces = store_of(store, clock), PostgresTraceStore(store)
    helper = {"session.id": "of a helper"}
    await spans.write(rows(one(2, parent=1, attributes=helper), one(3, parent=1)))
    await spans.write(rows(one(4, parent=1)))
    await settle_at(clock.now + timedelta(seconds=1), traces)
    await spans.write(rows(one(1, attributes={"session.id": "s"})))
    # Between the root and the roll-up the trace still says what the helper named.
    await spans.write(rows(one(5, parent=1)))
    await settle_at(clock.now + timedelta(minutes=1), traces)
    assert [row["session_id"] for row in await fetch(store, WHOSE)] == ["s", "of a helper", "s", "s", "s"]
    assert [row["id"] for row in await fetch(store, "select id from session")] == ["s"]
    # What says afterwards that it is of another makes no session without traces.
    await spans.write(rows(one(6, parent=1, attributes=helper)))
    assert [row["id"] for row in await fetch(store, "select id from session")] == ["s"]


async def test_a_trace_whose_root_is_elsewhere_is_named_once_it_is_quiet(store: Database) -> None:
    clock = Clock()
    named = {"session.id": "s", "user.id": "ada"}
    await store_of(store, clock).write(rows(one(2, parent=1, attributes=named), one(3, parent=2)))
    await settle_at(clock.now + timedelta(minutes=1), PostgresTraceStore(store))
    found = [(row["session_id"], row["user_id"]) for row in await fetch(store, WHOSE)]
    assert found == [("s", "ada")] * 2


async def test_data_that_the_database_refuses_is_no_outage_and_leaves_nothing_behind(store: Database) -> None:
    (bad,) = rows(one())
    bad.row.name = "a\x00b"
    with pytest.raises(StoreRefused):
        await store_of(store).write([bad])
    assert await fetch(store, "select from trace") == []


async def test_a_conversation_on_disk_grows_with_what_is_new(store: Database) -> None:
    """Twenty turns that resend their history, read back whole; a message stands once."""
    spans = store_of(store)
    said: list[dict[str, str]] = []
    sent: dict[bytes, bytes] = {}
    for turn in range(1, 21):
        said.append({"role": "user", "content": f"{turn} " + "a new and rather long message " * 10})
        made = one(turn, parent=1 if turn > 1 else 0, attributes={"gen_ai.input.messages": json.dumps(said)})
        sent[made.span_id] = made.SerializeToString()
        await spans.write(rows(made))
    whole = await payloads(store)
    assert {span_id: span.raw for (_, span_id), span in whole.items()} == sent
    assert len(await fetch(store, "select from span_message")) == 20


async def test_a_payload_whose_messages_have_aged_out_is_absent(store: Database) -> None:
    spans = store_of(store)
    for number in (1, 2):
        await spans.write(rows(one(number, attributes={"input.value": "again and again " * 20})))
    await fetch(store, "delete from span_message returning 1")
    assert {span_id[-1] for _, span_id in await payloads(store)} == {1}


async def test_rows_carry_the_clock_of_the_database(store: Database) -> None:
    """An hour that was counted gets no row from a replica whose own clock is late: nobody asks that one."""
    before = await store.run(server_clock)
    async with trio.open_nursery() as nursery:
        for number in (1, 2):
            replica = SpanStore(store, DayPartitions(store), CallSites())
            nursery.start_soon(replica.write, rows(one(number, trace_id=bytes([number]) * 16)))
    after = await store.run(server_clock)
    stamps = [row["created_at"] for row in await fetch(store, "select created_at from span")]
    assert len(stamps) == 2
    assert all(before <= stamp <= after for stamp in stamps)
