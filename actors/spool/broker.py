"""Broker mode: a 200 means that a broker has persisted the batch; any replica may store it.

Owns what is on its way to the broker and what was taken from it and is not stored yet, each with a budget.
Offers are packed in a thread and published; the answer is the broker's. Batches come back from the partitions
that this replica is assigned and go to the drainers; a partition's position is committed up to the first
batch that is not stored, so a crash repeats batches and never loses one; the identity rule of spans makes the
repetition harmless. It knows no broker by name: `svc.outside` has the client behind the `Broker` port.

A broker that is away is an outage: offers are answered `full`, and it goes on by itself.

Ordering: everything here runs on the Trio thread. The client tells what happened in the order in which it
happened, so nothing arrives for a partition before it was assigned. Batches of a partition that was taken
away are dropped when they wait, and finished without a commit when a drainer has them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs
import trio

from actors.ports import Batch, Broker, Offered
from actors.spool.assignment import Assignment, TakenEntry
from actors.spool.memory import Entry, Spool, SpoolState, Ticket
from actors.supervision import Vitals
from protocol.broker import Arrival, Backlog
from protocol.spooled import Unpackable, outline, pack, unpack

#: What is packed at once; more would make the first offer of a group wait for the last.
PACK_BYTES: Final = 16 * 1024 * 1024


class BrokerSpool(Spool):
    """The queue of one replica in front of and behind a broker; it is the `Inbox` of the broker's client.

    `max_bytes` bounds, each for itself, what is being published and what was taken and is not stored; both
    count bodies as they are when inflated.
    """

    mode = "kafka"
    durable = True

    def __init__(
        self,
        max_bytes: int,
        *,
        vitals: Vitals,
        clock: Callable[[], float] = trio.current_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(max_bytes, clock=clock)
        self._vitals, self._wall = vitals, wall
        self._broker: Broker | None = None
        self._away: str | None = "it was not heard of yet"
        self._heard = trio.Event()
        self._paused = False
        self._pending: deque[tuple[Batch, Ticket]] = deque()
        self._underway: dict[Ticket, int] = {}
        self._underway_bytes = 0
        self._work = trio.Event()
        self._packing = trio.CapacityLimiter(1)
        self._unpacking = trio.CapacityLimiter(2)
        self._assigned: dict[int, Assignment] = {}
        self._damaged: deque[TakenEntry] = deque()
        self._damage = trio.Event()
        self._backlog = Backlog()
        self._seen, self._seen_bytes = 0, 0
        self._taken_spans = 0

    # What the doors ask.

    def offer(self, batch: Batch) -> Ticket:
        """As `Spool.offer`; `full` also while the broker is away."""
        if batch.size_bytes > self._max_bytes:
            self._refused_never += 1
            return Ticket("never")
        if self._closed:
            return Ticket("closed")
        no_room = self._in_memory() + batch.size_bytes > self._max_bytes
        if no_room or self._broker is None or self._away is not None:
            self._refused_full += 1
            return Ticket("full")
        ticket = Ticket()
        self._underway[ticket] = batch.size_bytes
        self._underway_bytes += batch.size_bytes
        self._pending.append((batch, ticket))
        self._work.set()
        return ticket

    def pressed(self) -> bool:
        """Whether an offer would be refused now, so that a door can refuse before it reads a body."""
        return self._closed or self._away is not None or self._in_memory() >= self._max_bytes

    def state(self) -> SpoolState:
        """As `Spool.state`, with what waits in the broker for any replica.

        Its messages are counted and the oldest is dated every few seconds. Their bytes are an estimate: the
        mean of the batches seen so far. Once closed, only what this replica has in hand counts.

        `recovered_spans` is what this replica took beyond what it accepted itself; it is negative while other
        replicas store what this one accepted.
        """
        state = super().state()
        depth = state.depth + sum(1 for entry in self._damaged if entry not in self._leased)
        age_s = state.oldest_age_s
        waiting = 0
        if not self._closed:
            waiting = max(0, self._backlog.messages - depth)
            if self._backlog.oldest_s is not None:
                age_s = max(age_s, self._wall() - self._backlog.oldest_s)
        mean = self._seen_bytes // self._seen if self._seen else 0
        return attrs.evolve(
            state,
            depth=depth + waiting,
            bytes=state.bytes + waiting * mean,
            oldest_age_s=age_s,
            recovered_spans=self._taken_spans - self._accepted_spans,
        )

    def close(self) -> None:
        """As `Spool.close`; what is still in the broker stays there."""
        super().close()
        if self._broker is not None:
            self._broker.pause()

    async def flush(self) -> None:
        """Wait until no damaged message is left to bury; `BrokerLink` must be running."""
        while self._damaged:  # noqa: ASYNC110 - asked once, at the stop
            await trio.sleep(0.01)

    # What the link does.

    async def heard(self, timeout_s: float) -> None:
        """Wait until it is known whether the broker is there, or until the time is over."""
        with trio.move_on_after(timeout_s):
            await self._heard.wait()

    def linked(self, broker: Broker) -> None:
        """From here on there is a broker to talk to."""
        self._broker = broker
        self._paused = self._closed
        if self._closed:
            broker.pause()

    def unlinked(self) -> None:
        """The link is gone: whoever waits for an answer comes again, and no partition is ours."""
        self._broker = None
        self._away, self._heard = "the link to it is being made anew", trio.Event()
        self._pending.clear()
        for ticket in list(self._underway):
            self._answered(ticket, "full", 0)
        self.revoked(list(self._assigned))

    async def send_once(self) -> None:
        """Wait for offers, pack what has gathered and publish it.

        Cancellation: offers that are not published yet are answered `full`.
        """
        await self._work.wait()
        self._work = trio.Event()
        group: list[tuple[Batch, Ticket]] = []
        size = 0
        while self._pending and (not group or size + self._pending[0][0].size_bytes <= PACK_BYTES):
            group.append(self._pending.popleft())
            size += group[-1][0].size_bytes
        if self._pending:
            self._work.set()
        try:
            packed = await trio.to_thread.run_sync(
                _packed, [batch for batch, _ in group], limiter=self._packing
            )
        except BaseException:
            for _, ticket in group:
                self._answered(ticket, "full", 0)
            raise
        for (batch, ticket), data in zip(group, packed, strict=True):
            self._publish(batch, data, ticket)

    def post(self, letter: bytes, key: bytes) -> Ticket:
        """Publish a dead letter."""
        if self._broker is None or self._away is not None:
            return Ticket("full")
        ticket = Ticket()
        self._broker.publish("dead letters", key, letter, ticket.settle)
        return ticket

    async def next_damaged(self) -> TakenEntry:
        """Wait for a message that is no batch. It stays the next one until it is `buried`."""
        while not self._damaged:
            self._damage = trio.Event()
            await self._damage.wait()
        return self._damaged[0]

    def buried(self, entry: TakenEntry) -> None:
        """A damaged message lies among the dead letters: its offset is done."""
        if entry in self._damaged:
            self._damaged.remove(entry)
            self._release(entry)
            self._balance()

    # What the broker's client tells.

    def away(self, reason: str) -> None:
        """The broker cannot be reached or does not take what it is sent."""
        self._away = reason
        self._vitals.waits(reason)
        self._heard.set()

    def back(self) -> None:
        """The broker is there."""
        if self._away is not None:
            self._away = None
            self._vitals.works()
        self._heard.set()

    def assigned(self, partitions: Sequence[int]) -> None:
        """These partitions are ours from now on."""
        for partition in partitions:
            self._end(partition)
            self._assigned[partition] = Assignment(partition)

    def revoked(self, partitions: Sequence[int]) -> None:
        """These are not ours any more: forget what waits, let drainers finish without a commit."""
        for partition in partitions:
            self._end(partition)
        self._lot.unpark_all()

    def arrived(self, messages: Sequence[Arrival]) -> None:
        """Messages of our partitions, oldest first."""
        if self._closed:
            return
        for message in messages:
            source = self._assigned.get(message.partition)
            if source is not None:
                self._receive(message, source)
        self._balance()

    def measured(self, backlog: Backlog) -> None:
        """What waits in the broker for all replicas."""
        self._backlog = backlog

    # The rest is how it is done.

    def _in_memory(self) -> int:
        """What comes in, up to the broker's word; what comes back has a budget of its own."""
        return self._underway_bytes + self._reserved

    def _publish(self, batch: Batch, data: bytes, ticket: Ticket) -> None:
        if self._broker is None:
            self._answered(ticket, "full", 0)
            return
        spans = batch.spans
        self._broker.publish(
            "batches",
            str(batch.project_id).encode(),
            data,
            lambda answer: self._answered(ticket, answer, spans),
        )

    def _answered(self, ticket: Ticket, answer: Offered, spans: int) -> None:
        size = self._underway.pop(ticket, None)
        if size is None:
            return
        self._underway_bytes -= size
        match answer:
            case "accepted":
                self._accepted_batches += 1
                self._accepted_spans += spans
            case "never":
                self._refused_never += 1
            case _:
                self._refused_full += 1
        ticket.settle(answer)

    def _receive(self, message: Arrival, source: Assignment) -> None:
        entry = TakenEntry(
            None,
            1,
            len(message.value) + Batch.OVERHEAD_BYTES,
            self._clock(),
            source=source,
            offset=message.offset,
            generation=source.take(message.offset),
            data=message.value,
        )
        try:
            summary = outline(message.value)
        except Unpackable as error:
            self._condemn(entry, str(error))
        else:
            entry.spans, entry.size_bytes = summary.spans, summary.body_bytes + Batch.OVERHEAD_BYTES
            entry.inflated_bytes = entry.size_bytes
            entry.received_s -= max(0.0, self._wall() - summary.received_at.timestamp())
            self._seen, self._seen_bytes = self._seen + 1, self._seen_bytes + entry.size_bytes
            self._waiting.append(entry)
            self._lot.unpark()
        self._bytes += entry.size_bytes
        self._held_spans += entry.spans
        self._taken_spans += entry.spans

    def _condemn(self, entry: TakenEntry, damage: str) -> None:
        entry.damage = damage
        self._damaged.append(entry)
        self._damage.set()

    def _end(self, partition: int) -> None:
        """The end of an assignment: nothing of it is committed any more, nothing of it waits."""
        source = self._assigned.pop(partition, None)
        if source is None:
            return
        source.live = False
        self._forget(entry for entry in (*self._waiting, *self._damaged) if _as_taken(entry).source is source)
        self._waiting = deque(entry for entry in self._waiting if _as_taken(entry).source is not source)
        self._damaged = deque(entry for entry in self._damaged if entry.source is not source)
        self._balance()

    def _forget(self, entries: Iterable[Entry]) -> None:
        """Another replica has these now, or will."""
        for entry in entries:
            self._bytes -= entry.size_bytes
            self._held_spans -= entry.spans
            self._taken_spans -= entry.spans

    def _release(self, entry: TakenEntry) -> None:
        self._bytes -= entry.size_bytes
        self._held_spans -= entry.spans
        position = entry.source.settle(entry.offset, entry.generation)
        if position is not None and self._broker is not None:
            self._broker.commit(entry.source.partition, position)

    def _balance(self) -> None:
        """Stop taking messages when the budget is used up; go on when half of it is free."""
        if self._broker is None or self._closed:
            return
        if not self._paused and self._bytes >= self._max_bytes:
            self._paused = True
            self._broker.pause()
        elif self._paused and self._bytes <= self._max_bytes // 2:
            self._paused = False
            self._broker.resume()

    async def _fetch(self, entries: list[Entry]) -> None:
        absent = [_as_taken(entry) for entry in entries if entry.batch is None]
        if not absent:
            return
        contents = await trio.to_thread.run_sync(_unpacked, absent, limiter=self._unpacking)
        for entry, batch in zip(absent, contents, strict=True):
            if isinstance(batch, Unpackable):
                self._condemn(entry, str(batch))
            else:
                entry.batch = batch

    def _free(self, entries: list[Entry]) -> None:
        for entry in map(_as_taken, entries):
            if entry.damage is None:
                self._release(entry)
        self._balance()

    def _returned(self, entries: list[Entry], *, done: bool) -> None:
        self._leased.difference_update(entries)
        if not done:
            sound = [entry for entry in map(_as_taken, entries) if entry.damage is None]
            self._forget(entry for entry in sound if not entry.source.live)
            entries = [entry for entry in sound if entry.source.live]
        super()._returned(entries, done=done)
        self._balance()


def _as_taken(entry: Entry) -> TakenEntry:
    assert isinstance(entry, TakenEntry)
    return entry


def _packed(batches: list[Batch]) -> list[bytes]:
    return [pack(batch) for batch in batches]


def _unpacked(entries: list[TakenEntry]) -> list[Batch | Unpackable]:
    contents: list[Batch | Unpackable] = []
    for entry in entries:
        try:
            contents.append(unpack(entry.data, received_s=entry.received_s))
        except Unpackable as error:
            contents.append(error)
    return contents
