"""Laws of the actors of alerts: nothing is lost by a crash, a cancellation or an outage at any await."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.alerts import (
    CHECK_AGAIN,
    COUNT_S,
    DELIVER_ROUND_S,
    WATCH_ROUND_S,
    AlertDeliverer,
    AlertGatherer,
    AlertTally,
    AlertWatcher,
)
from actors.supervision import Vitals, keep
from protocol.alerts import (
    LEASE_S,
    SEND_TIMEOUT_S,
    AlertChannel,
    AlertMessage,
    AlertRule,
    CheckResult,
    DeliveryLease,
    DeliveryState,
    RuleKind,
    Undelivered,
)
from protocol.samples import CertificateSample, Sample
from protocol.storage import Outage, Slow
from tests.actors.every_await import Strike, at_every_await

NOW = datetime(2026, 11, 1, tzinfo=UTC)
CHANNEL = AlertChannel(1, UUID(int=1), "webhook", "hook", {}, None, NOW, NOW)
DOWN = Undelivered("it fails (status 500)", 500)


def lease(number: int) -> DeliveryLease:
    return DeliveryLease(1, UUID(int=number), UUID(int=number), 1, CHANNEL, cast(AlertMessage, None))


@attrs.define
class Rig:
    """A store with messages and a receiver that keeps ids; each verb meets `troubles` first."""

    waiting: list[DeliveryLease] = attrs.field(factory=list)
    troubles: list[Exception] = attrs.field(factory=list)
    #: What the receiver answers, in order; 204 after that.
    answers: list[Any] = attrs.field(factory=list)
    lives_s: float = 0.0
    held: dict[UUID, float] = attrs.field(factory=dict)
    received: list[UUID] = attrs.field(factory=list)
    done: list[UUID] = attrs.field(factory=list)
    failed_: list[Undelivered] = attrs.field(factory=list)
    tally: AlertTally = attrs.field(factory=AlertTally)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("alert-deliverer", spare=True))

    async def _step(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)

    async def claim(self) -> DeliveryLease | None:
        await self._step()
        now_s = trio.current_time()
        for one in self.waiting:
            if self.held.get(one.delivery_id, -1.0) <= now_s:
                self.held[one.delivery_id] = now_s + LEASE_S
                return one
        return None

    async def sent(self, lease: DeliveryLease, status: int | None) -> bool:
        await self._step()
        self.waiting.remove(lease)
        self.done.append(lease.delivery_id)
        return True

    async def failed(self, lease: DeliveryLease, why: Undelivered) -> DeliveryState | None:
        await self._step()
        self.failed_.append(why)
        self.waiting.remove(lease)
        return "dead"

    async def release(self, lease: DeliveryLease) -> bool:
        await trio.lowlevel.checkpoint()
        self.held.pop(lease.delivery_id)
        return True

    async def send(self, lease: DeliveryLease) -> int | Undelivered | None:
        self.received.append(lease.delivery_id)
        await trio.sleep(self.lives_s)
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, Exception):
            raise answer
        return cast(int, answer)

    def deliverer(self) -> AlertDeliverer:
        return AlertDeliverer(store=self, send=self.send, tally=self.tally, vitals=self.vitals)

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await keep(self.deliverer, self.vitals)


async def test_all_that_waits_is_delivered_one_after_the_other(autojump_clock: MockClock) -> None:
    rig = Rig([lease(1), lease(2), lease(3)])
    await rig.run_for(DELIVER_ROUND_S)
    assert rig.done == rig.received == [UUID(int=n) for n in (1, 2, 3)]
    assert (rig.tally.sent, rig.tally.failed) == (3, 0)


def test_struck_at_any_await_every_message_arrives_and_is_known_by_its_id() -> None:
    async def scenario(strike: Strike) -> None:
        rig = Rig([lease(1), lease(2)], lives_s=1.0)
        # The strike ends it as a stop of the process does; then the next one begins.
        await strike.run(lambda: rig.run_for(10.0))
        await rig.run_for(2 * LEASE_S)
        assert sorted(rig.done) == [UUID(int=1), UUID(int=2)]
        assert set(rig.received) == set(rig.done)

    assert at_every_await(scenario) > 5


async def test_what_is_in_hand_at_the_end_is_given_back_at_once(autojump_clock: MockClock) -> None:
    rig = Rig([lease(1)], lives_s=60.0)
    await rig.run_for(1.0)
    assert (rig.received, rig.held, rig.done) == ([UUID(int=1)], {}, [])


async def test_a_receiver_that_says_nothing_is_left_before_the_lease_is_over(
    autojump_clock: MockClock,
) -> None:
    rig = Rig([lease(1)], lives_s=1e9)
    started_s = trio.current_time()
    await rig.run_for(SEND_TIMEOUT_S + 1)
    assert trio.current_time() - started_s < LEASE_S
    assert [one.why for one in rig.failed_] == [f"no answer within {SEND_TIMEOUT_S:g} s"]


async def test_an_outage_after_the_answer_does_not_send_it_again(autojump_clock: MockClock) -> None:
    rig = Rig([lease(1)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run_for, LEASE_S - 5)
        rig.lives_s = 1.0
        await trio.sleep(0.5)
        rig.troubles = [Outage("away")] * 3
    assert (rig.received, rig.done) == ([UUID(int=1)], [UUID(int=1)])


async def test_an_outage_longer_than_the_lease_leaves_it_to_whoever_comes_next(
    autojump_clock: MockClock,
) -> None:
    rig = Rig([lease(1)], lives_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.run_for, 10 * LEASE_S)
        await trio.sleep(0.5)
        rig.troubles = [Outage("away")] * 40
    assert rig.done == [UUID(int=1)]
    assert set(rig.received) == {UUID(int=1)}


async def test_a_message_that_cannot_be_written_fails_alone(autojump_clock: MockClock) -> None:
    rig = Rig([lease(1), lease(2)], answers=[KeyError("planted")])
    await rig.run_for(1.0)
    assert [one.why for one in rig.failed_] == ["the message could not be written (KeyError)"]
    assert rig.done == [UUID(int=2)]
    assert rig.vitals.crashes == 0


@pytest.mark.errors_expected
async def test_a_bug_of_the_shelf_rests_the_deliverer_and_loses_nothing(autojump_clock: MockClock) -> None:
    rig = Rig([lease(1)], troubles=[RuntimeError("a bug")])
    await rig.run_for(5.0)
    assert (rig.vitals.crashes, rig.done) == (1, [UUID(int=1)])


async def test_what_fails_is_counted_and_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig([lease(1)], answers=[DOWN])
    await rig.run_for(1.0)
    assert (rig.tally.failed, rig.tally.dead) == (1, 1)
    assert "an alert to the webhook channel hook is given up: it fails (status 500)" in caplog.text


@attrs.define
class Outbox:
    """Makes one message a gathering; the first verbs meet `troubles`."""

    troubles: list[Exception] = attrs.field(factory=list)
    gathered: int = 0
    counted: int = 0

    async def gather(self, now: datetime) -> int:
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop(0)
        self.gathered += 1
        return 1

    async def give_up(self) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    async def counts(self) -> Mapping[str, Any]:
        await trio.lowlevel.checkpoint()
        self.counted += 1
        return {"queued": 7, "dead": 2, "oldest_at": NOW, "resting": 1, "off": 0}


async def test_the_gatherer_goes_on_after_an_outage_and_counts_now_and_then(
    autojump_clock: MockClock,
) -> None:
    outbox, tally, vitals = Outbox([Outage("away")] * 2), AlertTally(), Vitals("g", spare=True)
    with trio.move_on_after(3 * COUNT_S):
        await keep(
            lambda: AlertGatherer(
                gather=outbox.gather, queue=outbox, now=lambda: NOW, tally=tally, vitals=vitals
            ),
            vitals,
        )
    assert outbox.gathered > 10
    assert outbox.counted <= 3
    assert (tally.queued, tally.dead_lately, tally.messages) == (7, 2, outbox.gathered)
    assert vitals.snapshot() == {"state": "running", "crashes": 0}
    assert tally.health()["alerts"]["status"] == "UP"


def rule(kind: RuleKind, number: int) -> AlertRule:
    return AlertRule(1, UUID(int=number), kind, kind, {}, (), NOW, NOW, due_at=NOW)


@attrs.define
class Watch:
    """Two rules that are due once; what is stored of their checks."""

    rules: list[AlertRule]
    stored: list[tuple[str, CheckResult, bool]] = attrs.field(factory=list)
    samples: list[tuple[RuleKind, datetime]] = attrs.field(factory=list)

    async def due(self, kinds: Sequence[RuleKind], now: datetime) -> Sequence[AlertRule]:
        await trio.lowlevel.checkpoint()
        due, self.rules = self.rules, []
        return [one for one in due if one.kind in kinds]

    async def settle(
        self, rule: AlertRule, seen: CheckResult, now: datetime, *, by_each_copy: bool = False
    ) -> bool:
        await trio.lowlevel.checkpoint()
        self.stored.append((rule.kind, seen, by_each_copy))
        return True

    async def keep_samples(self, samples: Mapping[RuleKind, Sample], now: datetime) -> None:
        await trio.lowlevel.checkpoint()
        self.samples += [(kind, now) for kind in samples]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (Slow("late"), "its question took too long"),
        (ValueError("planted"), "the check failed (ValueError)"),
        (None, "the look took longer than 60 s"),
    ],
)
async def test_a_rule_whose_look_comes_to_nothing_costs_the_others_nothing(
    autojump_clock: MockClock, trouble: Exception | None, told: str
) -> None:
    async def fails(_rule: AlertRule, _now: datetime) -> CheckResult:
        if trouble is None:
            await trio.sleep_forever()
        assert trouble is not None
        raise trouble

    async def sees(_rule: AlertRule, now: datetime) -> CheckResult:
        return CheckResult(now + timedelta(minutes=1))

    watch, tally, vitals = (
        Watch([rule("metric", 1), rule("ingest.down", 2)]),
        AlertTally(),
        Vitals("w", spare=True),
    )
    with trio.move_on_after(WATCH_ROUND_S + 60):
        await keep(
            lambda: AlertWatcher(
                watch=watch,
                checks={"metric": fails, "ingest.down": sees},
                by_each_copy=frozenset({"ingest.down"}),
                samples=lambda _now: {},
                now=lambda: NOW,
                tally=tally,
                vitals=vitals,
            ),
            vitals,
        )
    [(_, seen, _), (_, other, by_each)] = watch.stored
    assert (seen.trouble, seen.next_at) == (told, NOW + CHECK_AGAIN)
    assert (other.trouble, by_each) == (None, True)
    assert (tally.checks, dict(tally.troubles)) == (2, {"metric": 1, "ingest.down": 0})
    assert vitals.crashes == 0


async def test_what_is_known_of_the_instance_is_kept_once_an_hour_from_when_it_is_known(
    autojump_clock: MockClock,
) -> None:
    def clock() -> datetime:
        return NOW + timedelta(seconds=trio.current_time())

    def samples(now: datetime) -> Mapping[RuleKind, Sample]:
        known: dict[RuleKind, Sample] = {"disk.budget": CertificateSample(ends_at=now)}
        # Measured ten minutes later.
        return known | {"backup.old": known["disk.budget"]} if now >= NOW + timedelta(minutes=10) else known

    watch, vitals = Watch([]), Vitals("w", spare=True)
    with trio.move_on_after(2.5 * 3600):
        await keep(
            lambda: AlertWatcher(
                watch=watch,
                checks={},
                by_each_copy=frozenset(),
                samples=samples,
                now=clock,
                tally=AlertTally(),
                vitals=vitals,
            ),
            vitals,
        )
    kept = [(kind, (at - NOW) // timedelta(minutes=1)) for kind, at in watch.samples]
    assert kept == [
        ("disk.budget", 0),
        ("backup.old", 10),
        *[(kind, hour) for hour in (60, 120) for kind in ("disk.budget", "backup.old")],
    ]
