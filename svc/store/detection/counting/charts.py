"""Tallies along time for drawings: small lines beside the cases of a list, and the chart of one.

Reads what `tallies` owns. A list asks for all its lines with one statement, whose answer
grows with the steps drawn and not with the traffic. Never judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from svc.domain.detect.detectors.base import MEASURES
from svc.domain.detect.engine.axis import UNIT_DOLLARS, UNIT_MS, UNIT_SCORE
from svc.domain.detect.engine.histogram import Histogram
from svc.store.postgres.database import READ_TIMEOUT_S, Database

#: Lines that are drawn on one page.
LINES: Final = 100

# Each line's steps: what was counted, and of sizes the mean bin, which is a mean of logarithms.
_LINES: Final = """
select n.place, (t.slot - n.first) / n.width as step, sum(t.units)::bigint as units,
    sum(t.failures)::bigint as failures, sum(t.units * (t.bin + 0.5))::float8 as bins
from unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::integer[]) with ordinality
    as n (measure, subject, first, upto, width, place)
join fold_state s on s.project_id = $1
join tally_bucket b on b.project_id = $1 and b.measure = n.measure and b.subject = n.subject
join tally t on t.project_id = b.project_id and t.bucket_id = b.id
    and t.slot >= greatest(n.first, s.gone_before) and t.slot < n.upto
group by 1, 2 having sum(t.units) > 0 order by 1, 2
"""

# One bucket's steps with all that is needed for quantiles.
_STEPS: Final = """
select (t.slot - $4) / $6 as step, t.bin, sum(t.units)::bigint as units, sum(t.failures)::bigint as failures
from tally_bucket b join fold_state s on s.project_id = b.project_id
join tally t on t.project_id = b.project_id and t.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and b.subject = $3
  and t.slot >= greatest($4, s.gone_before) and t.slot < $5
group by 1, 2 having sum(t.units) > 0 order by 1, 2
"""


@attrs.frozen
class LineAsked:
    """One line: of which bucket, over the slots `[first, first + steps * width)`."""

    measure: str
    subject: str
    first: int
    steps: int
    width: int


@attrs.frozen
class ChartStep:
    """One step of a chart. `value` is the share that failed, the median, or the number counted; None: nothing
    was counted. `upper` is the 95 % quantile of sizes.
    """

    units: int = 0
    failures: int = 0
    value: float | None = None
    upper: float | None = None


@attrs.define(eq=False)
class ChartReads:
    """All verbs raise `Outage`."""

    database: Database

    async def lines(self, project_id: int, requests: Sequence[LineAsked]) -> list[list[float | None]]:
        """The values of each line, step by step: shares, mean logarithms of sizes, or numbers of events."""
        if not requests:
            return []
        requests = requests[:LINES]
        rows = await self.database.fetch(
            _LINES,
            project_id,
            [line.measure for line in requests],
            [line.subject for line in requests],
            [line.first for line in requests],
            [line.first + line.steps * line.width for line in requests],
            [line.width for line in requests],
            timeout_s=READ_TIMEOUT_S,
        )
        drawn: list[list[float | None]] = [
            [0.0 if is_counted(line.measure) else None] * line.steps for line in requests
        ]
        for row in rows:
            measure, units = requests[row["place"] - 1].measure, row["units"]
            if is_size(measure):
                value = row["bins"] / units
            else:
                value = float(units) if is_counted(measure) else row["failures"] / units
            drawn[row["place"] - 1][row["step"]] = value
        return drawn

    async def steps(
        self, project_id: int, measure: str, subject: str, first: int, width: int, steps: int
    ) -> list[ChartStep]:
        """One bucket's steps; sizes in milliseconds or US dollars."""
        rows = await self.database.fetch(
            _STEPS,
            project_id,
            measure,
            subject,
            first,
            first + width * steps,
            width,
            timeout_s=READ_TIMEOUT_S,
        )
        bins: dict[int, list[tuple[int, int, int]]] = {}
        for row in rows:
            bins.setdefault(row["step"], []).append((row["bin"], row["units"], row["failures"]))
        return [_step(measure, bins.get(index, ())) for index in range(steps)]

    async def sizes(
        self, project_id: int, measure: str, subject: str, spans: Mapping[str, tuple[int, int]]
    ) -> dict[str, Histogram]:
        """The distributions of one bucket over stretches of slots, by their names."""
        histograms = {}
        for name, (first, end) in spans.items():
            rows = await self.database.fetch(
                _STEPS, project_id, measure, subject, first, end, max(end - first, 1),
                timeout_s=READ_TIMEOUT_S,
            )  # fmt: skip
            histograms[name] = Histogram(
                tuple(row["bin"] for row in rows), tuple(row["units"] for row in rows)
            )
        return histograms


def is_size(measure: str) -> bool:
    """Whether a measure is of sizes."""
    return measure in MEASURES and MEASURES[measure].unit is not None


def is_counted(measure: str) -> bool:
    """Whether a measure only counts what was seen, so that a step without it is a zero."""
    return measure in MEASURES and MEASURES[measure].details


def drawn_unit(measure: str) -> Literal["share", "ms", "usd", "count", "score"]:
    """The unit of the values of `ChartStep`, as `svc.domain.quantities.WRITERS` names it."""
    if is_counted(measure):
        return "count"
    if not is_size(measure):
        return "share"
    if unit_of(measure) == UNIT_SCORE:
        return "score"
    return "usd" if unit_of(measure) == UNIT_DOLLARS else "ms"


def unit_of(measure: str) -> float:
    """The lower end of a size's first bin."""
    return (MEASURES[measure].unit if measure in MEASURES else None) or UNIT_MS


def _step(measure: str, rows: Sequence[tuple[int, int, int]]) -> ChartStep:
    units = sum(row[1] for row in rows)
    failures = sum(row[2] for row in rows)
    if is_counted(measure):
        return ChartStep(units, failures, float(units))
    if not units:
        return ChartStep()
    if not is_size(measure):
        return ChartStep(units, failures, failures / units)
    histogram = Histogram(tuple(row[0] for row in rows), tuple(row[1] for row in rows))
    unit = unit_of(measure)
    return ChartStep(units, failures, histogram.quantile(0.5, unit), histogram.quantile(0.95, unit))
