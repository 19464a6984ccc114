"""Payload gone means preview gone, in every read that shows what spans said, however old the data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from protocol.rest.query import jsonable
from svc.store.detection.cases.inbox import InboxReads
from svc.store.postgres.database import Database
from svc.store.postgres.embedded.server import Served
from svc.store.reads.exporting import ExportReads
from svc.store.reads.one_trace.skeleton import SkeletonReads
from svc.store.reads.one_trace.trace_kin import TraceKin
from svc.store.reads.questions.questions import ask
from svc.store.reads.traces.spans import SpanFilter, SpanReads
from svc.store.reads.traces.traces import TraceFilter, TraceReads
from svc.store.reads.usage.sessions import SessionReads
from tests.conftest import copied
from tests.store.as_json import JsonQueries
from tests.store.reads.test_reads import _tell, trace_id
from tests.store.spans.test_writing import NOW, PROJECT

LOW, HIGH = NOW - timedelta(days=1), NOW + timedelta(days=1)
#: The trace whose payloads go first, in the session `s1`.
GONE = trace_id(4)
MODEL_CALL = (2).to_bytes(8, "big")

Read = Callable[[Database], Awaitable[Any]]


@pytest.fixture
async def store(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """24 traces; the model call of each asked `question N 100%`."""
    async with copied(served, "told_traces", _tell) as database:
        yield database


def traces(store: Database) -> TraceReads:
    return TraceReads(store, SpanReads(store))


async def rows_of(chunks: AsyncIterator[Any]) -> list[Any]:
    return [row async for chunk in chunks for row in chunk]


async def search(store: Database, q: str | None) -> Any:
    question = ask(PROJECT, "spans", (LOW, HIGH), {})
    return await JsonQueries(store).search(question, q, None, 100, None)


async def outline(store: Database) -> Any:
    head = await SkeletonReads(store).head(PROJECT, GONE)
    assert head is not None
    outlined, _ = await TraceKin(store).outline(PROJECT, GONE, head)
    return [(span.input_preview, span.output_preview) for span in outlined]


async def previews(store: Database) -> Any:
    reads = SkeletonReads(store)
    head = await reads.head(PROJECT, GONE)
    assert head is not None
    return [await reads.previews(PROJECT, GONE, head, [MODEL_CALL]), head.fields]


async def cited(store: Database) -> Any:
    found = await InboxReads(store).cited(PROJECT, [GONE.hex()])
    return [trace.asked for trace in found.values()]


READS: dict[str, Read] = {
    "a page of spans": lambda store: SpanReads(store).page(
        PROJECT, SpanFilter(trace_id=GONE), payload=False, limit=50, cursor=None
    ),
    "a page of spans that hold a text": lambda store: SpanReads(store).page(
        PROJECT, SpanFilter(q="question 4 "), payload=False, limit=50, cursor=None
    ),
    "a page of spans with payloads": lambda store: SpanReads(store).page(
        PROJECT, SpanFilter(trace_id=GONE), payload=True, limit=50, cursor=None
    ),
    "a span": lambda store: SpanReads(store).one(PROJECT, GONE, MODEL_CALL),
    "a page of traces": lambda store: traces(store).page(PROJECT, TraceFilter(), limit=50, cursor=None),
    "a page of traces that hold a text": lambda store: traces(store).page(
        PROJECT, TraceFilter(q="question 4 "), limit=50, cursor=None
    ),
    "a trace": lambda store: traces(store).one(PROJECT, GONE, payload=False),
    "a trace with payloads": lambda store: traces(store).one(PROJECT, GONE, payload=True),
    "a session": lambda store: SessionReads(store).one(PROJECT, "s1"),
    "sums of sessions": lambda store: SessionReads(store).summaries(PROJECT, ["s1"]),
    "exported spans": lambda store: rows_of(ExportReads(store).spans(PROJECT, LOW, HIGH)),
    "exported traces": lambda store: rows_of(ExportReads(store).traces(PROJECT, LOW, HIGH)),
    "the newest of a dataset": lambda store: search(store, None),
    "a search in a dataset": lambda store: search(store, "question 4 "),
    "previews of a page": previews,
    "the outline that is compared": outline,
    "traces that a case cites": cited,
}


def text(answer: Any) -> str:
    return msgspec.json.encode(answer, enc_hook=jsonable).decode()


@pytest.mark.parametrize("name", READS)
async def test_a_preview_goes_with_its_payload_and_others_stay(store: Database, name: str) -> None:
    before = text(await READS[name](store))
    assert "question 4 100%" in before
    await store.fetch("delete from span_payload where trace_id = $1", GONE)
    after = text(await READS[name](store))
    assert "question 4 " not in after
    for other in (3, 5, 23):
        asked = f"question {other} 100%"
        assert (asked in after) == (asked in before)
    if '"payload_available"' in before:
        assert '"payload_available":false' in after


async def test_the_first_text_of_a_session_that_aged_out_is_said_to(store: Database) -> None:
    sums = (await SessionReads(store).summaries(PROJECT, ["s1"]))["s1"]
    assert (sums["asked"], sums["asked_available"]) == ("question 4 100%", True)
    await store.fetch("delete from span_payload where trace_id = $1", GONE)
    sums = (await SessionReads(store).summaries(PROJECT, ["s1"]))["s1"]
    assert (sums["asked"], sums["asked_available"]) == (None, False)
