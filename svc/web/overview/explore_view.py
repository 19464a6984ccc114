"""Explore as it is drawn: the headline of a question, its bars and API calls.

Called by `svc.web.overview.explore`. Never reads the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any, Final

import msgspec

from protocol.rest.answers import Bucket, Counted, Facet
from protocol.rest.query import timestamp
from svc.domain.quantities import count
from svc.domain.queries.measures import COUNT, MeasureName, QueryMeasure
from svc.store.reads.questions.buckets import bucket_end
from svc.store.reads.questions.measures import decimal_text
from svc.web.overview.explore_question import Explored
from svc.web.shell import words
from svc.web.shell.measure_text import LABELS, measured_number, measured_text
from svc.web.shell.page import Visit
from svc.web.shell.ranges import TimeRange

FACETS_SHOWN: Final = 20
ROWS: Final = 50
#: What the times are called.
TIMES: Final = {"started_at": "when it happened", "created_at": "when it arrived"}
#: Measures that the buckets of a range add up to.
_ADDED: Final[frozenset[MeasureName]] = frozenset({"count", "errors", "error_rate", "cost"})
#: Enough for any sum of costs.
_COST_DIGITS: Final = 100


def headline(explored: Explored, total: Counted) -> str:
    """The value over the whole range, with the rows that it is worked out of."""
    noun = explored.dataset.name.replace("_", " ")
    rows = f"{count(total.count)} {noun}"
    if explored.measure is not COUNT:
        unpriced = total.unpriced_spans
        without = f" · {count(unpriced)} without a price" if unpriced else ""
        value = measured_text(explored.measure.name, total)
        return f"{LABELS[explored.measure.name]} {value}{without} · {rows}"
    return f"{count(total.count)} in the sum of {noun}" if explored.dataset.counted_as == "sum" else rows


def adds_up(explored: Explored) -> bool:
    """Whether its buckets tell the whole, which then need not be asked for."""
    return explored.measure.name in _ADDED and explored.dataset.counted_as == "count"


def summed(name: MeasureName, buckets: Sequence[Bucket]) -> Counted:
    """What buckets of a measure that adds up come to, as the query API counts it."""
    total = Counted(count=sum(bucket.count for bucket in buckets))
    if name in ("errors", "error_rate"):
        errors = total.errors = sum(bucket.figure("errors") for bucket in buckets)
        if name == "error_rate":
            total.error_rate = errors / total.count if total.count else None
    if name == "cost":
        costs = [Decimal(bucket.cost) for bucket in buckets if bucket.cost]
        with localcontext(prec=_COST_DIGITS):
            total.cost = decimal_text(sum(costs, Decimal())) if costs else None
        total.unpriced_spans = sum(bucket.figure("unpriced_spans") for bucket in buckets)
    return total


def bars(explored: Explored, buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """The buckets with their places in the drawing; one without a value has no height.

    Those that still run, or that lie in the range with a part only, say so.
    """
    values = [measured_number(explored.measure.name, bucket) for bucket in buckets]
    width = 1 / max(1, len(buckets))
    return [
        {
            "bucket_start": bucket.bucket_start,
            "value": value,
            "x": index * width,
            "width": width,
            "height": share,
            "note": _note(words.parsed(bucket.bucket_start), explored.interval, explored.range),
        }
        for index, (bucket, value, share) in enumerate(zip(buckets, values, _shares(values), strict=True))
    ]


def _note(start: datetime, interval: str, asked: TimeRange) -> str:
    end, high = bucket_end(start, interval), asked.now if asked.high is None else asked.high
    if end > asked.now and high >= asked.now:
        return ", so far"
    return ", in part" if (asked.low and asked.low > start) or high < end else ""


def facet_bars(measure: QueryMeasure, facets: Sequence[Facet]) -> list[dict[str, Any]]:
    """The values of a field with the measure of each, and how wide its bar is."""
    values = [measured_number(measure.name, facet) for facet in facets]
    return [
        {"value": facet.value, "measured": value, "share": share}
        for facet, value, share in zip(facets, values, _shares(values), strict=True)
    ]


def _shares(values: Sequence[float | None]) -> list[float]:
    """Each value as a share of the largest; nothing where there is none."""
    most = max((value for value in values if value is not None), default=0.0)
    return [(value or 0.0) / most if most else 0.0 for value in values]


def as_calls(visit: Visit, explored: Explored) -> list[tuple[str, str]]:
    """The same questions for curl."""
    origin, bounds = visit.origin, explored.bounds
    instants = {"from": timestamp(bounds[0]), "to": timestamp(bounds[1])}
    shared: dict[str, Any] = {"dataset": explored.dataset.name, "range": instants}
    if explored.filters:
        shared["filters"] = explored.filters
    if explored.by != explored.dataset.time_column:
        shared["by"] = explored.by
    measured = shared if explored.measure is COUNT else {**shared, "measure": explored.measure.name}
    bodies = [
        ("count", measured),
        ("timeseries", {**measured, "interval": explored.interval}),
        ("facets", {**measured, "field": explored.field, "top_n": FACETS_SHOWN}),
    ]
    if explored.dataset.searched:
        bodies.append(("search", {**shared, "q": explored.text, "limit": ROWS} if explored.text else shared))
    return [
        (
            route,
            f'curl -sS {origin}/v1/query/{route} \\\n  -H "Authorization: Bearer $QUERY_KEY" \\\n  -d \''
            + msgspec.json.encode(body).decode().replace("'", "'\\''")
            + "'",
        )
        for route, body in bodies
    ]
