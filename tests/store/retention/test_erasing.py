"""Erasure: nothing of somebody is left in any table, nothing of anybody else goes, and nothing comes back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import attrs
import msgspec
import pytest
import trio_asyncio

from protocol.detection import Ref
from protocol.storage import Erasable, Letter
from svc.domain.feedback.entries import Feedback
from svc.store.accounts.audit import AuditStore
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.feedback.sets import SetStore
from svc.store.feedback.writing import write_feedback
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.tombstones import hold
from svc.store.reads.questions.questions import ask
from svc.store.retention import erased_words, erasing
from svc.store.retention.erasing import Erasing
from svc.store.retention.erasures import TOMBSTONE_TERM, ErasureStore
from svc.store.spans.dead_letters import DeadLetterStore
from svc.store.spans.traces import PostgresTraceStore
from svc.store.spans.writing import SpanStore
from tests.store.as_json import JsonQueries
from tests.store.detection.counting.test_tallying import tally_all
from tests.store.detection.detecting import fire, opened, seen
from tests.store.reads.test_hour_slices import write_slices_from
from tests.store.retention.scanned import where_stands
from tests.store.spans.test_writing import (
    NOW,
    PROJECT,
    Clock,
    fetch,
    on_server,
    one,
    payloads,
    rows,
    store_of,
)
from tests.wire import request

#: What the person said, in each place where something can be said.
MARKER = "zanzibarquux"
USER, SESSION = f"user-{MARKER}", f"session-{MARKER}"
#: What both say, so that it is a shared message.
SHARED = "You are a helpful assistant of the parcel desk. " * 12
BEGAN = NOW - timedelta(hours=5)


def trace_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def said(user: str, session: str, words: str, turn: int) -> dict[str, Any]:
    history = [{"role": "system", "content": SHARED}]
    history += [
        {"role": "user", "content": f"{words} asked {n} " + "at length " * 40} for n in range(turn + 1)
    ]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.input.messages": msgspec.json.encode(history).decode(),
        "session.id": session,
        "user.id": user,
        "deployment.environment": f"of {words}",
    }


def entry(entry_id: str, **fields: Any) -> Feedback:
    blank = dict.fromkeys(attribute.name for attribute in attrs.fields(Feedback))
    return Feedback(**{**blank, "source": "api", "id": entry_id, "name": "helpful", **fields})


async def write(
    spans: SpanStore, numbers: range, user: str, session: str, words: str, *, at: datetime
) -> None:
    """Traces of a chat and a failing tool; each repeats what was said in those before."""
    for number in numbers:
        turn = number - numbers.start
        chat = one(1, start=at, trace_id=trace_id(number), attributes=said(user, session, words, turn))
        call = one(
            2,
            start=at,
            parent=1,
            trace_id=trace_id(number),
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "search",
                "error.type": "NotFound",
                "exception.message": f"nobody is called {words}",
            },
            status_code=2,
            status_message=f"nobody is called {words}",
        )
        await spans.write(rows(chat, call, came=at, resource={"service.name": "shop"}))


async def settle(store: Database) -> None:
    for _ in range(3):
        await PostgresTraceStore(store).settle(NOW + timedelta(hours=1), 10_000)


async def build(store: Database) -> None:
    cubes = CubeStore(store)
    while (await cubes.build(NOW, 500)).more:
        pass


@pytest.fixture
async def spans(store: Database) -> SpanStore:
    clock = Clock()
    clock.now = BEGAN
    return store_of(store, clock)


@pytest.fixture
async def filled(store: Database, spans: SpanStore) -> Database:
    """Four traces of the person in two sessions, three of somebody else, all that is kept of them."""
    await ProjectStore(store).make_default()
    await write(spans, range(0, 3), USER, SESSION, MARKER, at=BEGAN)
    await write(spans, range(3, 4), USER, f"{SESSION}-2", MARKER, at=BEGAN)
    await write(spans, range(10, 13), "somebody", "theirs", "elsewhere", at=BEGAN)
    await settle(store)
    await tally_all(store)
    await build(store)
    return store


async def around(store: Database) -> None:
    """What others keep of the first trace of the person: a case, feedback, a set, dead letters."""
    refs = [
        Ref("member", trace_id=trace_id(0)),
        Ref("member", session_id=SESSION),
        Ref("member", trace_id=trace_id(10)),
    ]
    case = await opened(store, seen(1), refs)
    finding_id: UUID = (await fetch(store, "select finding_id from case_finding"))[0]["finding_id"]
    await fetch(
        store,
        "update finding set triage_summary = $2, triage_citations = $3::text::jsonb where id = $1",
        *(finding_id, f"says {MARKER}", f'["{MARKER}"]'),
    )
    report = msgspec.json.encode({"quote": f"says {MARKER}", "trace": trace_id(0).hex()}).decode()
    run = uuid4()
    for case_id in (case.id, uuid4()):
        await fetch(
            store,
            "insert into rca_report (project_id, case_id, status, report, started_at, engine)"
            " values ($1, $2, 'done', $3::text::jsonb, now(), 'agent')",
            *(PROJECT, case_id, report),
        )
    await fetch(
        store,
        "insert into agent_run (project_id, id, kind, subject_id, state, requested_by, requested_at, due_at,"
        " finished_at, outcome, request) values ($1, $2, 'rca', $3, 'done', 'ann', now(), now(), now(), $4,"
        " to_jsonb($4::text))",
        *(PROJECT, run, case.id, f"says {MARKER}"),
    )
    for number, of_run in enumerate((run, uuid4())):
        details = msgspec.json.encode({"text": f"{MARKER} {trace_id(0).hex()}"}).decode()
        await fetch(
            store,
            "insert into agent_event (project_id, run_id, claim, seq, at, kind, details)"
            " values ($1, $2, 1, $3, now(), 'tool', $4::text::jsonb)",
            *(PROJECT, of_run, number, details),
        )
    await fetch(
        store,
        "insert into saved_view (project_id, name, query, saved_by) values ($1, 'mine', $2, 'ann')",
        *(PROJECT, f"user:{USER}"),
    )
    await SetStore(store).add(PROJECT, "odd", [(trace_id(0), None), (trace_id(10), None)], "ann")
    entries = [
        entry("a", trace_id=trace_id(0), text=f"{MARKER} liked it"),
        entry("b", session_id=SESSION, text=f"{MARKER} liked all"),
        entry("c", trace_id=trace_id(10), text="fine", author=USER),
        entry("d", trace_id=trace_id(10), text="fine as well"),
    ]
    await store.run(lambda connection: write_feedback(connection, PROJECT, entries, NOW))
    mixed = request(
        one(7, trace_id=trace_id(0), attributes={"a": MARKER}),
        one(8, trace_id=trace_id(40), attributes={"user.id": USER}, start=BEGAN),
        one(9, trace_id=trace_id(10), attributes={"a": "of somebody else"}),
    ).SerializeToString()
    await DeadLetterStore(store).bury(
        [
            Letter(PROJECT, "refused", mixed, NOW, 3),
            Letter(PROJECT, "refused", b"\xff\xff no span, says " + USER.encode(), NOW, 1),
            Letter(PROJECT, "refused", b"\xff\xff no span", NOW, 1),
        ]
    )


async def erase(store: Database, kind: Erasable, subject: str, project: int = PROJECT) -> dict[str, int]:
    asked = await ErasureStore(store).ask(project, kind, subject, actor="ann", now=NOW)
    assert asked is not None
    return await work_off(store, project)


async def work_off(store: Database, project: int = PROJECT) -> dict[str, int]:
    counts: dict[str, int] = {}
    steps = Erasing(store, on_server(lambda: NOW + timedelta(minutes=1)))
    while (made := await steps.step(project)) is not None:
        counts = dict(made.counts)
    return counts


async def test_of_an_erased_user_nothing_is_left_in_any_table(filled: Database) -> None:
    await around(filled)
    places = await where_stands(filled, MARKER)
    for table in ("span", "span_payload", "span_message", "trace", "session", "attribute_value", "feedback"):
        assert any(place.startswith(f"{table}") for place in places), table
    theirs = [trace_id(number) for number in range(4)]
    for table in ("tally_witness", "trace_fold"):
        assert await fetch(filled, f"select from {table} where trace_id = any($1::bytea[])", theirs), table
    counts = await erase(filled, "user", USER)
    assert await where_stands(filled, MARKER) == []
    for table in ("tally_witness", "trace_fold", "span", "span_payload", "tool_call", "trace"):
        assert not await fetch(filled, f"select from {table} where trace_id = any($1::bytea[])", theirs), (
            table
        )
    assert (counts["traces"], counts["spans"], counts["tool_calls"]) == (4, 8, 4)
    assert counts["messages"] > 0
    assert (counts["values"], counts["letter_spans"]) == (1, 3)


@pytest.mark.parametrize("with_spans", [True, False])
async def test_of_an_erased_session_nothing_is_left_in_the_hour_under_way(
    filled: Database, monkeypatch: pytest.MonkeyPatch, with_spans: bool
) -> None:
    write_slices_from(monkeypatch, 1)
    await write(store_of(filled, Clock(NOW)), range(20, 23), USER, "new", MARKER, at=BEGAN)
    if not with_spans:
        # As retention leaves a trace whose days are gone.
        await fetch(filled, "delete from span where trace_id = any($1)", [trace_id(n) for n in range(20, 23)])
    await CubeStore(filled).build(NOW + timedelta(minutes=59), 100)
    grouped = "select from trace_group where 'new' = any(sessions)"
    coded = "select from trace_code where 'new' = any(texts)"
    assert await fetch(filled, grouped)
    assert await fetch(filled, coded)
    await erase(filled, "session", "new")
    assert not await fetch(filled, grouped)
    assert not await fetch(filled, coded)


async def test_what_somebody_else_said_stays_readable(filled: Database) -> None:
    await around(filled)
    before = {key: span.raw for key, span in (await payloads(filled)).items() if key[0] >= trace_id(10)}
    await erase(filled, "user", USER)
    after = {key: span.raw for key, span in (await payloads(filled)).items()}
    assert len(before) == 6
    assert after == before
    (letter, unreadable) = await fetch(filled, "select spans, body from dead_letter order by id")
    assert letter["spans"] == 1
    assert b"of somebody else" in letter["body"]
    assert unreadable["body"] == b"\xff\xff no span"
    assert [row["text"] for row in await fetch(filled, "select text from feedback")] == ["fine as well"]
    assert len(await fetch(filled, "select from trace_set_entry")) == 1
    values = {row["value"] for row in await fetch(filled, "select value from attribute_value")}
    assert values >= {"of elsewhere", "shop"}


async def test_a_finding_keeps_its_numbers_and_the_evidence_of_others(filled: Database) -> None:
    await around(filled)
    await erase(filled, "user", USER)
    (finding,) = await fetch(filled, "select * from finding")
    assert (finding["trace_count"], finding["triage_summary"], finding["title"]) == (3, "[erased]", "cause 1")
    evidence = await fetch(filled, "select trace_id from finding_evidence")
    assert [row["trace_id"] for row in evidence] == [trace_id(10)]
    (case,) = await fetch(filled, "select rca_report_id, rule_report_due from detection_case")
    assert (case["rca_report_id"], case["rule_report_due"]) == (None, True)
    assert len(await fetch(filled, "select from agent_run")) == 1


async def test_counts_come_down_at_once_and_when_the_cubes_have_followed(filled: Database) -> None:
    await erase(filled, "user", USER)
    for _ in range(2):
        count = await JsonQueries(filled).count(ask(PROJECT, "spans", (None, None), {}))
        assert count["count"] == 6
        await build(filled)


async def test_a_late_span_of_an_erased_trace_does_not_bring_it_back(
    filled: Database, spans: SpanStore
) -> None:
    await erase(filled, "trace", trace_id(0).hex())
    late = one(3, trace_id=trace_id(0), parent=1, attributes={"a": MARKER}, start=NOW)
    await spans.write(rows(late, one(1, trace_id=trace_id(20)), came=NOW))
    assert await fetch(filled, "select from span where trace_id = $1", trace_id(0)) == []
    assert len(await fetch(filled, "select from span where trace_id = $1", trace_id(20))) == 1
    # The others of the session are there.
    assert len(await fetch(filled, "select from trace where session_id = $1", SESSION)) == 2


async def test_what_an_erased_user_did_before_is_refused_and_what_they_do_later_is_stored(
    filled: Database, spans: SpanStore
) -> None:
    await erase(filled, "user", USER)
    await write(spans, range(20, 21), USER, "new", MARKER, at=NOW - timedelta(minutes=1))
    await write(spans, range(21, 22), USER, "new", MARKER, at=NOW + timedelta(minutes=1))
    there = await fetch(filled, "select trace_id from trace where user_id = $1", USER)
    assert [row["trace_id"] for row in there] == [trace_id(21)]


async def test_late_feedback_and_letters_are_cleaned_as_they_come(filled: Database) -> None:
    await erase(filled, "user", USER)
    entries = [
        entry("x", trace_id=trace_id(0), text=MARKER),
        entry("y", trace_id=trace_id(10), text="fine"),
    ]
    await filled.run(lambda connection: write_feedback(connection, PROJECT, entries, NOW))
    body = request(
        one(7, trace_id=trace_id(0), attributes={"a": MARKER}), one(9, trace_id=trace_id(10))
    ).SerializeToString()
    only = request(one(7, trace_id=trace_id(0), attributes={"a": MARKER})).SerializeToString()
    await DeadLetterStore(filled).bury(
        [Letter(PROJECT, "late", body, NOW, 2), Letter(PROJECT, "late", only, NOW, 1)]
    )
    assert await where_stands(filled, MARKER) == []
    assert [row["spans"] for row in await fetch(filled, "select spans from dead_letter")] == [1]
    assert [row["id"] for row in await fetch(filled, "select id from feedback")] == ["y"]


async def test_a_session_goes_alone(filled: Database) -> None:
    counts = await erase(filled, "session", SESSION)
    assert counts["traces"] == 3
    left = await fetch(filled, "select id from session order by id")
    assert [row["id"] for row in left] == [f"{SESSION}-2", "theirs"]


async def test_two_projects_never_touch_each_other(filled: Database, spans: SpanStore) -> None:
    other = await ProjectStore(filled).create(
        (await ProjectStore(filled).the_org()).id, "other", "Other", actor="tests"
    )
    assert other is not None
    chat = one(1, start=BEGAN, trace_id=trace_id(0), attributes=said(USER, SESSION, MARKER, 2))
    await spans.write(rows(chat, came=BEGAN, project=other.id))
    await erase(filled, "user", USER)
    assert len(await fetch(filled, "select from span where project_id = $1", other.id)) == 1
    await spans.write(rows(one(2, trace_id=trace_id(0)), came=BEGAN, project=other.id))
    assert len(await fetch(filled, "select from span where project_id = $1", other.id)) == 2
    messages = await fetch(filled, "select from span_message where project_id = $1", other.id)
    await erase(filled, "user", USER, other.id)
    assert await where_stands(filled, MARKER) == []
    assert messages is not None


async def test_a_message_that_is_erased_is_stored_anew_by_a_process_that_remembers_it(
    filled: Database, spans: SpanStore
) -> None:
    """The writer's memory says that it is stored; after the erasure it is not."""
    await erase(filled, "user", USER)
    await write(spans, range(30, 33), "another", "new", MARKER, at=NOW + timedelta(minutes=2))
    read = await payloads(filled)
    assert len([key for key in read if key[0] >= trace_id(30)]) == 6
    values = await fetch(filled, "select from attribute_value where value = $1", f"of {MARKER}")
    assert len(values) == 1


