"""Laws of rules that look: told once when it begins, once when it is over, by one copy, after a mute too."""

from __future__ import annotations

from datetime import timedelta

import attrs
import trio

from protocol.alerts import AlertFacts, AlertRule, CheckResult
from svc.store.alerts.rules import AlertRuleStore
from svc.store.alerts.watching import SUBJECTS_MOST, WatchStore
from svc.store.postgres.database import Database
from tests.store.alerts.telling import channel, events, project_of, rule
from tests.store.detection.detecting import execute
from tests.store.spans.test_writing import NOW

SOON = timedelta(minutes=1)
DISK = {"disk": AlertFacts(title="The disk is full", severity="high")}


async def watched(store: Database, kind: str = "ingest.silent") -> AlertRule:
    project_id = await project_of(store)
    hook = await channel(store, project_id)
    return await rule(store, project_id, [hook], kind=kind, due_at=NOW)  # type: ignore[arg-type]


async def look(store: Database, rule: AlertRule, minute: int, **seen: object) -> bool:
    """One look that many minutes from the beginning."""
    now = NOW + minute * SOON
    watch = WatchStore(store)
    due = await watch.due([rule.kind], now)
    assert [one.id for one in due] == [rule.id]
    return await watch.settle(due[0], CheckResult(now + SOON, **seen), now)  # type: ignore[arg-type]


async def test_it_is_told_when_it_begins_and_when_it_is_over_and_not_in_between(store: Database) -> None:
    disk = await watched(store)
    assert await look(store, disk, 0)
    for minute in (1, 2, 3):
        assert await look(store, disk, minute, firing=DISK)
    assert await events(store) == [("disk", "firing")]
    assert await look(store, disk, 4)
    assert await look(store, disk, 5)
    assert await events(store) == [("disk", "firing"), ("disk", "over")]
    assert await look(store, disk, 6, firing=DISK)
    assert await events(store) == [("disk", "firing"), ("disk", "over"), ("disk", "firing")]
    rows = await store.fetch("select facts ->> 'title' as title from alert_event where state = 'over'")
    assert [row["title"] for row in rows] == ["The disk is full"]


async def test_a_look_that_came_to_nothing_changes_nothing_of_what_was_seen(store: Database) -> None:
    disk = await watched(store)
    assert await look(store, disk, 0, firing=DISK)
    assert await look(store, disk, 1, trouble="its question took too long")
    found = await AlertRuleStore(store).one(disk.project_id, disk.id)
    assert found is not None
    assert found.trouble == "its question took too long"
    assert await look(store, disk, 2, firing=DISK)
    assert await events(store) == [("disk", "firing")]


async def test_of_several_copies_that_look_one_writes(store: Database) -> None:
    disk = await watched(store)
    watch, wrote = WatchStore(store), []
    [due] = await watch.due([disk.kind], NOW)

    async def copy() -> None:
        wrote.append(await watch.settle(due, CheckResult(NOW + SOON, DISK), NOW))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(copy)
    assert sorted(wrote) == [False, False, False, True]
    assert await events(store) == [("disk", "firing")]
    assert await watch.due([disk.kind], NOW) == []


async def test_a_rule_that_was_changed_meanwhile_is_not_judged_by_its_earlier_words(store: Database) -> None:
    disk = await watched(store)
    [due] = await WatchStore(store).due([disk.kind], NOW)
    changed = attrs.evolve(disk, updated_at=NOW + SOON)
    assert await AlertRuleStore(store).put(changed, "tests") is None
    assert not await WatchStore(store).settle(due, CheckResult(NOW + SOON, DISK), NOW)
    assert await events(store) == []


async def test_what_began_during_a_mute_is_told_when_the_mute_ends(store: Database) -> None:
    disk = await watched(store)
    rules = AlertRuleStore(store)
    await rules.mute(disk, NOW + 3 * SOON, "tests", NOW)
    assert await look(store, disk, 1, firing=DISK)
    assert await events(store) == []
    assert await look(store, disk, 4, firing=DISK)
    assert await events(store) == [("disk", "firing")]
    # What began and ended during a mute was never told.
    await rules.mute(disk, NOW + 9 * SOON, "tests", NOW)
    assert await look(store, disk, 5)
    assert await look(store, disk, 6, firing={"other": DISK["disk"]})
    assert await look(store, disk, 7)
    assert await events(store) == [("disk", "firing"), ("disk", "over")]


async def test_each_copy_sees_its_own_subjects_and_ends_no_others(store: Database) -> None:
    down = await watched(store, "ingest.down")
    watch = WatchStore(store)
    # The name of one begins that of the other.

    async def copy(name: str, is_down: bool, minute: int) -> None:
        now = NOW + minute * SOON
        [due] = await watch.due([down.kind], now)
        firing = {f"ingest of {name}": DISK["disk"]} if is_down else {}
        seen = CheckResult(now + SOON, firing, covers=f"ingest of {name}")
        assert await watch.settle(due, seen, now, by_each_copy=True)

    await copy("a", True, 1)
    await copy("a1", False, 1)
    await copy("a1", True, 2)
    await copy("a", True, 2)
    assert await events(store) == [("ingest of a", "firing"), ("ingest of a1", "firing")]
    await copy("a1", False, 3)
    assert (await events(store))[2:] == [("ingest of a1", "over")]
    # A copy that is gone is forgotten after a day, and nobody is told.
    await copy("a1", False, 2 * 24 * 60)
    assert await store.fetch("select from alert_watch") == []
    assert len(await events(store)) == 3


async def test_a_digest_is_told_once_for_its_moment(store: Database) -> None:
    digest = await watched(store, "digest")
    told = {"digest 2026-11-01 08:00": AlertFacts(title="Digest")}
    assert await look(store, digest, 0, told=told)
    await execute(store, "update alert_rule set due_at = $1", NOW)
    assert await look(store, digest, 1, told=told)
    assert await events(store) == [("digest 2026-11-01 08:00", "told")]


async def test_a_rule_has_so_many_subjects_at_most(store: Database) -> None:
    silent = await watched(store)
    firing = {f"service {n}": AlertFacts(title=str(n)) for n in range(SUBJECTS_MOST + 50)}
    assert await look(store, silent, 0, firing=firing)
    assert len(await events(store)) == SUBJECTS_MOST
