"""Laws of the broker spool, on a broker of the test's own: answers, positions, budgets, taking and losing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.drainer import Tally
from actors.ports import Broker
from actors.spool.assignment import Assignment
from actors.spool.broker import BrokerSpool
from actors.spool.letters import LETTER_TIMEOUT_S, DeadLetterTopic
from actors.spool.link import BrokerLink
from actors.spool.memory import Lease, SpoolEmpty, Ticket
from actors.supervision import Vitals, keep
from protocol.broker import Arrival, Backlog, Inbox, Lane, Published
from protocol.spooled import DeadLetter, SpooledBatch, pack, unpack
from protocol.storage import Batch, Letter, Outage
from tests.actors.every_await import Strike, at_every_await

WALL_S = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
SMALLEST_BYTES = Batch.OVERHEAD_BYTES
PLENTY = 1 << 30
POISON = b"\xff\x00 no batch"


@attrs.define
class FakeBroker:
    """Keeps what it is told; answers when the test says so, or at once with `verdict`."""

    verdict: Published | None = None
    sent: list[tuple[Lane, bytes, bytes]] = attrs.field(factory=list)
    open: list[Callable[[Published], None]] = attrs.field(factory=list)
    commits: list[tuple[int, int]] = attrs.field(factory=list)
    paused: bool = False
    links: int = 0

    def publish(self, lane: Lane, key: bytes, value: bytes, settled: Callable[[Published], None]) -> None:
        self.sent.append((lane, key, value))
        if self.verdict is None:
            self.open.append(settled)
        else:
            settled(self.verdict)

    def commit(self, partition: int, position: int) -> None:
        self.commits.append((partition, position))

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    @asynccontextmanager
    async def opened(self, inbox: Inbox) -> AsyncIterator[Broker]:
        self.links += 1
        inbox.back()
        inbox.assigned([0, 1])
        yield self
        # Leaving delivers what is open.
        for settled in self.open:
            settled("accepted")
        self.open.clear()

    @property
    def letters(self) -> list[DeadLetter]:
        return [DeadLetter.parse(value) for lane, _, value in self.sent if lane == "dead letters"]


class Graves:
    """Where letters go that fit nowhere else."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []

    async def bury(self, letters: Sequence[Letter]) -> None:
        self.letters += letters


def batch(body: bytes = b"", *, project_id: int = 1, spans: int = 1) -> Batch:
    return Batch(project_id, body, spans, datetime.fromtimestamp(WALL_S - 5, UTC), 0.0, "key")


def spool_on(broker: FakeBroker, max_bytes: int = PLENTY, partitions: Sequence[int] = (0, 1)) -> BrokerSpool:
    spool = BrokerSpool(max_bytes, vitals=Vitals("spool-broker"), clock=lambda: 100.0, wall=lambda: WALL_S)
    spool.linked(broker)
    spool.back()
    spool.assigned(partitions)
    return spool


def arrive(spool: BrokerSpool, *offsets: int, partition: int = 0, body: bytes = b"", spans: int = 1) -> None:
    data = pack(batch(body, spans=spans))
    spool.arrived([Arrival(partition, offset, data) for offset in offsets])


async def lease_one(spool: BrokerSpool) -> Lease:
    return await spool.lease(1, PLENTY)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.lowlevel.checkpoint()


def finish(lease: Lease) -> None:
    with lease:
        lease.done()


def fail(lease: Lease) -> None:
    with pytest.raises(ZeroDivisionError), lease:
        raise ZeroDivisionError


