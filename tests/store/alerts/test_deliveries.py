"""Laws of deliveries: held by one, tried again ever later, given up in the end, replayed under their id."""

from __future__ import annotations

from uuid import uuid4

import pytest
import trio

from protocol.alerts import (
    AGAIN_MOST_S,
    LEASE_S,
    REST_AFTER_S,
    SEND_TIMEOUT_S,
    TRIES,
    AlertChannel,
    Undelivered,
)
from svc.domain.retention.terms import Cutoffs
from svc.store.accounts.audit import AuditStore
from svc.store.alerts.channels import AlertChannelStore
from svc.store.alerts.deliveries import CHANNEL_REST_MOST_S, CHANNEL_REST_S, PostgresDeliveryStore
from svc.store.detection.cases.case_states import CaseStates
from svc.store.postgres.database import Database
from svc.store.retention.projects import sweep_project
from tests.store.alerts.telling import (
    channel,
    claimed,
    deliveries,
    gathered,
    project_of,
    rule,
)
from tests.store.detection.detecting import ANN, LATER, execute, opened, seen

DOWN = Undelivered("it fails (status 500)", 500)
GONE = Undelivered("its receiver is gone", 410, gone=True)


async def one_waits(store: Database, cases: int = 1) -> tuple[int, AlertChannel]:
    """One message or more for one channel."""
    project_id = await project_of(store)
    hook = await channel(store, project_id)
    await rule(store, project_id, [hook])
    for number in range(1, cases + 1):
        await opened(store, seen(number), project_id=project_id)
        assert await gathered(store) == 1
    return project_id, hook


async def rest_of(store: Database, what: str = "due_at", table: str = "alert_delivery") -> float:
    """Seconds until then, of the one row."""
    [row] = await store.fetch(f"select extract(epoch from max({what}) - now())::float8 as s from {table}")
    seconds: float = row["s"]
    return seconds


async def passes(store: Database) -> None:
    """Time goes on until everything that rests is due, and every lease is over."""
    await execute(store, "update alert_delivery set due_at = now() - interval '1 second'")
    await execute(
        store,
        "update alert_delivery set lease_until = now() - interval '1 second' where lease_until is not null",
    )
    await execute(store, "update alert_channel set rests_until = null")


async def test_a_message_is_held_by_one_and_sent_once(store: Database) -> None:
    project_id, _hook = await one_waits(store)
    outbox, held = PostgresDeliveryStore(store), []

    async def copy() -> None:
        held.append(await outbox.claim())

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(copy)
    [lease] = [one for one in held if one is not None]
    assert await outbox.sent(lease, 204)
    assert await outbox.claim() is None
    [row] = await deliveries(store, project_id)
    assert (row["state"], row["status"], row["tries"]) == ("sent", 204, 1)
    [kept] = await AlertChannelStore(store).list(project_id)
    assert kept.last_sent_at is not None


async def test_a_channel_takes_one_message_at_a_time(store: Database) -> None:
    await one_waits(store, 2)
    outbox = PostgresDeliveryStore(store)
    first = await claimed(store)
    assert await outbox.claim() is None
    assert await outbox.sent(first, 200)
    assert (await claimed(store)).delivery_id != first.delivery_id


async def test_what_closes_an_incident_follows_what_opened_it_through_failures(store: Database) -> None:
    project_id = await project_of(store)
    pager = await channel(store, project_id, "pager", "pagerduty")
    await rule(store, project_id, [pager])
    case = await opened(store, seen(1), project_id=project_id)
    await CaseStates(store).resolve(project_id, case.id, "fixed", ANN, LATER)
    await opened(store, seen(2), project_id=project_id)
    assert await gathered(store) == 3
    outbox, first = PostgresDeliveryStore(store), await claimed(store)
    assert first.message.title == "Opened: C-1 cause 1"
    await outbox.failed(first, DOWN)
    # It is tried again later; until then what closes it waits, and nothing else does.
    other = await claimed(store)
    assert other.message.title == "Opened: C-2 cause 2"
    await outbox.sent(other, 202)
    assert await outbox.claim() is None
    await passes(store)
    await outbox.sent(await claimed(store), 202)
    assert (await claimed(store)).message.title == "Resolved: C-1 cause 1"


