"""Questions about spans by attributes that are not fields: they answer as a field would, and say how far."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from protocol.refusals import Refused
from svc.domain.queries.measures import MEASURES
from svc.store.postgres.database import Database
from svc.store.reads.questions import spans_by_payload
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.usage.compare import CompareStore
from svc.store.reads.usage.compared_sides import side_of
from tests.store.as_json import JsonQueries
from tests.store.reads.outages import through_outages
from tests.store.spans.test_writing import NOW, PROJECT, one, rows, store_of

#: The same value under a key that is a field and under one that is none.
FIELD, NO_FIELD = "environment", "attr.shop.stage"
LOW, HIGH = NOW - timedelta(hours=2), NOW + timedelta(hours=2)
STAGES = ("production", "staging", "test")


async def history(store: Database, number: int = 30) -> None:
    """Spans a minute apart in one of three stages; every fourth failed, every fifth is a model's."""
    for n in range(number):
        stage = STAGES[n % 3]
        said: dict[str, Any] = {"env": stage, "shop.stage": stage, "user.id": f"u{n % 4}"}
        if n % 5 == 0:
            said |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.usage.input_tokens": 1_000 * n,
                "gen_ai.usage.output_tokens": 10,
            }
        if n % 7 == 0:
            said.pop("env"), said.pop("shop.stage")
        await store_of(store).write(
            rows(
                one(
                    1,
                    name=f"step {n % 2}",
                    start=NOW - timedelta(minutes=n),
                    took_s=1 + n,
                    trace_id=(n + 1).to_bytes(16, "big"),
                    status_code=2 if n % 4 == 0 else 0,
                    attributes=said,
                )
            )
        )


def asked(key: str, value: str | None, *, measure: str = "count", **more: Any) -> Question:
    return ask(PROJECT, "spans", (LOW, HIGH), {key: value}, measure=measure, **more)


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "notes"}


@pytest.mark.parametrize("by", ["created_at", "started_at"])
async def test_what_only_payloads_tell_is_counted_as_a_field_would_be(store: Database, by: str) -> None:
    await history(store)
    queries = JsonQueries(store)

    async def answers(key: str, value: str | None, measure: str) -> list[dict[str, Any]]:
        question = asked(key, value, measure=measure, by=by)
        return [
            plain(await queries.count(question)),
            plain(await queries.facets(question, "name", 5)),
            plain(await queries.facets(question, "environment", 5)),
            plain(await queries.timeseries(question, "hour", group_by="kind")),
        ]

    for value in (*STAGES, "nowhere", None):
        for measure in MEASURES:
            by_field = await answers(FIELD, value, measure)
            assert await answers(NO_FIELD, value, measure) == by_field, (value, measure)


@pytest.mark.parametrize("by", ["created_at", "started_at"])
async def test_a_search_lists_what_only_payloads_tell_page_by_page(store: Database, by: str) -> None:
    await history(store)
    queries = JsonQueries(store)
    for value in (*STAGES, None):
        wanted = (await queries.search(asked(FIELD, value, by=by), None, None, 100, None))["rows"]
        assert len(wanted) > 3
        for limit in (1, 4, 100):
            listed: list[Any] = []
            cursor = None
            while True:
                page = await queries.search(asked(NO_FIELD, value, by=by), None, None, limit, cursor)
                assert len(page["rows"]) <= limit
                listed += page["rows"]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert listed == wanted


async def test_other_filters_and_texts_hold_beside_it(store: Database) -> None:
    await history(store)
    queries = JsonQueries(store)
    narrow = ask(PROJECT, "spans", (LOW, HIGH), {NO_FIELD: "staging", "status": "error", "name": "step 0"})
    same = ask(PROJECT, "spans", (LOW, HIGH), {FIELD: "staging", "status": "error", "name": "step 0"})
    assert plain(await queries.count(narrow)) == plain(await queries.count(same)) != {"count": 0}
    found = await queries.search(asked(NO_FIELD, "staging"), "step 1", None, 100, None)
    assert found["rows"] == (await queries.search(asked(FIELD, "staging"), "step 1", None, 100, None))["rows"]
    assert found["notes"] == ["attr.shop.stage is not a field: searched the payloads of 15 spans"]


