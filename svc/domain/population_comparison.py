"""Two populations of traces against each other: which measures differ, and which values moved most.

Called by `svc.store.reads.compare` with counts of traces; never by spans, which are not independent of one
another. Owns the statistics and the form of the answer. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import attrs

from svc.domain.quantities import count
from svc.domain.rca.statistics import Z_95, benjamini_hochberg, odds_ratio, wilson

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

    def shown(self) -> dict[str, Any]:
        """With the 95 % interval of the mean, null where there are too few to tell."""
        interval: tuple[float | None, float | None] = (None, None)
        if self.value is not None and self.deviation is not None and self.traces > 1:
            half = Z_95 * self.deviation / math.sqrt(self.traces)
            interval = (self.value - half, self.value + half)
        return {"value": _rounded(self.value), "low": _rounded(interval[0]), "high": _rounded(interval[1])}


@attrs.frozen
class TracePopulation:
    """One side: how many traces match, and of those looked at their measures, values and examples.

    `shares` are numbers of traces by measure, `values` by (field, value), `examples` hexadecimal ids.
    """

    matched: int
    sampled: int
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
    """A value of a field that moved beyond chance: its traces on both sides, and the odds of having it."""

    field: str
    value: str
    baseline: int
    comparison: int
    difference: float
    shown: dict[str, Any]


def compared(
    baseline: TracePopulation, comparison: TracePopulation, split_by: Collection[str]
) -> dict[str, Any]:
    """The answer. Fields that made the split are not ranked: by them the sides were chosen."""
    moved = moved_values(baseline, comparison, split_by)
    return {
        "baseline": {"traces": baseline.matched, "sampled": baseline.sampled},
        "comparison": {"traces": comparison.matched, "sampled": comparison.sampled},
        "measures": [_measure(name, unit, baseline, comparison) for name, unit in UNITS.items()],
        "moved": [value.shown for value in moved[:VALUES_SHOWN]],
        "moved_left_out": max(0, len(moved) - VALUES_SHOWN),
        "examples": {
            "baseline": list(baseline.examples[:EXAMPLES_SHOWN]),
            "comparison": list(comparison.examples[:EXAMPLES_SHOWN]),
        },
        "notes": _notes(baseline, comparison),
    }


def moved_values(
    baseline: TracePopulation, comparison: TracePopulation, split_by: Collection[str]
) -> list[Moved]:
    """The values whose share of traces differs beyond chance, the largest difference first."""
    if not baseline.sampled or not comparison.sampled:
        return []
    keys = sorted(key for key in baseline.values.keys() | comparison.values.keys() if key[0] not in split_by)
    ratios = []
    for key in keys:
        before, since = baseline.values.get(key, 0), comparison.values.get(key, 0)
        ratios.append(odds_ratio(since, before, comparison.sampled - since, baseline.sampled - before))
    stands = benjamini_hochberg([ratio.p_value for ratio in ratios], FALSE_DISCOVERY)
    moved = []
    for (field, value), ratio, significant in zip(keys, ratios, stands, strict=True):
        if not significant:
            continue
        before, since = baseline.values.get((field, value), 0), comparison.values.get((field, value), 0)
        share_before, share_since = before / baseline.sampled, since / comparison.sampled
        shown = {
            "field": field,
            "value": value if len(value) <= VALUE_CHARS else f"{value[: VALUE_CHARS - 1]}…",
            "baseline_share": _rounded(share_before),
            "comparison_share": _rounded(share_since),
            "odds_ratio": _rounded(ratio.ratio),
            "odds_between": [_rounded(ratio.low), _rounded(ratio.high)],
            "p_value": _rounded(ratio.p_value),
        }
        if not before or not since:
            shown["only_in"] = "baseline" if before else "comparison"
        moved.append(Moved(field, value, before, since, share_since - share_before, shown))
    return sorted(moved, key=lambda value: (-abs(value.difference), value.field, value.value))


def _measure(
    name: str, unit: str | None, baseline: TracePopulation, comparison: TracePopulation
) -> dict[str, Any]:
    return {
        "measure": name,
        "unit": unit,
        "baseline": _value(name, baseline),
        "comparison": _value(name, comparison),
    }


def _value(name: str, population: TracePopulation) -> dict[str, Any]:
    if name in population.shares:
        low, high = wilson(population.shares[name], population.sampled)
        share = population.shares[name] / population.sampled if population.sampled else None
        return {"value": _rounded(share), "low": _rounded(low), "high": _rounded(high)}
    if name in population.quantiles:
        return {"value": _rounded(population.quantiles[name])}
    return population.means[name].shown()


def _notes(baseline: TracePopulation, comparison: TracePopulation) -> list[str]:
    notes = []
    for name, side in (("baseline", baseline), ("comparison", comparison)):
        if side.sampled < side.matched:
            notes.append(
                f"{name}: {count(side.sampled)} of {count(side.matched)} traces were looked at,"
                " chosen by the end of their ids"
            )
        if side.sampled < FEW_TRACES:
            notes.append(f"{name}: {side.sampled} traces are too few to tell small differences from chance")
    return notes


def _rounded(value: float | None) -> float | None:
    """To four digits, which is more than any of these figures is sure of."""
    if value is None or value == 0:
        return value
    return round(value, 3 - math.floor(math.log10(abs(value))))
