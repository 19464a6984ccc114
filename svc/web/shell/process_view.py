"""What pages are handed of the running process: what comes in, what was refused, who may take the instance.

The wiring builds one; every verb is synchronous and answers from memory, but for `send`.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, Final, Literal, Protocol

import attrs

from protocol.otlp.limits import QuotaUse
from svc.domain.pricing.prices import PriceBook
from svc.web.shell import words

#: How long the link of a first start leads to the owner's sign-up.
OWNER_LINK_TTL: Final = timedelta(hours=1)
RATE_WINDOW_S: Final = 30.0


@attrs.frozen
class IngestLight:
    """What the foot of every page says of ingest: since the start, and lately."""

    spans_per_s: float
    refused: int
    dead_lettered: int
    well: bool

    @property
    def text(self) -> str:
        """In words."""
        if not self.well:
            return "ingest is held up"
        refused = f", {words.counted(self.refused, 'request')} refused" if self.refused else ""
        buried = f" · {words.counted(self.dead_lettered, 'dead letter')}" if self.dead_lettered else ""
        return f"{words.compact(self.spans_per_s)} spans/s{refused}{buried}"


@attrs.define(eq=False)
class Rate:
    """How fast a counter grows, as of the times it is asked: over half a minute at the most."""

    counter: Callable[[], int]
    clock: Callable[[], float]
    _samples: deque[tuple[float, int]] = attrs.field(factory=deque)

    def per_s(self) -> float:
        """Since the oldest time of the last half minute; 0 when there is none."""
        now_s, total = self.clock(), self.counter()
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - RATE_WINDOW_S:
            self._samples.popleft()
        if not self._samples or now_s - self._samples[-1][0] >= 1.0:
            self._samples.append((now_s, total))
        since, past_total = self._samples[0]
        return (total - past_total) / (now_s - since) if now_s - since >= 1.0 else 0.0


@attrs.define(eq=False)
class OwnerLink:
    """One secret that makes whoever signs up with it an owner: once, within an hour of its making.

    Secrets: it is printed where the operator sees it and kept in the memory of this process only.
    """

    now: Callable[[], datetime]
    _secret: str | None = attrs.field(default=None, repr=False)
    _until: datetime | None = None

    def make(self) -> str:
        """A new secret; an earlier one serves no more."""
        self._secret, self._until = secrets.token_urlsafe(24), self.now() + OWNER_LINK_TTL
        return self._secret

    def opens(self, secret: str | None) -> bool:
        """Whether this is the living secret."""
        if self._secret is None or self._until is None or not secret or self.now() >= self._until:
            return False
        return compare_digest(self._secret.encode(), secret.encode())

    def spend(self) -> None:
        """It served."""
        self._secret = self._until = None


DemoState = Literal["idle", "running", "done", "failed"]


class Demo(Protocol):
    """What `trace-svc demo` does, in a process of its own: one at a time."""

    def state(self) -> DemoState: ...

    async def start(self) -> None: ...


@attrs.frozen
class UntilVisible:
    """How long it took from the acknowledgement of a batch until it could be asked for, since the start.

    Seconds within which half of the batches, and nineteen of twenty, were there; None beyond what is told.
    """

    batches: int
    half_s: float | None
    most_s: float | None


@attrs.frozen
class SignOnState:
    """The external identity provider: whose tokens are believed, and where it sends browsers back to."""

    issuer: str
    redirect_uri: str


class Process(Protocol):
    """The process as the page of health knows it."""

    async def health(self) -> dict[str, Any]:
        """What `/actuator/health` says."""
        ...

    def until_queryable(self) -> tuple[int, float | None, float | None]:
        """The figures of `UntilVisible`."""
        ...

    def well(self) -> bool:
        """Whether ingest is up."""
        ...

    def buried(self) -> int:
        """Spans among the dead letters."""
        ...

    def disk_free(self) -> int | None:
        """Bytes that are free where the database lies; None when it lies elsewhere."""
        ...


@attrs.frozen
class ProcessView:
    """What the pages read of the process itself."""

    #: How fast spans are accepted.
    rate: Rate
    #: How far a project uses its quotas, as this process counted.
    quotas: Callable[[int], Sequence[QuotaUse]]
    #: Refused exports of the last minutes, by cause: `{status, cause, message, count}`.
    refused: Callable[[], Sequence[dict[str, Any]]]
    owner_link: OwnerLink
    #: Take one OTLP body (JSON) into a project, as the doors do. None when it was taken, else why not.
    send: Callable[[int, bytes], Awaitable[str | None]]
    demo: Demo
    #: The price book in force.
    prices: PriceBook
    #: Where programs send to: the port of gRPC, or None when it is off.
    grpc_port: int | None
    version: str
    process: Process
    sign_on: SignOnState | None

    def ingest(self) -> IngestLight:
        """What the foot of every page says of ingest."""
        refused = sum(int(refusal["count"]) for refusal in self.refused())
        return IngestLight(self.rate.per_s(), refused, self.process.buried(), self.process.well())
