"""Decoder processes: decoding and writing on other cores than the one that answers.

`DecoderProcess` keeps one child process (`svc.ingest.decoder`) and carries orders to it; `Decoders` is the
handle that the drainers write through. Owns the orders in flight. Never looks into a batch.

The first process begins with the service, each of the others when all that are up have orders in hand. One
that had no order for a while ends; where all have, the next order waits until one is up again.

Ordering: a process that dies takes its orders with it. Each asker hears `SinkLost`, and whatever the process
had committed by then meets the identity rule of spans when it is written again.

Cancellation: an asker that stops waiting leaves its order to its fate, for the same reason.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import attrs
import trio

from actors.child_pipe import ASLEEP, ChildLost, next_of_child
from actors.ports import Batch, Outage, SinkLost, Written
from actors.reply import Reply, Unanswered
from actors.supervision import Vitals
from protocol.decoding import (
    Begun,
    Outcome,
    Prices,
    frame,
    read_from_decoder,
    result_of,
    write_message,
)
from protocol.framing import Frames
from protocol.operator import OperatorError

log = logging.getLogger(__name__)

#: A process starts in under a second; a loaded machine may take long.
START_TIMEOUT_S: Final = 60.0
#: Longest time without an answer while orders wait. A group is decoded and written in well under a second.
ANSWER_TIMEOUT_S: Final = 120.0
#: Orders that one process may hold. Each drainer has at most one.
ORDERS_BOUND: Final = 16
RESTART_PAUSE_S: Final = (0.1, 0.5, 2.0, 5.0)
#: A process that had no order for so long ends. With its connections it holds 54 MB (November 2026).
REST_S: Final = 600.0

#: What health says of one that is not there and begins on demand.
ASLEEP_ON_DEMAND: Final = "its process starts when the others are busy"

#: Opens a decoder process and what leads to it: bytes in, bytes out. Leaving ends the process.
Launch = Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]


class NoDecoder(OperatorError):
    """The first process of a start did not come up."""


@attrs.frozen
class Order:
    """Somebody waits for this since then, on Trio's clock."""

    reply: Reply[Outcome]
    since_s: float


