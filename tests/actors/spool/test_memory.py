"""Laws of the memory spool: the budget, the order, the waking and the closing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.ports import Offered
from actors.spool.memory import MAX_TRIES, PARTS, Lease, MemorySpool, SpoolEmpty, Ticket
from protocol.storage import Batch
from tests.actors.every_await import Strike, at_every_await
from tests.examples import examples

SMALLEST_BYTES = Batch.OVERHEAD_BYTES
PLENTY = 1 << 30


def batch(body_bytes: int = 0, *, spans: int = 1, received_s: float = 0.0) -> Batch:
    """A batch of a size; each one is another object, but equal sizes make equal batches."""
    return Batch(1, bytes(body_bytes), spans, datetime(2026, 11, 1, tzinfo=UTC), received_s)


def numbered(count: int, *, spans: int = 1) -> list[Batch]:
    """Batches that can be told apart: the n-th has n bytes of body."""
    return [batch(number, spans=spans) for number in range(count)]


def at_once(coroutine: Coroutine[Any, Any, Lease]) -> Lease:
    """The outcome of a lease that need not wait. Waiting is the failure."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        lease: Lease = returned.value
        return lease
    coroutine.close()
    raise AssertionError("the lease waits although there is work")


def offer(spool: MemorySpool, body_bytes: int = 0) -> Offered | None:
    """The answer to an offer, as a door reads it: at once."""
    return spool.offer(batch(body_bytes)).known


def lease_now(spool: MemorySpool, max_spans: int = PLENTY, max_bytes: int = PLENTY) -> Lease:
    return at_once(spool.lease(max_spans, max_bytes))


def spool_with(*batches: Batch, now_s: float = 0.0) -> MemorySpool:
    spool = MemorySpool(PLENTY, clock=lambda: now_s)
    for each in batches:
        assert spool.offer(each).known == "accepted"
    return spool


def fail(lease: Lease) -> None:
    """What a crashing drainer does with its lease."""
    with pytest.raises(ZeroDivisionError), lease:
        raise ZeroDivisionError


def finish(lease: Lease) -> tuple[Batch, ...]:
    with lease:
        lease.done()
    return lease.batches


@asynccontextmanager
async def nobody_sleeps_on() -> AsyncIterator[trio.Nursery]:
    """A nursery in which a drainer that nobody wakes is a failure. Needs the jumping clock."""
    with trio.fail_after(1.0):
        async with trio.open_nursery() as nursery:
            yield nursery


# The budget.


def test_the_budget_counts_a_batch_until_it_is_done() -> None:
    spool = MemorySpool(2 * SMALLEST_BYTES, clock=lambda: 0.0)
    assert [offer(spool) for _ in range(3)] == ["accepted", "accepted", "full"]
    lease = lease_now(spool)
    assert (offer(spool), spool.pressed(), spool.state().bytes) == ("full", True, 2 * SMALLEST_BYTES)
    finish(lease)
    assert (offer(spool), spool.pressed(), spool.state().bytes) == ("accepted", False, SMALLEST_BYTES)


def test_a_batch_that_was_put_back_is_counted_once() -> None:
    spool = spool_with(*numbered(3))
    before = spool.state()
    fail(lease_now(spool))
    assert spool.state() == before


def test_the_last_byte_of_the_budget_can_be_used() -> None:
    spool = MemorySpool(SMALLEST_BYTES + 10, clock=lambda: 0.0)
    assert offer(spool, 10) == "accepted"


def test_a_batch_above_the_whole_budget_never_fits_not_even_while_closing() -> None:
    spool = MemorySpool(SMALLEST_BYTES + 10, clock=lambda: 0.0)
    assert offer(spool, 11) == "never"
    spool.close()
    assert offer(spool, 11) == "never"
    assert (spool.state().refused_never, spool.state().depth) == (2, 0)


def test_a_smaller_batch_still_fits_where_a_larger_one_is_refused() -> None:
    spool = MemorySpool(2 * SMALLEST_BYTES + 5, clock=lambda: 0.0)
    assert [offer(spool, size) for size in (0, 6, 5)] == ["accepted", "full", "accepted"]