@asynccontextmanager
async def linked(
    broker: FakeBroker, *, max_bytes: int = PLENTY
) -> AsyncIterator[tuple[BrokerSpool, Tally, Graves]]:
    """A spool with its actor, under supervision."""
    vitals, tally, graves = Vitals("spool-broker"), Tally(), Graves()
    spool = BrokerSpool(max_bytes, vitals=vitals)
    topic = DeadLetterTopic(spool, otherwise=graves, now=lambda: datetime.now(UTC))

    def link() -> BrokerLink:
        return BrokerLink(spool=spool, connect=broker.opened, graveyard=topic, tally=tally)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:

            async def kept(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                await keep(link, vitals, task_status=task_status)

            await nursery.start(kept)
            yield spool, tally, graves
            nursery.cancel_scope.cancel()


# Offers.


async def test_an_offer_is_answered_by_the_broker_alone() -> None:
    broker = FakeBroker()
    async with linked(broker) as (spool, _, _):
        tickets = [spool.offer(batch(b"abc", project_id=7)) for _ in range(3)]
        await until(lambda: len(broker.open) == 3)
        assert [ticket.known for ticket in tickets] == [None] * 3
        lane, key, value = broker.sent[0]
        assert (lane, key, unpack(value, received_s=0.0)) == ("batches", b"7", batch(b"abc", project_id=7))
        for settled, answer in zip(broker.open, ("accepted", "full", "never"), strict=True):
            settled(answer)
            settled("full")
        assert [ticket.known for ticket in tickets] == ["accepted", "full", "never"]
        state = spool.state()
        assert (state.accepted_batches, state.refused_full, state.refused_never) == (1, 1, 1)


def test_an_offer_is_full_before_the_broker_was_heard_of_and_while_it_is_away() -> None:
    broker = FakeBroker()
    spool = BrokerSpool(PLENTY, vitals=Vitals("spool-broker"))
    assert (spool.offer(batch()).known, spool.pressed()) == ("full", True)
    spool.linked(broker)
    assert spool.offer(batch()).known == "full"
    spool.back()
    assert (spool.offer(batch()).known, spool.pressed()) == (None, False)
    spool.away("gone for lunch")
    assert (spool.offer(batch()).known, spool.pressed()) == ("full", True)
    spool.back()
    assert spool.offer(batch()).known is None


def test_health_hears_what_is_waited_for() -> None:
    spool = spool_on(FakeBroker())
    vitals = spool._vitals
    spool.away("gone for lunch")
    assert (vitals.state, vitals.waiting_for) == ("waiting", "gone for lunch")
    spool.back()
    assert (vitals.state, vitals.waiting_for) == ("running", None)


def test_what_is_on_its_way_is_bounded_whatever_lies_in_hand() -> None:
    spool = spool_on(FakeBroker(), max_bytes=2 * SMALLEST_BYTES)
    arrive(spool, *range(10))
    assert [spool.offer(batch()).known for _ in range(3)] == [None, None, "full"]
    assert spool.offer(batch(bytes(2 * SMALLEST_BYTES))).known == "never"
    spool.unlinked()
    spool.linked(FakeBroker())
    spool.back()
    assert spool.offer(batch()).known is None


async def test_every_offer_is_answered_wherever_the_link_is_cut() -> None:
    async def scenario(strike: Strike) -> None:
        broker = FakeBroker()
        tickets: list[Ticket] = []
        spool = BrokerSpool(PLENTY, vitals=Vitals("spool-broker"))
        topic = DeadLetterTopic(spool, otherwise=Graves(), now=lambda: datetime.now(UTC))
        link = BrokerLink(spool=spool, connect=broker.opened, graveyard=topic, tally=Tally())

        async def act() -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(link.run)
                tickets.extend(spool.offer(batch()) for _ in range(3))
                await until(lambda: len(broker.open) == 3)
                broker.open.pop()("accepted")
                await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

        await strike.run(act)
        assert all(ticket.known is not None for ticket in tickets)
        assert spool.offer(batch()).known == "full"
        assert spool._underway_bytes == 0

    assert await trio.to_thread.run_sync(lambda: at_every_await(scenario, autojump=False)) > 3


@pytest.mark.errors_expected
async def test_a_link_that_crashes_is_made_anew_and_goes_on(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    async with linked(broker) as (spool, _, _):
        lost = spool.offer(batch())
        # A bug, as it would come out of the sending.
        spool._pending.appendleft(("no batch", Ticket()))  # type: ignore[arg-type]
        await wait_all_tasks_blocked()
        assert lost.known == "full"
        await trio.sleep(1)
        assert broker.links == 2
        assert spool.offer(batch()).known is None


# Taking, finishing, committing.


async def test_a_position_is_committed_only_up_to_the_first_batch_that_is_not_stored() -> None:
    broker = FakeBroker()
    spool = spool_on(broker)
    arrive(spool, 4, 5, 7)
    arrive(spool, 10, partition=1)
    first, second, third, other = [await lease_one(spool) for _ in range(4)]
    finish(third)
    finish(second)
    assert broker.commits == []
    finish(other)
    assert broker.commits == [(1, 11)]
    finish(first)
    assert broker.commits == [(1, 11), (0, 8)]


async def test_a_batch_in_the_hands_of_a_crashing_drainer_comes_back_and_holds_the_position() -> None:
    broker = FakeBroker()
    spool = spool_on(broker)
    arrive(spool, 0, 1, body=b"abc")
    fail(await lease_one(spool))
    lease = await lease_one(spool)
    assert (lease.tries, lease.batches[0].body) == (1, b"abc")
    finish(await lease_one(spool))
    assert broker.commits == []
    finish(lease)
    assert broker.commits == [(0, 2)]


async def test_a_drainer_that_is_cancelled_while_it_leases_loses_nothing() -> None:
    async def scenario(strike: Strike) -> None:
        broker = FakeBroker()
        spool = spool_on(broker)
        arrive(spool, 0, 1, 2)

        async def act() -> None:
            while spool.state().depth:
                with await lease_one(spool) as lease:
                    await trio.lowlevel.checkpoint()
                    lease.done()

        await strike.run(act)
        await act()
        assert broker.commits[-1] == (0, 3)
        assert (spool.state().bytes, spool.state().waiting_spans) == (0, 0)

    assert await trio.to_thread.run_sync(lambda: at_every_await(scenario, autojump=False)) > 3


async def test_a_partition_that_is_taken_away_is_finished_without_a_commit() -> None:
    broker = FakeBroker()
    spool = spool_on(broker)
    arrive(spool, 0, 1, 2, 3)
    stored, crashed = await lease_one(spool), await lease_one(spool)
    spool.revoked([0])
    assert spool.state().depth == 2, "what waited is another replica's now"
    finish(stored)
    fail(crashed)
    assert (broker.commits, spool.state().depth, spool.state().bytes) == ([], 0, 0)
    arrive(spool, 4)
    assert spool.state().depth == 0, "it is not ours"
    spool.assigned([0])
    arrive(spool, 0)
    finish(await lease_one(spool))
    assert broker.commits == [(0, 1)]


async def test_a_partition_that_begins_anew_keeps_what_was_taken_and_forgets_its_offsets() -> None:
    broker = FakeBroker()
    spool = spool_on(broker)
    arrive(spool, 8, 9)
    arrive(spool, 0)
    old, older, new = [await lease_one(spool) for _ in range(3)]
    finish(old)
    finish(older)
    assert broker.commits == []
    finish(new)
    assert broker.commits == [(0, 1)]


@given(st.data())
def test_whatever_the_order_no_commit_passes_an_unfinished_offset(data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(0, 50), min_size=1)))
    taken = Assignment(0)
    generation = [taken.take(offset) for offset in offsets][-1]
    open_offsets = set(offsets)
    reached = -1
    for offset in data.draw(st.permutations(offsets)):
        open_offsets.remove(offset)
        position = taken.settle(offset, generation)
        if position is not None:
            assert position > reached
            assert all(left >= position for left in open_offsets)
            reached = position
    assert reached == offsets[-1] + 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("arrive"), st.integers(0, 1)),
            st.tuples(st.sampled_from(["lease", "finish", "fail"]), st.integers(0, 5)),
            st.tuples(st.sampled_from(["revoke", "assign"]), st.integers(0, 1)),
        ),
        max_size=60,
    )
)
def test_whatever_happens_a_commit_means_that_everything_below_it_was_stored(
    steps: list[tuple[str, int]],
) -> None:
    """A broker that goes on at the committed position whenever a partition is assigned anew."""

    async def run() -> None:
        broker, stored, leases = FakeBroker(), [set[int](), set[int]()], list[Lease]()
        spool = spool_on(broker, partitions=())
        committed, following, ours = [0, 0], [0, 0], set[int]()
        for step, number in steps:
            if step == "assign" and number not in ours:
                ours.add(number)
                spool.assigned([number])
                following[number] = committed[number]
            elif step == "revoke" and number in ours:
                ours.remove(number)
                spool.revoked([number])
            elif step == "arrive" and number in ours:
                body = f"{number} {following[number]}".encode()
                arrive(spool, following[number], partition=number, body=body)
                following[number] += 1
            elif step == "lease" and spool._waiting:
                leases.append(await lease_one(spool))
            elif step in ("finish", "fail") and leases:
                lease = leases.pop(number % len(leases))
                if step == "fail":
                    fail(lease)
                    continue
                for found in lease.batches:
                    partition, offset = map(int, found.body.split())
                    stored[partition].add(offset)
                finish(lease)
            for partition, position in broker.commits:
                assert set(range(position)) <= stored[partition]
                committed[partition] = position
            broker.commits.clear()
        for lease in leases:
            finish(lease)
        spool.revoked([0, 1])
        assert (spool.state().depth, spool.state().bytes, spool.state().waiting_spans) == (0, 0, 0)

    trio.run(run)


