"""Feedback as it is kept: once each, with its firing, before or after its trace, and no longer than that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio

from svc.domain.feedback import entries as feedback
from svc.domain.feedback.entries import Feedback, checked
from svc.domain.retention.terms import Terms
from svc.store.accounts.audit import AuditStore
from svc.store.accounts.projects import ProjectStore
from svc.store.feedback.reads import FeedbackReads
from svc.store.feedback.sums import FeedbackSums
from svc.store.feedback.writing import FeedbackStore
from svc.store.postgres.database import Database
from svc.store.retention.sweep import RetentionStore
from svc.store.spans.traces import PostgresTraceStore
from tests import wire
from tests.store.spans.test_writing import NOW, PROJECT, TRACE, Clock, fetch, one, rows, store_of

SPAN = (1).to_bytes(8, "big")


def entry(**fields: Any) -> Feedback:
    known = {"source": "api", "name": "helpful", "trace_id": TRACE, "number": 1.0}
    return checked(**(known | fields))


async def keep(store: Database, *entries: Feedback) -> frozenset[str]:
    return await FeedbackStore(store).keep(PROJECT, entries, NOW)


async def firings(store: Database) -> list[tuple[str, str]]:
    found = await fetch(store, "select classifier_id, summary from classifier_event order by summary")
    return [(row["classifier_id"], row["summary"]) for row in found]


async def test_an_entry_is_kept_once_and_fires_once(store: Database) -> None:
    for _ in range(2):
        assert await keep(store, entry(author="ada", text="Just right")) == frozenset()
    assert await firings(store) == [("feedback.helpful", "helpful: 1 “Just right”")]
    (kept,) = await FeedbackReads(store).of_trace(PROJECT, TRACE)
    assert (kept.name, kept.number, kept.text, kept.author) == ("helpful", 1.0, "Just right", "ada")


async def test_a_changed_mind_takes_the_place_of_the_first(store: Database) -> None:
    await keep(store, entry(author="ada"))
    await keep(store, entry(author="ada", number=0.0), entry(author="ada", number=0.5))
    assert await firings(store) == [("feedback.helpful", "helpful: 0.5")]
    (kept,) = await FeedbackReads(store).of_trace(PROJECT, TRACE)
    assert kept.number == 0.5


async def test_an_id_of_one_source_is_not_one_of_another(store: Database) -> None:
    await keep(store, entry(id="7"), entry(id="7", source="page", number=0.0))
    assert sorted(item.number or 0 for item in await FeedbackReads(store).of_trace(PROJECT, TRACE)) == [0, 1]


async def test_what_is_dropped_is_gone_with_its_firing(store: Database) -> None:
    await ProjectStore(store).make_default()
    await keep(store, entry(id="7"))
    assert not await FeedbackStore(store).drop(PROJECT, "page", "7", "ada")
    assert await FeedbackStore(store).drop(PROJECT, "api", "7", "ada")
    assert await firings(store) == []
    assert not await FeedbackStore(store).drop(PROJECT, "api", "7", "ada")
    [row] = await AuditStore(store).page(project_id=PROJECT)
    assert (row.action, row.actor, row.subject_id) == ("feedback.remove", "ada", "7")
    assert row.details == {"name": "helpful", "source": "api"}


async def test_a_project_has_so_many_names_and_keeps_what_has_one(store: Database) -> None:
    many = [entry(name=f"n{number:03}") for number in range(feedback.MOST_NAMES + 5)]
    assert len(await keep(store, *many)) == 5
    assert await keep(store, entry(name="n000", author="ada"), entry(name="late")) == {"late"}
    assert len(await fetch(store, "select from feedback")) == feedback.MOST_NAMES + 1
    assert len(await fetch(store, "select from classifier_event")) == feedback.MOST_NAMES + 1


async def test_writers_of_the_same_entries_at_once_do_not_deadlock(store: Database) -> None:
    entries = [entry(id=str(number), name=f"n{number % 7}") for number in range(100)]
    async with trio.open_nursery() as nursery:
        for order in (entries, entries[::-1], entries[50:] + entries[:50]):
            nursery.start_soon(keep, store, *order)
    assert len(await fetch(store, "select from feedback")) == 100


@pytest.mark.parametrize(
    ("thumbs", "interval"), [("1111", (0.51, 1.0)), ("0000", (0.0, 0.49)), ("1101", (0.301, 0.954))]
)
async def test_the_interval_of_a_share_is_that_of_a_share(
    store: Database, thumbs: str, interval: tuple[float, float]
) -> None:
    await keep(store, *(entry(id=str(n), number=float(thumb)) for n, thumb in enumerate(thumbs)))
    (sums,) = await FeedbackSums(store).names(PROJECT)
    assert sums.interval == pytest.approx(interval, abs=0.002)


async def test_a_name_tells_its_mean_its_interval_and_its_categories(store: Database) -> None:
    numbers = [entry(id=str(number), number=float(number), category="even" if number % 2 == 0 else "odd")
               for number in range(5)]  # fmt: skip
    await keep(store, *numbers, entry(name="toxicity", category="none", number=None))
    helpful, toxicity = await FeedbackSums(store).names(PROJECT)
    assert (helpful.entries, helpful.mean, helpful.low, helpful.high) == (5, 2.0, 0.0, 4.0)
    assert helpful.interval is not None
    assert 0.0 < helpful.interval[0] < 2.0 < helpful.interval[1] < 4.0
    assert dict(helpful.categories) == {"even": 3, "odd": 2}
    assert (toxicity.mean, toxicity.interval, toxicity.better) == (None, None, "lower")
    later = await FeedbackSums(store).names(PROJECT, NOW + timedelta(days=1))
    assert [sums.entries for sums in later] == [0, 0]


async def test_which_end_is_good_is_as_somebody_set_it(store: Database) -> None:
    await ProjectStore(store).make_default()
    await keep(store, entry(name="toxicity"), entry(name="tone", number=None, category="rude"))
    assert await FeedbackStore(store).set_better(PROJECT, "toxicity", "higher", "ada")
    assert await FeedbackStore(store).set_bad(PROJECT, "tone", ["rude"], "bob")
    tone, toxicity = await FeedbackSums(store).names(PROJECT)
    assert (toxicity.better, toxicity.is_set, toxicity.watched) == ("higher", True, ())
    assert (tone.watched, tone.bad) == (["rude"], ["rude"])
    changes = [
        (row.action, row.actor, row.details) for row in await AuditStore(store).page(project_id=PROJECT)
    ]
    assert changes == [
        ("feedback.bad", "bob", {"categories": ["rude"]}),
        ("feedback.better", "ada", {"better": "higher"}),
    ]
    assert not await FeedbackStore(store).set_bad(PROJECT, "nobody", [], "ada")
    assert not await FeedbackStore(store).set_better(PROJECT, "nobody", "higher", "ada")


async def test_pages_of_entries_hold_each_once(store: Database) -> None:
    for first in range(0, 25, 5):
        await keep(store, *(entry(id=f"{number:02}") for number in range(first, first + 5)))
    reads, cursor, seen = FeedbackReads(store), None, list[str]()
    while True:
        page, cursor = await reads.page(PROJECT, limit=4, cursor=cursor)
        seen += [item.id for item in page]
        if cursor is None:
            break
    assert sorted(seen) == [f"{number:02}" for number in range(25)]


async def test_an_evaluation_on_a_span_is_kept_with_it_and_once(store: Database) -> None:
    judged = wire.event(feedback.EVALUATION_EVENT, {"gen_ai.evaluation.name": "relevance",
                                                    "gen_ai.evaluation.score.value": 0.75})  # fmt: skip
    for _ in range(2):
        await store_of(store).write(rows(one(1, events=[judged]), one(2, parent=1)))
    (kept,) = await FeedbackReads(store).of_trace(PROJECT, TRACE)
    assert (kept.source, kept.name, kept.number, kept.span_id) == ("span", "relevance", 0.75, SPAN)
    assert await firings(store) == [("feedback.relevance", "relevance: 0.75")]


async def test_feedback_goes_with_its_trace_and_not_before(store: Database) -> None:
    await ProjectStore(store).make_default()
    clock = Clock()
    clock.now = NOW - timedelta(days=5)
    await store_of(store, clock).write(rows(one(1, start=clock.now), came=clock.now))
    for _ in range(3):
        await PostgresTraceStore(store).settle(clock.now + timedelta(hours=1), 10_000)
    unknown = entry(id="no trace", trace_id=bytes(15) + b"\x09")
    of_session = entry(id="session", trace_id=None, session_id="gone")
    await keep(store, entry(id="trace"), entry(id="span", span_id=SPAN), unknown, of_session)
    await fetch(store, "update feedback set created_at = $1", clock.now)

    async def left(days: int) -> list[str]:
        await RetentionStore(store, Terms(days, 0)).sweep(NOW, lambda _freed: None)
        found = await fetch(store, "select id from feedback order by id")
        assert len(await firings(store)) == len(found)
        return [row["id"] for row in found]

    assert await left(10) == ["no trace", "session", "span", "trace"]
    assert await left(3) == []
