"""Firings read back: a page goes down an index, whatever the mode, the detector and the number of firings."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from svc.store.detection.cases.firing_reads import FiringFilter, FiringReads
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.embedded.server import Served
from tests.conftest import filled_once
from tests.store.reads.test_reads import Explaining

DAY = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
async def fired(asyncio_loop: None, served: Served) -> AsyncIterator[Database]:
    """Fifty thousand firings of two projects: nearly all of one detector, of another fifty long ago."""
    async with filled_once(served, "much_fired", _fill) as database:
        yield database


async def _fill(store: Database) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute(
            "insert into classifier_event (project_id, classifier_id, severity, confidence, subject_kind,"
            " summary, created_at) select 1 + n % 2, case when n <= 100 then 'rare' else 'busy' end, 'low',"
            " (array['low', 'high'])[1 + n / 2 % 2], 'trace', 's', $1::timestamptz + n * interval '1 s'"
            " from generate_series(1, 50000) n",
            DAY,
        )
        await connection.execute("analyze classifier_event")

    await store.run(work)


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        (FiringFilter(), 100),
        (FiringFilter(detector="busy"), 100),
        (FiringFilter(detector="rare"), 50),
        (FiringFilter(detector="rare", tracking=["rare"]), 25),
        (FiringFilter(tracking=["busy", "rare"]), 100),
    ],
    ids=str,
)
async def test_a_page_of_firings_reads_no_more_than_it_shows(
    fired: Database, asked: FiringFilter, number: int
) -> None:
    explaining: Any = Explaining(fired)
    await FiringReads(explaining).page(1, asked, limit=100, cursor=None)
    for plan in explaining.plans:
        assert "Seq Scan" not in plan
        assert not re.search(r"(?:^|->\s+)Sort ", plan, re.MULTILINE), plan
    page = await FiringReads(fired).page(1, asked, limit=100, cursor=None)
    assert len(page["events"]) == number
    moments = [row["created_at"] for row in page["events"]]
    assert moments == sorted(moments, reverse=True)
    more = await FiringReads(fired).page(1, asked, limit=100, cursor=page["next_cursor"])
    assert (page["next_cursor"] is None) == (number < 100)
    if number == 100:
        assert not {row["id"] for row in page["events"]} & {row["id"] for row in more["events"]}
