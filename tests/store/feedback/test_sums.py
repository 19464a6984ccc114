"""The sums of feedback equal its entries at every moment: whatever comes, changes, goes or is folded."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from statistics import fmean, stdev
from typing import Any

import pytest
import trio

from svc.domain.calendar import day_of, hour_of
from svc.domain.feedback.entries import Feedback, checked
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.feedback_sums import fold_feedback
from svc.store.feedback.sums import MOST_CATEGORIES, FeedbackSums
from svc.store.feedback.writing import KEPT_CATEGORIES, FeedbackStore
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.migrate import migrations
from tests.store.spans.test_writing import NOW, PROJECT, fetch

DAYS = 4


def judged(dice: random.Random) -> Feedback:
    return checked(
        source="api",
        id=str(dice.randrange(40)),
        name=dice.choice(["helpful", "tone"]),
        trace_id=dice.randrange(1, 9).to_bytes(16, "big"),
        number=dice.choice([None, 0.1, 0.2, 0.7, 1e9]),
        category=dice.choice([None, "rude", "kind"]),
        text="so",
        judged_at=NOW - timedelta(minutes=dice.randrange(DAYS * 24 * 60)),
    )


async def agree(store: Database, low: datetime | None, high: datetime | None) -> None:
    """What is summed is what is there."""
    first = None if low is None else hour_of(low)
    end = None if high is None else hour_of(high + timedelta(minutes=59, seconds=59))
    rows = [
        row
        for row in await fetch(store, "select * from feedback where project_id = $1", PROJECT)
        if (first is None or row["judged_at"] >= first) and (end is None or row["judged_at"] < end)
    ]
    for sums in await FeedbackSums(store).names(PROJECT, low, high):
        of_name = [row for row in rows if row["name"] == sums.name]
        numbers = [row["number"] for row in of_name if row["number"] is not None]
        assert (sums.entries, sums.numbers) == (len(of_name), len(numbers))
        assert sums.mean == (pytest.approx(fmean(numbers)) if numbers else None)
        assert sums.spread == (pytest.approx(stdev(numbers)) if len(numbers) > 1 else None)
        assert sums.categories == Counter(row["category"] for row in of_name if row["category"])


async def agree_by_day(store: Database) -> None:
    rows = await fetch(
        store,
        "select * from feedback where project_id = $1 and number is not null order by judged_at",
        PROJECT,
    )
    means: dict[str, list[tuple[datetime, Any]]] = {}
    for name in ("helpful", "tone"):
        days: dict[datetime, list[float]] = {}
        for row in rows:
            if row["name"] == name and row["judged_at"] >= day_of(NOW - timedelta(days=2)):
                days.setdefault(day_of(row["judged_at"]), []).append(row["number"])
        if days:
            means[name] = [(day, pytest.approx(fmean(numbers))) for day, numbers in days.items()]
    low = NOW - timedelta(days=2)
    assert await FeedbackSums(store).by_day(PROJECT, ["helpful", "tone"], low) == means


@pytest.mark.parametrize("seed", range(3))
async def test_a_sum_is_what_is_there_at_every_moment(store: Database, seed: int) -> None:
    await ProjectStore(store).make_default()
    dice = random.Random(seed)
    feedback = FeedbackStore(store)

    async def go(connection: Connection, trace_id: bytes) -> None:
        await connection.execute(
            "delete from feedback where project_id = $1 and trace_id = $2", PROJECT, trace_id
        )

    for _ in range(40):
        trace_id = dice.randrange(1, 9).to_bytes(16, "big")
        match dice.choice(["come", "come", "come", "drop", "go", "fail", "fold"]):
            case "come":
                await feedback.keep(PROJECT, [judged(dice) for _ in range(dice.randrange(1, 8))], NOW)
                await feedback.keep(2, [judged(dice)], NOW)
            case "drop":
                await feedback.drop(PROJECT, "api", str(dice.randrange(40)), "ada")
            case "go":
                await store.run(lambda connection, trace_id=trace_id: go(connection, trace_id))  # type: ignore[misc]
            case "fail":

                async def fail(connection: Connection, trace_id: bytes = trace_id) -> None:
                    await go(connection, trace_id)
                    raise LookupError

                with pytest.raises(LookupError):
                    await store.run(fail)
            case _:
                await fold_feedback(store)
        low, high = sorted(NOW - timedelta(minutes=dice.randrange(DAYS * 24 * 60)) for _ in range(2))
        for bounds in ((None, None), (low, None), (None, high), (low, high)):
            await agree(store, *bounds)
        await agree_by_day(store)


async def test_folding_leaves_one_row_each_and_none_of_what_is_gone(store: Database) -> None:
    dice, feedback = random.Random(7), FeedbackStore(store)
    for _ in range(10):
        await feedback.keep(PROJECT, [judged(dice) for _ in range(20)], NOW)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(fold_feedback, store)
        nursery.start_soon(feedback.keep, PROJECT, [judged(dice)], NOW)
    await fold_feedback(store)
    await agree(store, None, None)
    assert not await fetch(store, "select from feedback_change")
    await fetch(store, "delete from feedback")
    await fold_feedback(store)
    assert not await fetch(store, "select from feedback_sum")


async def test_categories_beyond_the_bound_are_summed_as_one(store: Database) -> None:
    await ProjectStore(store).make_default()

    def said(number: int) -> Feedback:
        trace_id = (1).to_bytes(16, "big")
        return checked(
            source="api",
            id=str(number),
            name="why",
            trace_id=trace_id,
            category=f"c{number:03}",
            judged_at=NOW,
        )

    feedback = FeedbackStore(store)
    many = [said(number) for number in range(KEPT_CATEGORIES + 30)]
    for first in range(0, len(many), 20):
        await feedback.keep(PROJECT, many[first : first + 20], NOW)
    await fold_feedback(store)
    (sums,) = await FeedbackSums(store).names(PROJECT)
    assert sums.entries == len(many)
    assert list(sums.categories) == [f"c{number:03}" for number in range(MOST_CATEGORIES)]
    rows = await fetch(store, "select entries from feedback_sum where category = ' ' and grain = 'day'")
    assert [row["entries"] for row in rows] == [30]
    for number in range(len(many)):
        assert await feedback.drop(PROJECT, "api", str(number), "ada")
    await fold_feedback(store)
    assert not await fetch(store, "select from feedback_sum")


async def test_what_is_there_already_is_summed_when_the_step_is_applied(store: Database) -> None:
    dice = random.Random(3)
    await FeedbackStore(store).keep(PROJECT, [judged(dice) for _ in range(30)], NOW)
    await fetch(store, "delete from feedback_change")
    await fetch(store, "update feedback_name set categories = '{}'")
    [step] = [step for step in migrations() if step.number == 330]
    names, _, rest = step.sql.partition("create table")
    await fetch(store, names[names.index("update feedback_name") :])
    await fetch(store, rest[rest.index("insert into feedback_sum") :])
    await agree(store, None, None)
    rows = await fetch(store, "select name, categories from feedback_name")
    assert {row["name"]: set(row["categories"]) for row in rows} == {
        name: {"rude", "kind"} for name in ("helpful", "tone")
    }
