"""What both OTLP doors do with a request whose body is read: decode, screen, offer.

Owns the order of the last checks (contract §2: size 413, decode 400, per-span checks, offer) and the count
of what was taken and refused. In memory mode it is synchronous from end to end, so that no client that hangs
up can come between an accepted batch and its answer; a durable spool is waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal

import attrs

from actors.keys import Grant
from actors.ports import Offered
from actors.spool.memory import Reservation, Spool, Ticket
from protocol.inflate import TooLarge, Unreadable, inflate
from protocol.otlp.json import read_json
from protocol.otlp.reading import read_body
from protocol.otlp.screen import Screening, screen
from protocol.refusals import (
    ALL_REFUSED,
    BAD_REQUEST,
    NEVER_FITS,
    PAYLOAD_TOO_LARGE,
    SPOOL_FULL,
    STOPPING,
    Refusal,
)
from protocol.storage import Batch

Form = Literal["protobuf", "json"]

#: `Retry-After` is half the age of what waits, which is about what a full buffer takes to drain. After the
#: whole of it all exporters came back to an empty one: measured November 2026, while another program kept one
#: of two cores busy, a buffer of 128 MiB stood empty twice in a flood of 12 s, and never with half.
_RETRY_MIN_S: Final = 1
_RETRY_MAX_S: Final = 5

#: How long an exporter may wait for a durable spool; its own patience is 10 s by default.
DURABLE_TIMEOUT_S: Final = 8.0


@attrs.define
class IntakeTally:
    """What the doors took and refused since the start. Written by `Intake` alone."""

    requests: int = 0
    spans: int = 0
    rejected_spans: int = 0
    refused: dict[str, int] = attrs.field(factory=dict)
    #: Spans refused one by one, by project and reason, since the exporter writer last took them.
    rejections: Counter[tuple[int, str]] = attrs.field(factory=Counter)

    def refuse(self, refusal: Refusal) -> Refusal:
        """Count a refusal and give it back."""
        key = str(refusal.status)
        self.refused[key] = self.refused.get(key, 0) + 1
        return refusal

    def take_rejections(self) -> Counter[tuple[int, str]]:
        """Those since the last call."""
        taken, self.rejections = self.rejections, Counter()
        return taken


@attrs.frozen
class Taken:
    """The batch is accepted (or held nothing to store); `screening` says what was refused in it."""

    screening: Screening


@attrs.frozen
class Held:
    """The batch is on its way to a durable spool; `Intake.settled` waits for the answer."""

    screening: Screening
    ticket: Ticket


@attrs.define(eq=False)
class Intake:
    """The common end of both doors."""

    spool: Spool
    max_body_bytes: int
    now: Callable[[], datetime]
    clock: Callable[[], float]
    tally: IntakeTally = attrs.field(factory=IntakeTally)

    def pressure(self) -> Refusal | None:
        """A refusal when the spool has no room at all, before a body is read."""
        return self.tally.refuse(self._full()) if self.spool.pressed() else None

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
        self, grant: Grant, body: bytes, encoding: str, form: Form, room: Reservation
    ) -> Taken | Held | Refusal:
        """Inflate, decode, screen and offer one body. Every refusal is counted here.

        `room` is what the door held for the body while it came in; the offer takes its place.
        """
        try:
            plain = inflate(body, encoding, self.max_body_bytes)
            if plain is not body and (refusal := self.hold(room, len(body) + len(plain))):
                return self.tally.refuse(refusal)
            request: Any
            if form == "json":
                request = read_json(plain)
            else:
                request, plain = read_body(plain)
        except TooLarge:
            return self.tally.refuse(PAYLOAD_TOO_LARGE)
        except Unreadable as error:
            return self.tally.refuse(BAD_REQUEST.saying(str(error)))
        screening = screen(request)
        self.tally.rejected_spans += screening.rejected
        for reason, spans in screening.reasons:
            self.tally.rejections[grant.project_id, reason] += spans
        if not screening.accepted:
            if screening.rejected:
                return self.tally.refuse(ALL_REFUSED.saying(f"{ALL_REFUSED.message}: {screening.message()}"))
            self.tally.requests += 1
            return Taken(screening)
        clean = plain if form == "protobuf" and not screening.rejected else request.SerializeToString()
        # Nothing runs between the two: what was held for the body is the batch's.
        room.release()
        ticket = self.spool.offer(
            Batch(grant.project_id, clean, screening.accepted, self.now(), self.clock(), grant.key_id)
        )
        return Held(screening, ticket) if ticket.known is None else self._answered(screening, ticket.known)

    async def settled(self, held: Held) -> Taken | Refusal:
        """Wait until a durable spool has the batch, or has not."""
        return self._answered(held.screening, await held.ticket.answer(DURABLE_TIMEOUT_S))

    def _answered(self, screening: Screening, offered: Offered) -> Taken | Refusal:
        match offered:
            case "accepted":
                self.tally.requests += 1
                self.tally.spans += screening.accepted
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
