"""What the page of a trace reads: the columns, the numbers, the payloads, the kin; and the plans of each."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from svc.store.postgres.database import Connection, Database
from svc.store.reads.one_trace import trace_numbers
from svc.store.reads.one_trace.skeleton import FAILED, ORPHAN, REPEATS, SkeletonReads, TraceHead, TraceRange
from svc.store.reads.one_trace.trace_graph import TraceGraphReads
from svc.store.reads.one_trace.trace_kin import TraceKin
from svc.store.reads.one_trace.trace_numbers import TraceNumbers
from svc.store.reads.one_trace.trace_payloads import TooLargeToExport, TracePayloads
from svc.store.reads.traces import spans
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.reads.usage.session_talk import SessionTalk
from svc.store.reads.usage.users import UserReads
from svc.store.spans.traces import PostgresTraceStore
from tests.store.reads.test_reads import DAY, SOME_TRACE, Explaining
from tests.store.reads.test_reads import many as many
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, TRACE, Clock, one, rows, store_of


def chat(tokens: int = 100, said: str = "hello", **more: Any) -> dict[str, Any]:
    """The attributes of a model call."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": said}]}]),
        **more,
    }


async def settled(store: Database, *spans: Any, clock: Clock | None = None) -> None:
    """Write spans and let every trace settle."""
    clock = clock or Clock()
    await store_of(store, clock).write(rows(*spans))
    await settle_at(clock.now + timedelta(seconds=11), PostgresTraceStore(store))


async def head_of(store: Database, trace_id: bytes = TRACE) -> TraceHead:
    head = await SkeletonReads(store).head(PROJECT, trace_id)
    assert head is not None
    return head


async def drawn(store: Database, within: TraceRange | None = None, most: int = 100) -> dict[str, Any]:
    reads, head = SkeletonReads(store), await head_of(store)
    document: dict[str, Any] = msgspec.json.decode(
        await reads.document(PROJECT, TRACE, head, within or TraceRange(), most)
    )
    return document


def ids(document: dict[str, Any]) -> list[int]:
    return [int(part, 16) for part in re.findall("." * 16, document["id"])]


async def test_columns_say_of_each_span_what_its_row_says(store: Database) -> None:
    await settled(
        store,
        one(1, name="agent", took_s=5.0),
        one(2, parent=1, name="chat", start=NOW + timedelta(seconds=1), attributes=chat()),
        one(3, parent=1, name="tool", start=NOW + timedelta(seconds=2), status_code=2, status_message="no"),
        one(4, parent=77, name="lost", start=NOW + timedelta(seconds=3), took_s=0.0),
        one(5, parent=3, name="chat", start=NOW + timedelta(seconds=3), attributes=chat(7)),
    )
    document = await drawn(store)
    assert {name: document[name] for name in ("v", "n", "total", "settled")} == {
        "v": 1, "n": 5, "total": 5, "settled": True
    }  # fmt: skip
    assert document["t0"] == int(NOW.timestamp() * 1e6)
    assert ids(document) == [1, 2, 3, 4, 5]
    assert document["parent"] == [0, 1, 2, 0, 2]
    assert [document["names"][n] for n in document["name"]] == ["agent", "chat", "tool", "lost", "chat"]
    assert [document["kinds"][k] for k in document["kind"]] == ["step", "llm", "step", "step", "llm"]
    assert [document["models"][m - 1] if m else None for m in document["model"]] == [
        None, "gpt-4o", None, None, "gpt-4o"
    ]  # fmt: skip
    assert document["dstart"] == [0, 1_000_000, 1_000_000, 1_000_000, 0]
    assert document["dur"] == [5_000_000, 1_000_000, 1_000_000, 0, 1_000_000]
    assert document["tokens"] == [0, 110, 0, 0, 17]
    assert document["cost"] == [0, 350_000, 0, 0, 117_500]
    assert document["flags"] == [0, 0, FAILED, ORPHAN, 0]
    assert document["err"] == [[2, "no"]]
    assert all(len(document[name]) == 5 for name in ("parent", "kind", "name", "model", "dur", "cost"))


