"""Two sets of traces beside each other as they are shown: the headline, and each measure of both.

Called by `svc.web.overview.populations`. Never reads the store.
"""

from __future__ import annotations

from typing import Final

import attrs

from protocol.rest.answers import Compared, ComparedMeasure, ComparedValue
from svc.domain.quantities import count, duration, money, percent
from svc.web.shell import words

MEASURES: Final = {
    "error_rate": "Traces that failed",
    "failed_spans_rate": "Traces with a failed span",
    "duration": "Duration, mean",
    "duration_p95": "Duration, 95th percentile",
    "cost": "Cost, mean",
    "tokens": "Tokens, mean",
    "spans": "Spans, mean",
}


def headline(answer: Compared | None, *, by_time: bool, slow: bool, wrong: str) -> str:
    """The answer to the page's question, in a sentence."""
    if wrong:
        return "This comparison is not possible"
    if slow:
        return "Too many traces to compare in time"
    if answer is None:
        return "What is different about some traces?"
    if not answer.comparison.traces:
        return "No traces match"
    if not answer.baseline.traces:
        return "No other traces to compare with"
    others = "before" if by_time else "of the others"
    if not answer.moved:
        rows = [row for row in map(measure_row, answer.measures) if row.apart]
        if not rows:
            return "No significant difference"
        (before, _), (since, _) = rows[0].sides
        return f"{rows[0].name}: {since} against {before} {others}"
    # What they have more often says more than what they lack.
    risen = [value for value in answer.moved if value.comparison_share > value.baseline_share]
    first = (risen or answer.moved)[0]
    shares = percent(first.comparison_share), percent(first.baseline_share)
    return f"{shares[0]} have the {words.field(first.field)} {first.value}, {shares[1]} {others}"


@attrs.frozen
class MeasureRow:
    """A measure of both sides as texts, with the interval of each; `apart` where those do not meet."""

    name: str
    sides: tuple[tuple[str, str], tuple[str, str]]
    apart: bool


def measure_row(measured: ComparedMeasure) -> MeasureRow:
    """A measure of the answer."""
    name = measured.measure
    before, since = measured.baseline, measured.comparison
    intervals = before.interval(), since.interval()
    apart = False
    if intervals[0] is not None and intervals[1] is not None:
        apart = intervals[0][1] < intervals[1][0] or intervals[1][1] < intervals[0][0]
    return MeasureRow(MEASURES[name], (_shown(name, before), _shown(name, since)), apart)


def _shown(name: str, value: ComparedValue) -> tuple[str, str]:
    write = _WRITERS.get(name, count)
    if value.value is None:
        return "–", ""
    interval = value.interval()
    if interval is None:
        return write(value.value), ""
    low, high = interval
    return write(value.value), f"{write(max(0.0, low))} to {write(high)}"


_WRITERS: Final = {
    "error_rate": percent,
    "failed_spans_rate": percent,
    "duration": duration,
    "duration_p95": duration,
    "cost": money,
}
