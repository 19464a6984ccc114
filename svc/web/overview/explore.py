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
import trio

from protocol.refusals import Refused
from protocol.rest.query import SEARCH_LIMIT_DEFAULT, searched
from protocol.storage import Slow
from svc.domain.queries.datasets import DATASETS, Dataset
from svc.domain.queries.measures import COUNT, MEASURES
from svc.store.reads.attributes import promoted_fields
from svc.store.reads.buckets import INTERVALS
from svc.store.reads.query import QueryStore
from svc.store.reads.questions import Question, ask
from svc.web.overview.explore_view import (
    FACETS_SHOWN,
    ROWS,
    TIMES,
    Explored,
    as_calls,
    bars,
    facet_bars,
    headline,
    times_of,
)
from svc.web.shell.aged_out import aged_out
from svc.web.shell.measure_text import LABELS, number_text
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.ranges import PRESETS, TimeRange

TIMEOUT_S: Final = 10.0
#: The range `all` begins here: a drawing needs a beginning.
_FAR_BACK: Final = timedelta(days=90)
_TOKEN: Final = re.compile(r'([a-z_]+|attr\.[^\s:"]{1,120}):("(?:[^"\\]|\\.)*"|\S+)|("(?:[^"\\]|\\.)*"|\S+)')


def _explored(visit: Visit, own_fields: Sequence[str]) -> Explored:
    """From the address, where spans have these fields of the project's own beside those of the dataset.

    Raises `Refused` for a range that cannot be read.
    """
    dataset = DATASETS.get(visit.query.get("dataset", "spans"), DATASETS["spans"])
    facets = _facet_names(dataset, own_fields)
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


def _facet_names(dataset: Dataset, own_fields: Sequence[str]) -> list[str]:
    names = [field.name for field in dataset.fields if field.facetable]
    return [*names, *own_fields] if dataset.has_attributes else names


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if len(value) > 1 and value[0] == value[-1] == '"' else value


@attrs.define
class _Answers:
    total: Mapping[str, Any] | None = None
    buckets: list[dict[str, Any]] = attrs.field(factory=list)
    facets: list[dict[str, Any]] = attrs.field(factory=list)
    rows: list[dict[str, Any]] = attrs.field(factory=list)
    #: What is to be said beside the numbers, such as how far payloads were looked into.
    notes: Sequence[str] = ()
    slow: bool = False
    wrong: str = ""


async def explore(visit: Visit) -> Html:
    """The page."""
    own_fields = await promoted_fields(visit.means.history, visit.project.id)
    explored = _explored(visit, own_fields)
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
        "facet_names": _facet_names(explored.dataset, own_fields),
        "filter_names": [field.name for field in explored.dataset.fields],
        "bars": bars(explored.measure, answers.buckets),
        "facet_bars": facet_bars(explored.measure, answers.facets),
        "labels": LABELS,
        "times": [(name, TIMES.get(name, name)) for name in times_of(explored.dataset)],
        "number_text": partial(number_text, explored.measure.name),
        "headline": None if answers.total is None else headline(explored, answers.total),
        "calls": as_calls(visit, explored, bounds),
        "aged_out": await aged_out(
            visit, [row["fields"].get("payload_available", True) for row in answers.rows]
        ),
    }
    return Html("overview/explore", context, modules=("tabs", "copy"))


async def _answer(visit: Visit, explored: Explored, question: Question, answers: _Answers) -> None:
    """Everything the page shows, one question after the other, within its time."""
    queries = QueryStore(visit.means.history)
    text = searched(explored.text or None)
    with trio.move_on_after(TIMEOUT_S) as patience:
        # Payloads are looked into once for all of it.
        question, notes = await queries.chosen(question)
        answers.total = await queries.count(question)
        answers.notes = [*notes, *answers.total.get("notes", ())]
        answers.buckets = (await queries.timeseries(question, explored.interval))["buckets"]
        answers.facets = (await queries.facets(question, explored.field, FACETS_SHOWN))["facets"]
        if explored.dataset.searched:
            limit = min(ROWS, SEARCH_LIMIT_DEFAULT)
            answers.rows = (await queries.search(question, text, None, limit, None))["rows"]
    answers.slow = patience.cancelled_caught


PAGES: Final = (PageRoute("GET", PROJECT + "/explore", "ORG_VIEW", explore),)