async def test_who_says_a_message_while_it_is_being_erased_keeps_it(
    filled: Database, spans: SpanStore
) -> None:
    asked = await ErasureStore(filled).ask(PROJECT, "user", USER, actor="ann", now=NOW)
    assert asked is not None
    steps = Erasing(filled, on_server(lambda: NOW + timedelta(minutes=1)))
    while True:
        made = await steps.step(PROJECT)
        assert made is not None
        if made.phase == "messages":
            break
    await write(spans, range(30, 33), "another", "new", MARKER, at=NOW + timedelta(minutes=2))
    await work_off(filled)
    read = await payloads(filled)
    assert len([key for key in read if key[0] >= trace_id(30)]) == 6


async def test_portions_and_kills_come_to_the_same(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step by a process of its own, and none of them twice as large as its bound."""
    await around(filled)
    for module, name in (
        (erasing, "LOOKED_AT"),
        (erasing, "DELETED"),
        (erased_words, "FRAMES"),
        (erased_words, "MESSAGES"),
        (erased_words, "VALUES"),
    ):
        monkeypatch.setattr(module, name, 1)
    await ErasureStore(filled).ask(PROJECT, "user", USER, actor="ann", now=NOW)
    made = 0
    while await Erasing(filled, on_server(lambda: NOW + timedelta(minutes=1))).step(PROJECT) is not None:
        made += 1
    assert made > 20
    assert await where_stands(filled, MARKER) == []
    assert len(await fetch(filled, "select from trace")) == 3


async def test_the_audit_says_that_and_by_whom_and_never_what(filled: Database) -> None:
    await erase(filled, "user", USER)
    (row,) = [row for row in await AuditStore(filled).page(project_id=PROJECT) if row.action == "data.erase"]
    assert (row.actor, row.subject_kind) == ("ann", "user")
    assert USER not in repr(row)
    (earlier,) = await ErasureStore(filled).earlier(PROJECT, "user", USER)
    assert (earlier.digest.hex(), earlier.subject) == (row.subject_id, None)
    assert await ErasureStore(filled).earlier(PROJECT, "user", "somebody") == []


async def test_tombstones_go_after_their_term(filled: Database, spans: SpanStore) -> None:
    await erase(filled, "trace", trace_id(0).hex())
    store = ErasureStore(filled)
    await store.drop_expired(NOW + TOMBSTONE_TERM - timedelta(hours=1))
    assert len(await fetch(filled, "select from erased_trace")) == 1
    await store.drop_expired(NOW + TOMBSTONE_TERM + timedelta(hours=1))
    assert await fetch(filled, "select from erased_trace") == []


async def test_one_asked_for_twice_is_one(filled: Database) -> None:
    store = ErasureStore(filled)
    first = await store.ask(PROJECT, "user", USER, actor="ann", now=NOW)
    second = await store.ask(PROJECT, "user", USER, actor="bob", now=NOW)
    assert first is not None
    assert second is not None
    assert first.id == second.id


async def test_what_an_open_finding_cites_is_no_reason_to_stay(filled: Database) -> None:
    await fire(filled, seen("search"), [Ref("member", trace_id=trace_id(0))])
    await erase(filled, "trace", trace_id(0).hex())
    assert await fetch(filled, "select from trace where trace_id = $1", trace_id(0)) == []


async def test_a_step_that_writers_do_not_let_in_is_made_again(filled: Database) -> None:
    await ErasureStore(filled).ask(PROJECT, "trace", trace_id(0).hex(), actor="ann", now=NOW)
    steps = Erasing(filled, on_server(lambda: NOW + timedelta(minutes=1)))
    assert (await steps.step(PROJECT)).phase == "telling"  # type: ignore[union-attr]

    async def refused(connection: Connection) -> None:
        await hold(connection, [PROJECT])
        # The connection of the writer is held here while another one asks.
        made = await trio_asyncio.trio_as_aio(steps.step)(PROJECT)
        assert made is not None
        assert made.phase == "telling"

    await filled.run(refused)
    await work_off(filled)
    assert await fetch(filled, "select from trace where trace_id = $1", trace_id(0)) == []
