"""Traces by attributes that are not fields: found in payloads, page by page, within a bound that is told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from protocol.otlp.reading import open_envelope
from protocol.refusals import Refused
from svc.store.postgres.database import Database
from svc.store.reads import payload_scan
from svc.store.reads.traces import by_payload
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_filter import TraceFilter, of_one_span
from svc.store.reads.traces.traces import TraceReads
from svc.store.spans.traces import PostgresTraceStore
from tests.store.reads.outages import through_outages
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, one, rows, store_of

ORDER = "attr.order.id"


async def history(store: Database, traces: int = 12, spans: int = 2, **more: Any) -> None:
    """Traces a minute apart, newest with the highest number; span `n.m` has the order `n`, and a list."""
    for number in range(traces):
        where: dict[str, Any] = {
            "trace_id": (number + 1).to_bytes(16, "big"),
            "start": NOW + timedelta(minutes=number),
        }
        said: Mapping[str, Any] = {
            "order.id": 7000 + number,
            "metadata": '{"plan": "gold"}' if number % 3 == 0 else "no object",
            "langfuse.trace.metadata.seat": f"seat-{number}",
            "zones": ["north", "east"] if number % 2 else ["south"],
            "score": number / 4,
            **more,
        }
        await store_of(store).write(
            rows(
                one(1, name="answer", **where),
                *(
                    one(
                        2 + n,
                        parent=1,
                        name="call",
                        attributes=said,
                        status_code=2 if number % 4 else 0,
                        **where,
                    )
                    for n in range(spans - 1)
                ),
                resource={"service.name": "shop", "pod": f"pod-{number % 2}"},
            )
        )
    await settle_at(NOW + timedelta(minutes=5), PostgresTraceStore(store))


async def found(store: Database, limit: int = 100, **filters: Any) -> list[int]:
    """The numbers of the traces, over all pages; what each says."""
    page, numbers, cursor = None, [], None
    while page is None or cursor is not None:
        page = await asked(store, limit, cursor, **filters)
        numbers += [int(trace["trace_id"], 16) - 1 for trace in page["traces"]]
        cursor = page["next_cursor"]
        assert len(page["traces"]) <= limit
    return numbers


async def asked(store: Database, limit: int, cursor: str | None, **filters: Any) -> dict[str, Any]:
    trace_filter = TraceFilter(
        **of_one_span({name.replace("__", "."): value for name, value in filters.items()})
    )
    return await TraceReads(store, SpanReads(store)).page(PROJECT, trace_filter, limit=limit, cursor=cursor)


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({"attr__order__id": 7003}, [3]),
        ({"attr__order__id": 8003}, []),
        ({"attr__metadata__plan": "gold"}, [9, 6, 3, 0]),
        ({"attr__metadata__seat": "seat-5"}, [5]),
        ({"attr__zones": "east"}, [11, 9, 7, 5, 3, 1]),
        ({"attr__score": "0.25"}, [1]),
        ({"attr__pod": "pod-1", "attr__metadata__plan": "gold"}, [9, 3]),
        # A text anywhere, also in what is no text of its own or in a message's middle, in any case.
        ({"payload": "SEAT-5"}, [5]),
        ({"payload": "pod-1"}, [11, 9, 7, 5, 3, 1]),
        ({"payload": '"plan": "gold"', "attr__zones": "east"}, [9, 3]),
        ({"payload": "seat-3", "name": "answer"}, []),
        ({"payload": "seat-3", "name": "call"}, [3]),
        # On one and the same span: the root did not fail, and the call has another name.
        ({"attr__metadata__plan": "gold", "status": "error"}, [9, 6, 3]),
        ({"attr__order__id": 7003, "name": "answer"}, []),
        ({"attr__pod": "pod-1", "name": "answer", "service": "shop"}, [11, 9, 7, 5, 3, 1]),
    ],
)
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_a_trace_is_found_by_what_only_a_payload_says(
    store: Database, filters: dict[str, Any], numbers: list[int], limit: int
) -> None:
    await history(store)
    assert await found(store, limit, **filters) == numbers


@pytest.mark.parametrize(
    ("asked_for", "left_out", "numbers"),
    [
        ({}, {ORDER: "7003"}, [11, 10, 9, 8, 7, 6, 5, 4, 2, 1, 0]),
        ({}, {"attr.metadata.plan": "gold"}, [11, 10, 8, 7, 5, 4, 2, 1]),
        ({}, {"attr.metadata.plan": "gold", "attr.zones": "east"}, [10, 8, 4, 2]),
        # Left out is what any span says, whatever the one says that is asked for.
        ({"attr.pod": "pod-1", "name": "answer"}, {ORDER: "7005"}, [11, 9, 7, 3, 1]),
        ({"status": "error"}, {"attr.zones": "south"}, [11, 9, 7, 5, 3, 1]),
        ({}, {"payload": "gold"}, [11, 10, 8, 7, 5, 4, 2, 1]),
        ({"payload": "east"}, {"payload": "Seat-5"}, [11, 9, 7, 3, 1]),
        ({"payload": "east"}, {"payload": "pod-9", "attr.order.id": "7003"}, [11, 9, 7, 5, 1]),
        ({}, {"attr.nobody": "x"}, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ],
)
@pytest.mark.parametrize("limit", [2, 100])
async def test_a_trace_is_left_out_by_what_only_a_payload_says(
    store: Database, asked_for: dict[str, Any], left_out: dict[str, str], numbers: list[int], limit: int
) -> None:
    await history(store)
    trace_filter = TraceFilter(
        **(of_one_span(asked_for) if asked_for else {}), without=tuple(left_out.items())
    )
    pages, seen, cursor = TraceReads(store, SpanReads(store)), [], None
    while True:
        page = await pages.page(PROJECT, trace_filter, limit=limit, cursor=cursor)
        seen += [int(trace["trace_id"], 16) - 1 for trace in page["traces"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == numbers


async def test_a_page_says_what_it_looked_through(store: Database) -> None:
    await history(store)
    page = await asked(store, 100, None, attr__order__id=7003)
    assert page["notes"] == ["attr.order.id is not a field: searched the payloads of 24 spans"]
    page = await asked(store, 100, None, payload="seat-3")
    assert page["notes"] == ["searched the payloads of 24 spans"]
    page = await asked(store, 100, None, attr__order__id=7003, attr__pod="pod-1", name="call")
    assert page["notes"] == ["attr.order.id, attr.pod are not fields: searched the payloads of 12 spans"]


async def test_a_page_counts_what_it_looked_through_for_what_is_left_out_as_well(store: Database) -> None:
    await history(store)
    trace_filter = TraceFilter(
        **of_one_span({ORDER: 7003, "name": "call"}), without=(("attr.zones", "south"),)
    )
    page = await TraceReads(store, SpanReads(store)).page(PROJECT, trace_filter, limit=100, cursor=None)
    assert [int(trace["trace_id"], 16) - 1 for trace in page["traces"]] == [3]
    # A call of each trace, then both spans of the one that is left.
    assert page["notes"] == ["attr.order.id, attr.zones are not fields: searched the payloads of 14 spans"]


async def test_a_page_ends_at_its_bound_and_its_cursor_goes_on_from_there(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store, spans=5)
    monkeypatch.setattr(by_payload, "MOST_SPANS", 12)
    page = await asked(store, 100, None, attr__metadata__plan="gold")
    # Two whole traces; of a third only a part is within the bound.
    assert page["traces"] == []
    (note,) = page["notes"]
    assert note == (
        "attr.metadata.plan is not a field: searched the payloads of 10 spans,"
        " back to 2026-11-20T12:10:00.000000Z; the next page goes on from there"
    )
    assert await found(store, attr__metadata__plan="gold") == [9, 6, 3, 0]


async def test_a_trace_of_more_spans_than_the_bound_is_looked_into_as_far_as_that(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store, traces=3, spans=9)
    monkeypatch.setattr(by_payload, "MOST_SPANS", 4)
    assert await found(store, attr__order__id=7000) == [0]


async def test_a_bound_that_is_met_to_the_span_ends_the_page(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store, spans=5)
    monkeypatch.setattr(by_payload, "MOST_SPANS", 10)
    monkeypatch.setattr(by_payload, "_TRACES", 2)
    page = await asked(store, 100, None, attr__metadata__plan="gold")
    assert page["traces"] == []
    assert "the payloads of 10 spans, back to" in page["notes"][0]
    assert await found(store, attr__metadata__plan="gold") == [9, 6, 3, 0]


async def test_a_page_ends_when_its_time_is_up(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await history(store)
    monkeypatch.setattr(by_payload, "MOST_S", -1.0)
    monkeypatch.setattr(by_payload, "_TRACES", 5)
    page = await asked(store, 100, None, attr__order__id=7003)
    assert page["traces"] == []
    assert page["next_cursor"] is not None
    assert await found(store, attr__order__id=7003) == [3]


async def test_payloads_that_aged_out_say_nothing(store: Database) -> None:
    await history(store)
    await store.fetch("delete from span_payload")
    assert await found(store, attr__order__id=7003) == []


@pytest.mark.parametrize(
    ("filters", "opened"),
    [
        # One span of each trace has the key at all.
        ({"attr__order__id": 8003}, 12),
        ({"attr__nobody": "x"}, 0),
        ({"attr__order__id": 7003, "attr__nobody": "x"}, 0),
        # Its resource has it, and so has every span.
        ({"attr__pod": "pod-9"}, 24),
    ],
)
async def test_no_payload_is_opened_that_has_not_the_bytes_of_the_key(
    store: Database, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any], opened: int
) -> None:
    await history(store)
    envelopes: list[bytes] = []

    def counting(envelope: bytes) -> Any:
        envelopes.append(envelope)
        return open_envelope(envelope)

    monkeypatch.setattr(payload_scan, "open_envelope", counting)
    assert await found(store, **filters) == []
    assert len(envelopes) == opened


async def test_a_page_whose_database_goes_away_midway_is_an_outage_and_not_a_shorter_page(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store)
    monkeypatch.setattr(by_payload, "_TRACES", 4)
    trace_filter = TraceFilter(
        **of_one_span({"attr.metadata.plan": "gold"}), without=(("attr.zones", "south"),)
    )
    pages = TraceReads(store, SpanReads(store))
    wanted = await pages.page(PROJECT, trace_filter, limit=100, cursor=None)
    assert [int(trace["trace_id"], 16) - 1 for trace in wanted["traces"]] == [9, 3]
    page, ended = await through_outages(
        store, monkeypatch, lambda: pages.page(PROJECT, trace_filter, limit=100, cursor=None)
    )
    assert page == wanted
    # Three batches of traces, each with its spans, frames and messages, and what they leave out.
    assert ended > 12


async def test_traces_are_not_ranked_by_what_is_no_field(store: Database) -> None:
    await history(store, traces=1)
    trace_filter = TraceFilter(low=NOW, **of_one_span({ORDER: 7000}))
    with pytest.raises(Refused, match="is not a field, so traces come newest first: leave sort out"):
        await TraceReads(store, SpanReads(store)).largest(PROJECT, trace_filter, "cost", limit=5)
