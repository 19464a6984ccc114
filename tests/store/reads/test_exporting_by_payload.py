"""Exports by attributes that are not fields: all that has the value is in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from svc.domain.queries.datasets import SPANS
from svc.store.postgres.database import Database
from svc.store.reads import exporting
from svc.store.reads.exporting import ExportReads
from svc.store.reads.questions.questions import checked_filters
from svc.store.reads.questions.spans_by_payload import parted
from tests.store.reads.outages import through_outages
from tests.store.reads.test_by_payload import history
from tests.store.spans.test_writing import NOW, PROJECT

LOW, HIGH = NOW - timedelta(days=1), NOW + timedelta(days=1)
GOLD = {"attr.metadata.plan": "gold"}


async def exported(store: Database, what: str, filters: dict[str, Any]) -> tuple[list[int], int]:
    """The numbers of the traces, or those of the spans' traces, and how many payloads were looked into."""
    reads = ExportReads(store, *await parted(store, PROJECT, checked_filters(SPANS, filters)))
    numbers: list[int] = []
    if what == "spans":
        async for spans in reads.spans(PROJECT, LOW, HIGH):
            assert all(envelope is not None for _, envelope in spans)
            numbers += [int(fields["trace_id"], 16) - 1 for fields, _ in spans]
    else:
        async for traces in reads.traces(PROJECT, LOW, HIGH):
            numbers += [int(trace["trace_id"], 16) - 1 for trace in traces]
    return numbers, reads.looked


@pytest.fixture(params=[500, 5])
def chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One chunk, and many of which some have nothing to export."""
    monkeypatch.setattr(exporting, "CHUNK_ROWS", request.param)
    monkeypatch.setattr(exporting, "LOOKED_SPANS", request.param)


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize(
    ("filters", "numbers", "looked"),
    [
        (GOLD, [0, 3, 6, 9], 24),
        ({"attr.order.id": "7003"}, [3], 24),
        ({"attr.order.id": "8003"}, [], 24),
        ({"payload": "SEAT-3"}, [3], 24),
        ({"payload": "gold", "attr.zones": "east"}, [3, 9], 24),
        # On one and the same span.
        ({**GOLD, "status": "error"}, [3, 6, 9], 9),
        ({**GOLD, "name": "answer"}, [], 12),
        ({"attr.pod": "pod-1", "attr.order.id": None, "name": "answer"}, [1, 3, 5, 7, 9, 11], 12),
    ],
)
@pytest.mark.parametrize("what", ["spans", "traces"])
async def test_what_only_a_payload_says_is_exported(
    store: Database, what: str, filters: dict[str, Any], numbers: list[int], looked: int
) -> None:
    await history(store)
    assert await exported(store, what, filters) == (numbers, looked)


async def test_what_rows_tell_opens_no_payload(store: Database) -> None:
    await history(store)
    assert await exported(store, "spans", {"name": "call", "service": "shop"}) == (list(range(12)), 0)


@pytest.mark.parametrize("what", ["spans", "traces"])
async def test_an_export_whose_database_goes_away_midway_is_an_outage(
    store: Database, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await history(store)
    monkeypatch.setattr(exporting, "CHUNK_ROWS", 8)
    answer, ended = await through_outages(store, monkeypatch, lambda: exported(store, what, GOLD))
    assert answer == ([0, 3, 6, 9], 24)
    # The fields, and of each chunk its rows, frames and messages.
    assert ended > 6
