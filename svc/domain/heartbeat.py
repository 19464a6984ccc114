"""The heartbeat message: ten fields, counts as coarse buckets (spec, "Events").

Pure. It never carries an address, a name, content or an IP; the counts leave here as buckets only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import attrs

from protocol.rest.query import timestamp
from protocol.storage import Census

#: The version of the message's form.
CONTRACT_VERSION: Final = 1
EDITION: Final = "open"

#: Upper ends of the buckets; above the last it is "more than".
_COUNTS: Final = ((0, "0"), (5, "1-5"), (25, "6-25"), (100, "26-100"), (500, "101-500"))
_TRACES: Final = ((0, "0"), (100, "1-100"), (1_000, "101-1k"), (10_000, "1k-10k"), (100_000, "10k-100k"))


@attrs.frozen
class Build:
    """What runs: version, operating system, processor."""

    app_version: str
    os: str
    arch: str


def count_bucket(count: int) -> str:
    """The bucket of a number of organizations or projects."""
    return _bucket(count, _COUNTS, "500+")


def trace_bucket(count: int) -> str:
    """The bucket of the traces of the last day."""
    return _bucket(count, _TRACES, "100k+")


def _bucket(count: int, ends: Sequence[tuple[int, str]], above: str) -> str:
    return next((label for end, label in ends if count <= end), above)


def message(census: Census, build: Build, now: datetime) -> dict[str, str | int]:
    """The message as it is sent."""
    return {
        "contract_version": CONTRACT_VERSION,
        "install_id": census.install_id,
        "edition": EDITION,
        "app_version": build.app_version,
        "os": build.os,
        "arch": build.arch,
        "org_count_bucket": count_bucket(census.orgs),
        "project_count_bucket": count_bucket(census.projects),
        "trace_volume_bucket": trace_bucket(census.traces_last_day),
        "timestamp": timestamp(now),
    }
