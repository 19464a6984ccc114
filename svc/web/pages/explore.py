"""Explore: the query API as a page. A dataset, a measure, filters, a range; how much, when, and of what kind.

The address is the question, and the same question stands below as an API call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio

from protocol.refusals import Refused
from protocol.rest.query import SEARCH_LIMIT_DEFAULT, searched
from protocol.storage import Slow
from svc.domain.datasets import DATASETS, Dataset
from svc.domain.measures import COUNT, MEASURES, QueryMeasure
from svc.domain.quantities import count
from svc.store.reads.buckets import INTERVALS
from svc.store.reads.query import QueryStore
from svc.store.reads.questions import EVENT_TIME, Question, ask
from svc.web.aged_out import aged_out
from svc.web.filters import quoted
from svc.web.measure_text import LABELS, measured_number, measured_text, number_text
from svc.web.page import PROJECT, Html, PageRoute, Visit
from svc.web.ranges import PRESETS, TimeRange
from svc.web.render import query

TIMEOUT_S: Final = 10.0
FACETS_SHOWN: Final = 20
ROWS: Final = 50
#: The range `all` begins here: a drawing needs a beginning.
_FAR_BACK: Final = timedelta(days=90)
_TOKEN: Final = re.compile(r'([a-z_]+):("(?:[^"\\]|\\.)*"|\S+)|("(?:[^"\\]|\\.)*"|\S+)')


@attrs.frozen
class Explored:
    """What the address asks."""

    dataset: Dataset
    bar: str
    filters: dict[str, str | None]
    text: str
    field: str
    interval: str
    range: TimeRange
    base: str
    measure: QueryMeasure
    by: str

    def address(self, **other: Any) -> str:
        """The address of this question with something else in it."""
        parameters = {
            "dataset": self.dataset.name,
            "q": self.bar,
            "field": self.field,
            "interval": self.interval,
            "measure": self.measure.name,
            "by": self.by,
            **self.range.parameters,
            **other,
        }
        return query(f"{self.base}/explore", **parameters)

    def narrowed(self, value: str | None) -> str:
        """The address with a value of the field as a filter."""
        typed = f"{self.field}:{'null' if value is None else quoted(value)}"
        return self.address(q=f"{self.bar} {typed}".strip())


def _explored(visit: Visit) -> Explored:
    """From the address. Raises `Refused` for a range that cannot be read."""
    dataset = DATASETS.get(visit.query.get("dataset", "spans"), DATASETS["spans"])
    facets = [field.name for field in dataset.fields if field.facetable]
    bar = visit.query.get("q", "").strip()
    filters: dict[str, str | None] = {}
    texts: list[str] = []
    for name, value, text in _TOKEN.findall(bar[:2000]):
        if dataset.field(name) is not None:
            filters[name] = None if value == "null" else _plain(value)
        else:
            texts.append(f"{name}:{value}" if name else _plain(text))
    range_ = TimeRange.of(visit.query, visit.means.now())
    field = visit.query.get("field", "")
    interval = visit.query.get("interval", "")
    length = (range_.high or range_.now) - (range_.low or range_.now - _FAR_BACK)
    return Explored(
        dataset,
        bar,
        filters,
        " ".join(texts),
        field if field in facets else facets[0],
        interval if interval in INTERVALS else "hour" if length <= timedelta(days=3) else "day",
        range_,
        visit.base,
        next((MEASURES[name] for name in dataset.measures if name == visit.query.get("measure")), COUNT),
        visit.query["by"] if visit.query.get("by") in times_of(dataset) else times_of(dataset)[0],
    )


def times_of(dataset: Dataset) -> tuple[str, ...]:
    """The times that a range can be on, first the one that people mean."""
    return (EVENT_TIME, dataset.time_column) if dataset.has_event_time else (dataset.time_column,)


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if len(value) > 1 and value[0] == value[-1] == '"' else value


@attrs.define
class _Answers:
    total: Mapping[str, Any] | None = None
    buckets: list[dict[str, Any]] = attrs.field(factory=list)
    facets: list[dict[str, Any]] = attrs.field(factory=list)
    rows: list[dict[str, Any]] = attrs.field(factory=list)
    slow: bool = False
    wrong: str = ""


async def explore(visit: Visit) -> Html:
    """The page."""
    explored = _explored(visit)
    answers = _Answers()
    now = explored.range.now
    bounds = (explored.range.low or now - _FAR_BACK, explored.range.high or now)
    try:
        question = ask(
            visit.project.id,
            explored.dataset.name,
            bounds,
            explored.filters,
            by=explored.by,
            measure=explored.measure.name,
        )
        await _answer(visit, explored, question, answers)
    except Refused as refused:
        answers.wrong = refused.refusal.message
    except Slow:
        answers.slow = True
    context = {
        "explored": explored,
        "answers": answers,
        "datasets": DATASETS,
        "intervals": INTERVALS,
        "presets": PRESETS,
        "facet_names": [field.name for field in explored.dataset.fields if field.facetable],
        "filter_names": [field.name for field in explored.dataset.fields],
        "bars": _bars(explored.measure, answers.buckets),
        "facet_bars": _facet_bars(explored.measure, answers.facets),
        "labels": LABELS,
        "times": [(name, _TIMES.get(name, name)) for name in times_of(explored.dataset)],
        "number_text": partial(number_text, explored.measure.name),
        "headline": None if answers.total is None else _headline(explored, answers.total),
        "calls": _as_calls(visit, explored, bounds),
        "aged_out": await aged_out(
            visit, [row["fields"].get("payload_available", True) for row in answers.rows]
        ),
    }
    return Html("pages/explore", context, modules=("tabs", "copy"))


async def _answer(visit: Visit, explored: Explored, question: Question, answers: _Answers) -> None:
    """Everything the page shows, one question after the other, within its time."""
    queries = QueryStore(visit.means.history)
    text = searched(explored.text or None)
    with trio.move_on_after(TIMEOUT_S) as patience:
        answers.total = await queries.count(question)
        answers.buckets = (await queries.timeseries(question, explored.interval))["buckets"]
        answers.facets = (await queries.facets(question, explored.field, FACETS_SHOWN))["facets"]
        if explored.dataset.searched:
            limit = min(ROWS, SEARCH_LIMIT_DEFAULT)
            answers.rows = (await queries.search(question, text, None, limit, None))["rows"]
    answers.slow = patience.cancelled_caught


#: What the times are called.
_TIMES: Final = {"started_at": "when it happened", "created_at": "when it arrived"}


def _headline(explored: Explored, total: Mapping[str, Any]) -> str:
    """The value over the whole range, with the rows that it is worked out of."""
    noun = explored.dataset.name.replace("_", " ")
    rows = f"{count(total['count'])} {noun}"
    if explored.measure is not COUNT:
        unpriced = total.get("unpriced_spans")
        without = f" · {count(unpriced)} without a price" if unpriced else ""
        value = measured_text(explored.measure.name, total)
        return f"{LABELS[explored.measure.name]} {value}{without} · {rows}"
    return f"{count(total['count'])} in the sum of {noun}" if explored.dataset.counted_as == "sum" else rows


def _bars(measure: QueryMeasure, buckets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The buckets with their places in the drawing; one without a value has no height."""
    values = [measured_number(measure.name, bucket) for bucket in buckets]
    most = max((value for value in values if value is not None), default=0.0)
    width = 1 / max(1, len(buckets))
    return [
        {
            "bucket_start": bucket["bucket_start"],
            "value": value,
            "x": index * width,
            "width": width,
            "height": (value or 0.0) / most if most else 0.0,
        }
        for index, (bucket, value) in enumerate(zip(buckets, values, strict=True))
    ]


def _facet_bars(measure: QueryMeasure, facets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The values of a field with the measure of each, and how wide its bar is."""
    values = [measured_number(measure.name, facet) for facet in facets]
    most = max((value for value in values if value is not None), default=0.0)
    return [
        {**facet, "measured": value, "share": (value or 0.0) / most if most else 0.0}
        for facet, value in zip(facets, values, strict=True)
    ]


def _as_calls(visit: Visit, explored: Explored, bounds: tuple[Any, Any]) -> list[tuple[str, str]]:
    """The same questions for curl."""
    host = visit.call.headers.get("host", "localhost")
    origin = visit.means.landing or f"{'https' if visit.call.client.secure else 'http'}://{host}"
    instants = {"from": bounds[0].isoformat(), "to": bounds[1].isoformat()}
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


PAGES: Final = (PageRoute("GET", PROJECT + "/explore", "ORG_VIEW", explore),)