async def test_a_child_that_began_before_its_parent_points_forward(store: Database) -> None:
    await settled(store, one(1, start=NOW + timedelta(seconds=1)), one(2, parent=1), one(3, parent=3))
    document = await drawn(store)
    assert ids(document) == [2, 3, 1]
    assert document["parent"] == [-2, 0, 0]


async def test_usage_that_repeats_stands_in_no_column(store: Database) -> None:
    usage = {"gen_ai.usage.input_tokens": 100, "gen_ai.request.model": "gpt-4o"}
    agent = {"gen_ai.operation.name": "invoke_agent", **usage}
    await settled(store, one(1, attributes=agent), one(2, parent=1, attributes=chat()))
    document = await drawn(store)
    assert document["tokens"][0] == document["cost"][0] == 0
    assert document["flags"] == [REPEATS, 0]


async def test_a_model_without_a_price_costs_minus_one(store: Database) -> None:
    await settled(store, one(1, attributes=chat() | {"gen_ai.request.model": "of-our-own"}))
    assert (await drawn(store))["cost"] == [-1]


async def test_more_spans_than_a_document_holds_are_counted(store: Database) -> None:
    await settled(store, *(one(n, start=NOW + timedelta(seconds=n), took_s=0.5) for n in range(1, 21)))
    document = await drawn(store, most=5)
    assert (document["n"], document["total"]) == (5, 20)
    assert ids(document) == [1, 2, 3, 4, 5]
    part = TraceRange(NOW + timedelta(seconds=10.2), NOW + timedelta(seconds=12))
    document = await drawn(store, part)
    assert (document["n"], document["total"]) == (3, 20)
    assert ids(document) == [10, 11, 12]


async def test_long_names_and_hostile_ones_stay_one_document(store: Database) -> None:
    names = ["x" * 10_000, '"],"n":9', "\u202eevil\u2028", "<script>alert(1)</script>", "a\\b\tc\n"]
    await settled(store, *(one(n, name=name) for n, name in enumerate(names, 1)))
    document = await drawn(store)
    assert [document["names"][n] for n in document["name"]] == ["x" * 120, *names[1:]]


async def test_the_version_of_a_trace_changes_with_whatever_arrives(store: Database) -> None:
    clock = Clock()
    await settled(store, one(1), clock=clock)
    first = await head_of(store)
    assert (first.settled, first.root_seen, first.payload_available) == (True, True, True)
    assert (await head_of(store)).version == first.version
    await store_of(store, clock).write(rows(one(2, parent=1)))
    second = await head_of(store)
    assert (second.settled, second.version == first.version) == (False, False)
    assert await SkeletonReads(store).head(PROJECT, b"x" * 16) is None
    assert await SkeletonReads(store).head(2, TRACE) is None


async def test_previews_are_told_by_id(store: Database) -> None:
    await settled(store, one(1, attributes=chat(said="where is it?")), one(2))
    asked = [n.to_bytes(8, "big") for n in (1, 2, 3)]
    found = await SkeletonReads(store).previews(PROJECT, TRACE, await head_of(store), asked)
    assert found == {f"{1:016x}": ("where is it?", None), f"{2:016x}": (None, None)}


