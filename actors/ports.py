"""What the actors need from outside, as protocols; the shapes they speak in stand in `protocol.storage`.

The store, the domain and the tests implement these; `svc/wiring` plugs them in. Nothing here does any work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Literal, Protocol

from protocol.agents import ParkedFor, RunAbandoned, RunHeld, RunLease, Spent
from protocol.alerts import (
    AlertRule,
    CheckResult,
    DeliveryLease,
    DeliveryState,
    RuleKind,
    StandingRule,
    ToldDirectly,
    Undelivered,
)
from protocol.attempts import CountedAttempt
from protocol.broker import Inbox, Lane, Published
from protocol.certificates import Challenge, ChallengeKind, Kept, Ordered, Pair
from protocol.detection import Author
from protocol.running import (
    RunEvents,
    RunnerAway,
    RunnerHealth,
    RunnerRefused,
    RunRequest,
    RunResult,
    RunStands,
)
from protocol.samples import Sample
from protocol.storage import (
    Batch,
    Built,
    Census,
    Deleted,
    Eviction,
    Freed,
    KeyRecord,
    Letter,
    Outage,
    Settled,
    SinkLost,
    StoreRefused,
    WriteFailed,
    Written,
)

__all__ = [
    "AlertQueue",
    "AlertWatch",
    "AttemptStore",
    "Authority",
    "Batch",
    "BatchSink",
    "Broker",
    "Built",
    "Calendar",
    "Census",
    "CensusTaker",
    "CertificateStore",
    "Connect",
    "Deleted",
    "DeliveryStore",
    "EraserStore",
    "Eviction",
    "Freed",
    "Graveyard",
    "Hours",
    "KeyRecord",
    "KeyStore",
    "LeaseStore",
    "Letter",
    "Offered",
    "Outage",
    "PurgeStore",
    "Retention",
    "RunOutcomes",
    "RunRequests",
    "RunStore",
    "RunnerHost",
    "RunnerLink",
    "Settled",
    "Showcase",
    "SinkLost",
    "Split",
    "StandingStore",
    "StoreRefused",
    "TraceStore",
    "WriteFailed",
    "Written",
]


#: Taking a batch apart into batches of one span each.
Split = Callable[[Batch], Sequence[Batch]]


class BatchSink(Protocol):
    """Where drainers write: batches are decoded and stored in one transaction.

    Raises `Outage`, `StoreRefused` for data that is refused for good, `WriteFailed` for data that nobody
    foresaw, and `SinkLost` when the writer died.
    """

    async def write(self, batches: Sequence[Batch]) -> Written: ...


class Graveyard(Protocol):
    """Where drainers bury what cannot be written. Raises `Outage`."""

    async def bury(self, letters: Sequence[Letter]) -> None: ...


class TraceStore(Protocol):
    """Where the roller finds traces that are due. Raises `Outage`."""

    async def settle(self, now: datetime, limit: int) -> Settled: ...


class Hours(Protocol):
    """Where something is counted by the hour: cubes, metric roll-ups. Raises `Outage`."""

    async def build(self, now: datetime, limit: int) -> Built: ...


class Retention(Protocol):
    """Where expired data is let go. Raises `Outage`; `freed` hears of each committed step."""

    async def sweep(self, now: datetime, freed: Callable[[Freed], None]) -> None: ...


class CensusTaker(Protocol):
    """Who knows the install's id and counts what there is. Raises `Outage`."""

    async def take(self, now: datetime) -> Census: ...


class KeyStore(Protocol):
    """Where keys are stored. All verbs raise `Outage`."""

    async def keys_behind(self, lookup_prefix: str) -> Sequence[KeyRecord]: ...

    async def note_used(self, used: dict[str, datetime]) -> None: ...

    def evictions(self) -> AbstractAsyncContextManager[AsyncIterator[Eviction]]:
        """Opens a subscription; the iterator raises `Outage` when the connection behind it is lost."""
        ...


class Calendar(Protocol):
    """Where day partitions are kept. Raises `Outage`."""

    async def make_days(self, today: datetime) -> int: ...

    async def bring_home(self, today: datetime) -> bool: ...


class PurgeStore(Protocol):
    """Where deleted projects are emptied. All verbs raise `Outage`."""

    async def deleted(self) -> Sequence[Deleted]: ...

    async def tables(self) -> Sequence[str]: ...

    async def purge(self, project_id: int, table: str, limit: int) -> int: ...

    async def purged(self, project_id: int) -> None: ...


class EraserStore(Protocol):
    """Where somebody's data is erased. All verbs raise `Outage`."""

    async def projects(self) -> Sequence[int]: ...

    async def step(self, project_id: int) -> object | None: ...

    async def drop_expired(self, now: datetime) -> None: ...


class Authority(Protocol):
    """Who gives certificates, and says when one is to be renewed, if it does. All raise `AuthorityFault`."""

    async def order(self, kept: Kept, kind: ChallengeKind) -> Ordered: ...

    async def finish(self, ordered: Ordered) -> Pair: ...

    async def renewal(self, pair: Pair) -> datetime | None: ...


class CertificateStore(Protocol):
    """Where account, certificate and challenges are kept. All verbs raise `Outage`."""

    async def load(self) -> Kept: ...

    async def keep(self, kept: Kept) -> None: ...

    async def publish(self, challenge: Challenge) -> None: ...

    async def withdraw(self, challenge: Challenge) -> None: ...

    async def challenges(self) -> Sequence[Challenge]: ...

    async def answer(self, token: str) -> str | None: ...


