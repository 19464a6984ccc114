"""What both OTLP doors do with a request whose body is read: decode, screen, offer.

Owns the order of the last checks (contract §2: size 413, decode 400, per-span checks, offer) and the count
of what was taken and refused. In memory mode it is synchronous from end to end, so that no client that hangs
up can come between an accepted batch and its answer; a durable spool is waited for.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any, Final

import attrs
import trio

from actors.keys import Grant
from actors.ports import Offered
from actors.spool.memory import Reservation, Spool, Ticket
from protocol.inflate import TooLarge, Unreadable, inflate
from protocol.otlp.admission import INLINE_BYTES, Form, NotHere, admit, is_small
from protocol.otlp.limits import DEFAULT_LIMITS, Limits, OverLimit
from protocol.otlp.screen import Screening
from protocol.refusals import (
    ALL_REFUSED,
    BAD_REQUEST,
    DISK_FULL,
    NEVER_FITS,
    PAYLOAD_TOO_LARGE,
    QUOTA_BYTES,
    SPOOL_FULL,
    STOPPING,
    Refusal,
    Refused,
    over_limit,
)
from protocol.storage import Batch
from svc.domain.log_events.translation import counted, translated
from svc.front.otlp.lately import RefusedLately
from svc.front.otlp.quotas import Quotas
from svc.front.otlp.signals import RefusedSignals, Signal, TakenSignals

log = logging.getLogger(__name__)

#: `Retry-After` is half the age of what waits, which is about what a full buffer takes to drain. After the
#: whole of it all exporters came back to an empty one: measured November 2026, while another program kept one
#: of two cores busy, a buffer of 128 MiB stood empty twice in a flood of 12 s, and never with half.
_RETRY_MIN_S: Final = 1
_RETRY_MAX_S: Final = 5

#: How long an exporter may wait for a durable spool; its own patience is 10 s by default.
DURABLE_TIMEOUT_S: Final = 8.0

#: A cause of refusals is named in the log this often at most.
REFUSAL_LINE_S: Final = 60.0


@attrs.define
class IntakeTally:
    """What the doors took and refused since the start. Written by `Intake` alone."""

    requests: int = 0
    spans: int = 0
    rejected_spans: int = 0
    refused: dict[str, int] = attrs.field(factory=dict)
    #: Spans refused one by one, by project and reason, since the exporter writer last took them.
    rejections: Counter[tuple[int, str]] = attrs.field(factory=Counter)
    clock: Callable[[], float] = time.monotonic
    #: Log records and data points of accepted requests.
    taken: TakenSignals = attrs.field(factory=TakenSignals)
    #: By status and code: how many since the last line in the log, and when that was.
    _unsaid: dict[tuple[int, str], int] = attrs.field(factory=dict)
    _said_s: dict[tuple[int, str], float] = attrs.field(factory=dict)
    #: Requests with other signals than traces.
    signals: RefusedSignals = attrs.field(init=False)
    #: Refused requests of the last minutes.
    lately: RefusedLately = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """It goes by the same clock."""
        self.lately = RefusedLately(self.clock)
        self.signals = RefusedSignals(self.clock)

    def refuse(self, refusal: Refusal) -> Refusal:
        """Count a refusal, name it in the log once a minute for each cause, and give it back.

        Secrets: texts of refusals quote no payload and no token.
        """
        key = str(refusal.status)
        self.refused[key] = self.refused.get(key, 0) + 1
        cause = (refusal.status, str((refusal.details or {}).get("reason", refusal.code)))
        self.lately.note(cause, refusal.message)
        unsaid = self._unsaid.get(cause, 0) + 1
        now_s = self.clock()
        if now_s - self._said_s.get(cause, -inf) < REFUSAL_LINE_S:
            self._unsaid[cause] = unsaid
        else:
            self._unsaid[cause], self._said_s[cause] = 0, now_s
            exports = "export" if unsaid == 1 else "exports"
            why = f"{refusal.message} ({cause[1]})"
            log.warning("refused %d %s with %d: %s", unsaid, exports, refusal.status, why)
        return refusal

    def take_rejections(self) -> Counter[tuple[int, str]]:
        """Those since the last call."""
        rejections, self.rejections = self.rejections, Counter()
        return rejections


@attrs.frozen
class Taken:
    """The batch is accepted (or held nothing to store); `screening` says what was refused in it."""

    screening: Screening


@attrs.frozen
class Held:
    """The batch is on its way to a durable spool; `Intake.settled` waits for the answer."""

    screening: Screening
    ticket: Ticket
    batch: Batch
    signal: Signal = "traces"


@attrs.frozen
class Large:
    """The body is too large to be read in the event loop; `Intake.settled` has it read in a thread."""

    grant: Grant
    body: bytes = attrs.field(repr=False)
    encoding: str
    form: Form
    room: Reservation
    signal: Signal = "traces"


#: Bodies read in threads at once. More would not be faster, for one at a time has the interpreter lock, and
#: each holds a part of its body twice.
READERS: Final = 2
#: Room for inflated bytes is asked for in steps, for each is a turn of the loop; so much may be held without.
_ROOM_STEP_BYTES: Final = 1024 * 1024
#: Logs and metrics up to this size are read in the loop. Measured November 2026 on one of two shared cores:
#: 70 µs an event, and 32 ms at worst, of empty records.
_SIGNAL_INLINE_BYTES: Final = 8 * 1024


@attrs.define(eq=False)
class Intake:
    """The common end of both doors."""

    spool: Spool
    max_body_bytes: int
    now: Callable[[], datetime]
    clock: Callable[[], float]
    limits: Limits = DEFAULT_LIMITS
    tally: IntakeTally = attrs.field(factory=IntakeTally)
    quotas: Quotas = attrs.field(factory=Quotas)
    #: Whether the disk budget is reached, and nothing is left that may go.
    no_disk: Callable[[], bool] = lambda: False
    #: Hears of each accepted batch, and must neither wait nor raise: the tee.
    hears: Callable[[Batch], object] = lambda _batch: None
    #: Signals that are accepted beside traces.
    others: tuple[Signal, ...] = ()
    _readers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(READERS))

    def pressure(self) -> Refusal | None:
        """A refusal when the spool or the disk has no room at all, before a body is read."""
        if self.no_disk():
            return self.tally.refuse(DISK_FULL)
        return self.tally.refuse(self._full()) if self.spool.pressed() else None

    def log_records(self) -> dict[str, Any] | None:
        """What became of log records, None where none are accepted."""
        return self.tally.taken.report() if self.others else None

    def hold(self, room: Reservation, size_bytes: int) -> Refusal | None:
        """Have room for so much of a body, sent and inflated, or refuse it. The refusal is not counted."""
        match room.hold(size_bytes):
            case "held":
                return None
            case "full":
                return self._full()
            case "never":
                return NEVER_FITS
            case "closed":
                return STOPPING

    def take(
        self,
        grant: Grant,
        body: bytes,
        encoding: str,
        form: Form,
        room: Reservation,
        signal: Signal = "traces",
    ) -> Taken | Held | Large | Refusal:
        """Inflate, decode, screen and offer one body. Every refusal is counted here.

        `room` is what the door held for the body while it came in; the offer takes its place. A large body is
        not touched: `settled` does the same for it.
        """
        wait_s = self.quotas.sent(grant.key_id, len(body), self.clock())
        if wait_s is not None:
            return self.tally.refuse(QUOTA_BYTES.in_(wait_s))
        inline_bytes = min(
            INLINE_BYTES[form] if signal == "traces" else _SIGNAL_INLINE_BYTES, self.max_body_bytes
        )
        try:
            if len(body) > inline_bytes:
                raise NotHere
            plain = inflate(body, encoding, inline_bytes)
            if signal == "traces" and not is_small(len(plain), form, self.limits):
                raise NotHere
            if plain is not body and (refusal := self.hold(room, len(body) + len(plain))):
                return self.tally.refuse(refusal)
            clean, screening = _read(signal, plain, form, self._limits(grant), inline=True)
        except (NotHere, TooLarge):
            return Large(grant, body, encoding, form, room, signal)
        except (Unreadable, OverLimit) as error:
            return self.tally.refuse(self._unread(error))
        return self._offered(grant, clean, screening, room, signal)

    async def take_json(self, project_id: int, body: bytes) -> str | None:
        """Take a body that a page has made, as the doors do. None when it was taken, else why not."""
        with self.spool.reservation() as room:
            taking = self.take(Grant("pages", project_id, "write"), body, "identity", "json", room)
            if isinstance(taking, Held | Large):
                taking = await self.settled(taking)
        return taking.message if isinstance(taking, Refusal) else None

    async def settled(self, taking: Held | Large) -> Taken | Refusal:
        """Wait until a large body is read, and until a durable spool has the batch, or has not.

        Cancellation: a reading thread is waited for; what it read is forgotten.
        """
        if isinstance(taking, Large):
            decoded = await trio.to_thread.run_sync(self._read, taking, limiter=self._readers)
            if isinstance(decoded, Refusal):
                return self.tally.refuse(decoded)
            offered = self._offered(taking.grant, *decoded, taking.room, taking.signal)
            if not isinstance(offered, Held):
                return offered
            taking = offered
        answer = await taking.ticket.answer(DURABLE_TIMEOUT_S)
        return self._answered(taking.screening, taking.batch, answer, taking.signal)

    def _read(self, large: Large) -> tuple[bytes, Screening] | Refusal:
        """In a thread: inflate and read one large body.

        Nothing is raised: on its way to the loop an exception would keep what was inflated.
        """
        body, encoding, form = large.body, large.encoding, large.form
        held_bytes = len(body)

        def hold(size_bytes: int) -> None:
            nonlocal held_bytes
            held_bytes = size_bytes
            if refusal := trio.from_thread.run_sync(self.hold, large.room, size_bytes):
                raise Refused(refusal)

        def grow(size_bytes: int) -> None:
            if len(body) + size_bytes > held_bytes + _ROOM_STEP_BYTES:
                hold(len(body) + size_bytes)

        try:
            plain = inflate(body, encoding, self.max_body_bytes, grow)
            if plain is not body:
                hold(len(body) + len(plain))
            return _read(large.signal, plain, form, self._limits(large.grant), inline=False)
        except Refused as refused:
            return refused.refusal
        except (TooLarge, Unreadable, OverLimit) as error:
            return self._unread(error)

    def _limits(self, grant: Grant) -> Limits:
        return self.quotas.limits(grant.project_id, self.limits, self.now().date())

    def _unread(self, error: TooLarge | Unreadable | OverLimit) -> Refusal:
        match error:
            case TooLarge():
                return PAYLOAD_TOO_LARGE
            case OverLimit():
                return over_limit(error.limit, getattr(self.limits, error.limit))
            case Unreadable():
                return BAD_REQUEST.saying(str(error))

    def _offered(
        self, grant: Grant, clean: bytes, screening: Screening, room: Reservation, signal: Signal
    ) -> Taken | Held | Refusal:
        self.tally.rejected_spans += screening.rejected
        for reason, spans in screening.reasons:
            self.tally.rejections[grant.project_id, reason] += spans
        if not screening.accepted:
            if screening.rejected and signal == "traces":
                return self.tally.refuse(ALL_REFUSED.saying(f"{ALL_REFUSED.message}: {screening.message()}"))
            self.tally.requests += 1
            self.tally.taken.note(signal, screening)
            return Taken(screening)
        # Nothing runs between the two: what was held for the body is the batch's.
        room.release()
        batch = Batch(grant.project_id, clean, screening.accepted, self.now(), self.clock(), grant.key_id)
        ticket = self.spool.offer(batch)
        if ticket.known is None:
            return Held(screening, ticket, batch, signal)
        return self._answered(screening, batch, ticket.known, signal)

    def _answered(
        self, screening: Screening, batch: Batch, offered: Offered, signal: Signal
    ) -> Taken | Refusal:
        match offered:
            case "accepted":
                self.tally.requests += 1
                self.tally.spans += screening.accepted
                self.tally.taken.note(signal, screening)
                self.hears(batch)
                return Taken(screening)
            case "full":
                return self.tally.refuse(self._full())
            case "never":
                return self.tally.refuse(NEVER_FITS)
            case "closed":
                return self.tally.refuse(STOPPING)

    def _full(self) -> Refusal:
        age_s = self.spool.state().oldest_age_s
        return attrs.evolve(SPOOL_FULL, retry_after_s=min(_RETRY_MAX_S, max(_RETRY_MIN_S, round(age_s / 2))))


def _read(
    signal: Signal, plain: bytes, form: Form, limits: Limits, *, inline: bool
) -> tuple[bytes, Screening]:
    """The body as spans that may be stored, and what was refused. Raises as `admit`, and `TooLarge`."""
    if signal == "traces":
        return admit(plain, form, limits, inline=inline)
    return translated(plain, form, limits) if signal == "logs" else counted(plain, form, limits)