async def test_the_parts_of_a_number_add_up_to_it(store: Database) -> None:
    usage = {"gen_ai.usage.input_tokens": 200, "gen_ai.request.model": "gpt-4o"}
    await settled(
        store,
        one(1, attributes={"gen_ai.operation.name": "invoke_agent", **usage}),
        one(2, parent=1, attributes=chat()),
        one(3, parent=1, attributes=chat()),
        one(4, parent=1, attributes=chat() | {"gen_ai.request.model": "of-our-own"}),
        one(5, parent=1, name="tool", status_code=2, status_message="refused"),
        one(6, parent=1, name="tool", status_code=2, status_message="refused"),
    )
    head, numbers = await head_of(store), TraceNumbers(store)
    groups = await numbers.usage(PROJECT, TRACE, head)
    counted = [group for group in groups if group.usage_repeats is None]
    assert [(group.model, group.spans, group.cost_source) for group in counted] == [
        ("gpt-4o", 2, "inferred"),
        ("of-our-own", 1, "unpriced"),
    ]
    assert all(group.price_book for group in counted)
    tokens = sum(group.sums["input_tokens"] + group.sums["output_tokens"] for group in counted)
    assert tokens == head.fields["total_tokens"] == 330
    assert float(counted[0].sums["total_cost"]) == head.fields["total_cost"]
    (left_out,) = [group for group in groups if group.usage_repeats is not None]
    assert (left_out.usage_repeats, left_out.spans) == ("descendant", 1)
    (failed,) = await numbers.failures(PROJECT, TRACE, head)
    assert (failed.name, failed.error, failed.spans, failed.first[-1]) == ("tool", "refused", 2, 5)
    kinds = {group.kind: group for group in await numbers.kinds(PROJECT, TRACE, head)}
    assert (kinds["llm"].spans, kinds["step"].failed, kinds["llm"].total_ms) == (3, 2, 3000.0)
    assert await numbers.models(PROJECT, TRACE, head) == ["gpt-4o", "of-our-own"]


