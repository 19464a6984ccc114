"""The disk budget on a real PostgreSQL: what a step drops, what it keeps, what it writes down."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from protocol.detection import Ref
from svc.domain.retention.disk_budget import PAYLOADS, WHOLE, DropStep
from svc.store.aggregates.cubes import CubeStore
from svc.store.retention.disk_use import PostgresDiskStore
from tests.store.as_json import JsonQueries
from tests.store.detection.detecting import fire, seen
from tests.store.reads.test_query import question
from tests.store.retention.test_retention import AGES, DAY, Kept, kept, span_id, trace_id
from tests.store.spans.test_writing import NOW, fetch

__all__ = ["kept"]

OLD = max(AGES)


@pytest.fixture
def disk(kept: Kept, tmp_path: Path) -> PostgresDiskStore:
    (tmp_path / "spool.db").write_bytes(b"x" * 100_000)
    return PostgresDiskStore(kept.database, tmp_path)


async def test_what_is_measured_is_by_table_and_day(disk: PostgresDiskStore) -> None:
    use = await disk.measure()
    assert [one.day for one in use.days] == sorted((NOW - age * DAY).date() for age in AGES)
    assert use.spool >= 100_000
    assert use.wal >= 16 * 2**20
    assert use.database > sum(size for _, size in use.tables) > sum(one.total for one in use.days) > 0
    assert await disk.max_wal_bytes() >= 64 * 2**20


async def test_a_step_drops_what_is_not_cited_counts_stay_right_and_it_is_audited(
    disk: PostgresDiskStore, kept: Kept
) -> None:
    while (await CubeStore(kept.database).build(NOW, 500)).more:
        pass
    # Of project 1 the trace of the oldest day is cited; project 2 has one of the same id.
    await fire(kept.database, seen(), [Ref("member", trace_id=trace_id(OLD), span_id=span_id(OLD))])
    day = (NOW - OLD * DAY).date()
    freed = await disk.drop(DropStep(day, PAYLOADS), NOW)
    assert freed > 0
    assert OLD in await kept.ages("span_payload", 1)
    assert OLD not in await kept.ages("span_payload", 2)
    assert OLD in await kept.ages("span", 2)
    freed = await disk.drop(DropStep(day, WHOLE), NOW)
    assert freed > 0
    assert OLD in await kept.ages("span", 1)
    assert OLD not in await kept.ages("span", 2)
    left = await fetch(kept.database, "select project_id from trace where trace_id = $1", trace_id(OLD))
    assert [row["project_id"] for row in left] == [1]
    assert (await JsonQueries(kept.database).count(question()))["count"] == len(AGES)
    rows = await fetch(
        kept.database,
        "select actor, subject_id, details from audit_row where action = 'disk.drop' order by id",
    )
    told = [msgspec.json.decode(row["details"]) for row in rows]
    assert [(row["actor"], row["subject_id"]) for row in rows] == [("system", str(day))] * 2
    assert [one["what"] for one in told] == ["payloads", "day"]
    assert all(one["bytes"] > 0 for one in told)


async def test_a_day_of_which_all_is_cited_stays_as_it_is_and_costs_no_second_try(
    disk: PostgresDiskStore, kept: Kept
) -> None:
    await fetch(kept.database, "delete from span where project_id = 2")
    await fetch(kept.database, "delete from span_payload where project_id = 2")
    await fire(kept.database, seen(), [Ref("member", trace_id=trace_id(OLD))])
    day = (NOW - OLD * DAY).date()
    assert await disk.drop(DropStep(day, WHOLE), NOW) == 0
    assert await disk.drop(DropStep(day, PAYLOADS), NOW) == 0
    assert await disk.drop(DropStep(day - timedelta(days=400), WHOLE), NOW) == 0
    assert await fetch(kept.database, "select from audit_row where action = 'disk.drop'") == []
    # A sweep that knows of no such term keeps it all the same.
    await kept.sweep()
    assert OLD in await kept.ages("span_payload", 1)
