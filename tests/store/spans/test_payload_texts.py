"""Spans are found by a text anywhere in their payloads, as opening each of them would find them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from svc.domain.spans.payload_text import finder
from svc.store.postgres.database import Connection, Database
from svc.store.spans import payload_texts
from svc.store.spans.payload_texts import spans_holding
from svc.store.spans.payloads import SpanKey, read_envelopes
from tests.store.spans.test_writing import NOW, PROJECT, fetch, one, rows, store_of

#: Asked of each conversation: what all say, what one says in one turn, what a model said, what nobody did.
ASKED = ("rather long MESSAGE", "turn 2 of trace 3", "“why” answer 1", "\nsigned", "nobody", "é", "gpt-4o")


def turns(trace: int, count: int, *, escapes: bool) -> list[Any]:
    """The calls of a conversation, each with all that was said before it."""
    said: list[dict[str, str]] = [{"role": "system", "content": "the same rather long message " * 20}]
    calls = []
    for turn in range(count):
        said.append({"role": "user", "content": f"turn {turn} of trace {trace} " + "x" * 300 + "\nsigned: é"})
        calls.append(
            one(
                100 * trace + turn,
                start=NOW - timedelta(days=trace % 3, minutes=turn),
                trace_id=bytes([trace]) * 16,
                name="chat gpt-4o",
                attributes={"gen_ai.input.messages": json.dumps(said, ensure_ascii=escapes)},
            )
        )
        said.append({"role": "assistant", "content": f"“why” answer {turn} " + "y" * 300})
    return calls


async def filled(store: Database) -> list[SpanKey]:
    for trace in range(1, 7):
        for call in turns(trace, 4, escapes=trace % 2 == 0):
            await store_of(store).write(rows(call))
    found = await fetch(store, "select trace_id, span_id, started_at, frame from span order by 1, 2")
    return [tuple(row.values()) for row in found]


async def found(store: Database, keys: Sequence[SpanKey], text: str, **how: Any) -> list[SpanKey]:
    async def work(connection: Connection) -> list[SpanKey]:
        return await spans_holding(connection, PROJECT, keys, finder(text), **how)

    return await store.run(work)


async def expected(store: Database, keys: Sequence[SpanKey], text: str) -> list[SpanKey]:
    async def work(connection: Connection) -> Any:
        return await read_envelopes(connection, PROJECT, keys)

    envelopes, holds = await store.run(work), finder(text)
    return [key for key in keys if key[:2] in envelopes and holds(envelopes[key[:2]])]


@pytest.mark.parametrize(("room_bytes", "large_bytes"), [(1, 1), (3_000, 500), (10**7, 10**6)])
async def test_spans_are_found_by_what_they_or_the_messages_they_share_say(
    store: Database, monkeypatch: pytest.MonkeyPatch, room_bytes: int, large_bytes: int
) -> None:
    monkeypatch.setattr(payload_texts, "ROOM_BYTES", room_bytes)
    monkeypatch.setattr(payload_texts, "_LARGE_BYTES", large_bytes)
    keys = await filled(store)
    assert await fetch(store, "select from span_message limit 1")
    counts = []
    for text in ASKED:
        wanted = await expected(store, keys, text)
        counts.append(len(wanted))
        assert await found(store, keys, text) == wanted, text
        # Any part of the spans, and one of each trace.
        assert await found(store, keys[3:11], text) == [key for key in wanted if key in keys[3:11]]
        by_trace = await found(store, keys, text, by_trace=True)
        assert {key[0] for key in by_trace} == {key[0] for key in wanted}
        assert set(by_trace) <= set(wanted)
    assert counts == [24, 2, 12, 24, 0, 24, 24]


async def test_what_aged_out_is_not_found(store: Database) -> None:
    keys = await filled(store)
    await fetch(store, "delete from span_message where started_at < $1", NOW - timedelta(days=1))
    of_today = [key for key in keys if key[2] > NOW - timedelta(hours=12)]
    assert await found(store, of_today, "turn 0 of trace") == of_today
    await fetch(store, "delete from span_payload")
    assert await found(store, keys, "rather long message") == []
