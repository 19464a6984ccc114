"""Laws of marks as rates: what many traces show from the first ones on, or more of them than used to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from protocol.detection import EVIDENCE_ROLES
from svc.store.detection.judging.bucket_reports import BucketReports
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.detection.judging.mark_settings import MarkSettingStore
from svc.store.postgres.database import Database
from tests.detecting.house import House, Settings, replay
from tests.detecting.story import MONDAY
from tests.store.detection.counting.test_tallying import begin, settle, story, tally_all, write
from tests.store.spans.test_writing import PROJECT, fetch
from tests.wire import span

SEARCH = json.dumps([{"name": "search", "parameters": {"type": "object", "required": ["query"]}}])
MINUTE = timedelta(minutes=1)


class Calls:
    """Traces of one agent that asks for a tool and answers: minutes after the start, the arguments that the
    model asks with, and what it says.
    """

    def __init__(self, *traces: tuple[float, Any, str], first: int = 1) -> None:
        self._traces = traces
        self._first = first

    def traces(self) -> Iterator[tuple[datetime, list[Any]]]:
        for number, (minutes, arguments, said) in enumerate(self._traces, self._first):
            at = MONDAY + minutes * MINUTE
            yield at, list(_spans(number, at, arguments, said))


def _spans(number: int, at: datetime, arguments: Any, said: str) -> Iterator[Any]:
    start_ns = int(at.timestamp()) * 1_000_000_000

    def made(index: int, name: str, attributes: dict[str, Any]) -> Any:
        return span(
            name,
            attributes | {"session.id": f"s{number // 2}"},
            span_id=(number * 8 + index).to_bytes(8, "big"),
            trace_id=number.to_bytes(16, "big"),
            parent=(number * 8 + 1).to_bytes(8, "big") if index > 1 else b"",
            start_ns=start_ns + index * 1_000_000_000,
            end_ns=start_ns + index * 1_000_000_000 + (9_000_000_000 if index == 1 else 500_000_000),
        )

    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "svc.call_site.id": "writer"}
    given = [{"role": "user", "parts": [{"type": "text", "content": "Where is it?"}]}]
    yield made(1, "invoke_agent", {"gen_ai.operation.name": "invoke_agent", "svc.call_site.id": "desk"})
    if arguments is not None:
        part = {"type": "tool_call", "id": "a", "name": "search", "arguments": arguments}
        output = json.dumps([{"role": "assistant", "parts": [part]}])
        yield made(
            2, "chat gpt-4o", chat | {"gen_ai.tool.definitions": SEARCH, "gen_ai.output.messages": output}
        )
        call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        yield made(3, "execute_tool search", call | {"gen_ai.tool.call.id": "a"})
    answer = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": said}]}])
    yield made(
        4,
        "chat gpt-4o",
        chat
        | {
            "gen_ai.tool.definitions": SEARCH,
            "gen_ai.input.messages": json.dumps(given),
            "gen_ai.output.messages": answer,
        },
    )


GOOD = {"query": "tea"}
BAD = {"limit": 1}


async def looked(store: Database, calls: Calls) -> House:
    house = House(store, Settings())
    await replay(store, calls)
    await house.rest()
    await house.look()
    return house


async def test_what_breaks_a_schema_in_each_trace_from_birth_on_is_a_finding_and_then_a_case(
    store: Database,
) -> None:
    house = await looked(store, Calls(*((n, BAD, "Hm.") for n in range(6))))
    [(detector, title, basis, harmful)] = await house.told("detector", "title", "basis", "harmful")
    assert detector == "marks"
    assert title == (
        "`desk` has called tools with arguments that break their schema from the start: 100 % of traces"
    )
    assert basis.startswith("6 of 6 traces; surely more than 20 %.")
    assert harmful
    [case] = await house.cases()
    assert (case["detector"], case["state"]) == ("marks", "open")
    assert case["listed"] == ["cause mark_args_break_schema:desk:birth"]
    # The call of the tool, and behind it the model call that asked.
    rows = await fetch(
        store,
        "select encode(span_id, 'hex') as id from finding_evidence where role = $1 and trace_id = $2"
        " order by position",
        EVIDENCE_ROLES.index("witness") + 1,
        (1).to_bytes(16, "big"),
    )
    assert [int(row["id"], 16) % 8 for row in rows] == [3, 2]


async def test_a_mark_that_opens_no_finding_alone_is_at_most_information_from_birth_on(
    store: Database,
) -> None:
    house = await looked(store, Calls(*((n, None, "I verified it.") for n in range(30)), (90.0, GOOD, "Hm.")))
    assert await house.cases() == []
    assert not any(harmful for (harmful,) in await house.told("harmful"))
    claims = await fetch(store, "select from classifier_event where classifier_id = 'claim_without_call'")
    assert len(claims) == 30


async def test_a_mark_that_comes_more_often_than_it_used_to_is_a_finding(store: Database) -> None:
    day = 24 * 60
    usual = [(n * 2 * day / 600, BAD if n % 100 == 0 else GOOD, "Hm.") for n in range(600)]
    since = [(2 * day + n * 5.0, BAD if n % 2 else GOOD, "Hm.") for n in range(120)]
    house = await looked(store, Calls(*usual, *since))
    [(title, key)] = await house.told("title", "cause_key")
    assert title == (
        "`desk` calls tools with arguments that break their schema more often: 1.0 % → 50 % of traces"
    )
    assert key == "args_break_schema:desk"


async def test_a_healthy_application_has_no_finding_of_marks(store: Database) -> None:
    house = await looked(store, Calls(*((n * 0.5, GOOD, "It is open.") for n in range(300))))
    assert await house.told("title") == []
    measures = await fetch(store, "select measure from tally_bucket where measure like 'mark%' order by 1")
    assert [row["measure"] for row in measures] == [
        "mark_answer_without_evidence",
        "mark_args_break_schema",
        "mark_claim_without_call",
        "mark_hedge_without_evidence",
        "mark_retry_of_same_failure",
        "mark_tool_broken_inside",
    ]


async def test_a_mark_that_is_off_is_not_stated_and_not_counted_and_others_are(store: Database) -> None:
    await begin(store)
    settings = MarkSettingStore(store)
    await settings.set(PROJECT, "http_error_in_ok_result", enabled=False, muted=None, actor="ann")
    await write(store, *story(1))
    await settle(store)
    await tally_all(store)
    assert await fetch(store, "select from classifier_event") == []
    measures = await fetch(store, "select measure from tally_bucket where measure like 'mark%'")
    assert ("mark_http_error_in_ok_result",) not in {tuple(row) for row in measures}
    assert ("mark_tool_broken_inside",) in {tuple(row) for row in measures}
    await settings.set(PROJECT, "http_error_in_ok_result", enabled=True, muted=None, actor="ann")
    await write(store, *story(6))
    await settle(store)
    await tally_all(store)
    rows = await fetch(store, "select subject_trace_id from classifier_event")
    assert [row["subject_trace_id"] for row in rows] == [(6).to_bytes(16, "big")]


async def test_a_muted_mark_is_stated_and_counted_and_never_reported_until_it_is_unmuted(
    store: Database,
) -> None:
    await begin(store)
    settings = MarkSettingStore(store)
    await settings.set(PROJECT, "args_break_schema", enabled=None, muted=True, actor="ann")
    calls = Calls(*((n, BAD, "Hm.") for n in range(6)), (60.0, GOOD, "Hm."))
    house = await looked(store, calls)
    assert await house.told("title") == []
    marks = await fetch(store, "select from classifier_event where classifier_id = 'args_break_schema'")
    assert len(marks) == 6
    reports = await BucketReports(store).of(
        PROJECT, "marks", false_alarms_per_month=2.0, now=datetime.now(UTC)
    )
    reasons = {reported.bucket.measure: reported.report.reason for reported in reports}
    assert reasons["mark_args_break_schema"] == "muted"
    assert reasons["mark_tool_broken_inside"] != "muted"
    await settings.set(PROJECT, "args_break_schema", enabled=None, muted=False, actor="ann")
    await replay(store, Calls((90.0, BAD, "Hm."), (200.0, GOOD, "Hm."), first=20))
    await house.rest()
    await house.look()
    assert [key for (key,) in await house.told("cause_key")] == ["mark_args_break_schema:desk:birth"]


async def test_where_the_detector_is_off_no_mark_is_stated_and_nothing_is_counted(store: Database) -> None:
    await begin(store)
    settings = DetectorSettingStore(store)
    await settings.set_enabled(PROJECT, "marks", False, "ann@example.com")
    await write(store, *story(1))
    await settle(store)
    await tally_all(store)
    assert await fetch(store, "select from classifier_event") == []
    assert await fetch(store, "select from tally_bucket where measure like 'mark%'") == []
    await settings.set_enabled(PROJECT, "marks", True, "ann@example.com")
    await write(store, *story(6))
    await settle(store)
    await tally_all(store)
    rows = await fetch(store, "select subject_trace_id from classifier_event")
    assert [row["subject_trace_id"] for row in rows] == [(6).to_bytes(16, "big")]