async def test_the_oldest_spans_of_a_large_trace_are_those_of_any(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those that began at once in the order of their ids, and more of them than are shown.
    starts = {number: NOW + timedelta(seconds=number * 7 % 50) for number in range(1, 230)}
    await settled(store, *(one(number, start=start) for number, start in starts.items()))
    reads = TraceReads(store, SpanReads(store))
    small = await reads.one(PROJECT, TRACE, payload=True)
    monkeypatch.setattr(spans, "LARGE_SPANS", 0)
    assert await reads.one(PROJECT, TRACE, payload=True) == small
    assert small is not None
    in_order = sorted(starts, key=lambda number: (starts[number], number))
    assert [int(span["span_id"], 16) for span in small["spans"]] == in_order[:200]


async def test_models_of_a_large_trace_are_those_of_some_of_its_spans(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = chat() | {"gen_ai.request.model": "rare"}
    await settled(store, one(1, attributes=chat()), one(2), one(3, attributes=rare))
    numbers, head = TraceNumbers(store), await head_of(store)
    assert await numbers.models(PROJECT, TRACE, head) == ["gpt-4o", "rare"]
    monkeypatch.setattr(trace_numbers, "COUNTED_SPANS", 2)
    assert await numbers.models(PROJECT, TRACE, head) == ["gpt-4o"]


async def test_a_conversation_comes_page_by_page_with_the_call_before(store: Database) -> None:
    await settled(
        store,
        one(1, name="workflow"),
        *(
            one(n, parent=1, start=NOW + timedelta(seconds=n), attributes=chat(said=f"turn {n}"))
            for n in range(2, 8)
        ),
    )
    reads, head = TracePayloads(store), await head_of(store)
    page = await reads.conversation(PROJECT, TRACE, head, first=0, count=4)
    assert [span["input"][0]["parts"][0]["text"] for span in page.spans] == [
        f"turn {n}" for n in (2, 3, 4, 5)
    ]
    assert (page.before, page.more) == (None, True)
    page = await reads.conversation(PROJECT, TRACE, head, first=4, count=4)
    assert [span["input_preview"] for span in page.spans] == ["turn 6", "turn 7"]
    assert page.before is not None
    assert (page.before["input_preview"], page.more) == ("turn 5", False)


async def test_find_looks_into_what_was_said_in_full(store: Database) -> None:
    long = "x" * 5_000 + " Needle " + "y" * 5_000
    await settled(
        store,
        one(1, name="needle work"),
        one(2, parent=1, attributes=chat(said=long)),
        one(3, parent=1, attributes=chat()),
        one(4, parent=1, status_code=2, status_message="no NEEDLE"),
    )
    reads, head = TracePayloads(store), await head_of(store)
    found = await reads.find(PROJECT, TRACE, head, "needle")
    assert sorted(span[-1] for span in found.span_ids) == [1, 2, 4]
    assert (found.more, found.unread) == (False, 0)
    assert (await reads.find(PROJECT, TRACE, head, "100%")).span_ids == []


async def test_an_export_gives_every_span_as_it_came(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settled(store, one(1), one(2, parent=1, attributes=chat()))
    reads, head = TracePayloads(store), await head_of(store)
    found = await reads.export(PROJECT, TRACE, head)
    assert not isinstance(found, TooLargeToExport)
    assert (len(found.envelopes()), len(list(found.spans()))) == (2, 2)
    monkeypatch.setattr("svc.store.reads.one_trace.trace_payloads.EXPORT_BYTES", 100)
    assert isinstance(await reads.export(PROJECT, TRACE, head), TooLargeToExport)
    await store.fetch("delete from span_payload")
    found = await reads.export(PROJECT, TRACE, await head_of(store))
    assert not isinstance(found, TooLargeToExport)
    assert (len(found.envelopes()), len(list(found.spans()))) == (0, 2)
    assert not (await head_of(store)).payload_available


def story(number: int, took_s: float, **more: Any) -> Any:
    return one(
        1, trace_id=number.to_bytes(16, "big"), start=NOW + timedelta(minutes=number), took_s=took_s, **more
    )


async def test_the_twin_is_healthy_and_takes_the_usual_time(store: Database) -> None:
    site = {"svc.call_site.id": "shop"}
    common: dict[str, Any] = {"name": "answer", "attributes": site}
    await settled(
        store,
        story(1, 9.0, status_code=2, **common),
        story(2, 1.0, **common),
        story(3, 2.0, **common),
        story(4, 30.0, **common),
        story(5, 2.0, name="another", attributes=site),
        story(6, 2.0, name="answer", attributes={"svc.call_site.id": "else"}),
        story(7, 2.0, status_code=2, **common),
    )
    failed = (1).to_bytes(16, "big")
    twin = await TraceKin(store).twin(PROJECT, failed, await head_of(store, failed))
    assert twin is not None
    assert (int.from_bytes(twin.trace_id, "big"), twin.of, twin.median_ms) == (3, 3, 2000.0)
    alone = (5).to_bytes(16, "big")
    assert await TraceKin(store).twin(PROJECT, alone, await head_of(store, alone)) is None


async def test_a_twin_is_found_in_a_history_that_came_long_after(store: Database) -> None:
    site: dict[str, Any] = {"name": "answer", "attributes": {"svc.call_site.id": "shop"}}
    past = -timedelta(days=40) // timedelta(minutes=1)
    failed = 40_000
    traces = [(failed, past, 2), (2, past + 5, 0), (3, past - 6 * 24 * 60, 0), (4, 0, 0)]
    await settled(
        store,
        *(
            one(
                1, trace_id=n.to_bytes(16, "big"), start=NOW + timedelta(minutes=at), status_code=code, **site
            )
            for n, at, code in traces
        ),
    )
    trace_id = failed.to_bytes(16, "big")
    twin = await TraceKin(store).twin(PROJECT, trace_id, await head_of(store, trace_id))
    assert twin is not None
    assert (int.from_bytes(twin.trace_id, "big"), twin.of) == (2, 1)


async def test_neighbours_are_those_of_the_list_one_came_from(store: Database) -> None:
    await settled(store, *(story(n, 1.0, status_code=2 if n % 2 else 0) for n in range(1, 8)))
    kin, here = TraceKin(store), (3).to_bytes(16, "big")
    head = await head_of(store, here)

    async def beside(**asked: Any) -> tuple[int | None, int | None]:
        found = await kin.neighbours(PROJECT, head, TraceFilter(**asked))
        return tuple(None if one is None else int(one, 16) for one in (found.newer, found.older))  # type: ignore[return-value]

    assert await beside() == (4, 2)
    assert await beside(status="error") == (5, 1)
    assert await beside(status="error", high=NOW + timedelta(minutes=4)) == (None, 1)


# --- plans ------------------------------------------------------------------------------------------------


def questions(explaining: Any, head: TraceHead | None) -> dict[str, Any]:
    bounds: Any = head
    skeleton, numbers = SkeletonReads(explaining), TraceNumbers(explaining)
    payloads, kin = TracePayloads(explaining), TraceKin(explaining)
    here = (1, SOME_TRACE, bounds)
    return {
        "head": lambda: skeleton.head(1, SOME_TRACE),
        "document": lambda: skeleton.document(*here, TraceRange()),
        "document of a range": lambda: skeleton.document(*here, TraceRange(DAY, DAY + timedelta(days=1))),
        "previews": lambda: skeleton.previews(*here, [(20000).to_bytes(8, "big")]),
        "usage": lambda: numbers.usage(*here),
        "failures": lambda: numbers.failures(*here),
        "kinds": lambda: numbers.kinds(*here),
        "models": lambda: numbers.models(*here),
        "conversation": lambda: payloads.conversation(*here, first=0, count=20),
        "find": lambda: payloads.find(*here, "needle"),
        "export": lambda: payloads.export(*here),
        "turns of a session": lambda: SessionTalk(explaining).of(1, [SOME_TRACE]),
        "users": lambda: UserReads(explaining).page(1, DAY, DAY + timedelta(hours=1), limit=50),
        "graph": lambda: TraceGraphReads(explaining).spans(*here),
        "twin": lambda: kin.twin(*here),
        "neighbours": lambda: kin.neighbours(1, bounds, TraceFilter()),
    }


@pytest.mark.parametrize("question", questions(None, None))
async def test_no_question_reads_a_whole_table(many: Database, question: str) -> None:
    head = await SkeletonReads(many).head(1, SOME_TRACE)
    explaining = Explaining(many)
    await questions(explaining, head)[question]()
    assert explaining.plans
    for plan in explaining.plans:
        read = set(re.findall(r"Seq Scan on (\w+)", plan))
        assert not {table for table in read if not table.endswith("_default")}, plan


async def test_a_document_of_many_spans_is_made_by_hashing_and_not_by_loops(store: Database) -> None:
    async def fill(connection: Connection) -> None:
        # One trace of 20,000 spans, five below each other.
        await connection.execute(
            "insert into span (project_id, trace_id, span_id, parent_span_id, kind, name, status, started_at,"
            " ended_at, created_at, call_site_id, tagged, frame) select 1, $1,"
            " decode(lpad(to_hex(n), 16, '0'), 'hex'),"
            " case when n > 1 then decode(lpad(to_hex(n / 5 + 1), 16, '0'), 'hex') end,"
            " 'step', 'n' || n % 50, 'ok', $2::timestamptz + n * interval '1 ms',"
            " $2::timestamptz + n * interval '2 ms', $2, 's', true, 0 from generate_series(1, 20000) n",
            TRACE,
            NOW,
        )
        await connection.execute(
            "insert into trace (project_id, trace_id, name, started_at, first_started_at, last_started_at,"
            " root_seen, call_site_id, span_count, error_count, status, unpriced_spans, created_at, stale,"
            " due_at) values (1, $1, 'n', $2, $2, $2::timestamptz + interval '1 hour', true, 's', 20000, 0,"
            " 'ok', 0, $2, false, $2)",
            TRACE,
            NOW,
        )

    await store.run(fill)
    head = await head_of(store)
    explaining: Any = Explaining(store)
    document = msgspec.json.decode(await SkeletonReads(explaining).document(1, TRACE, head, TraceRange()))
    assert document["n"] == 20_000
    assert document["parent"][:6] == [0, 1, 2, 3, 3, 4]
    (plan, *_) = explaining.plans
    assert "Nested Loop" not in plan


async def test_the_list_and_the_page_tell_one_trace_alike(store: Database) -> None:
    await settled(store, one(1, attributes=chat()))
    listed = await TraceReads(store, SpanReads(store)).page(PROJECT, TraceFilter(), limit=1, cursor=None)
    assert listed["traces"] == [(await head_of(store)).fields]
