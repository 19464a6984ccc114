"""Storing spans of long ago, and finding them again to be counted.

The `ImportStore` of `svc.importers.moving`. Days get their partitions before they are written to: an import
goes through old days one after the other, and what went to the default partition would be moved once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import attrs

from protocol.importing import StoredSums
from protocol.storage import Outage, StoreRefused, WriteFailed, Written
from svc.domain.intake.batches import StoredSpan
from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.postgres.statistics import YoungTables
from svc.store.spans.attribute_codes import AttributeCodes
from svc.store.spans.call_sites import CallSites
from svc.store.spans.writing import SpanStore

#: An identity is a trace id of so many bytes, then a span id.
_TRACE_BYTES: Final = 16
_FOUND_TIMEOUT_S: Final = 120.0

# Of these spans, those that are stored; days outside of a trace's bounds are not looked at.
_FOUND: Final = """
select s.trace_id, count(*) as spans,
    coalesce(sum(u.tokens), 0)::bigint as tokens,
    coalesce(sum(u.tokens) filter (where s.usage_repeats is not null), 0)::bigint as again,
    count(*) filter (where s.cost_source = 'unpriced') as unpriced
from unnest($2::bytea[], $3::bytea[]) as asked (trace_id, span_id)
join trace t on t.project_id = $1 and t.trace_id = asked.trace_id
join span s on s.project_id = $1 and s.trace_id = asked.trace_id and s.span_id = asked.span_id
    and s.started_at between t.first_started_at and t.last_started_at
cross join lateral (select coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0)
    + coalesce(s.cache_read_tokens, 0) + coalesce(s.cache_write_tokens, 0)
    + coalesce(s.reasoning_tokens, 0) as tokens) u
group by s.trace_id
"""


@attrs.define(eq=False)
class PostgresImportStore:
    """Stores and finds spans of one import. `term_days` is the install's term of retention for traces."""

    database: Database
    days: DayPartitions
    call_sites: CallSites = attrs.field(factory=CallSites)
    codes: AttributeCodes = attrs.field(
        default=attrs.Factory(lambda self: AttributeCodes(self.database), takes_self=True)
    )
    young: YoungTables = attrs.field(
        default=attrs.Factory(lambda self: YoungTables(self.database), takes_self=True)
    )

    async def write(self, spans: Sequence[StoredSpan], came: Callable[[StoredSpan], datetime]) -> Written:
        """Store them in one transaction, dated as `came` says.

        Raises `Outage`, `StoreRefused`, and `WriteFailed` for whatever else fails.
        """
        days = {span.day for span in spans}
        try:
            if self.days.unknown(days):
                moment = await self.database.run(server_clock, transaction=False)
                await self.days.ensure(days, moment)
            store = SpanStore(
                self.database, self.days, self.call_sites, dated=came, codes=self.codes, young=self.young
            )
            return await store.write(spans)
        except (Outage, StoreRefused):
            raise
        except Exception as error:
            raise WriteFailed.of(error) from error

    async def found(self, project_id: int, ids: Sequence[bytes], last_trace: bytes) -> StoredSums:
        """Sums over those of the spans that are stored. `last_trace` is not counted as a trace again."""
        rows = await self.database.fetch(
            _FOUND,
            project_id,
            [span_id[:_TRACE_BYTES] for span_id in ids],
            [span_id[_TRACE_BYTES:] for span_id in ids],
            timeout_s=_FOUND_TIMEOUT_S,
        )
        return StoredSums(
            spans=sum(row["spans"] for row in rows),
            traces=sum(row["trace_id"] != last_trace for row in rows),
            tokens=sum(row["tokens"] for row in rows),
            again=sum(row["again"] for row in rows),
            unpriced=sum(row["unpriced"] for row in rows),
            last_trace=max((row["trace_id"] for row in rows), default=last_trace),
        )
