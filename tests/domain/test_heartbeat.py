"""The heartbeat message: exactly ten fields, coarse buckets, nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from protocol.storage import Census
from svc.domain.heartbeat import Build, count_bucket, message, trace_bucket

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_the_message_has_exactly_the_ten_fields() -> None:
    assert message(
        Census("11111111-2222-4333-8444-555555555555", 1, 7, 20_000), Build("1", "linux", "x"), NOW
    ) == {
        "contract_version": 1,
        "install_id": "11111111-2222-4333-8444-555555555555",
        "edition": "open",
        "app_version": "1",
        "os": "linux",
        "arch": "x",
        "org_count_bucket": "1-5",
        "project_count_bucket": "6-25",
        "trace_volume_bucket": "10k-100k",
        "timestamp": "2026-11-20T12:00:00.000000Z",
    }


@pytest.mark.parametrize(
    ("count", "bucket"),
    [
        *((0, "0"), (1, "1-5"), (5, "1-5"), (6, "6-25"), (25, "6-25"), (26, "26-100"), (100, "26-100")),
        *((101, "101-500"), (500, "101-500"), (501, "500+")),
    ],
)
def test_counts_are_told_as_buckets(count: int, bucket: str) -> None:
    assert count_bucket(count) == bucket


@pytest.mark.parametrize(
    ("count", "bucket"),
    [
        *((0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-1k"), (1_000, "101-1k"), (1_001, "1k-10k")),
        *((10_000, "1k-10k"), (10_001, "10k-100k"), (100_000, "10k-100k"), (100_001, "100k+")),
    ],
)
def test_traces_are_told_as_buckets(count: int, bucket: str) -> None:
    assert trace_bucket(count) == bucket