# Holding back, closing, what health sees.


async def test_taking_stops_at_the_budget_and_goes_on_when_half_of_it_is_free() -> None:
    broker = FakeBroker()
    spool = spool_on(broker, max_bytes=4 * SMALLEST_BYTES)
    arrive(spool, 0, 1, 2)
    assert not broker.paused
    arrive(spool, 3, 4)
    assert broker.paused
    finish(await lease_one(spool))
    finish(await lease_one(spool))
    assert broker.paused
    finish(await lease_one(spool))
    assert not broker.paused
    arrive(spool, *range(5, 10))
    assert broker.paused
    spool.revoked([0])
    assert not broker.paused


async def test_a_closed_spool_finishes_what_it_has_and_takes_nothing_more(autojump_clock: MockClock) -> None:
    broker = FakeBroker()
    spool = spool_on(broker)
    arrive(spool, 0, 1)
    lease = await lease_one(spool)
    spool.measured(Backlog(1000, WALL_S - 1000))
    spool.close()
    assert (broker.paused, spool.offer(batch()).known) == (True, "closed")
    arrive(spool, 2)
    assert spool.state().depth == 2
    finish(await lease_one(spool))
    with trio.move_on_after(1) as waited:
        await lease_one(spool)
    assert waited.cancelled_caught, "the batch in hand may come back"
    finish(lease)
    with pytest.raises(SpoolEmpty):
        await lease_one(spool)
    assert broker.commits == [(0, 2)]
    assert (spool.state().depth, spool.state().oldest_age_s) == (0, 0.0)


