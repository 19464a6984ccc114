"""What the first look counts of stored traces."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from protocol.detection import Cause
from protocol.storage import Slow
from svc.domain.detect.engine.rate_engine import RateState
from svc.domain.detect.engine.rate_reference import Gathered, reference_of
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.domain.first_look.facts import Fact, FirstLook
from svc.domain.first_look.text import as_json, basis
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.detection.judging.bucket_states import write_state
from svc.store.postgres.database import Connection, Database
from svc.store.reads import first_look
from svc.store.reads.first_look import BRIEF_AGE, TRACES, FirstLookReads
from svc.store.spans.traces import PostgresTraceStore
from tests.store.detection.detecting import opened
from tests.store.detection.detecting import seen as detection
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, Clock, one, rows, store_of

#: Traces begin so long apart, the last one a minute before `NOW`.
APART = timedelta(minutes=1)


def trace(number: int, *calls: tuple[str, str, bool], model: str = "gpt-4o", **shared: Any) -> list[Any]:
    """An agent, a model call and calls of tools: name, arguments, and whether it fails."""
    start: datetime = NOW - timedelta(hours=1) + number * APART
    where: dict[str, Any] = {"trace_id": (number + 1).to_bytes(16, "big")}
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": 1_000 * (number + 1),
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hm"}]}]),
        **shared,
    }
    spans = [
        one(1, name="answer", start=start, took_s=1.0 + number, attributes=shared, **where),
        one(2, parent=1, name="chat", start=start, took_s=0.5, attributes=chat, **where),
    ]
    for place, (name, arguments, fails) in enumerate(calls, 3):
        call = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.arguments": arguments,
            **({"error.type": "KeyError"} if fails else {}),
        }
        at = start + timedelta(seconds=place)
        spans.append(one(place, parent=1, name=f"execute_tool {name}", start=at, attributes=call,
                         status_code=2 if fails else 0, **where))  # fmt: skip
    return spans


async def look(store: Database, *traces: list[Any]) -> FirstLook:
    clock = Clock()
    writer = store_of(store, clock)
    for spans in traces:
        await writer.write(rows(*spans))
    await settle_at(clock.now + timedelta(seconds=11), PostgresTraceStore(store))
    return await FirstLookReads(store).of(PROJECT, NOW)


async def keep_baseline(store: Database, subject: str) -> None:
    """From now on a detector compares this tool."""
    reference = reference_of(Gathered(500, 500, 0, 2_016), sealed=True)
    state = BucketState(9, rate=RateState.start(9, reference))

    async def keep(connection: Connection) -> None:
        bucket = Watched("tool_error_rate", subject)
        await write_state(connection, PROJECT, "tool_error", bucket, state, since=0, checkpoints=())

    await store.run(keep)


def kinds(seen: FirstLook) -> dict[str, Fact]:
    return {fact.kind: fact for fact in seen.facts}


async def test_a_project_without_traces_has_nothing_to_say(store: Database) -> None:
    seen = await FirstLookReads(store).of(PROJECT, NOW)
    assert (seen.traces, seen.facts, seen.month) == (0, [], None)
    assert seen.headline == "First look: no trace has arrived yet"


async def test_what_is_broken_repeated_unpriced_and_missing_is_counted(store: Database) -> None:
    broken = [trace(n, ("create_return", f'{{"order": {n}}}', True), model="house-ft3") for n in range(12)]
    first, other = '{"q": "a"}', '{"q": "b"}'
    again = [
        trace(20 + n, ("search", first, True), ("search", other, True), ("search", first, n == 0))
        for n in range(2)
    ]
    seen = await look(store, *broken, *again)
    assert (seen.traces, seen.complete, seen.spans) == (14, True, 12 * 3 + 2 * 5)
    assert (seen.tools, seen.models) == (["create_return", "search"], ["house-ft3", "gpt-4o"])
    facts = kinds(seen)
    tool = facts["tool_broken"]
    assert tool.proof == "12 of 12 traces, each with KeyError; surely more than 20 %."
    assert [example.trace_id for example in tool.examples] == [f"{n:032x}" for n in (1, 2, 3)]
    assert tool.examples[0].span_id == f"{3:016x}"
    retry = facts["retry"]
    assert (retry.subject, retry.traces) == ("search", 2)
    assert retry.proof.startswith("2 exact repeats in 2 of 14 traces; 1 succeeded.")
    price = facts["no_price"]
    assert (price.subject, price.traces) == ("house-ft3", 12)
    assert price.proof.startswith(f"12 calls, {sum(range(1, 13)):d},000 tokens.")
    assert {"no_session", "no_user"} <= facts.keys()
    assert not {"no_usage", "no_content"} & facts.keys()
    assert [row.trace_id for row in seen.slowest] == [f"{n:032x}" for n in (22, 21, 12)]
    assert [row.trace_id for row in seen.dearest] == [f"{n:032x}" for n in (22, 21)]
    assert seen.month is not None
    assert seen.month.dollars is not None
    assert seen.month.bytes is not None
    assert json.loads(json.dumps(as_json(seen)))["headline"].startswith("First look: 2 things are broken, ")


async def test_what_settled_traces_are_marked_with_is_told_with_its_tool(store: Database) -> None:
    writer = store_of(store)
    for number in range(3):
        spans = trace(number, ("search", "{}", False))
        spans[2].attributes.add(key="gen_ai.tool.call.result").value.string_value = "404 Not Found"
        await writer.write(rows(*spans))
    await settle_at(NOW + timedelta(minutes=5), PostgresTraceStore(store))
    assert "http_error_in_ok_result" not in kinds(await FirstLookReads(store).of(PROJECT, NOW))
    queue = PostgresTallyQueue(store)
    while await queue.waiting():
        await queue.tally(PROJECT)
    fact = kinds(await FirstLookReads(store).of(PROJECT, NOW))["http_error_in_ok_result"]
    assert fact.what == "search returns HTTP errors as results"
    assert fact.proof == "3 calls in 3 of 3 traces; each time status 404."
    assert fact.filter == ("mark", "http_error_in_ok_result")
    assert [example.span_id for example in fact.examples] == [f"{3:016x}"] * 3


async def test_a_model_whose_calls_fail_is_told_with_traces_that_show_it(store: Database) -> None:
    def refused(number: int) -> list[Any]:
        spans = trace(number)
        spans[1] = one(
            2, parent=1, name="chat", start=NOW - timedelta(hours=1) + number * APART, status_code=2,
            trace_id=(number + 1).to_bytes(16, "big"),
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "house-70b",
                "error.type": "Unavailable",
            },
        )  # fmt: skip
        return spans

    seen = await look(
        store, *(refused(number) for number in range(6)), *(trace(number) for number in range(6, 9))
    )
    [fact] = [fact for fact in seen.facts if fact.kind.startswith("model_")]
    assert (fact.kind, fact.subject, fact.traces, fact.of) == ("model_broken", "house-70b", 6, 6)
    assert fact.proof.startswith("6 of 6 traces, each with Unavailable")
    assert [(e.trace_id, e.span_id) for e in fact.examples[:1]] == [(f"{1:032x}", f"{2:016x}")]


async def test_long_arguments_may_differ_where_they_are_cut_and_are_not_compared(store: Database) -> None:
    long = json.dumps({"q": "a" * 400})
    seen = await look(store, trace(0, ("search", long, True), ("search", long, True)))
    assert "retry" not in kinds(seen)


async def test_a_notable_trace_shows_no_secret_and_no_preview_of_what_aged_out(store: Database) -> None:
    secret = "AKIA" + "QYLPMN5HHHFPZAM2"
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"use {secret} please"}]}])
    seen = await look(store, trace(0, **{"gen_ai.input.messages": asked}))
    for notable in (*seen.dearest, *seen.slowest):
        assert notable.input_preview is not None
        assert notable.input_preview.startswith("use ")
        assert secret not in notable.input_preview
    assert seen.dearest
    assert seen.slowest
    await store.fetch("delete from span_payload")
    seen = await FirstLookReads(store).of(PROJECT, NOW)
    assert [notable.input_preview for notable in (*seen.dearest, *seen.slowest)] == [None, None]


async def test_another_project_is_not_looked_at(store: Database) -> None:
    await look(store, trace(0, ("search", "{}", True)))
    assert (await FirstLookReads(store).of(PROJECT + 1, NOW)).traces == 0


async def test_it_says_that_it_takes_too_long_rather_than_to_wait(store: Database) -> None:
    await look(store, trace(0, ("search", "{}", True)))
    with pytest.raises(Slow):
        await FirstLookReads(store).of(PROJECT, NOW, timeout_s=0.0)


async def test_only_the_newest_are_looked_at(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc.store.reads.first_look._TRACES", _newest(3))
    monkeypatch.setattr("svc.store.reads.first_look.TRACES", 3)
    seen = await look(store, *(trace(n, ("search", "{}", n < 3)) for n in range(6)))
    assert (seen.traces, seen.complete) == (3, False)
    assert "tool_failed" not in kinds(seen)


def _newest(number: int) -> str:
    from svc.store.reads.first_look import _TRACES

    return _TRACES.replace(f"limit {TRACES}", f"limit {number}")


async def test_agents_hear_of_what_came_since_they_asked_and_few_projects_are_remembered(
    store: Database,
) -> None:
    reads = FirstLookReads(store)
    for project in range(2, 400):
        assert await reads.brief(project, 0, NOW) is None
    assert len(reads._briefs) == 256
    assert await reads.brief(PROJECT, 0, NOW) is None
    await look(store, trace(1, ("create_return", "{}", True)))
    brief = await reads.brief(PROJECT, 3, NOW)
    assert brief is not None
    assert await reads.brief(PROJECT, 3, NOW) is brief


async def test_agents_are_given_it_until_there_is_a_baseline(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = FirstLookReads(store)
    assert await reads.brief(PROJECT, 0, NOW) is None
    await look(store, *(trace(n, ("create_return", "{}", True)) for n in range(6)))
    brief = await reads.brief(PROJECT, 18, NOW)
    assert brief is not None
    assert brief["headline"].startswith("First look: 1 thing is broken")
    [broken] = [fact for fact in brief["facts"] if fact["kind"] == "tool_broken"]
    assert broken["examples"][0] == {"trace_id": f"{1:032x}", "span_id": f"{3:016x}"}
    await keep_baseline(store, "tool:create_return")
    # Nothing came since, so the same is said for a moment.
    assert await reads.brief(PROJECT, 18, NOW + 0.9 * BRIEF_AGE) == brief
    assert await reads.brief(PROJECT, 18, NOW + BRIEF_AGE) is None
    # The detector speaks of this tool now: nobody is told that nothing is broken.
    seen = await reads.of(PROJECT, NOW)
    assert "tool_broken" not in kinds(seen)
    assert attrs.evolve(seen, facts=[]).headline == "First look is done: Triage shows what breaks from now on"


async def test_it_points_to_open_cases_and_says_which_failing_tools_are_left_to_them(store: Database) -> None:
    await look(store, *(trace(n, ("search", "{}", True), ("book", "{}", n == 0)) for n in range(6)))
    reads = FirstLookReads(store)
    seen = await reads.of(PROJECT, NOW)
    assert (seen.open_cases, seen.tools_in_cases) == (0, {})
    assert basis(seen).endswith(" Nothing is compared yet.")
    cause = Cause("tool_error", "error_type", "KeyError")
    await opened(store, detection(cause=cause, subject_kind="tool", subject_id="search"))
    seen = await reads.of(PROJECT, NOW)
    assert basis(seen).endswith(" 1 case is open: see Triage.")
    assert [fact.reference for fact in seen.facts if fact.subject == "search"] == ["C-1"]
    await keep_baseline(store, "tool:search")
    seen = await reads.of(PROJECT, NOW)
    assert basis(seen).endswith(" 1 case is open: see Triage. Not listed here: search (C-1).")
    assert "search" not in {fact.subject for fact in seen.facts}
    plain = as_json(seen)
    assert (plain["open_cases"], plain["tools_in_cases"]) == (1, {"search": "C-1"})
    assert attrs.evolve(seen, facts=[], has_baseline=False).headline.startswith("First look is done")


async def test_it_reads_by_keys_and_indexes_alone(store: Database) -> None:
    await look(store, *(trace(n, ("search", "{}", True)) for n in range(3)))
    bounds = (PROJECT, [(n + 1).to_bytes(16, "big") for n in range(3)], NOW - timedelta(hours=2), NOW)
    statements: list[tuple[str, tuple[Any, ...]]] = [
        (first_look._TRACES, (PROJECT,)),
        (first_look._TOOLS, bounds),
        (first_look._RETRIES, bounds),
        (first_look._USED, (*bounds, ["llm"])),
        (first_look._MARKED, (*bounds, ["args_break_schema"])),
    ]

    async def plans(connection: Connection) -> None:
        await connection.execute("set local enable_seqscan = off")
        for sql, values in statements:
            plan = "\n".join(row[0] for row in await connection.fetch(f"explain {sql}", *values))
            assert not re.search(r"Seq Scan on (span|tool_call|trace|classifier_event)", plan), plan

    await store.run(plans)