def test_every_answer_but_closed_is_counted() -> None:
    spool = MemorySpool(2 * SMALLEST_BYTES, clock=lambda: 0.0)
    spool.offer(batch(spans=7))
    offer(spool, SMALLEST_BYTES)
    offer(spool, 2 * SMALLEST_BYTES)
    spool.close()
    offer(spool)
    state = spool.state()
    assert (state.accepted_batches, state.accepted_spans) == (1, 7)
    assert (state.refused_full, state.refused_never) == (1, 1)
    assert (state.mode, state.durable, state.max_bytes) == ("memory", False, 2 * SMALLEST_BYTES)


# Groups and their order.


def test_waiting_batches_are_leased_together_oldest_first() -> None:
    batches = numbered(5)
    assert lease_now(spool_with(*batches)).batches == tuple(batches)


def test_a_group_ends_before_the_batch_that_breaks_a_limit() -> None:
    spool = spool_with(*numbered(6, spans=10))
    assert len(lease_now(spool, max_spans=39).batches) == 3
    # Two of the three that are left: with their bodies of 3 and 4 bytes they fit exactly.
    assert len(lease_now(spool, max_bytes=2 * SMALLEST_BYTES + 7).batches) == 2


def test_a_batch_above_the_limits_is_leased_alone_rather_than_never() -> None:
    spool = spool_with(batch(100, spans=100), batch())
    assert lease_now(spool, max_spans=1, max_bytes=1).batches == (batch(100, spans=100),)


def test_a_group_goes_back_to_the_head_of_the_queue_in_its_old_order() -> None:
    batches = numbered(5)
    spool = spool_with(*batches)
    fail(lease_now(spool, max_spans=3))
    assert [lease_now(spool).batches for _ in range(3)] == [(each,) for each in batches[:3]]
    assert lease_now(spool).batches == tuple(batches[3:])


def test_leaving_without_done_puts_back_even_without_an_error() -> None:
    spool = spool_with(batch())
    with lease_now(spool):
        pass
    assert lease_now(spool).tries == 1


