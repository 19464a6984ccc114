"""Two populations of traces against each other: which measures differ, and which values moved most.

Called by `svc.store.reads.usage.compare` with counts of traces; never by spans, which are not independent of
one another. Owns the statistics and the form of the answer. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from typing import Final

import attrs

from protocol.rest.answers import (
    Compared,
    ComparedExamples,
    ComparedMeasure,
    ComparedSize,
    ComparedValue,
    MovedValue,
)
from svc.domain.quantities import count
from svc.domain.rca.statistics import Z_95, OddsRatio, benjamini_hochberg, odds_ratio, wilson

#: Values shown at most: with ten of them an answer stays below 4 KB.
VALUES_SHOWN: Final = 10
VALUE_CHARS: Final = 80
EXAMPLES_SHOWN: Final = 5
#: The share of the values shown that may be there by chance.
FALSE_DISCOVERY: Final = 0.05
#: Below so many traces on a side an answer says that there are few.
FEW_TRACES: Final = 30


@attrs.frozen
class Mean:
    """A mean over the traces that know the value, with their number and standard deviation."""

    traces: int
    value: float | None
    deviation: float | None

    def shown(self) -> ComparedValue:
        """With the 95 % interval of the mean, null where there are too few to tell."""
        interval: tuple[float | None, float | None] = (None, None)
        if self.value is not None and self.deviation is not None and self.traces > 1:
            half = Z_95 * self.deviation / math.sqrt(self.traces)
            # Nothing takes less than no time, or costs less than nothing.
            interval = (max(0.0, self.value - half), self.value + half)
        return ComparedValue(_rounded(self.value), _rounded(interval[0]), _rounded(interval[1]))


@attrs.frozen
class TracePopulation:
    """One side: how many traces match, and of those looked at their measures, values and examples.

    `shares` are numbers of traces by measure, `values` by (field, value), `examples` hexadecimal ids.
    """

    matched: int
    sampled: int
    #: Whether `matched` is an estimate.
    estimated: bool = attrs.field(default=False, kw_only=True)
    shares: Mapping[str, int]
    means: Mapping[str, Mean]
    quantiles: Mapping[str, float | None]
    values: Mapping[tuple[str, str], int]
    examples: Sequence[str]


#: The unit of each measure, in the order in which they are shown.
UNITS: Final[dict[str, str | None]] = {
    "error_rate": None,
    "failed_spans_rate": None,
    "duration": "ms",
    "duration_p95": "ms",
    "cost": "USD",
    "tokens": "tokens",
    "spans": None,
}


@attrs.frozen
class Moved:
    """A value of a field that moved beyond chance: its shares of traces, and the odds of having it."""

    field: str
    value: str
    baseline_share: float
    comparison_share: float
    odds: OddsRatio

    @property
    def difference(self) -> float:
        """By how much the share grew."""
        return self.comparison_share - self.baseline_share

    def shown(self) -> MovedValue:
        """As the answer has it."""
        value = self.value if len(self.value) <= VALUE_CHARS else f"{self.value[: VALUE_CHARS - 1]}…"
        shown = MovedValue(
            self.field,
            value,
            _four_digits(self.baseline_share),
            _four_digits(self.comparison_share),
            _four_digits(self.odds.ratio),
            [_four_digits(self.odds.low), _four_digits(self.odds.high)],
            _four_digits(self.odds.p_value),
        )
        if not self.baseline_share or not self.comparison_share:
            shown.only_in = "baseline" if self.baseline_share else "comparison"
        return shown


def compared(baseline: TracePopulation, comparison: TracePopulation, split_by: Collection[str]) -> Compared:
    """The answer. Fields that made the split are not ranked: by them the sides were chosen."""
    moved = moved_values(baseline, comparison, split_by)
    return Compared(
        baseline=ComparedSize(baseline.matched, baseline.sampled),
        comparison=ComparedSize(comparison.matched, comparison.sampled),
        measures=[
            ComparedMeasure(name, unit, _value(name, baseline), _value(name, comparison))
            for name, unit in UNITS.items()
        ],
        moved=[value.shown() for value in moved[:VALUES_SHOWN]],
        moved_left_out=max(0, len(moved) - VALUES_SHOWN),
        examples=ComparedExamples(
            list(baseline.examples[:EXAMPLES_SHOWN]), list(comparison.examples[:EXAMPLES_SHOWN])
        ),
        notes=_notes(baseline, comparison),
    )


def moved_values(
    baseline: TracePopulation, comparison: TracePopulation, split_by: Collection[str]
) -> list[Moved]:
    """The values whose share of traces differs beyond chance, the largest difference first."""
    if not baseline.sampled or not comparison.sampled:
        return []
    keys = sorted(key for key in baseline.values.keys() | comparison.values.keys() if key[0] not in split_by)
    moved = []
    for field, value in keys:
        before, since = baseline.values.get((field, value), 0), comparison.values.get((field, value), 0)
        odds = odds_ratio(since, before, comparison.sampled - since, baseline.sampled - before)
        moved.append(Moved(field, value, before / baseline.sampled, since / comparison.sampled, odds))
    significant = benjamini_hochberg([value.odds.p_value for value in moved], FALSE_DISCOVERY)
    moved = list(compress(moved, significant))
    return sorted(moved, key=lambda value: (-abs(value.difference), value.field, value.value))


def _value(name: str, population: TracePopulation) -> ComparedValue:
    if name in population.shares:
        low, high = wilson(population.shares[name], population.sampled)
        share = population.shares[name] / population.sampled if population.sampled else None
        return ComparedValue(_rounded(share), _rounded(low), _rounded(high))
    if name in population.quantiles:
        return ComparedValue(_rounded(population.quantiles[name]))
    return population.means[name].shown()


def _notes(baseline: TracePopulation, comparison: TracePopulation) -> list[str]:
    notes = []
    for name, side in (("baseline", baseline), ("comparison", comparison)):
        if side.sampled < side.matched:
            about = "about " if side.estimated else "its "
            notes.append(f"{name}: a sample of {count(side.sampled)} of {about}{count(side.matched)} traces")
        if not side.sampled:
            notes.append(f"{name}: no trace matches")
        elif side.sampled < FEW_TRACES:
            notes.append(f"{name}: {side.sampled} traces are too few to tell small differences from chance")
    return notes


def _rounded(value: float | None) -> float | None:
    return None if value is None else _four_digits(value)


def _four_digits(value: float) -> float:
    """More than any of these figures is sure of."""
    return value if value == 0 else round(value, 3 - math.floor(math.log10(abs(value))))
