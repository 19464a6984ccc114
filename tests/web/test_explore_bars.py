"""Which bars of Explore say that they are not whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from protocol.rest.answers import Bucket
from svc.store.reads.questions.buckets import bucket_starts
from svc.web.overview.explore_question import Explored
from svc.web.overview.explore_view import bars

NOW = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)


def notes_of(**asked: str) -> list[str]:
    explored = Explored.of({"interval": "day", **asked}, NOW, "", ())
    buckets = [
        Bucket(bucket_start=start.isoformat(), count=1) for start in bucket_starts(*explored.bounds, "day")
    ]
    return [bar["note"] for bar in bars(explored, buckets)]


@pytest.mark.parametrize(
    ("low", "high", "notes"),
    [
        ("2026-11-20", "2026-11-22", ["", ""]),
        ("2026-11-20T12:00:00Z", "2026-11-22", [", in part", ""]),
        ("2026-11-20", "2026-11-21T12:00:00Z", ["", ", in part"]),
        ("2026-11-20T06:00:00Z", "2026-11-20T12:00:00Z", [", in part"]),
        ("2026-11-25", "2026-11-27", ["", ", so far"]),
        ("2026-11-25", "2026-11-26T09:00:00Z", ["", ", in part"]),
    ],
)
def test_a_bar_of_which_the_range_has_a_part_says_so(low: str, high: str, notes: list[str]) -> None:
    assert notes_of(**{"from": low, "to": high}) == notes


def test_the_last_bar_still_runs_where_the_range_has_no_end() -> None:
    assert notes_of(range="7d") == [", in part", *[""] * 6, ", so far"]