def test_depth_bytes_and_age_are_those_of_the_broker_not_of_the_hand() -> None:
    spool = spool_on(FakeBroker())
    assert (spool.state().depth, spool.state().oldest_age_s) == (0, 0.0)
    arrive(spool, 0, body=bytes(488))
    state = spool.state()
    assert (state.depth, state.bytes, state.oldest_age_s) == (1, 1000, pytest.approx(5.0))
    spool.measured(Backlog(40, WALL_S - 60))
    state = spool.state()
    assert (state.depth, state.bytes, state.oldest_age_s) == (40, 40_000, pytest.approx(60.0))
    spool.measured(Backlog(0, None))
    assert (spool.state().depth, spool.state().oldest_age_s) == (1, pytest.approx(5.0))


async def test_the_ledger_of_a_replica_counts_what_it_took() -> None:
    spool = spool_on(FakeBroker())
    arrive(spool, 0, 1, spans=10)
    state = spool.state()
    assert (state.accepted_spans + state.recovered_spans, state.waiting_spans) == (20, 20)
    finish(await lease_one(spool))
    state = spool.state()
    assert (state.accepted_spans + state.recovered_spans, state.waiting_spans) == (20, 10)
    spool.revoked([0])
    state = spool.state()
    assert (state.accepted_spans + state.recovered_spans, state.waiting_spans) == (10, 0)


