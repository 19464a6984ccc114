"""Telling that ingest is down while the database is away, where every other message has to wait.

What it takes is read again and again while the database answers, and kept in memory: the rules that want to
hear of it, their channels with secrets as sealed text. When it has been away for as long as a rule says, the
rule is told from here, over the same channels. When it is back, what was told is written down, as if it had
been told there: the outbox tells the end of it, and what did not arrive is sent on under the id that it had.

Owns the rhythm and the bounds. What a rule says, how a message is written and sent is handed in. A process
that starts while the database is away knows no rule, and one that ends meanwhile forgets what it told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

import attrs
import trio

from actors.alerts import AlertTally, Send, outcome_of
from actors.ports import StandingStore
from actors.rounds import Rounds
from actors.supervision import Vitals
from protocol.alerts import (
    MESSAGE_REST_S,
    AlertChannel,
    AlertEvent,
    AlertFacts,
    AlertMessage,
    AlertPlace,
    AlertRule,
    DeliveryLease,
    DeliveryState,
    DirectLetter,
    StandingRule,
    ToldDirectly,
    Undelivered,
)
from protocol.storage import Outage, Slow

log = logging.getLogger(__name__)

#: Between two readings of the rules; so old what is known of them may be.
REFRESH_S: Final = 5.0
#: A database that answered anybody so lately is busy when it does not answer in time, and not away.
BUSY_S: Final = 15.0
#: Messages of one outage, and those sent at the same time.
LETTERS_MOST: Final = 100
AT_ONCE: Final = 3
#: Sending goes on no longer before the database is asked again.
PASS_S: Final = 20.0

#: What a rule says by now of a database that is away since then, by subject.
OutageCheck = Callable[[AlertRule, datetime, datetime], Mapping[str, AlertFacts]]
Compose = Callable[[AlertRule, AlertPlace, AlertChannel, AlertEvent], Sequence[AlertMessage]]


@attrs.define(eq=False)
class OutageLetter:
    """A message on its way."""

    lease: DeliveryLease
    made_at: datetime
    due_s: float
    state: DeliveryState = "queued"
    status: int | None = None
    failure: str | None = None

    def written(self) -> DirectLetter:
        """As it is written down."""
        lease = self.lease
        return DirectLetter(
            lease.delivery_id,
            lease.channel.id,
            lease.message,
            self.made_at,
            lease.tries,
            self.state,
            self.status,
            self.failure,
            max(self.due_s - trio.current_time(), 0.0),
        )


@attrs.define(eq=False)
class Telling:
    """What one rule tells."""

    rule: AlertRule
    subject: str
    since: datetime
    facts: AlertFacts
    letters: Sequence[OutageLetter]

    def written(self) -> ToldDirectly:
        """As it is written down."""
        letters = tuple(letter.written() for letter in self.letters)
        return ToldDirectly(self.rule, self.subject, self.since, self.facts, letters)


@attrs.define(eq=False)
class Standby:
    """What is known for the time without a database; a crash of the actor forgets nothing of it."""

    rules: Sequence[StandingRule] = ()
    away_since: datetime | None = None
    #: What was told and is not written down, by rule.
    told: dict[UUID, Telling] = attrs.field(factory=dict)
    #: When each rule told something from here last, on Trio's clock.
    told_s: dict[UUID, float] = attrs.field(factory=dict)

    @property
    def unwritten(self) -> bool:
        """Whether the database does not know yet what was told."""
        return bool(self.told)


@attrs.define(eq=False, repr=False, kw_only=True)
class OutageTeller(Rounds):
    """Tells what a rule says of a database that is away. `answered_s`: when it last answered anybody."""

    _store: StandingStore
    _check: OutageCheck
    _compose: Compose
    _send: Send
    _answered_s: Callable[[], float]
    _now: Callable[[], datetime]
    _standby: Standby
    _tally: AlertTally
    _vitals: Vitals

    async def _turn(self) -> float:
        standby = self._standby
        try:
            for rule_id, telling in list(standby.told.items()):
                await self._store.write_down(telling.written())
                del standby.told[rule_id]
                standby.rules = [_recorded_rule(rule, rule_id) for rule in standby.rules]
            standby.rules = await self._store.standing()
            self._tally.standing_rules = len(standby.rules)
        except Outage as outage:
            if not isinstance(outage, Slow) or trio.current_time() - self._answered_s() >= BUSY_S:
                await self._stand_in()
            raise
        standby.away_since = None
        standby.told_s = {
            standing.rule.id: standby.told_s[standing.rule.id]
            for standing in standby.rules
            if standing.rule.id in standby.told_s
        }
        return REFRESH_S

    async def _stand_in(self) -> None:
        now = self._now()
        since = self._standby.away_since = self._standby.away_since or now
        for standing in self._standby.rules:
            self._begin(standing, since, now)
        until_s = trio.current_time() + PASS_S
        while trio.current_time() < until_s and (due := self._due()):
            async with trio.open_nursery() as nursery:
                for letter in due:
                    nursery.start_soon(self._try, letter)

    def _begin(self, standing: StandingRule, since: datetime, now: datetime) -> None:
        """Have a rule tell, if it is to by now and has not yet."""
        rule, standby, now_s = standing.rule, self._standby, trio.current_time()
        if standing.told or rule.id in standby.told or rule.is_muted(now):
            return
        if now_s - standby.told_s.get(rule.id, -MESSAGE_REST_S) < MESSAGE_REST_S:
            return
        room = LETTERS_MOST - sum(len(telling.letters) for telling in standby.told.values())
        for subject, facts in self._check(rule, since, now).items():
            event = AlertEvent(0, subject, "firing", facts, since)
            leases = [
                DeliveryLease(rule.project_id, uuid4(), uuid4(), 0, channel, message)
                for channel in standing.channels
                for message in self._compose(rule, standing.place, channel, event)
            ]
            letters = [OutageLetter(lease, now, now_s) for lease in leases]
            if letters and len(letters) <= room:
                standby.told[rule.id] = Telling(rule, subject, since, facts, letters)
                standby.told_s[rule.id] = now_s
                log.warning("the database is away: sending an alert without it, channels: %d", len(letters))

    def _due(self) -> Sequence[OutageLetter]:
        """What is to be sent now, the one that waits longest first."""
        waiting = (letter for telling in self._standby.told.values() for letter in telling.letters)
        now_s = trio.current_time()
        due = [letter for letter in waiting if letter.state == "queued" and letter.due_s <= now_s]
        return sorted(due, key=lambda letter: letter.due_s)[:AT_ONCE]

    async def _try(self, letter: OutageLetter) -> None:
        letter.lease = attrs.evolve(letter.lease, tries=letter.lease.tries + 1)
        tally = self._tally
        outcome = await outcome_of(self._send, letter.lease)
        if not isinstance(outcome, Undelivered):
            letter.state, letter.status, letter.failure = "sent", outcome, None
            tally.sent += 1
            tally.direct += 1
            return
        letter.status, letter.failure = outcome.status, outcome.why
        tally.failed += 1
        if (rest_s := outcome.rest_s(letter.lease.tries)) is None:
            letter.state = "dead"
            tally.dead += 1
        else:
            letter.due_s = trio.current_time() + rest_s


def _recorded_rule(standing: StandingRule, told_id: UUID) -> StandingRule:
    """The same, after the rule of that id was written down."""
    return attrs.evolve(standing, told=True) if standing.rule.id == told_id else standing
