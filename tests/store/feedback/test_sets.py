"""Sets: what they hold, how much they may hold, and that retention keeps it."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from svc.domain.feedback.entries import checked
from svc.domain.feedback.reviews import Review
from svc.domain.retention.terms import Terms
from svc.store.accounts.audit import AuditStore
from svc.store.accounts.projects import ProjectStore
from svc.store.feedback import sets
from svc.store.feedback.reviews import ReviewReads
from svc.store.feedback.sets import NoRoomForSets, SetStore, Subject, TraceSet, entry_key
from svc.store.feedback.writing import FeedbackStore
from svc.store.postgres.database import Database
from svc.store.retention.sweep import RetentionStore
from svc.store.spans.traces import PostgresTraceStore
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, one, rows, store_of


def trace(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


@pytest.fixture
async def filled(store: Database) -> Database:
    """Ten traces of five days ago, settled."""
    await ProjectStore(store).make_default()
    clock = Clock()
    clock.now = NOW - timedelta(days=5)
    spans = [one(1, start=clock.now, trace_id=trace(number)) for number in range(10)]
    await store_of(store, clock).write(rows(*spans, came=clock.now))
    for _ in range(3):
        await PostgresTraceStore(store).settle(clock.now + timedelta(hours=1), 10_000)
    return store


async def add(store: Database, name: str, *subjects: Subject) -> tuple[TraceSet, int]:
    done = await SetStore(store).add(PROJECT, name, subjects, "ada")
    assert not isinstance(done, NoRoomForSets)
    return done


async def test_a_set_is_made_by_its_first_entry_and_holds_each_once_in_order(filled: Database) -> None:
    made, added = await add(filled, "odd", (trace(3), None), (trace(1), None), (trace(3), None))
    assert added == 2
    again, added = await add(filled, "odd", (trace(1), None), (trace(1), bytes(7) + b"\x01"))
    assert (again.id, again.entries, added) == (made.id, 3, 1)
    entries = await SetStore(filled).entries(PROJECT, made.id)
    assert [entry.key for entry in entries[:2]] == [trace(3).hex(), trace(1).hex()]
    assert entries[2].span_id == bytes(7) + b"\x01"


async def test_what_is_no_trace_or_span_of_the_project_is_not_added(filled: Database) -> None:
    span_id, other = bytes(7) + b"\x01", b"\xff" * 8
    made, added = await add(filled, "empty", (trace(99), None), (trace(99), span_id), (trace(3), other))
    assert (made.entries, added) == (0, 0)
    made, added = await add(filled, "empty", (trace(3), other), (trace(3), span_id))
    assert (made.entries, added) == (1, 1)


async def test_a_set_is_full_at_its_bound(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "_ADD", sets._ADD.replace(f"limit {sets.MOST_ENTRIES}", "limit 3"))
    _, added = await add(filled, "small", *((trace(number), None) for number in range(10)))
    assert added == 3
    _, added = await add(filled, "small", (trace(9), None))
    assert added == 0


async def test_a_project_has_so_many_sets(filled: Database) -> None:
    for number in range(sets.MOST_SETS):
        await add(filled, f"set {number}")
    assert isinstance(await SetStore(filled).add(PROJECT, "late", [], "ada"), NoRoomForSets)
    await add(filled, "set 7", (trace(0), None))


async def test_retention_keeps_what_a_set_holds_until_it_is_taken_out(filled: Database) -> None:
    async def left() -> list[bytes]:
        await RetentionStore(filled, Terms(3, 0)).sweep(NOW, lambda _freed: None)
        traces = {row["trace_id"] for row in await fetch(filled, "select trace_id from trace")}
        assert traces == {row["trace_id"] for row in await fetch(filled, "select trace_id from span")}
        return sorted(traces)

    made, _ = await add(filled, "kept", (trace(2), None), (trace(4), bytes(7) + b"\x01"))
    assert await left() == [trace(2), trace(4)]
    await SetStore(filled).remove(PROJECT, made.id, [(trace(2), None)], "ada")
    assert await left() == [trace(4)]
    await SetStore(filled).forget(PROJECT, made.id, "ada")
    assert await left() == []
    assert await SetStore(filled).one(PROJECT, made.id) is None


async def test_sets_of_another_project_do_not_exist(filled: Database) -> None:
    made, _ = await add(filled, "mine", (trace(2), None))
    assert await SetStore(filled).one(PROJECT + 1, made.id) is None
    assert await SetStore(filled).entries(PROJECT + 1, made.id) == []
    assert await SetStore(filled).one(PROJECT, uuid4()) is None


async def test_what_people_change_in_a_set_is_audited_and_thumbs_in_it_are_not(filled: Database) -> None:
    store = SetStore(filled)
    made, _ = await add(filled, "odd", (trace(1), None), (trace(2), None))
    await add(filled, "odd", (trace(1), None))
    assert await store.annotate(PROJECT, made.id, (trace(1), None), "a secret thought", "bob")
    assert not await store.annotate(PROJECT, made.id, (trace(9), None), "nowhere", "bob")
    assert await store.remove(PROJECT, made.id, [(trace(2), None), (trace(7), None)], "bob") == 1
    await store.forget(PROJECT, made.id, "ada")
    audit = [row for row in await AuditStore(filled).page(project_id=PROJECT) if row.subject_kind == "set"]
    assert [(row.action, row.actor, row.details) for row in reversed(audit)] == [
        ("set.create", "ada", {"name": "odd"}),
        ("set.add", "ada", {"entries": 2}),
        ("set.note", "bob", {"entry": trace(1).hex(), "written": True}),
        ("set.remove", "bob", {"entries": 1}),
        ("set.delete", "ada", {"name": "odd"}),
    ]


async def test_a_note_stays_with_its_entry_until_it_is_written_anew(filled: Database) -> None:
    store = SetStore(filled)
    made, _ = await add(filled, "odd", (trace(1), None), (trace(1), bytes(7) + b"\x01"))
    for note in ("too long", "right length", None):
        await store.annotate(PROJECT, made.id, (trace(1), bytes(7) + b"\x01"), note, "ada")
        assert [entry.note for entry in await store.entries(PROJECT, made.id)] == [None, note]


async def test_each_reviewer_answers_for_themselves_and_for_exactly_the_entry(filled: Database) -> None:
    made, _ = await add(filled, "odd", (trace(1), None), (trace(2), bytes(7) + b"\x01"))
    said = (
        ("ada", trace(1), None, 1.0, "page", "helpful"),
        ("bob", trace(1), None, 0.0, "page", "helpful"),
        ("bob", trace(2), bytes(7) + b"\x01", 1.0, "page", "helpful"),
        # Of the trace around the span, of no entry, of a program, of another name.
        ("ada", trace(2), None, 1.0, "page", "helpful"),
        ("ada", trace(3), None, 1.0, "page", "helpful"),
        ("eve", trace(1), None, 1.0, "api", "helpful"),
        ("eve", trace(1), None, 1.0, "page", "tone"),
    )
    entries = [
        checked(source=source, name=name, trace_id=trace_id, span_id=span_id, number=number, author=author)
        for author, trace_id, span_id, number, source, name in said
    ]
    await FeedbackStore(filled).keep(PROJECT, entries, NOW)
    span_key = entry_key(trace(2), bytes(7) + b"\x01")
    assert await ReviewReads(filled).of_set(PROJECT, made.id) == [
        Review(trace(1).hex(), "ada", True),
        Review(trace(1).hex(), "bob", False),
        Review(span_key, "bob", True),
    ]
