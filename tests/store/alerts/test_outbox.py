"""Laws of the outbox: what commits is told once, what rolls back never; storms, bounds and rests of rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio

from protocol.alerts import EVENTS_A_MESSAGE, ITEMS_NAMED, QUEUED_MAX
from protocol.detection import RULE
from svc.domain.alerts.composing import INCIDENTS_MOST
from svc.store.alerts.channels import AlertChannelStore
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.gathering import GatheringStore
from svc.store.alerts.rules import AlertRuleStore
from svc.store.detection.cases.case_findings import opened_in
from svc.store.detection.cases.case_states import CaseStates
from svc.store.postgres.database import Connection, Database
from tests.store.alerts.telling import (
    channel,
    claimed,
    deliveries,
    events,
    gathered,
    project_of,
    rule,
)
from tests.store.detection.detecting import ANN, LATER, confirm, execute, fire, opened, seen
from tests.store.spans.test_writing import NOW


async def test_an_opened_case_is_told_to_each_rule_that_wants_it(store: Database) -> None:
    project_id = await project_of(store)
    hook = await channel(store, project_id)
    low = await rule(store, project_id, [hook], name="all")
    high = await rule(store, project_id, [hook], name="high", least_severity="high")
    tools = await rule(store, project_id, [hook], name="tools", detectors=["tool-errors"])
    other = await rule(store, project_id, [hook], name="other", detectors=["cost_drift"])
    again = await rule(store, project_id, [hook], kind="case.reopened")
    await opened(store, seen(1), project_id=project_id)
    assert await events(store, low.id) == await events(store, tools.id) == [("C-1", "told")]
    assert await events(store, high.id) == await events(store, other.id) == []
    assert await events(store, again.id) == []


async def test_what_rolls_back_was_never_told(store: Database) -> None:
    project_id = await project_of(store)
    await rule(store, project_id, [await channel(store, project_id)])
    finding_id = await fire(store, seen(1), project_id=project_id)
    await confirm(store, finding_id, project_id)

    async def work(connection: Connection) -> None:
        await opened_in(connection, project_id, finding_id, RULE, NOW)
        assert await connection.fetchval("select count(*) from alert_event") == 1
        raise RuntimeError("the process ends")

    with pytest.raises(RuntimeError):
        await store.run(work)
    assert await events(store) == []


async def test_resolving_and_reopening_are_told_and_a_mute_of_the_case_is_respected(store: Database) -> None:
    project_id = await project_of(store)
    hook = await channel(store, project_id)
    over = await rule(store, project_id, [hook], kind="case.resolved")
    again = await rule(store, project_id, [hook], kind="case.reopened")
    case = await opened(store, seen(1), project_id=project_id)
    states = CaseStates(store)
    await states.resolve(project_id, case.id, "fixed", ANN, NOW)
    await states.reopen(project_id, case.id, ANN, NOW + timedelta(minutes=1))
    await states.absorb(project_id, case.id, "", ANN, NOW + timedelta(minutes=2))
    assert await events(store, over.id) == [("C-1", "told")] * 2
    assert await events(store, again.id) == [("C-1", "told")]
    told = [row["title"] for row in await told_messages(store, project_id)]
    assert told == ["2 cases were resolved", "Opened again: C-1 cause 1"]


async def told_messages(store: Database, project_id: int) -> list[dict[str, Any]]:
    await gathered(store)
    return sorted(await deliveries(store, project_id), key=lambda one: str(one["title"]))


async def test_a_muted_rule_keeps_still_until_its_mute_ends(store: Database) -> None:
    project_id = await project_of(store)
    quiet = await rule(store, project_id, [await channel(store, project_id)])
    rules = AlertRuleStore(store)
    [now] = await store.fetch("select now() as now")
    assert await rules.mute(quiet, now["now"] + timedelta(hours=1), "tests", NOW)
    await opened(store, seen(1), project_id=project_id)
    assert await events(store) == []
    assert await rules.mute(quiet, None, "tests", NOW)
    await opened(store, seen(2), project_id=project_id)
    assert await events(store) == [("C-2", "told")]


async def test_an_incident_is_closed_where_one_was_opened_and_nowhere_else(store: Database) -> None:
    project_id = await project_of(store)
    pager = await channel(store, project_id, "pager", "pagerduty")
    hook = await channel(store, project_id)
    await rule(store, project_id, [pager, hook])
    case = await opened(store, seen(1), project_id=project_id)
    await gathered(store)
    await CaseStates(store).resolve(project_id, case.id, "fixed", ANN, NOW)
    await gathered(store)
    to_pager = await deliveries(store, project_id, channel_id=pager.id)
    assert {one["title"] for one in to_pager} == {"Resolved: C-1 cause 1", "Opened: C-1 cause 1"}
    to_hook = await deliveries(store, project_id, channel_id=hook.id)
    assert [one["title"] for one in to_hook] == ["Opened: C-1 cause 1"]


async def storm(store: Database, project_id: int, rule_id: Any, cases: int) -> None:
    await execute(
        store,
        "insert into alert_event (project_id, rule_id, subject, mark, state, facts, occurred_at)"
        " select $1, $2, 'C-' || n, 'opened', 'told', jsonb_build_object('title', 'cause ' || n,"
        " 'severity', 'low'), $4 from generate_series(1, $3) n",
        project_id,
        rule_id,
        cases,
        NOW,
    )


async def test_a_storm_of_cases_is_one_message_a_channel(store: Database) -> None:
    project_id = await project_of(store)
    hook, pager = (
        await channel(store, project_id),
        await channel(store, project_id, "pager", "pagerduty"),
    )
    stormy = await rule(store, project_id, [hook, pager])
    await storm(store, project_id, stormy.id, 60)
    assert await gathered(store) == 1 + INCIDENTS_MOST + 1
    [one] = await deliveries(store, project_id, channel_id=hook.id)
    assert one["title"] == "60 cases opened"
    lease = next(
        found for found in [await claimed(store), await claimed(store)] if found.channel.id == hook.id
    )
    assert (len(lease.message.items), lease.message.more) == (ITEMS_NAMED, 60 - ITEMS_NAMED)
    # PagerDuty keeps one incident a case, and one more for the rest.
    assert len(await deliveries(store, project_id, channel_id=pager.id)) == INCIDENTS_MOST + 1


async def test_events_wait_for_others_and_a_rule_rests_between_its_messages(store: Database) -> None:
    project_id = await project_of(store)
    stormy = await rule(store, project_id, [await channel(store, project_id)])
    await storm(store, project_id, stormy.id, 1)
    assert await GatheringStore(store, gather_s=60.0).gather(NOW) == 0
    assert await GatheringStore(store, gather_s=0.0).gather(NOW) == 1
    await execute(
        store,
        "insert into alert_event (project_id, rule_id, subject, mark, state, facts, occurred_at)"
        " values ($1, $2, 'C-9', 'opened', 'told', '{\"title\": \"late\"}', $3)",
        project_id,
        stormy.id,
        NOW,
    )
    # Its minute is not over.
    assert await GatheringStore(store, gather_s=0.0).gather(NOW) == 0
    await execute(store, "update alert_rule set told_at = now() - interval '61 seconds'")
    assert await GatheringStore(store, gather_s=0.0).gather(NOW) == 1


async def test_a_message_stands_for_so_many_events_and_the_rest_for_the_next(store: Database) -> None:
    project_id = await project_of(store)
    stormy = await rule(store, project_id, [await channel(store, project_id)])
    await storm(store, project_id, stormy.id, EVENTS_A_MESSAGE + 1)
    assert await gathered(store) == 1
    assert await gathered(store) == 1
    titles = [one["title"] for one in await deliveries(store, project_id)]
    assert sorted(titles) == [f"{EVENTS_A_MESSAGE} cases opened", f"Opened: C-{EVENTS_A_MESSAGE + 1} cause"
                              f" {EVENTS_A_MESSAGE + 1}"]  # fmt: skip


async def test_two_copies_gather_each_event_once(store: Database) -> None:
    project_id = await project_of(store)
    hook = await channel(store, project_id)
    rules = [await rule(store, project_id, [hook], name=f"rule {n}") for n in range(8)]
    for one in rules:
        await storm(store, project_id, one.id, 3)
    made: list[int] = []

    async def copy() -> None:
        made.append(await gathered(store))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(copy)
    assert (sum(made), len(await deliveries(store, project_id))) == (8, 8)
    assert {one["title"] for one in await deliveries(store, project_id)} == {"3 cases opened"}


async def test_beyond_the_bound_of_a_channel_a_message_is_dead_at_once(store: Database) -> None:
    project_id = await project_of(store)
    hook = await channel(store, project_id)
    stormy = await rule(store, project_id, [hook])
    await execute(
        store,
        "insert into alert_delivery (project_id, channel_id, rule_id, message, due_at, made_at)"
        " select $1, $2, $3, '{}', now(), $5 from generate_series(1, $4)",
        project_id,
        hook.id,
        stormy.id,
        QUEUED_MAX,
        NOW - timedelta(days=1),
    )
    await storm(store, project_id, stormy.id, 1)
    assert await gathered(store) == 1
    [dead] = await deliveries(store, project_id, state="dead")
    assert dead["failure"] == "1000 messages wait for this channel already"
    assert (await PostgresDeliveryStore(store).counts())["queued"] == QUEUED_MAX


async def test_a_rule_without_a_channel_tells_nobody_and_keeps_nothing_waiting(store: Database) -> None:
    project_id = await project_of(store)
    hook = await channel(store, project_id)
    await rule(store, project_id, [hook])
    await opened(store, seen(1), project_id=project_id)
    assert await AlertChannelStore(store).remove(hook, "tests")
    assert await gathered(store) == 0
    assert await gathered(store) == 0
    assert await store.fetch("select from alert_event where gathered_at is null") == []


async def test_a_rule_that_is_removed_takes_along_what_it_has_not_told(store: Database) -> None:
    project_id = await project_of(store)
    gone = await rule(store, project_id, [await channel(store, project_id)])
    await opened(store, seen(1), project_id=project_id, at=LATER)
    assert await AlertRuleStore(store).remove(gone, "tests")
    assert await events(store) == []
    assert not await AlertRuleStore(store).remove(gone, "tests")