async def test_whoever_lost_a_lease_changes_nothing(store: Database) -> None:
    project_id, _hook = await one_waits(store)
    outbox, first = PostgresDeliveryStore(store), await claimed(store)
    assert 0 < await rest_of(store, "lease_until") <= LEASE_S
    await passes(store)
    # Its holder was killed: the next has the same message, under the same id.
    second = await claimed(store)
    assert (second.delivery_id, second.tries) == (first.delivery_id, 2)
    assert not await outbox.sent(first, 200)
    assert await outbox.failed(first, DOWN) is None
    assert not await outbox.release(first)
    assert await outbox.sent(second, 200)
    assert [one["state"] for one in await deliveries(store, project_id)] == ["sent"]


async def test_what_is_given_back_is_due_at_once_and_costs_no_try(store: Database) -> None:
    await one_waits(store)
    outbox, first = PostgresDeliveryStore(store), await claimed(store)
    assert await outbox.release(first)
    assert (await claimed(store)).tries == 1


async def test_rests_grow_until_the_last_try_and_then_it_is_dead(store: Database) -> None:
    project_id, _hook = await one_waits(store)
    outbox = PostgresDeliveryStore(store)
    for number in range(1, TRIES + 1):
        lease = await claimed(store)
        assert lease.tries == number
        state = await outbox.failed(lease, DOWN)
        assert state == ("dead" if number == TRIES else "queued")
        if number < TRIES:
            assert REST_AFTER_S[number - 1] - 5 < await rest_of(store) <= REST_AFTER_S[number - 1]
        await passes(store)
    assert await outbox.claim() is None
    [row] = await deliveries(store, project_id)
    assert (row["state"], row["failure"], row["tries"]) == ("dead", DOWN.why, TRIES)


async def test_a_channel_that_fails_again_and_again_is_left_alone_and_its_messages_keep_their_tries(
    store: Database,
) -> None:
    project_id, hook = await one_waits(store, 3)
    outbox = PostgresDeliveryStore(store)
    await outbox.failed(await claimed(store), DOWN)
    await outbox.failed(await claimed(store), DOWN)
    # Two failures in a row: the third message waits without a try.
    assert CHANNEL_REST_S - 5 < await rest_of(store, "rests_until", "alert_channel") <= CHANNEL_REST_S
    assert await outbox.claim() is None
    assert sorted(one["tries"] for one in await deliveries(store, project_id)) == [0, 1, 1]
    await execute(store, "update alert_channel set failures = 500, rests_until = null")
    await outbox.failed(await claimed(store), DOWN)
    rests_s = await rest_of(store, "rests_until", "alert_channel")
    assert CHANNEL_REST_MOST_S - 5 < rests_s <= CHANNEL_REST_MOST_S
    # One that arrives says that it is well.
    await passes(store)
    await outbox.sent(await claimed(store), 200)
    kept = await AlertChannelStore(store).one(project_id, hook.id)
    assert kept is not None
    assert (kept.failures, kept.rests_until, kept.last_error) == (0, None, None)


@pytest.mark.parametrize(("asked_s", "rests_s"), [(120.0, 120.0), (10.0**9, AGAIN_MOST_S), (-5.0, 5.0)])
async def test_a_receiver_is_left_alone_as_long_as_it_wants_but_for_a_bound(
    store: Database, asked_s: float, rests_s: float
) -> None:
    await one_waits(store, 2)
    outbox = PostgresDeliveryStore(store)
    await outbox.failed(await claimed(store), Undelivered("it limits our rate", 429, asked_s))
    assert rests_s - 5 < await rest_of(store) <= rests_s
    if asked_s > 0:
        assert await outbox.claim() is None, "its other messages wait too"


