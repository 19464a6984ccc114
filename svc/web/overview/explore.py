"""Explore: the query API as a page. A dataset, a measure, filters, a range; how much, when, and of what kind.

The address is the question, and the same question stands below as an API call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC
from functools import partial
from typing import Any, Final

import attrs
import trio

from protocol.refusals import Refused
from protocol.rest.answers import Bucket, Counted, Facet, FoundRow
from protocol.rest.query import SEARCH_LIMIT_DEFAULT, searched
from protocol.storage import Slow
from svc.domain.queries.datasets import DATASETS
from svc.store.accounts.kept_charts import MOST_CHARTS, TITLE_CHARS, KeptChart, KeptChartStore
from svc.store.postgres.together import run_together
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.questions.buckets import INTERVALS
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import Question, ask
from svc.web.overview.board_view import suggested_title
from svc.web.overview.explore_question import Explored, field_names, times_of
from svc.web.overview.explore_view import (
    FACETS_SHOWN,
    ROWS,
    TIMES,
    adds_up,
    as_calls,
    bars,
    facet_bars,
    headline,
    summed,
)
from svc.web.shell.aged_out import aged_out
from svc.web.shell.measure_text import LABELS, number_text
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.ranges import PRESETS

TIMEOUT_S: Final = 10.0


@attrs.define
class _Answers:
    total: Counted | None = None
    buckets: Sequence[Bucket] = ()
    facets: Sequence[Facet] = ()
    rows: Sequence[FoundRow] = ()
    #: What is to be said beside the numbers, such as how far payloads were looked into.
    notes: Sequence[str] = ()
    slow: bool = False
    wrong: str = ""


async def explore(visit: Visit) -> Html:
    """The page."""
    return await explore_page(visit)


async def explore_page(visit: Visit, *, typed: str | None = None, wrong: str = "") -> Html:
    """The page. `typed` is a title that was refused for a kept chart, `wrong` says why."""
    own_fields = await promoted_fields(visit.means.history, visit.project.id)
    explored = Explored.of(visit.query, visit.means.now(), visit.base, own_fields)
    answers, charts = _Answers(), list[KeptChart]()

    async def list_kept() -> None:
        charts.extend(await KeptChartStore(visit.means.database).list(visit.project.id))

    await run_together(partial(_ask, visit, explored, answers), list_kept)
    context = {
        "explored": explored,
        "answers": answers,
        "datasets": DATASETS,
        "intervals": INTERVALS,
        "presets": PRESETS,
        "facet_names": field_names(explored.dataset, own_fields),
        "filter_names": [field.name for field in explored.dataset.fields],
        "bars": bars(explored, answers.buckets),
        "utc": UTC,
        "facet_bars": facet_bars(explored.measure, answers.facets),
        "labels": LABELS,
        "times": [(name, TIMES.get(name, name)) for name in times_of(explored.dataset)],
        "number_text": partial(number_text, explored.measure.name),
        "headline": None if answers.total is None else headline(explored, answers.total),
        "calls": as_calls(visit, explored),
        "keeping": _keeping(visit, explored, charts, typed, wrong),
        "aged_out": await aged_out(
            visit, [row.fields.get("payload_available", True) for row in answers.rows]
        ),
    }
    return Html("overview/explore", context, status=400 if wrong else 200)


def _keeping(
    visit: Visit, explored: Explored, charts: Sequence[KeptChart], typed: str | None, wrong: str
) -> dict[str, Any]:
    """The form that keeps the chart on Overview, or the chart that is there."""
    chart = next((chart for chart in charts if chart.question == explored.kept), None)
    return {
        "chart": chart,
        "done": chart is not None and "kept" in visit.query,
        "most": MOST_CHARTS,
        "is_full": len(charts) >= MOST_CHARTS,
        "question": explored.address().partition("?")[2],
        "title": suggested_title(explored) if typed is None else typed,
        "title_chars": TITLE_CHARS,
        "wrong": wrong,
    }


async def _ask(visit: Visit, explored: Explored, answers: _Answers) -> None:
    """Everything the page shows, as far as it can be asked and there is time."""
    try:
        question = ask(
            visit.project.id,
            explored.dataset.name,
            explored.bounds,
            explored.filters,
            by=explored.by,
            measure=explored.measure.name,
        )
        await _answer(visit, explored, question, answers)
    except Refused as refused:
        answers.wrong = refused.refusal.message
    except Slow:
        answers.slow = True


async def _answer(visit: Visit, explored: Explored, question: Question, answers: _Answers) -> None:
    """Everything the page shows, within its time."""
    queries = QueryStore(visit.means.history)
    measure = explored.measure.name
    notes: Sequence[str] = ()

    async def draw() -> None:
        series = await queries.timeseries(question, explored.interval)
        answers.buckets = series.buckets
        if adds_up(explored):
            answers.total = summed(measure, series.buckets)
            answers.notes = [*explored.unknown, *notes, *(series.notes or ())]

    async def count() -> None:
        if not adds_up(explored):
            answers.total = await queries.count(question)
            answers.notes = [*explored.unknown, *notes, *(answers.total.notes or ())]

    async def split() -> None:
        answers.facets = (await queries.facets(question, explored.field, FACETS_SHOWN)).facets

    async def list_rows() -> None:
        if explored.dataset.searched:
            limit, text = min(ROWS, SEARCH_LIMIT_DEFAULT), searched(explored.text or None)
            answers.rows = (await queries.search(question, text, None, limit, None)).rows

    with trio.move_on_after(TIMEOUT_S) as patience:
        # Payloads are looked into once for all of it.
        question, notes = await queries.chosen(question)
        await run_together(
            *(partial(_unless_slow, answers, piece) for piece in (draw, count, split, list_rows))
        )
    answers.slow |= patience.cancelled_caught


async def _unless_slow(answers: _Answers, piece: Callable[[], Awaitable[None]]) -> None:
    """One that is not answered in time takes none of the others with it."""
    try:
        await piece()
    except Slow:
        answers.slow = True


PAGES: Final = (PageRoute("GET", PROJECT + "/explore", "ORG_VIEW", explore),)
