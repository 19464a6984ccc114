"""Samples of what the instance knows of itself: one a kind and hour, kept for a while.

Owns the table `instance_sample`. Of several copies the first one in an hour writes. Called by the watch.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from protocol.alerts import RuleKind
from protocol.samples import SAMPLES_KEPT, Sample
from svc.domain.calendar import hour_of
from svc.store.postgres.database import Connection, Database


async def keep_samples(database: Database, samples: Mapping[RuleKind, Sample], now: datetime) -> None:
    """Keep these for this hour, unless there are some, and let go of what is too old. Raises `Outage`."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "insert into instance_sample (kind, hour, taken_at, facts) select kind, $1, $2, facts::jsonb"
            " from unnest($3::text[], $4::text[]) as sampled (kind, facts) on conflict do nothing",
            hour_of(now),
            now,
            list(samples),
            [msgspec.json.encode(sample).decode() for sample in samples.values()],
        )
        # What no backtest reaches; the table is small.
        await connection.execute("delete from instance_sample where hour < $1", now - SAMPLES_KEPT)

    await database.run(work)