async def test_a_receiver_that_is_gone_turns_its_channel_off_until_somebody_changes_it(
    store: Database,
) -> None:
    project_id, hook = await one_waits(store, 2)
    outbox = PostgresDeliveryStore(store)
    assert (
        await outbox.failed(await claimed(store), Undelivered("its receiver is gone", 410, gone=True))
        == "dead"
    )
    assert await outbox.claim() is None
    assert await outbox.give_up() == 1
    assert [one["state"] for one in await deliveries(store, project_id)] == ["dead"] * 2
    counts = await outbox.counts()
    assert (counts["queued"], counts["dead"], counts["off"]) == (0, 2, 1)
    # What is told meanwhile is dead, and seen.
    await opened(store, seen(9), project_id=project_id)
    await gathered(store)
    found = await deliveries(store, project_id)
    assert [one["state"] for one in found] == ["dead"] * 3
    dead = next(one for one in found if one["title"] == "Opened: C-3 cause 9")
    delivery_id = (await store.fetch("select id from alert_delivery where id::text = $1", dead["id"]))[0][
        "id"
    ]
    assert await outbox.replay(project_id, delivery_id, "tests") == "no channel"
    assert await AlertChannelStore(store).put(hook, "tests") is None
    assert await outbox.replay(project_id, delivery_id, "tests") == "queued"
    assert (await claimed(store)).delivery_id == delivery_id


async def test_a_message_whose_holder_was_killed_at_its_last_try_is_dead(store: Database) -> None:
    project_id, _hook = await one_waits(store)
    outbox = PostgresDeliveryStore(store)
    await execute(store, "update alert_delivery set tries = $1", TRIES - 1)
    assert (await claimed(store)).tries == TRIES
    assert await outbox.give_up() == 0, "it is still held"
    await passes(store)
    assert await outbox.claim() is None
    assert await outbox.give_up() == 1
    [row] = await deliveries(store, project_id)
    assert (row["state"], row["failure"]) == ("dead", "the service ended at its last try")


async def test_a_replay_keeps_the_id_begins_anew_and_is_audited(store: Database) -> None:
    project_id, _hook = await one_waits(store)
    outbox, lease = PostgresDeliveryStore(store), await claimed(store)
    assert await outbox.replay(project_id, lease.delivery_id, "ann") == "waits"
    await outbox.sent(lease, 200)
    assert await outbox.replay(project_id, lease.delivery_id, "ann") == "queued"
    again = await claimed(store)
    assert (again.delivery_id, again.tries, again.message) == (lease.delivery_id, 1, lease.message)
    assert await outbox.replay(project_id, uuid4(), "ann") == "missing"
    assert await outbox.replay(project_id + 1, lease.delivery_id, "ann") == "missing"
    audit = await AuditStore(store).page(project_id=project_id)
    [row] = [row for row in audit if row.action == "alert_delivery.replay"]
    assert (row.actor, row.details) == ("ann", {"channel": "hook"})


async def test_a_channel_that_is_removed_ends_what_waits_for_it(store: Database) -> None:
    project_id, hook = await one_waits(store)
    lease = await claimed(store)
    assert await AlertChannelStore(store).remove(hook, "tests")
    assert not await PostgresDeliveryStore(store).sent(lease, 200)
    [row] = await deliveries(store, project_id)
    assert (row["state"], row["failure"], row["channel"]) == ("dead", "the channel was removed", None)


async def test_pages_of_deliveries_follow_on_one_another(store: Database) -> None:
    project_id, _hook = await one_waits(store, 3)
    outbox = PostgresDeliveryStore(store)
    asked = {"state": None, "channel_id": None, "limit": 2}
    first = await outbox.page(project_id, cursor=None, **asked)  # type: ignore[arg-type]
    rest = await outbox.page(project_id, cursor=first["next_cursor"], **asked)  # type: ignore[arg-type]
    assert [len(first["deliveries"]), len(rest["deliveries"]), rest["next_cursor"]] == [2, 1, None]
    assert len({one["id"] for one in first["deliveries"] + rest["deliveries"]}) == 3


async def test_what_is_over_expires_with_detections_and_what_waits_stays(store: Database) -> None:
    project_id, _hook = await one_waits(store, 2)
    await PostgresDeliveryStore(store).sent(await claimed(store), 200)
    await execute(store, "update alert_event set written_at = now() - interval '90 days'")
    freed: dict[str, int] = {}
    await sweep_project(
        store,
        project_id,
        Cutoffs(None, None, LATER),
        LATER,
        lambda one: freed.update({one.table: one.rows}),
    )
    assert (freed["alert_delivery"], freed["alert_event"]) == (1, 2)
    assert [one["state"] for one in await deliveries(store, project_id)] == ["queued"]


def test_a_lease_outlives_whoever_sends() -> None:
    assert SEND_TIMEOUT_S < LEASE_S
