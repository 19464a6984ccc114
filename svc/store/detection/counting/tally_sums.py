"""Tallies added up for people: by day, and by subject.

Reads `tally_bucket` and `tally`, which `tallies` owns. The engines read slots, charts and
tables read here: one statement a question, whatever the number of buckets. Never judges.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from svc.domain.detect.detectors.base import MEASURES, TOOL, MeasureName
from svc.domain.detect.engine import beta
from svc.domain.detect.engine.histogram import Histogram
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.findings.finding_text import instant
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.postgres.rows import plain

# By day and bin, over the buckets of a measure; below `gone_before` there is nothing that counts.
_BY_DAY: Final = f"""
select t.slot / {SLOTS_PER_DAY} as day, t.bin, sum(t.units)::bigint as units,
    sum(t.failures)::bigint as failures
from tally_bucket b join fold_state s on s.project_id = b.project_id
join tally t on t.project_id = b.project_id and t.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and ($3::text is null or b.subject = $3)
  and t.slot >= greatest($4, s.gone_before) and t.slot < $5
group by 1, 2 having sum(t.units) <> 0 or sum(t.failures) <> 0 order by 1, 2
"""

# Those with most failures; among equals the busiest.
_BY_SUBJECT: Final = """
select b.subject, sum(t.units)::bigint as units, sum(t.failures)::bigint as failures,
    max(t.slot) filter (where t.units > 0) as last
from tally_bucket b join fold_state s on s.project_id = b.project_id
join tally t on t.project_id = b.project_id and t.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and t.slot >= greatest($3, s.gone_before) and t.slot < $4
group by 1 having sum(t.units) > 0 order by 3 desc, 2 desc, 1 limit $5
"""


@attrs.define(eq=False)
class TallySums:
    """All verbs raise `Outage`; slots are half open, `[first, end)`."""

    database: Database

    async def by_day(
        self, project_id: int, measure: MeasureName, subject: str | None, first: int, end: int
    ) -> list[dict[str, Any]]:
        """The days of a measure, of one subject or of all, oldest first."""
        rows = await self.database.fetch(
            _BY_DAY, project_id, measure, subject, first, end, timeout_s=READ_TIMEOUT_S
        )
        unit = MEASURES[measure].unit
        days: dict[int, list[Any]] = {}
        for row in rows:
            days.setdefault(row["day"], []).append(row)
        return [
            {"day": plain(instant(day * SLOTS_PER_DAY)), **_summed(rows, unit)} for day, rows in days.items()
        ]

    async def tool_error_rates(
        self, project_id: int, first: int, end: int, limit: int
    ) -> list[dict[str, Any]]:
        """The tools that fail in most traces, each with its share and the 95 % interval."""
        rows = await self.database.fetch(
            _BY_SUBJECT, project_id, "tool_error_rate", first, end, limit, timeout_s=READ_TIMEOUT_S
        )
        rates = []
        for row in rows:
            low, high = beta.interval(row["failures"], row["units"])
            rates.append(
                {
                    "tool": row["subject"].removeprefix(TOOL),
                    "traces": row["units"],
                    "failures": row["failures"],
                    "rate": row["failures"] / row["units"],
                    "low": low,
                    "high": high,
                    "last_called_at": plain(instant(row["last"])),
                }
            )
        return rates


def _summed(rows: list[Any], unit: float | None) -> dict[str, Any]:
    units = sum(row["units"] for row in rows)
    if unit is None:
        failures = sum(row["failures"] for row in rows)
        return {"units": units, "failures": failures, "rate": failures / units if units else None}
    # A trace that is on its way between two places may have left one too few for a moment.
    bins = [(row["bin"], row["units"]) for row in rows if row["units"] > 0]
    histogram = Histogram(tuple(bin_ for bin_, _ in bins), tuple(n for _, n in bins))
    if not histogram.total:
        return {"units": units}
    # Quantiles come in the measure's own unit: milliseconds, or dollars.
    return {"units": units, "p50": histogram.quantile(0.5, unit), "p95": histogram.quantile(0.95, unit)}
