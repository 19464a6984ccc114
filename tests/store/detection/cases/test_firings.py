"""Firings of classifiers: one row each, counted and searched as a dataset."""

from __future__ import annotations

from datetime import timedelta

from protocol.detection import Firing
from svc.store.postgres.database import Database
from tests.store.as_json import JsonQueries
from tests.store.detection.detecting import LATER, record_firings
from tests.store.reads.test_query import question
from tests.store.spans.test_writing import NOW


async def test_firings_are_counted_and_searched(store: Database) -> None:
    trace = bytes(range(16))
    firings = [
        Firing("loops", "high", "trace", "says the same thrice", "0.9", trace_id=trace, call_site_id="reply"),
        Firing("loops", "low", "session", "asks again", session_id="s1"),
        Firing("leaks", "medium", "span", "a key in the answer", trace_id=trace, span_id=b"\x01" * 8),
    ]
    await record_firings(store, 1, firings, NOW)
    queries = JsonQueries(store)
    assert (await queries.facets(question("classifier_events"), "classifier_id", 5))["facets"] == [
        {"value": "loops", "count": 2},
        {"value": "leaks", "count": 1},
    ]
    for filters, count in (
        ({"subject_trace_id": trace.hex()}, 2),
        ({"subject_session_id": "s1"}, 1),
        ({"subject_span_id": "01" * 8, "severity": "medium"}, 1),
        ({"call_site_id": "reply", "confidence": "0.9"}, 1),
        ({"classifier_id": "nothing"}, 0),
    ):
        assert await queries.count(question("classifier_events", **filters)) == {"count": count}, filters
    found = await queries.search(question("classifier_events"), "THRICE", None, 5, None)
    assert [row["fields"]["summary"] for row in found["rows"]] == ["says the same thrice"]
    # In a range, which is half-open.
    step = timedelta(microseconds=1)
    for low, high, count in ((NOW, NOW + step, 3), (NOW - step, NOW, 0), (NOW + step, LATER, 0)):
        asked = question("classifier_events", low, high)
        assert await queries.count(asked) == {"count": count}