def test_a_group_that_failed_comes_again_in_smaller_ones_and_at_last_one_by_one() -> None:
    batches = numbered(130)
    spool = spool_with(*batches)
    sizes = []
    for _ in range(MAX_TRIES + 1):
        lease = lease_now(spool)
        sizes.append(len(lease.batches))
        fail(lease)
    assert sizes == [130, 130 // PARTS, 2, 1]
    # Nobody is left out, and the order is the old one.
    again = [each for _ in range(200) if spool.state().depth for each in finish(lease_now(spool))]
    assert again == batches


def test_a_batch_that_failed_before_is_leased_without_fresh_ones() -> None:
    first, second, third = numbered(3)
    spool = spool_with(first)
    lease = lease_now(spool)
    spool.offer(second)
    spool.offer(third)
    fail(lease)
    retry = lease_now(spool)
    assert (retry.batches, retry.tries) == ((first,), 1)
    fresh = lease_now(spool)
    assert (fresh.batches, fresh.tries) == ((second, third), 0)


def test_a_fresh_group_stops_before_a_batch_that_failed() -> None:
    first, second = numbered(2)
    spool = spool_with(first)
    failing = lease_now(spool)
    spool.offer(second)
    waiting = lease_now(spool)
    fail(failing)
    # The second comes back in front of the first, both with a try behind them.
    fail(waiting)
    assert [lease_now(spool).batches for _ in range(2)] == [(second,), (first,)]


def test_every_failure_is_one_try_more() -> None:
    spool = spool_with(batch())
    for tries in range(5):
        lease = lease_now(spool)
        assert lease.tries == tries
        fail(lease)


def test_done_holds_when_the_drainer_crashes_right_after_it() -> None:
    spool = spool_with(batch())
    lease = lease_now(spool)
    lease.done()
    fail(lease)
    assert (spool.state().depth, spool.state().bytes) == (0, 0)


# Age.


def test_an_empty_spool_has_no_age() -> None:
    spool = spool_with(now_s=100.0)
    assert spool.state().oldest_age_s == 0.0
    spool.offer(batch(received_s=90.0))
    finish(lease_now(spool))
    assert spool.state().oldest_age_s == 0.0


def test_the_age_is_that_of_the_oldest_batch_waiting_or_leased() -> None:
    spool = spool_with(*[batch(received_s=float(s)) for s in (10, 20, 30)], now_s=100.0)
    assert spool.state().oldest_age_s == 90.0
    oldest = lease_now(spool, max_spans=1)
    assert spool.state().oldest_age_s == 90.0
    finish(oldest)
    assert spool.state().oldest_age_s == 80.0


def test_the_age_is_true_when_groups_come_back_out_of_order() -> None:
    spool = spool_with(*[batch(received_s=float(s)) for s in (10, 20, 30)], now_s=100.0)
    older, newer = lease_now(spool, max_spans=1), lease_now(spool, max_spans=1)
    fail(older)
    fail(newer)
    assert spool.state().oldest_age_s == 90.0


def test_an_age_is_never_negative() -> None:
    assert spool_with(batch(received_s=5.0), now_s=1.0).state().oldest_age_s == 0.0


# Tickets.


async def test_an_answer_that_is_known_is_given_without_waiting(autojump_clock: MockClock) -> None:
    ticket = Ticket("never")
    ticket.settle("accepted")
    before = trio.current_time()
    assert (ticket.known, await ticket.answer(5.0)) == ("never", "never")
    assert trio.current_time() == before


async def test_a_ticket_is_settled_once_and_everyone_hears_it(autojump_clock: MockClock) -> None:
    ticket, heard = Ticket(), []

    async def listen() -> None:
        heard.append(await ticket.answer(0.9))

    async with nobody_sleeps_on() as nursery:
        nursery.start_soon(listen)
        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        assert (ticket.known, heard) == (None, [])
        ticket.settle("accepted")
        ticket.settle("full")
    assert heard == ["accepted", "accepted"]


async def test_a_ticket_that_takes_too_long_says_come_again(autojump_clock: MockClock) -> None:
    ticket = Ticket()
    before = trio.current_time()
    assert await ticket.answer(5.0) == "full"
    assert trio.current_time() - before == pytest.approx(5.0)


# Waiting, closing, cancelling.


async def test_an_offer_wakes_a_waiting_drainer(autojump_clock: MockClock) -> None:
    spool = spool_with()
    leases: list[Lease] = []

    async def lease() -> None:
        leases.append(await spool.lease(PLENTY, PLENTY))

    async with nobody_sleeps_on() as nursery:
        nursery.start_soon(lease)
        await wait_all_tasks_blocked()
        assert not leases
        spool.offer(batch())
    assert leases[0].batches == (batch(),)


async def test_a_group_that_comes_back_wakes_everyone_who_waits(autojump_clock: MockClock) -> None:
    spool = spool_with(*numbered(3))
    held = lease_now(spool)
    at_work = 0

    async def drain() -> None:
        nonlocal at_work
        with await spool.lease(PLENTY, PLENTY) as lease:
            at_work += 1
            await all_at_work.wait()
            lease.done()

    all_at_work = trio.Event()
    async with nobody_sleeps_on() as nursery:
        for _ in range(3):
            nursery.start_soon(drain)
        await wait_all_tasks_blocked()
        fail(held)
        await wait_all_tasks_blocked()
        assert at_work == 3
        all_at_work.set()


async def test_a_closed_spool_refuses_offers_and_gives_out_what_it_holds() -> None:
    spool = spool_with(batch(1))
    spool.close()
    assert (offer(spool), spool.pressed()) == ("closed", True)
    finish(await spool.lease(PLENTY, PLENTY))
    with pytest.raises(SpoolEmpty):
        await spool.lease(PLENTY, PLENTY)


async def test_closing_an_empty_spool_sends_every_drainer_home(autojump_clock: MockClock) -> None:
    spool = spool_with()
    home: list[int] = []

    async def drain(number: int) -> None:
        with pytest.raises(SpoolEmpty):
            await spool.lease(PLENTY, PLENTY)
        home.append(number)

    async with nobody_sleeps_on() as nursery:
        for number in range(4):
            nursery.start_soon(drain, number)
        await wait_all_tasks_blocked()
        spool.close()
    assert sorted(home) == [0, 1, 2, 3]


async def test_no_drainer_goes_home_while_another_may_still_put_back(autojump_clock: MockClock) -> None:
    spool = spool_with(batch())
    seen: list[Any] = []

    async def drain() -> None:
        try:
            with await spool.lease(PLENTY, PLENTY) as lease:
                seen.append(lease.batches)
                lease.done()
            await spool.lease(PLENTY, PLENTY)
        except SpoolEmpty:
            seen.append("home")

    held = lease_now(spool)
    async with nobody_sleeps_on() as nursery:
        for _ in range(3):
            nursery.start_soon(drain)
        await wait_all_tasks_blocked()
        spool.close()
        await wait_all_tasks_blocked()
        assert seen == []
        fail(held)
    assert seen == [(batch(),), "home", "home", "home"]


@pytest.mark.parametrize("offer_first", [True, False])
async def test_a_drainer_cancelled_in_the_moment_of_an_offer_costs_no_waking(
    offer_first: bool, autojump_clock: MockClock
) -> None:
    spool = spool_with()
    drained: list[int] = []
    scopes: list[trio.CancelScope] = []

    async def drain(number: int) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            with await spool.lease(PLENTY, PLENTY) as lease:
                await trio.lowlevel.checkpoint()
                drained.append(number)
                lease.done()

    async with nobody_sleeps_on() as nursery:
        for number in range(2):
            nursery.start_soon(drain, number)
            await wait_all_tasks_blocked()
        if offer_first:
            spool.offer(batch())
        scopes[0].cancel()
        if not offer_first:
            spool.offer(batch())
    assert drained == [1]
    assert spool.state().depth == 0


def test_a_drainer_cancelled_at_any_await_loses_and_leaks_nothing() -> None:
    async def scenario(strike: Strike) -> None:
        spool = MemorySpool(PLENTY)
        done: list[Batch] = []

        async def drain() -> None:
            while True:
                try:
                    lease = await spool.lease(2, PLENTY)
                except SpoolEmpty:
                    return
                with lease:
                    await trio.sleep(0.3)
                    done.extend(lease.batches)
                    lease.done()

        async def offer() -> None:
            for each in numbered(5):
                spool.offer(each)
                await trio.sleep(0.4)
            spool.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(offer)
            await strike.run(drain)
        left = spool.state()
        assert left.depth == 5 - len(done)
        assert left.bytes == sum(each.size_bytes for each in numbered(5) if each not in done)
        await drain()
        assert sorted(each.size_bytes for each in done) == [each.size_bytes for each in numbered(5)]
        assert (spool.state().depth, spool.state().bytes) == (0, 0)

    assert at_every_await(scenario) >= 6


@attrs.frozen
class _Offer:
    body_bytes: int
    spans: int
    pause_s: int
    failures: int


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.builds(
            _Offer,
            st.integers(0, 600),
            st.integers(1, 5),
            st.integers(0, 2),
            st.integers(0, 3),
        ),
        max_size=12,
    ),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_whatever_is_accepted_is_done_once_and_no_drainer_sleeps_on(
    offers: list[_Offer], drainers: int, max_spans: int
) -> None:
    async def scenario() -> None:
        spool = MemorySpool(4 * 1024)
        accepted: set[int] = set()
        done: list[int] = []
        failures: dict[int, int] = {}

        async def drain() -> None:
            while True:
                try:
                    lease = await spool.lease(max_spans, PLENTY)
                except SpoolEmpty:
                    return
                with lease:
                    await trio.sleep(1.5)
                    numbers = [each.project_id for each in lease.batches]
                    if any(failures[number] for number in numbers):
                        for number in numbers:
                            failures[number] = max(0, failures[number] - 1)
                        continue
                    done.extend(numbers)
                    lease.done()

        async with trio.open_nursery() as nursery:
            for _ in range(drainers):
                nursery.start_soon(drain)
            for number, offer in enumerate(offers):
                failures[number] = offer.failures
                each = attrs.evolve(batch(offer.body_bytes, spans=offer.spans), project_id=number)
                if spool.offer(each).known == "accepted":
                    accepted.add(number)
                assert spool.state().bytes <= 4 * 1024
                await trio.sleep(offer.pause_s)
            spool.close()
            nursery.cancel_scope.deadline = trio.current_time() + 1000.0
        assert sorted(done) == sorted(accepted)
        assert (spool.state().depth, spool.state().bytes) == (0, 0)

    trio.run(scenario, clock=MockClock(autojump_threshold=0))