class LeaseStore(Protocol):
    """Where copies agree on who does what. Both raise `Outage`."""

    async def take(self, names: Sequence[str], life_s: float) -> frozenset[str]: ...

    async def release(self) -> None: ...


class AttemptStore(Protocol):
    """Where copies tell one another what they counted. Raises `Outage`."""

    async def tell(self, counted: Sequence[CountedAttempt]) -> None: ...


class Showcase(Protocol):
    """The doors that show a certificate. Both raise `BadPair`, and then show what they did."""

    def serve(self, pair: Pair) -> None: ...

    def prove(self, pair: Pair | None) -> None:
        """Show this to a validation server alone, until None is given."""
        ...


#: What an offer to the spool can answer.
Offered = Literal["accepted", "full", "never", "closed"]


class Broker(Protocol):
    """An open link to a broker. Every verb returns at once; outcomes come as calls on the Trio thread."""

    def publish(self, lane: Lane, key: bytes, value: bytes, settled: Callable[[Published], None]) -> None: ...

    def commit(self, partition: int, position: int) -> None:
        """Everything below `position` is done. Only for partitions that are assigned."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


#: Opens a link that tells an inbox; leaving it delivers what was published, commits and says goodbye, in
#: bounded time. A broker that is away is no error: the inbox hears of it.
Connect = Callable[[Inbox], AbstractAsyncContextManager[Broker]]


class RunStore(Protocol):
    """Runs of agents as they are stored. All verbs raise `Outage`; False and None: the run is lost."""

    async def press_automatic(self, by: Author, now: datetime) -> int: ...

    async def claim(self, now: datetime) -> RunLease | RunAbandoned | None: ...

    async def renew(self, lease: RunLease) -> RunHeld | None: ...

    async def asked_with(self, lease: RunLease, request: Mapping[str, Any], model: str | None) -> bool: ...

    async def progress(self, lease: RunLease, spent: Spent, events: Sequence[Mapping[str, Any]]) -> bool: ...

    async def ran_on(self, lease: RunLease, model: str) -> bool: ...

    async def park(self, lease: RunLease, reason: ParkedFor, spent: Spent) -> bool: ...

    async def refund(self, lease: RunLease, due_s: float, why: str, spent: Spent, now: datetime) -> bool: ...

    def notices(self) -> AbstractAsyncContextManager[AsyncIterator[str]]: ...


class RunOutcomes(Protocol):
    """How runs end. All verbs raise `Outage`; False: the run is lost."""

    async def finish(
        self, lease: RunLease, answer: Mapping[str, Any], spent: Spent, now: datetime
    ) -> bool: ...

    async def fail(self, lease: RunLease, why: str, spent: Spent, now: datetime, *, final: bool) -> bool: ...

    async def cancelled(self, lease: RunLease, spent: Spent, now: datetime) -> bool: ...


class RunRequests(Protocol):
    """What a run is asked with, and its key of the project. All verbs raise `Outage`."""

    async def request(self, lease: RunLease) -> RunRequest | ParkedFor | str:
        """The request with its secrets, without a key; what parks the run; or why it can never be asked."""
        ...

    async def mint(self, lease: RunLease, request: RunRequest) -> tuple[str, RunRequest]:
        """A key of the run, by its id, and the request with it."""
        ...

    async def revoke(self, lease: RunLease, key_id: str) -> None: ...

    async def sweep(self) -> int: ...

    async def checked(
        self, lease: RunLease, request: RunRequest, result: Mapping[str, Any]
    ) -> Mapping[str, Any] | str:
        """The answer as it counts, or what is wrong with it."""
        ...


class RunnerLink(Protocol):
    """A runner, asked."""

    async def begin(self, name: str, request: RunRequest) -> RunStands | RunnerRefused | RunnerAway: ...

    async def events(self, name: str, after: int) -> RunEvents | RunnerRefused | RunnerAway: ...

    async def result(self, name: str) -> RunResult | RunnerRefused | RunnerAway: ...

    async def cancel(self, name: str) -> None: ...

    async def health(self) -> RunnerHealth | RunnerRefused | RunnerAway: ...


class RunnerHost(Protocol):
    """Where the runner is; a child is started when a link is needed. `present` never starts one."""

    async def link(self) -> RunnerLink | RunnerAway: ...

    def present(self) -> RunnerLink | None: ...


class AlertQueue(Protocol):
    """The messages that wait, all together. Both verbs raise `Outage`."""

    async def give_up(self) -> int: ...

    async def counts(self) -> Mapping[str, Any]: ...


class DeliveryStore(Protocol):
    """Messages on their way. All verbs raise `Outage`; False and None: the lease is lost."""

    async def claim(self) -> DeliveryLease | None: ...

    async def sent(self, lease: DeliveryLease, status: int | None) -> bool: ...

    async def failed(self, lease: DeliveryLease, why: Undelivered) -> DeliveryState | None: ...

    async def release(self, lease: DeliveryLease) -> bool: ...


class StandingStore(Protocol):
    """The rules that are told without the database, and what they told then. Both raise `Outage`."""

    async def standing(self) -> Sequence[StandingRule]: ...

    async def write_down(self, told: ToldDirectly) -> None: ...


class AlertWatch(Protocol):
    """Rules that look, and where what they see is kept. All verbs raise `Outage`."""

    async def due(self, kinds: Sequence[RuleKind], now: datetime) -> Sequence[AlertRule]: ...

    async def settle(
        self, rule: AlertRule, seen: CheckResult, now: datetime, *, by_each_copy: bool = False
    ) -> bool: ...

    async def keep_samples(self, samples: Mapping[RuleKind, Sample], now: datetime) -> None: ...
