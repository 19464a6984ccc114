"""What is told while the database is away: who wants to hear of it, and what is left of it after."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import attrs

from protocol.alerts import (
    AlertEvent,
    AlertFacts,
    AlertRule,
    CheckResult,
    DeliveryState,
    DirectLetter,
    StandingRule,
    ToldDirectly,
)
from svc.domain.alerts.checking import SOON, subject_of_ingest
from svc.domain.alerts.composing import composed
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.rules import AlertRuleStore
from svc.store.alerts.standing import PostgresStandingStore
from svc.store.alerts.watching import WatchStore
from svc.store.postgres.database import Database
from tests.store.alerts.telling import channel, claimed, deliveries, events, gathered, project_of, rule
from tests.store.spans.test_writing import NOW

SUBJECT = subject_of_ingest("here")
SINCE = NOW + timedelta(seconds=7, microseconds=123_456)
FACTS = AlertFacts(title="Ingest is down on here", severity="high")


async def one_stands(store: Database) -> StandingRule:
    """A rule that wants to hear of it, with two channels."""
    project_id = await project_of(store)
    channels = [await channel(store, project_id, name) for name in ("a", "b")]
    await rule(store, project_id, channels, "ingest.down", due_at=NOW)
    [found] = await PostgresStandingStore(store, SUBJECT).standing()
    return found


def told(standing: StandingRule, *states: DeliveryState) -> ToldDirectly:
    """That it told its channels, and what became of that."""
    event = AlertEvent(0, SUBJECT, "firing", FACTS, SINCE)
    letters = []
    for one, state in zip(standing.channels, states, strict=True):
        [message] = composed(standing.rule, [event], standing.place, incidents=False)
        failure = None if state == "sent" else "it fails (status 500)"
        status = 204 if state == "sent" else 500
        letters.append(DirectLetter(uuid4(), one.id, message, NOW, 1, state, status, failure))
    return ToldDirectly(standing.rule, SUBJECT, SINCE, FACTS, tuple(letters))


async def sees(store: Database, rule: AlertRule, minute: int, *, down: bool) -> None:
    """A look of this copy."""
    now = NOW + minute * SOON
    seen = CheckResult(now + SOON, {SUBJECT: FACTS} if down else {}, covers=SUBJECT)
    assert await WatchStore(store).settle(rule, seen, now, by_each_copy=True)


async def test_the_rules_about_ingest_stand_by_with_their_place_and_channels(store: Database) -> None:
    standing = await one_stands(store)
    project_id = standing.rule.project_id
    assert (standing.place.org, standing.place.project, standing.told) == ("default", "default", False)
    assert [one.name for one in standing.channels] == ["a", "b"]
    # Others do not, nor those that lead nowhere, nor channels whose receiver is gone.
    await rule(store, project_id, standing.channels, "ingest.silent", due_at=NOW)
    await rule(store, project_id, (), "ingest.down", "nowhere", due_at=NOW)
    await store.fetch("update alert_channel set off_at = now() where name = 'b' returning id")
    [found] = await PostgresStandingStore(store, SUBJECT).standing()
    assert [one.name for one in found.channels] == ["a"]
    # Who told already says so, to the copy that it is about.
    await sees(store, found.rule, 1, down=True)
    assert [one.told for one in await PostgresStandingStore(store, SUBJECT).standing()] == [True]
    assert [one.told for one in await PostgresStandingStore(store, SUBJECT + "2").standing()] == [False]


async def test_what_was_told_is_told_no_more_and_its_end_once(store: Database) -> None:
    standing = await one_stands(store)
    project_id, found = standing.rule.project_id, told(standing, "sent", "queued")
    for _ in range(2):
        await PostgresStandingStore(store, SUBJECT).write_down(found)
    kept = {one["id"]: one for one in await deliveries(store, project_id)}
    assert set(kept) == {str(letter.delivery_id) for letter in found.letters}
    assert sorted((one["state"], one["tries"], one["status"]) for one in kept.values()) == [
        ("queued", 1, 500),
        ("sent", 1, 204),
    ]
    [standing] = await PostgresStandingStore(store, SUBJECT).standing()
    assert standing.told
    # It goes on being down for a while, which nobody is told again.
    await sees(store, standing.rule, 1, down=True)
    assert await gathered(store) == 0
    # What did not arrive is sent on, under its id.
    lease = await claimed(store)
    assert (lease.delivery_id, lease.tries) == (found.letters[1].delivery_id, 2)
    assert await PostgresDeliveryStore(store).sent(lease, 204)
    await sees(store, standing.rule, 2, down=False)
    await sees(store, standing.rule, 3, down=False)
    assert await gathered(store) == 2
    assert await events(store) == [(SUBJECT, "firing"), (SUBJECT, "over")]
    over = [one for one in await deliveries(store, project_id) if one["id"] not in kept]
    assert {one["title"] for one in over} == {"Over: Ingest is down on here"}
    keys = await store.fetch("select distinct dedup_key from alert_delivery")
    assert len(keys) == 1


async def test_what_began_during_a_mute_keeps_its_beginning_and_its_end_is_told(store: Database) -> None:
    standing = await one_stands(store)
    muted = attrs.evolve(standing.rule, muted_until=NOW + timedelta(hours=1))
    await sees(store, muted, 1, down=True)
    assert await events(store) == []
    await PostgresStandingStore(store, SUBJECT).write_down(told(standing, "sent", "sent"))
    await sees(store, standing.rule, 2, down=False)
    await gathered(store)
    titles = {one["title"] for one in await deliveries(store, standing.rule.project_id)}
    assert titles == {"Ingest is down on here", "Over: Ingest is down on here"}


async def test_nothing_is_left_of_a_rule_that_is_gone_meanwhile(store: Database) -> None:
    standing = await one_stands(store)
    assert await AlertRuleStore(store).remove(standing.rule, "tests")
    await PostgresStandingStore(store, SUBJECT).write_down(told(standing, "sent", "queued"))
    assert await deliveries(store, standing.rule.project_id) == []
    assert await events(store) == []
