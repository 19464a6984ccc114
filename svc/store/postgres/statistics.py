"""Statistics of young tables: what PostgreSQL plans by, before it looks itself.

Owns: `YoungTables`. A plan that is made while a table is empty may take any index that begins with the
project, and stays until the table is analyzed; autovacuum looks once a minute. So on the first day, and at
midnight, a busy writer would read the whole day to find one trace. The writer of spans counts what it stores
into each day and has the tables analyzed when they have their first rows. Never touches queues: what they
hold at one moment says nothing about the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from typing import Final

import asyncpg
import attrs

from protocol.storage import Outage
from svc.store.postgres.database import Database
from svc.store.postgres.partitions import DAILY, partition

#: After so many spans of a day. At the last, plans are right for any number.
SPANS: Final = (1_000, 10_000)
#: What grows with them, beside the tables of the day.
_UNDATED: Final = ("trace", "session", "trace_fold", "attribute_value")
#: Further days are counted anew.
_MOST_DAYS: Final = 1_000

# Those of the tables that have grown to five times what they were when they were last analyzed.
_GROWN: Final = """
select c.relname from unnest($1::text[]) as asked (name) join pg_class c on c.oid = to_regclass(asked.name)
where pg_relation_size(c.oid) > 5 * 8192 * greatest(c.relpages, 0)
"""


@attrs.define(eq=False)
class YoungTables:
    """The days that a process writes to, as long as their tables are young."""

    database: Database
    _spans: Counter[date] = attrs.field(factory=Counter)

    async def count(self, days: Iterable[date]) -> None:
        """A span of each of these days was stored. An outage here harms nobody and is passed over."""
        earlier_spans = dict(self._spans)
        self._spans.update(days)
        passed = [
            day
            for day, spans in self._spans.items()
            if any(earlier_spans.get(day, 0) < limit <= spans for limit in SPANS)
        ]
        if len(self._spans) > _MOST_DAYS:
            self._spans.clear()
        if passed:
            tables = [*_UNDATED, *(partition(table, day) for day in passed for table in DAILY)]
            # A day may have expired meanwhile.
            with suppress(Outage, asyncpg.UndefinedTableError):
                grown = {row["relname"] for row in await self.database.fetch(_GROWN, tables)}
                for table in tables:
                    if table in grown:
                        await self.database.fetch(f"analyze (skip_locked) {table}")