# What is no batch.


def broken_body() -> bytes:
    """A batch that says all the right things and whose body cannot be inflated."""
    message = SpooledBatch.parse(pack(batch(bytes(range(200)))))
    message.body = message.body[:-3]
    return bytes(message)


@pytest.mark.errors_expected
@pytest.mark.parametrize("message", [POISON, b"", broken_body()])
async def test_a_message_that_is_no_batch_is_buried_and_then_committed(message: bytes) -> None:
    broker = FakeBroker(verdict="full")
    async with linked(broker) as (spool, tally, _):
        spool.arrived([Arrival(0, 0, message)])
        arrive(spool, 1)
        # A drainer that meets it finds nothing to store in it.
        while spool._waiting:
            finish(await lease_one(spool))
        await until(lambda: bool(broker.letters))
        assert broker.commits == [], "the broker does not have the letter yet"
        broker.verdict = "accepted"
        await until(lambda: bool(broker.commits))
        assert broker.commits == [(0, 2)]
        assert broker.letters[-1].damaged == message
        assert (tally.dead_lettered, spool.state().depth, spool.state().bytes) == (1, 0, 0)


@pytest.mark.errors_expected
async def test_a_letter_that_no_message_can_hold_is_buried_elsewhere() -> None:
    broker = FakeBroker(verdict="never")
    async with linked(broker) as (spool, _, graves):
        spool.arrived([Arrival(0, 0, POISON)])
        await until(lambda: bool(broker.commits))
        assert [letter.body for letter in graves.letters] == [POISON]


async def test_buried_spans_carry_reason_batch_and_time() -> None:
    broker = FakeBroker(verdict="accepted")
    spool, now = spool_on(broker), datetime.fromtimestamp(WALL_S, UTC)
    topic = DeadLetterTopic(spool, otherwise=Graves(), now=lambda: now)
    letters = [Letter(7, "a bad date", b"span", now, 1), Letter(8, "another", b"spans", now, 3)]
    await topic.bury(letters)
    assert [key for _, key, _ in broker.sent] == [b"7", b"8"]
    for letter, found in zip(letters, broker.letters, strict=True):
        assert (found.reason, found.buried_us) == (letter.reason, int(WALL_S * 1_000_000))
        assert found.batch is not None
        whole = unpack(bytes(found.batch), received_s=0.0)
        assert (whole.project_id, whole.body, whole.spans) == (letter.project_id, letter.body, letter.spans)


@pytest.mark.parametrize("verdict", ["full", None])
async def test_burying_waits_through_an_outage(verdict: Any, autojump_clock: MockClock) -> None:
    broker = FakeBroker(verdict=verdict)
    topic = DeadLetterTopic(spool_on(broker), otherwise=Graves(), now=lambda: datetime.now(UTC))
    with pytest.raises(Outage):
        await topic.bury([Letter(1, "why", b"", datetime.now(UTC), 1)])
    assert trio.current_time() <= LETTER_TIMEOUT_S + 1
