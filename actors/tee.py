"""The tee: what ingest accepted goes to one more endpoint as well, while somebody compares two products.

`Tee` is passive: the doors' common end offers what was accepted, and never waits. `TeeForwarder` sends what
lies there, several batches joined, and tries again for a while. What has no room or finds no answer is
counted and let go: this is a comparison, not a delivery, and lies in memory alone.

Ordering: batches go out about in the order in which they came, by several senders at once.

Cancellation: what is in the hands of a sender is counted as lost; `flushed` is how a stop lets it end first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import attrs
import trio

from actors.supervision import Vitals
from protocol.tee import Delivered, Never, NotNow, Outcome

log = logging.getLogger(__name__)

#: Requests under way at once.
SENDERS: Final = 4
#: Batches are joined up to this size, well below what collectors take in one request.
JOINED_BYTES: Final = 2 * 1024 * 1024
#: What a queued batch costs beside its body.
OVERHEAD_BYTES: Final = 256
#: How long a request that found no answer waits for its next try, each.
PAUSES_S: Final = (1.0, 5.0, 15.0)
#: The longest that the other side may ask to be left alone for.
LONGEST_PAUSE_S: Final = 30.0
#: A cause of losses is named in the log this often at most.
LINE_S: Final = 60.0


#: Why spans did not arrive.
Loss = Literal["full", "unanswered", "refused", "stopped"]


@attrs.define
class TeeTally:
    """What became of what was offered, in spans. Written by the two classes here."""

    offered: int = 0
    forwarded: int = 0
    requests: int = 0
    lost: dict[Loss, int] = attrs.field(factory=dict)
    waiting_spans: int = 0
    waiting_bytes: int = 0
    last_fault: str | None = None

    def lose(self, why: Loss, spans: int) -> None:
        """Count spans that will not arrive."""
        self.lost[why] = self.lost.get(why, 0) + spans


@attrs.frozen
class _Waiting:
    body: bytes = attrs.field(repr=False)
    spans: int

    @property
    def size_bytes(self) -> int:
        return len(self.body) + OVERHEAD_BYTES


@attrs.define(eq=False)
class Tee:
    """The queue in memory, bounded by `max_bytes`, of which what is being sent is a part."""

    max_bytes: int
    tally: TeeTally = attrs.field(factory=TeeTally)
    _queue: deque[_Waiting] = attrs.field(factory=deque)
    _news: trio.Event = attrs.field(factory=trio.Event)
    _empty: trio.Event = attrs.field(factory=trio.Event)

    def offer(self, body: bytes, spans: int) -> None:
        """Forward this accepted request. Never waits, never refuses: without room it is counted as lost."""
        waiting, tally = _Waiting(body, spans), self.tally
        tally.offered += spans
        if tally.waiting_bytes + waiting.size_bytes > self.max_bytes:
            tally.lose("full", spans)
            return
        tally.waiting_bytes += waiting.size_bytes
        tally.waiting_spans += spans
        self._queue.append(waiting)
        self._news.set()

    async def _next(self) -> list[_Waiting]:
        """Some of what waits, joined up to a bound; it stays counted until `_settled`."""
        while not self._queue:
            if self._news.is_set():
                self._news = trio.Event()
            await self._news.wait()
        batch = [self._queue.popleft()]
        size = len(batch[0].body)
        while self._queue and size + len(self._queue[0].body) <= JOINED_BYTES:
            batch.append(self._queue.popleft())
            size += len(batch[-1].body)
        return batch

    def _settled(self, batch: list[_Waiting]) -> int:
        spans = sum(waiting.spans for waiting in batch)
        self.tally.waiting_bytes -= sum(waiting.size_bytes for waiting in batch)
        self.tally.waiting_spans -= spans
        if not self.tally.waiting_spans:
            self._empty.set()
        return spans

    async def flushed(self, timeout_s: float) -> None:
        """Wait until nothing waits any more, so long at most, and say what is left."""
        with trio.move_on_after(timeout_s):
            while self.tally.waiting_spans:
                if self._empty.is_set():
                    self._empty = trio.Event()
                await self._empty.wait()
        spans_left = self.tally.waiting_spans
        if spans_left:
            log.warning("stopped with %d spans not forwarded to SVC_TEE_ENDPOINT", spans_left)


@attrs.define(eq=False, repr=False, kw_only=True)
class TeeForwarder:
    """Sends what a `Tee` holds. `send` is one request; it raises nothing but bugs."""

    _tee: Tee
    _send: Callable[[bytes], Awaitable[Outcome]]
    _vitals: Vitals
    _clock: Callable[[], float] = trio.current_time
    _said_s: float | None = attrs.field(default=None, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as senders:
            for _ in range(SENDERS):
                senders.start_soon(self._forward)
            task_status.started()

    async def _forward(self) -> None:
        while True:
            batch = await self._tee._next()
            loss: Loss | None = "stopped"
            try:
                loss = await self._tried(b"".join(waiting.body for waiting in batch))
            finally:
                spans = self._tee._settled(batch)
                if loss is None:
                    self._tee.tally.forwarded += spans
                else:
                    self._tee.tally.lose(loss, spans)

    async def _tried(self, body: bytes) -> Loss | None:
        """Send it, again where that may help. Returns why it did not arrive, None when it did."""
        for pause_s in (*PAUSES_S, None):
            outcome = await self._send(body)
            self._tee.tally.requests += 1
            match outcome:
                case Delivered():
                    self._vitals.works()
                    return None
                case Never(reason=reason):
                    self._tell(reason)
                    return "refused"
                case NotNow(reason=reason, after_s=after_s):
                    self._tell(reason)
                    if pause_s is None:
                        return "unanswered"
                    self._vitals.waits(f"the tee's endpoint: {reason}")
                    await trio.sleep(pause_s if after_s is None else min(after_s, LONGEST_PAUSE_S))
        raise AssertionError("unreachable")

    def _tell(self, reason: str) -> None:
        self._tee.tally.last_fault = reason
        now_s = self._clock()
        if self._said_s is None or now_s - self._said_s >= LINE_S:
            self._said_s = now_s
            log.warning("SVC_TEE_ENDPOINT does not accept spans: %s", reason)