class SpoolMachine(RuleBasedStateMachine):
    """The spool beside a plain list. A batch is told by its project number."""

    MAX_BYTES = 5000

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.spool = MemorySpool(self.MAX_BYTES, clock=lambda: self.now_s)
        self.waiting: list[Batch] = []
        self.leases: list[tuple[Lease, tuple[Batch, ...]]] = []
        self.tries: dict[int, int] = {}
        self.together: dict[int, int] = {}
        self.closed = False
        self.accepted_spans = self.offered = 0

    def held(self) -> list[Batch]:
        return self.waiting + [each for _, batches in self.leases for each in batches]

    def held_bytes(self) -> int:
        return sum(each.size_bytes for each in self.held())

    @rule(seconds=st.floats(0.1, 5.0))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(body_bytes=st.integers(0, 1500) | st.integers(4400, 4600), spans=st.integers(1, 9))
    def offer(self, body_bytes: int, spans: int) -> None:
        self.offered += 1
        each = attrs.evolve(batch(body_bytes, spans=spans, received_s=self.now_s), project_id=self.offered)
        if each.size_bytes > self.MAX_BYTES:
            expected = "never"
        elif self.closed:
            expected = "closed"
        elif self.held_bytes() + each.size_bytes > self.MAX_BYTES:
            expected = "full"
        else:
            expected = "accepted"
            self.waiting.append(each)
            self.tries[each.project_id] = 0
            self.accepted_spans += spans
        assert self.spool.offer(each).known == expected

    @precondition(lambda self: self.waiting)
    @rule(max_spans=st.integers(1, 20), max_bytes=st.integers(1, 5000))
    def lease(self, max_spans: int, max_bytes: int) -> None:
        lease = lease_now(self.spool, max_spans, max_bytes)
        group, rest = lease.batches, self.waiting[len(lease.batches) :]
        assert group
        assert list(group) == self.waiting[: len(group)]
        assert lease.tries == self.tries[group[0].project_id]
        together = self.together.get(group[0].project_id, len(self.tries))

        def allowed(batches: tuple[Batch, ...]) -> bool:
            return len(batches) == 1 or (
                len({self.tries[each.project_id] for each in batches}) == 1
                and len(batches) <= together
                and sum(each.spans for each in batches) <= max_spans
                and sum(each.size_bytes for each in batches) <= max_bytes
            )

        assert allowed(group)
        assert not rest or not allowed((*group, rest[0]))
        self.waiting = rest
        self.leases.append((lease, group))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), done=st.booleans())
    def give_back(self, data: st.DataObject, done: bool) -> None:
        lease, group = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        if done:
            finish(lease)
        else:
            fail(lease)
            self.waiting[:0] = group
            for each in group:
                self.tries[each.project_id] += 1
                self.together[each.project_id] = max(1, len(group) // PARTS)

    # Late, or most runs would have nothing to lease.
    @precondition(lambda self: self.offered >= 10)
    @rule()
    def close(self) -> None:
        self.spool.close()
        self.closed = True

    @precondition(lambda self: self.closed and not self.waiting and not self.leases)
    @rule()
    def go_home(self) -> None:
        with pytest.raises(SpoolEmpty):
            lease_now(self.spool)

    @invariant()
    def the_snapshot_is_true(self) -> None:
        state, held = self.spool.state(), self.held()
        assert state.depth == len(held)
        assert state.bytes == self.held_bytes() <= self.MAX_BYTES
        oldest_s = min((each.received_s for each in held), default=self.now_s)
        assert state.oldest_age_s == pytest.approx(self.now_s - oldest_s)
        assert (state.accepted_batches, state.accepted_spans) == (len(self.tries), self.accepted_spans)
        assert (state.waiting_spans, state.recovered_spans) == (sum(each.spans for each in held), 0)
        assert self.spool.pressed() is (self.closed or state.bytes >= self.MAX_BYTES)


def test_budget_depth_age_and_order_hold_under_any_use() -> None:
    run_state_machine_as_test(
        SpoolMachine, settings=settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
    )
