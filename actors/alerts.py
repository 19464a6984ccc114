"""Alerts on their way: rules that look, the outbox gathered into messages, and messages delivered.

Three actors, all spare and all `rounds`. What is due stands in the database, so a crash, a kill or an outage
loses nothing and whoever comes next goes on: a message that was in hand is sent again under its own id, by
which its receiver knows it. Owns the rhythm and the tally; what a rule sees, what a channel writes and how it
is sent are handed in.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import attrs
import trio

from actors.ports import AlertQueue, AlertWatch, DeliveryStore
from actors.rounds import Rounds, through_outages
from actors.supervision import Vitals
from protocol.alerts import (
    LEASE_S,
    SEND_TIMEOUT_S,
    AlertRule,
    CheckResult,
    DeliveryLease,
    RuleKind,
    Undelivered,
)
from protocol.samples import Sample
from protocol.storage import Outage, Slow

log = logging.getLogger(__name__)

#: Between two looks into the outbox, and at what is due.
GATHER_ROUND_S: Final = 2.0
DELIVER_ROUND_S: Final = 2.0
WATCH_ROUND_S: Final = 10.0
#: How long the check of one rule may take.
CHECK_TIMEOUT_S: Final = 60.0
#: When a rule whose check failed is checked again.
CHECK_AGAIN: Final = timedelta(minutes=5)
RELEASE_TIMEOUT_S: Final = 2.0
#: How often what waits is counted for health and metrics.
COUNT_S: Final = 10.0

#: The status of what arrived, or why it did not.
Send = Callable[[DeliveryLease], Awaitable[int | Undelivered | None]]
RuleCheck = Callable[[AlertRule, datetime], Awaitable[CheckResult]]
#: What is known of the instance now, by the kind of rule that judges it.
Samples = Callable[[datetime], Mapping[RuleKind, Sample]]


@attrs.define
class AlertTally:
    """What became of alerts since the start of this process, and what waits in the database."""

    messages: int = 0
    sent: int = 0
    #: Of those sent: while the database was away.
    direct: int = 0
    failed: int = 0
    dead: int = 0
    #: Deliveries that another copy took over while they were in hand here.
    lost: int = 0
    checks: int = 0
    #: Looks that came to nothing, by the kind of their rule.
    troubles: Counter[str] = attrs.field(factory=Counter)
    queued: int = 0
    dead_lately: int = 0
    oldest_at: datetime | None = None
    resting_channels: int = 0
    off_channels: int = 0
    #: Rules at hand that are told even while the database is away.
    standing_rules: int = 0

    def snapshot(self) -> dict[str, Any]:
        """The tally as health shows it."""
        return {**attrs.asdict(self), "troubles": dict(self.troubles)}

    def health(self) -> dict[str, Any]:
        """Their component of the health report. Ingest and answers do without: the service is up."""
        return {"alerts": {"status": "UP", "details": self.snapshot()}}


@attrs.define(eq=False, repr=False, kw_only=True)
class AlertGatherer(Rounds):
    """Makes messages of what rules have to tell. `gather` raises `Outage`."""

    _gather: Callable[[datetime], Awaitable[int]]
    _queue: AlertQueue
    _now: Callable[[], datetime]
    _tally: AlertTally
    _vitals: Vitals
    _counted_s: float = attrs.field(default=-COUNT_S, init=False)

    async def _turn(self) -> float:
        self._tally.messages += await self._gather(self._now())
        self._tally.dead += await self._queue.give_up()
        if trio.current_time() - self._counted_s >= COUNT_S:
            self._counted_s = trio.current_time()
            await self._count()
        return GATHER_ROUND_S

    async def _count(self) -> None:
        counts = await self._queue.counts()
        tally = self._tally
        tally.queued, tally.dead_lately = counts["queued"], counts["dead"]
        tally.oldest_at = counts["oldest_at"]
        tally.resting_channels, tally.off_channels = counts["resting"], counts["off"]


async def outcome_of(send: Send, lease: DeliveryLease) -> int | Undelivered | None:
    """What becomes of sending it, within its deadline and whatever it does to `send`."""
    outcome: int | Undelivered | None = Undelivered(f"no answer within {SEND_TIMEOUT_S:g} s")
    with trio.move_on_after(SEND_TIMEOUT_S):
        try:
            outcome = await send(lease)
        except Exception as error:  # what one message does to its channel must not hold up the others
            log.warning("a message could not be written: %s", type(error).__name__)
            outcome = Undelivered(f"the message could not be written ({type(error).__name__})")
    return outcome


class AlertDeliverer(Rounds):
    """Delivers one message at a time, the one that is due longest first. `send` raises nothing of the other
    side.
    """

    def __init__(self, *, store: DeliveryStore, send: Send, tally: AlertTally, vitals: Vitals) -> None:
        self._store, self._send, self._tally, self._vitals = store, send, tally, vitals

    async def _turn(self) -> float:
        lease = await self._store.claim()
        if lease is None:
            return DELIVER_ROUND_S
        until_s = trio.current_time() + LEASE_S
        try:
            outcome = await outcome_of(self._send, lease)
        except trio.Cancelled:
            await self._release(lease)
            raise
        # As long as it is ours; whoever holds it next sends it again, under the same id.
        await through_outages(partial(self._stored, lease, outcome), self._vitals, until_s=until_s)
        return 0.0

    async def _stored(self, lease: DeliveryLease, outcome: int | Undelivered | None) -> None:
        tally, about = self._tally, (lease.channel.kind, lease.channel.name)
        if not isinstance(outcome, Undelivered):
            stored = await self._store.sent(lease, outcome)
            tally.sent += stored
            tally.lost += not stored
            return
        state = await self._store.failed(lease, outcome)
        if state is None:
            tally.lost += 1
            return
        tally.failed += 1
        tally.dead += state == "dead"
        next_step = "given up" if state == "dead" else "tried again later"
        log.warning("an alert to the %s channel %s is %s: %s", *about, next_step, outcome.why)

    async def _release(self, lease: DeliveryLease) -> None:
        with trio.move_on_after(RELEASE_TIMEOUT_S, shield=True):
            try:
                await self._store.release(lease)
            except Outage:
                # Its lease runs out.
                log.info("a claimed alert could not be released")


@attrs.define(eq=False, repr=False, kw_only=True)
class AlertWatcher(Rounds):
    """Checks every rule that is due, and stores what it sees. `checks` has one function a kind.

    `by_each_copy` are kinds that every copy checks for itself. What `samples` knows is kept once an hour,
    so that a rule of later can be tried on it.
    """

    _watch: AlertWatch
    _checks: Mapping[RuleKind, RuleCheck]
    _by_each_copy: frozenset[RuleKind]
    _samples: Samples
    _now: Callable[[], datetime]
    _tally: AlertTally
    _vitals: Vitals
    #: The hour in which a sample of each kind was kept last.
    _sampled: dict[RuleKind, datetime] = attrs.field(factory=dict, init=False)

    async def _turn(self) -> float:
        await self._keep_samples(self._now())
        for rule in await self._watch.due(tuple(self._checks), self._now()):
            now = self._now()
            result = await self._seen(rule, now)
            self._tally.checks += 1
            self._tally.troubles[rule.kind] += result.trouble is not None
            await self._watch.settle(rule, result, now, by_each_copy=rule.kind in self._by_each_copy)
        return WATCH_ROUND_S

    async def _keep_samples(self, now: datetime) -> None:
        hour = now.replace(minute=0, second=0, microsecond=0)
        new = {kind: sample for kind, sample in self._samples(now).items() if self._sampled.get(kind) != hour}
        if new:
            await self._watch.keep_samples(new, now)
            self._sampled |= dict.fromkeys(new, hour)

    async def _seen(self, rule: AlertRule, now: datetime) -> CheckResult:
        result = CheckResult(now, trouble=f"the look took longer than {CHECK_TIMEOUT_S:g} s")
        with trio.move_on_after(CHECK_TIMEOUT_S):
            try:
                return await self._checks[rule.kind](rule, now)
            except Slow:
                result = CheckResult(now, trouble="its question took too long")
            except Outage:
                raise
            except Exception as error:  # what one rule does to its look must not cost the others theirs
                log.warning(
                    "an alert rule of kind %s could not be checked: %s", rule.kind, type(error).__name__
                )
                result = CheckResult(now, trouble=f"the check failed ({type(error).__name__})")
        return attrs.evolve(result, next_at=now + CHECK_AGAIN)
