"""Laws of the teller of outages: told once, by one id, and written down when the database is back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.alert_outage import AT_ONCE, BUSY_S, LETTERS_MOST, REFRESH_S, OutageTeller, Standby
from actors.alerts import AlertTally
from actors.rounds import OUTAGE_PAUSE_S
from actors.supervision import Vitals, keep
from protocol.alerts import (
    MESSAGE_REST_S,
    REST_AFTER_S,
    AlertChannel,
    AlertEvent,
    AlertFacts,
    AlertMessage,
    AlertPlace,
    AlertRule,
    DeliveryLease,
    StandingRule,
    ToldDirectly,
    Undelivered,
)
from protocol.storage import Outage, Slow

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DOWN = Undelivered("it fails (status 500)", 500)


def standing(number: int, channels: int = 1, *, told: bool = False, **more: Any) -> StandingRule:
    rule = AlertRule(1, UUID(int=number), "ingest.down", f"r{number}", {}, (), NOW, NOW, due_at=NOW)
    made = tuple(
        AlertChannel(1, UUID(int=1_000 * number + place), "webhook", "hook", {}, None, NOW, NOW)
        for place in range(channels)
    )
    return StandingRule(attrs.evolve(rule, **more), AlertPlace("o", "p"), made, told)


@attrs.define
class Rig:
    """A database that may be away, receivers that keep ids, and a clock."""

    rules: list[StandingRule]
    away: Exception | None = None
    minutes: int = 2
    #: What receivers answer, in order; 204 after that.
    answers: list[Any] = attrs.field(factory=list)
    #: The database goes away after so many were written down.
    writes: int = 1_000
    answered_s: float = 0.0
    sent: list[UUID] = attrs.field(factory=list)
    written: list[ToldDirectly] = attrs.field(factory=list)
    standby: Standby = attrs.field(factory=Standby)
    tally: AlertTally = attrs.field(factory=AlertTally)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("alert-outage-teller", spare=True))

    async def _step(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.away is not None:
            raise self.away
        self.answered_s = trio.current_time()

    async def standing(self) -> Sequence[StandingRule]:
        await self._step()
        known = {one.rule.id for one in self.written}
        return [attrs.evolve(one, told=one.told or one.rule.id in known) for one in self.rules]

    async def write_down(self, told: ToldDirectly) -> None:
        await self._step()
        self.written.append(told)
        if len(self.written) == self.writes:
            self.away = Outage("away again")

    def check(self, rule: AlertRule, since: datetime, now: datetime) -> Mapping[str, AlertFacts]:
        due = now - since >= timedelta(minutes=self.minutes)
        return {"ingest of here": AlertFacts(title="down")} if due else {}

    def compose(
        self, _rule: AlertRule, _place: AlertPlace, _channel: AlertChannel, _event: AlertEvent
    ) -> Sequence[AlertMessage]:
        return [cast(AlertMessage, None)]

    async def send(self, lease: DeliveryLease) -> int | Undelivered | None:
        await trio.lowlevel.checkpoint()
        self.sent.append(lease.delivery_id)
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, Exception):
            raise answer
        return cast(int, answer)

    def teller(self) -> OutageTeller:
        return OutageTeller(
            store=self,
            check=self.check,
            compose=self.compose,
            send=self.send,
            answered_s=lambda: self.answered_s,
            now=lambda: NOW + timedelta(seconds=trio.current_time()),
            standby=self.standby,
            tally=self.tally,
            vitals=self.vitals,
        )

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.teller, self.vitals)


async def test_a_rule_is_told_once_when_it_has_been_away_long_enough_and_written_down_after(
    autojump_clock: MockClock,
) -> None:
    rig = Rig([standing(1, channels=2)])
    await rig.run_for(1)
    rig.away = Outage("away")
    await rig.run_for(119)
    assert rig.sent == []
    await rig.run_for(30)
    assert len(set(rig.sent)) == len(rig.sent) == 2
    assert len(rig.standby.told) == 1
    rig.away = None
    await rig.run_for(60)
    assert rig.standby.told == {}
    [told] = rig.written
    assert {letter.delivery_id for letter in told.letters} == set(rig.sent)
    assert {(letter.state, letter.status, letter.tries) for letter in told.letters} == {("sent", 204, 1)}
    assert told.since - NOW <= timedelta(seconds=1 + REFRESH_S + OUTAGE_PAUSE_S)
    assert (rig.tally.sent, rig.tally.direct, rig.tally.failed) == (2, 2, 0)
    assert len(rig.sent) == 2


async def test_who_told_already_is_muted_or_leads_nowhere_tells_nothing(autojump_clock: MockClock) -> None:
    muted = standing(2, muted_until=NOW + timedelta(minutes=30))
    rig = Rig([standing(1, told=True), muted, standing(3, channels=0)], minutes=0)
    await rig.run_for(1)
    rig.away = Outage("away")
    await rig.run_for(1_200)
    assert rig.sent == []
    # A mute that ends meanwhile has ended.
    await rig.run_for(1_000)
    assert len(rig.sent) == 1


async def test_a_process_that_never_saw_the_database_knows_nobody_to_tell(autojump_clock: MockClock) -> None:
    rig = Rig([standing(1)], Outage("away"), minutes=0)
    await rig.run_for(600)
    assert rig.sent == []


async def test_a_database_that_answers_others_is_busy_and_not_away(autojump_clock: MockClock) -> None:
    rig = Rig([standing(1)], minutes=0)
    await rig.run_for(1)
    rig.away = Slow("late")
    for _ in range(10):
        rig.answered_s = trio.current_time()
        await rig.run_for(BUSY_S - 1)
    assert rig.sent == []
    await rig.run_for(BUSY_S)
    assert len(rig.sent) == 1


async def test_what_does_not_arrive_is_tried_again_under_its_id_and_left_to_the_deliverer_at_last(
    autojump_clock: MockClock,
) -> None:
    rig = Rig([standing(1)], minutes=0, answers=[DOWN, ValueError("planted"), DOWN])
    await rig.run_for(1)
    rig.away = Outage("away")
    await rig.run_for(sum(REST_AFTER_S[:2]) + 10)
    assert (len(rig.sent), len(set(rig.sent))) == (3, 1)
    rig.away = None
    await rig.run_for(10)
    [letter] = rig.written[0].letters
    assert (letter.state, letter.tries, letter.failure) == ("queued", 3, DOWN.why)
    assert 0 < letter.again_s <= REST_AFTER_S[2]
    assert (rig.tally.direct, rig.tally.failed) == (0, 3)


async def test_a_receiver_that_is_gone_is_left_alone(autojump_clock: MockClock) -> None:
    rig = Rig([standing(1)], minutes=0, answers=[attrs.evolve(DOWN, status=410, gone=True)])
    await rig.run_for(1)
    rig.away = Outage("away")
    await rig.run_for(600)
    assert (len(rig.sent), rig.tally.dead) == (1, 1)


@pytest.mark.errors_expected
async def test_neither_an_end_of_the_outage_midway_nor_a_crash_tells_anything_twice(
    autojump_clock: MockClock,
) -> None:
    rig = Rig([standing(1), standing(2)], minutes=0, writes=1)
    await rig.run_for(1)
    rig.away = Outage("away")
    await rig.run_for(20)
    rig.away = None
    await rig.run_for(3 * MESSAGE_REST_S)
    assert len(rig.written) == 1
    # A bug of the store has the actor built anew.
    rig.away = cast(Any, ValueError("planted"))
    await rig.run_for(1)
    rig.away = None
    await rig.run_for(3 * MESSAGE_REST_S)
    assert len(rig.written) == 2
    assert (len(rig.sent), len(set(rig.sent))) == (2, 2)


async def test_a_database_that_comes_and_goes_is_told_of_once_a_minute(autojump_clock: MockClock) -> None:
    rig = Rig([standing(1)], minutes=0)
    for _ in range(30):
        rig.away = None
        # What was told is over at once, by the word of the watch.
        await rig.run_for(2)
        rig.written.clear()
        await rig.run_for(REFRESH_S + 1)
        rig.away = Outage("away")
        await rig.run_for(4)
    assert 2 <= len(rig.sent) <= trio.current_time() / MESSAGE_REST_S + 1


async def test_an_outage_makes_so_many_messages_at_most(autojump_clock: MockClock) -> None:
    rig = Rig([standing(number, channels=30) for number in range(1, 6)], minutes=0)
    await rig.run_for(1)
    rig.away = Outage("away")
    await rig.run_for(600)
    assert LETTERS_MOST - 30 < len(rig.sent) <= LETTERS_MOST
    assert AT_ONCE < LETTERS_MOST