@attrs.define(eq=False)
class Lane:
    """What leads to one process: orders waiting to be sent, orders in flight, and whether it is up."""

    vitals: Vitals
    #: Whether the first of its processes, too, begins only when there is work for it.
    on_demand: bool = False
    up: bool = False
    deaths: int = 0
    #: Orders so far.
    taken: int = 0
    #: Set while its process shall be there.
    demand: trio.Event = attrs.field(factory=trio.Event)
    #: While a process begins that an order waits for: set when it is up, or did not come up.
    waking: trio.Event | None = None
    #: What the process must hear before its next order. Only the latest counts.
    prices: Prices | None = None
    #: Set when a fresh process shall take the place of this one.
    renewal: trio.Event = attrs.field(factory=trio.Event)
    #: Set when the next process is up.
    began: trio.Event = attrs.field(factory=trio.Event)
    #: Set by the last asker to go, for whoever waits until nobody does.
    idle: trio.Event = attrs.field(factory=trio.Event)
    orders: dict[int, Order] = attrs.field(factory=dict)
    to_send: trio.MemorySendChannel[tuple[int, Sequence[Batch]]] = attrs.field(init=False)
    sending: trio.MemoryReceiveChannel[tuple[int, Sequence[Batch]]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.to_send, self.sending = trio.open_memory_channel[tuple[int, Sequence[Batch]]](ORDERS_BOUND)
        if not self.on_demand:
            self.demand.set()

    def forget(self, number: int) -> None:
        """Nobody waits for this order any more."""
        self.orders.pop(number, None)
        if not self.orders:
            self.idle.set()

    def fail(self) -> None:
        """The process is gone: nobody will answer what was ordered."""
        self.up = False
        for order in self.orders.values():
            order.reply.drop()
        self.orders.clear()
        # What was not sent yet was dropped with the rest.
        while self.sending.statistics().current_buffer_used:
            self.sending.receive_nowait()

    def wake(self) -> trio.Event:
        """Have a process begin where there is none. Returns what is set when it has, or has not come up."""
        self.demand.set()
        self.waking = trio.Event()
        return self.waking

    def woken(self) -> None:
        """Whoever waits for the process that begins need not any longer."""
        if self.waking is not None:
            self.waking.set()
            self.waking = None

    def begin(self) -> None:
        """A process is up; who waited for it, or for a fresh one, goes on."""
        self.up = True
        self.woken()
        self.renewal = trio.Event()
        self.began.set()
        self.began = trio.Event()

    @property
    def asleep(self) -> bool:
        """Whether there is no process because there is no work for it."""
        return not self.demand.is_set()

    async def rested(self) -> None:
        """Until the process has had no order for a while; it takes none from then on."""
        before = -1
        while self.taken > before or self.orders or self.renewal.is_set():
            before = self.taken
            await trio.sleep(REST_S)
        self.up, self.demand = False, trio.Event()

    async def renewed(self) -> None:
        """Until a fresh process has taken the place of this one; at once where there is none."""
        if self.asleep:
            return
        began = self.began
        self.renewal.set()
        await began.wait()

    async def give_way(self) -> None:
        """Until this process is to go and has nothing in hand. It takes no further order meanwhile."""
        await self.renewal.wait()
        self.up = False
        while self.orders:
            self.idle = trio.Event()
            await self.idle.wait()


class Decoders:
    """The handle: a `BatchSink` over all decoder processes."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._numbers = 0

    async def write(self, batches: Sequence[Batch]) -> Written:
        """Have the least busy process store the batches.

        Where all rest, it waits until one is up. Raises what the process met (`Outage`, `StoreRefused`,
        `WriteFailed`), `Outage` when no process is up, and `SinkLost` when it died with the order in hand.
        """
        lane = self._least_busy()
        if lane is None:
            await self._woken()
            lane = self._least_busy()
        elif lane.orders:
            self._wake()
        if lane is None:
            raise Outage("no decoder process is up")
        self._numbers += 1
        number, reply = self._numbers, Reply[Outcome]()
        try:
            lane.to_send.send_nowait((number, batches))
        except trio.WouldBlock:
            raise Outage("the decoder processes are busy") from None
        lane.orders[number] = Order(reply, trio.current_time())
        lane.taken += 1
        try:
            return result_of(await reply.wait(2 * ANSWER_TIMEOUT_S))
        except Unanswered:
            raise SinkLost("the decoder process died with them in hand") from None
        finally:
            lane.forget(number)

    def _least_busy(self) -> Lane | None:
        return min((lane for lane in self._lanes if lane.up), key=lambda lane: len(lane.orders), default=None)

    def _wake(self) -> trio.Event | None:
        """Have a process begin that was not needed until now; what is set when it is up. None: all are up."""
        return next((lane.wake() for lane in self._lanes if lane.asleep), None)

    async def _woken(self) -> None:
        """Until a process that rested is up, or did not come up; at once where none rests. All who wait at
        once wait for the same one.
        """
        begins = next((lane.waking for lane in self._lanes if lane.waking is not None), None)
        if begins is None:
            begins = self._wake()
        if begins is not None:
            with trio.move_on_after(START_TIMEOUT_S):
                await begins.wait()

    async def renew(self) -> None:
        """Have a fresh process take the place of each, one after the other, when it has nothing in hand.

        Raises `TooSlowError` where one does not come up; it is started again like any that died.
        """
        for lane in self._lanes:
            with trio.fail_after(ANSWER_TIMEOUT_S + START_TIMEOUT_S):
                await lane.renewed()

    def adopt(self, prices: Prices) -> None:
        """Have every process price by these from its next order on."""
        for lane in self._lanes:
            lane.prices = prices


class DecoderProcess:
    """Keeps one process alive. Its death is no crash of the actor: it is waited out and told in health."""

    def __init__(self, *, lane: Lane, launch: Launch) -> None:
        self._lane, self._launch = lane, launch

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Raises `NoDecoder` when the process of a start does not come up."""
        deaths = 0
        started = self._lane.on_demand
        if started:
            task_status.started()
        while True:
            if self._lane.asleep:
                self._lane.vitals.note = ASLEEP_ON_DEMAND if self._lane.on_demand else ASLEEP
                await self._lane.demand.wait()
                self._lane.vitals.note = None
            try:
                async with self._launch() as stream:
                    frames = Frames()
                    with trio.fail_after(START_TIMEOUT_S):
                        if not isinstance(await next_of_child(stream, frames, read_from_decoder), Begun):
                            raise ChildLost("it began with an answer")
                    deaths = 0
                    self._lane.begin()
                    self._lane.vitals.works()
                    if not started:
                        started = True
                        task_status.started()
                    await self._serve(stream, frames)
                    continue
            except (ChildLost, trio.TooSlowError, trio.BrokenResourceError, OSError) as lost:
                reason = str(lost) or "it did not come up"
                if not started:
                    raise NoDecoder(f"a decoder process cannot start: {reason}") from lost
                self._lane.vitals.waits(f"the decoder process is away: {reason}")
                self._lane.woken()
            finally:
                self._lane.fail()
            self._lane.deaths += 1
            await trio.sleep(RESTART_PAUSE_S[min(deaths, len(RESTART_PAUSE_S) - 1)])
            deaths += 1

    async def _serve(self, stream: trio.abc.Stream, frames: Frames) -> None:
        """Carry orders out and answers in, until a fresh process shall go on or none. Raises `ChildLost`."""
        lost: ChildLost | None = None
        async with trio.open_nursery() as nursery:

            async def carry_out() -> None:
                nonlocal lost
                try:
                    async for number, batches in self._lane.sending:
                        prices, self._lane.prices = self._lane.prices, None
                        if prices is not None:
                            await stream.send_all(b"".join(frame(prices)))
                        for piece in frame(write_message(number, batches)):
                            await stream.send_all(piece)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    lost = ChildLost("it takes no more orders")
                    nursery.cancel_scope.cancel()

            async def end_after(reason: Callable[[], Awaitable[None]]) -> None:
                await reason()
                nursery.cancel_scope.cancel()

            nursery.start_soon(carry_out)
            nursery.start_soon(end_after, self._lane.give_way)
            nursery.start_soon(end_after, self._lane.rested)
            try:
                await self._carry_in(stream, frames)
            except ChildLost as error:
                lost = error
                nursery.cancel_scope.cancel()
        if lost is not None:
            raise lost

    async def _carry_in(self, stream: trio.abc.Stream, frames: Frames) -> None:
        while True:
            with trio.move_on_after(ANSWER_TIMEOUT_S) as patience:
                answer = await next_of_child(stream, frames, read_from_decoder)
            if patience.cancelled_caught:
                # It may have had nothing to do for most of that time.
                overdue_s = trio.current_time() - ANSWER_TIMEOUT_S
                if any(order.since_s <= overdue_s for order in self._lane.orders.values()):
                    raise ChildLost(f"it has not answered for {ANSWER_TIMEOUT_S:g} s")
                continue
            if not isinstance(answer, Outcome):
                raise ChildLost("it began twice")
            order = self._lane.orders.get(answer.number)
            if order is not None:
                order.reply.put(answer)