async def test_an_answer_says_how_far_it_looked_and_a_search_goes_on_from_there(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store)
    queries = JsonQueries(store)
    (note,) = (await queries.count(asked(NO_FIELD, "staging")))["notes"]
    assert note == "attr.shop.stage is not a field: searched the payloads of 30 spans"
    monkeypatch.setattr(spans_by_payload, "MOST_SPANS", 10)
    answer = await queries.count(asked(NO_FIELD, "staging", by="started_at"))
    assert answer["count"] == 2
    assert answer["notes"] == [
        "attr.shop.stage is not a field: searched the payloads of 10 spans; what is before"
        " 2026-11-20T11:51:00.000000Z is not counted: a shorter range, or a field made of it on Settings,"
        " Attributes, counts all"
    ]
    cursor, numbers, notes = None, [], []
    while True:
        page = await queries.search(asked(NO_FIELD, "staging", by="started_at"), None, None, 100, cursor)
        numbers += [int(row["fields"]["trace_id"], 16) - 1 for row in page["rows"]]
        notes += page["notes"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert numbers == [n for n in range(30) if n % 3 == 1 and n % 7]
    assert notes[0].endswith(", back to 2026-11-20T11:51:00.000000Z; the next page goes on from there")
    assert notes[-1].endswith(" spans")


async def test_a_look_ends_when_its_time_is_up(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await history(store)
    monkeypatch.setattr(spans_by_payload, "MOST_S", -1.0)
    monkeypatch.setattr(spans_by_payload, "_MOST_ROWS", 5)
    answer = await JsonQueries(store).count(asked(NO_FIELD, "staging"))
    assert answer["count"] < 10
    assert "the payloads of 5 spans; what is before" in answer["notes"][0]


async def test_payloads_that_aged_out_say_nothing_not_even_that_there_is_none(store: Database) -> None:
    await history(store)
    await store.fetch("delete from span_payload")
    for value in ("staging", None):
        assert (await JsonQueries(store).count(asked(NO_FIELD, value)))["count"] == 0


async def test_a_count_whose_database_goes_away_midway_is_an_outage_and_not_a_smaller_count(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store)
    queries = JsonQueries(store)
    monkeypatch.setattr(spans_by_payload, "_MOST_ROWS", 10)
    wanted = await queries.count(asked(NO_FIELD, "staging"))
    answer, ended = await through_outages(
        store, monkeypatch, lambda: queries.count(asked(NO_FIELD, "staging"))
    )
    assert answer == wanted
    # Three batches of rows, each with frames and messages, beside the fields and the count.
    assert ended > 9


async def test_groups_and_other_datasets_know_fields_alone(store: Database) -> None:
    await history(store, 3)
    queries = JsonQueries(store)
    with pytest.raises(Refused, match="is not a field of this project"):
        await queries.facets(asked(NO_FIELD, "staging"), NO_FIELD, 5)
    with pytest.raises(Refused, match="is not a field of this project"):
        await queries.timeseries(asked(FIELD, "staging"), "hour", group_by=NO_FIELD)
    with pytest.raises(Refused, match=r"unknown field 'attr\.shop\.stage' for dataset 'tool_calls'"):
        ask(PROJECT, "tool_calls", (LOW, HIGH), {NO_FIELD: "x"})


async def test_a_project_is_never_counted_with_the_payloads_of_another(store: Database) -> None:
    await history(store, 6)
    other = ask(PROJECT + 1, "spans", (LOW, HIGH), {NO_FIELD: "staging"})
    assert (await JsonQueries(store).count(other))["count"] == 0


async def test_a_text_is_looked_for_in_all_that_spans_said(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store)
    queries = JsonQueries(store)
    # Nothing else of these spans says it.
    by_text, by_field = asked("payload", "TAGIN"), asked(FIELD, "staging")
    counted = await queries.count(by_text)
    assert counted == {**await queries.count(by_field), "notes": ["searched the payloads of 30 spans"]}
    of_errors = asked("payload", "staging", measure="error_rate", by="started_at")
    assert plain(await queries.count(of_errors)) == await queries.count(
        asked(FIELD, "staging", measure="error_rate", by="started_at")
    )
    found = await queries.search(by_text, None, None, 100, None)
    assert found["rows"] == (await queries.search(by_field, None, None, 100, None))["rows"]
    monkeypatch.setattr(spans_by_payload, "MOST_SPANS", 10)
    (note,) = (await queries.count(by_text))["notes"]
    assert note.startswith("searched the payloads of 10 spans; what is before")
    assert note.endswith(" is not counted: a shorter range counts all")


async def test_a_text_to_look_for_is_no_field_and_is_not_blank(store: Database) -> None:
    await history(store, 1)
    for blank in (None, "", "  "):
        with pytest.raises(Refused, match="'payload' takes the text to search for"):
            asked("payload", blank)
    with pytest.raises(Refused, match="'payload'"):
        await JsonQueries(store).facets(asked(FIELD, "staging"), "payload", 10)
    side = side_of(LOW, HIGH, {"payload": "staging"}, None, None)
    with pytest.raises(Refused, match="only lists and counts can be filtered by 'payload'"):
        await CompareStore(store).compare(PROJECT, side, side)
