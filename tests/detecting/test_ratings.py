"""Laws of ratings: a fall is told once, what is steady or rare is not, late ones count where they belong."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc.detecting.analyst import CaseAnalyst, RuleReports
from svc.domain.feedback.entries import WATCHED_CATEGORIES, checked
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.feedback.writing import FeedbackStore
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import Served
from tests.conftest import copied
from tests.detecting.house import House, Settings, replay
from tests.detecting.story import MONDAY, Story
from tests.store.detection.counting.test_tallying import begin, settle, story, tally_all, write
from tests.store.spans.test_writing import NOW, PROJECT, fetch

FALL = MONDAY + timedelta(days=22)
DETECTORS = {"feedback", "feedback_drift"}

#: What a trace that began then is given, with dice; None for nothing.
Opinion = Callable[[random.Random, datetime], float | str | None]


@pytest.fixture
async def month(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """Four weeks without a fault, written and counted once for all who rate them."""

    async def fill(store: Database) -> None:
        await replay(store, Story())

    async with copied(served, "month", fill) as database:
        yield database


def liked(share: float, later: float, *, of: float = 1.0) -> Opinion:
    """A thumb that is up so often, and so often after the fall; given to a share of the traces."""

    def opinion(dice: random.Random, at: datetime) -> float | None:
        is_up = dice.random() < (share if at < FALL else later)
        return float(is_up) if dice.random() < of else None

    return opinion


async def rate(store: Database, name: str, opinion: Opinion) -> None:
    """Give every trace of the month what it deserves, as late as can be."""
    dice = random.Random(5)
    entries: list[Any] = []
    for at, spans in Story().traces():
        answer = opinion(dice, at)
        if answer is not None:
            verdict: dict[str, Any] = {"category" if isinstance(answer, str) else "number": answer}
            entries.append(checked(source="api", name=name, trace_id=spans[0].trace_id, **verdict))
    feedback = FeedbackStore(store)
    for first in range(0, len(entries), 1_000):
        assert not await feedback.keep(PROJECT, entries[first : first + 1_000], datetime.now(UTC))
    await tally_all(store, PostgresTallyQueue(store, secret_key=b"k" * 32))


async def judged(month: Database, name: str, opinion: Opinion) -> House:
    house = House(month, Settings())
    await rate(month, name, opinion)
    await house.rest()
    await house.look()
    return house


async def findings(house: House) -> list[tuple[Any, ...]]:
    rows = await house.told("detector", "title", "harmful", "call_site_id")
    return [row for row in rows if row[0] in DETECTORS]


async def test_ratings_that_fall_are_told_once_and_open_a_case(month: Database) -> None:
    house = await judged(month, "helpful", liked(0.85, 0.5))
    [(detector, title, harmful, call_site)] = await findings(house)
    assert (detector, harmful, call_site) == ("feedback", True, "desk")
    assert title.startswith("Ratings `helpful` of `desk` fell from 0.8")
    [case] = await house.cases()
    assert (case["detector"], case["state"], case["title"]) == ("feedback", "open", title)
    # Its cause is looked for as that of any case.
    counts: Counter[str] = Counter()
    await CaseAnalyst(store=RuleReports(month), now=lambda: NOW, counts=counts).round()
    assert [row["status"] for row in await fetch(month, "select status from rca_report")] == ["done"]
    [(onset,)] = await house.told("onset_at")
    assert abs(onset - FALL) < timedelta(hours=12)
    # The same said once more, and another look, change nothing.
    await rate(month, "helpful", liked(0.85, 0.5))
    await house.rest()
    await house.look()
    assert len(await findings(house)) == 1


@pytest.mark.release
async def test_what_proves_a_fall_are_the_traces_that_were_rated_badly(month: Database) -> None:
    await judged(month, "helpful", liked(0.85, 0.5))
    rows = await fetch(
        month,
        "select distinct e.trace_id from finding_evidence e join finding f on f.id = e.finding_id"
        " where f.detector = 'feedback' and e.role = 4",
    )
    bad = await fetch(month, "select trace_id from feedback where number = 0")
    assert rows
    assert {row["trace_id"] for row in rows} <= {row["trace_id"] for row in bad}


@pytest.mark.release
async def test_steady_ratings_cry_nothing(month: Database) -> None:
    house = await judged(month, "helpful", liked(0.8, 0.8))
    assert await findings(house) == []


async def test_a_name_that_few_people_rate_stays_silent(month: Database) -> None:
    house = await judged(month, "helpful", liked(0.9, 0.2, of=0.01))
    assert await findings(house) == []


@pytest.mark.release
async def test_a_name_of_which_less_is_better_is_told_when_it_rises(month: Database) -> None:
    house = await judged(month, "toxic", liked(0.05, 0.35))
    [(_, title, harmful, _)] = await findings(house)
    assert title.startswith("Ratings `toxic` of `desk` rose from 0.0")
    assert harmful


@pytest.mark.release
async def test_ratings_that_rise_are_good_news_and_open_no_case(month: Database) -> None:
    house = await judged(month, "helpful", liked(0.6, 0.95))
    [(_, title, harmful, _)] = await findings(house)
    assert title.startswith("Ratings `helpful` of `desk` rose from 0.")
    assert not harmful
    assert await house.cases() == []


@pytest.mark.release
async def test_scores_that_fall_are_told_by_their_median(month: Database) -> None:
    def stars(dice: random.Random, at: datetime) -> float | None:
        return float(min(max(round(dice.gauss(4.3 if at < FALL else 2.9, 0.8)), 1), 5))

    house = await judged(month, "stars", stars)
    rows = await findings(house)
    assert [(row[0], row[2]) for row in rows] == [("feedback_drift", True)]
    assert rows[0][1].startswith("Ratings `stars` of `desk` fell from 4")


@pytest.mark.release
async def test_steady_scores_cry_nothing(month: Database) -> None:
    def grade(dice: random.Random, _at: datetime) -> float | None:
        return min(max(dice.gauss(0.7, 0.15), 0.0), 1.0)

    house = await judged(month, "relevance", grade)
    assert await findings(house) == []


def tone(share: float, later: float) -> Opinion:
    """How often an answer is called rude, and how often after the fall."""

    def opinion(dice: random.Random, at: datetime) -> str:
        return "rude" if dice.random() < (share if at < FALL else later) else "kind"

    return opinion


@pytest.mark.release
async def test_a_category_that_becomes_more_frequent_is_told_and_opens_no_case(month: Database) -> None:
    house = await judged(month, "tone", tone(0.04, 0.3))
    [(detector, title, harmful, call_site)] = await findings(house)
    assert (detector, harmful, call_site) == ("feedback", False, "desk")
    assert re.fullmatch(r"Feedback `tone` of `desk`: “rude” rose from [2-5]\.\d % to [23]\d %", title), title
    assert await house.cases() == []


@pytest.mark.release
async def test_a_category_that_somebody_called_bad_opens_a_case_even_when_it_is_new(month: Database) -> None:
    house = House(month, Settings())
    await rate(month, "tone", tone(0.0, 0.0))
    await rate(month, "tone", tone(0.0, 0.3))
    assert await FeedbackStore(month).set_bad(PROJECT, "tone", ["rude"], "ada")
    await tally_all(month, PostgresTallyQueue(month, secret_key=b"k" * 32))
    await house.rest()
    await house.look()
    [(_, title, harmful, _)] = await findings(house)
    assert re.fullmatch(r"Feedback `tone` of `desk`: “rude” rose from 0 % to [23]\d %", title), title
    assert harmful
    [case] = await house.cases()
    assert (case["detector"], case["state"], case["title"]) == ("feedback", "open", title)


@pytest.mark.release
async def test_steady_categories_cry_nothing(month: Database) -> None:
    house = await judged(month, "tone", tone(0.2, 0.2))
    assert await findings(house) == []


async def test_each_trace_counts_for_every_category_of_its_name(store: Database) -> None:
    queue, feedback = PostgresTallyQueue(store), FeedbackStore(store)
    await begin(store)
    await write(store, *story(1), *story(2), *story(3))
    await settle(store)

    async def say(number: int, category: str, author: str = "ann", **fields: Any) -> None:
        trace_id = number.to_bytes(16, "big")
        entry = checked(
            source="api", name="tone", trace_id=trace_id, category=category, author=author, **fields
        )
        assert not await feedback.keep(PROJECT, [entry], NOW)
        await tally_all(store, queue)

    await say(1, "kind")
    await say(2, "kind")
    assert await cells(store) == [("category_share", "rated:desk › tone=kind", 2, 2)]
    # What is watched from now on did not occur before.
    await say(3, "rude")
    kind, rude = "rated:desk › tone=kind", "rated:desk › tone=rude"
    assert await cells(store) == [("category_share", kind, 3, 2), ("category_share", rude, 3, 1)]
    # Most entries of a trace decide.
    await say(1, "rude", "bob")
    await say(1, "rude", "eve")
    assert await cells(store) == [("category_share", kind, 3, 1), ("category_share", rude, 3, 2)]
    [row] = await fetch(store, "select id from feedback where author = 'eve'")
    assert await feedback.drop(PROJECT, "api", row["id"], "ada")
    await say(1, "kind", "eve")
    assert await cells(store) == [("category_share", kind, 3, 2), ("category_share", rude, 3, 1)]
    assert await feedback.set_bad(PROJECT, "tone", ["rude"], "ada")
    await tally_all(store, queue)
    assert await cells(store) == [("category_share", kind, 3, 2), ("category_bad", rude, 3, 1)]


async def test_so_many_categories_of_a_name_are_watched_and_none_of_one_with_numbers(store: Database) -> None:
    queue = PostgresTallyQueue(store)
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    fields: dict[str, Any] = {"source": "api", "trace_id": (1).to_bytes(16, "big")}
    for number in range(WATCHED_CATEGORIES + 2):
        entry = checked(name="why", id=f"w{number}", category=f"c{number}", **fields)
        await FeedbackStore(store).keep(PROJECT, [entry], NOW)
    await FeedbackStore(store).keep(
        PROJECT, [checked(name="grade", id="g", category="fair", number=0.5, **fields)], NOW
    )
    await tally_all(store, queue)
    assert [row[1] for row in await cells(store)] == [
        *("rated:desk › grade",),
        *(f"rated:desk › why=c{number}" for number in range(WATCHED_CATEGORIES)),
    ]


async def cells(store: Database) -> list[tuple[Any, ...]]:
    rows = await fetch(
        store,
        "select b.measure, b.subject, t.units, t.failures from tally t"
        " join tally_bucket b on b.id = t.bucket_id"
        " where b.subject like 'rated:%' and t.units > 0 order by 2, 1",
    )
    return [tuple(row.values()) for row in rows]


async def test_a_rating_is_counted_once_whether_it_comes_before_its_trace_or_after(store: Database) -> None:
    queue = PostgresTallyQueue(store)
    await begin(store)

    async def say(number: int, value: float, author: str = "ann") -> None:
        trace_id = number.to_bytes(16, "big")
        entry = checked(source="api", name="helpful", trace_id=trace_id, number=value, author=author)
        assert not await FeedbackStore(store).keep(PROJECT, [entry], NOW)

    await say(1, 1.0)
    await write(store, *story(1), *story(2))
    await settle(store)
    await tally_all(store, queue)
    assert await cells(store) == [("rated_low", "rated:desk › helpful", 1, 0)]
    await say(2, 1.0)
    await say(2, 0.0)
    await tally_all(store, queue)
    assert await cells(store) == [("rated_low", "rated:desk › helpful", 2, 1)]
    # Somebody else disagrees: half of them is not the most.
    await say(2, 1.0, "bob")
    await tally_all(store, queue)
    assert await cells(store) == [("rated_low", "rated:desk › helpful", 2, 0)]
    [row] = await fetch(store, "select id from feedback where author = 'bob'")
    assert await FeedbackStore(store).drop(PROJECT, "api", row["id"], "ada")
    await tally_all(store, queue)
    assert await cells(store) == [("rated_low", "rated:desk › helpful", 2, 1)]


async def test_a_name_that_is_turned_round_is_counted_anew_from_then_on(store: Database) -> None:
    await begin(store)
    await write(store, *story(1), *story(2))
    await settle(store)
    for number in (1, 2):
        entry = checked(source="api", name="short", trace_id=number.to_bytes(16, "big"), number=1.0)
        await FeedbackStore(store).keep(PROJECT, [entry], NOW)
        await tally_all(store, PostgresTallyQueue(store))
        await FeedbackStore(store).set_better(PROJECT, "short", "lower", "ada")
    assert await cells(store) == [
        ("rated_high", "rated:desk › short", 1, 1),
        ("rated_low", "rated:desk › short", 1, 0),
    ]


async def test_a_late_rating_makes_nothing_else_due_and_holds_nothing_up(store: Database) -> None:
    await begin(store)
    await write(store, *story(1))
    await settle(store)
    queue = PostgresTallyQueue(store)
    await tally_all(store, queue)
    await House(store, Settings()).rest()

    async def touched() -> Any:
        [row] = await fetch(store, "select newest_slot, touched_low, touched_since from fold_state")
        return tuple(row.values())

    before = await touched()
    await fetch(store, "delete from tally_due")
    entry = checked(source="api", name="helpful", trace_id=(1).to_bytes(16, "big"), number=0.0)
    await FeedbackStore(store).keep(PROJECT, [entry], NOW)
    assert [row["rated"] for row in await fetch(store, "select rated from fold_due")] == [True]
    await tally_all(store, queue)
    assert [row["detector"] for row in await fetch(store, "select detector from tally_due")] == ["feedback"]
    assert await touched() == before
