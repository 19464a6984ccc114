"""Overview: what ran, what failed, how long it took and what it cost, over days and split by one field.

The address is the state: `range` or `from` and `to` (days, UTC), `q` the bar, `by` the split, `table` the
chart that is shown as a table. Every bar and every row leads to its traces. Charts that the project has kept
from Explore stand below the page's own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from protocol.refusals import BAD_REQUEST, Refused
from protocol.rest.query import timestamp
from protocol.storage import Slow
from svc.domain.attributes.conventions import CONVENTION_FIELDS
from svc.domain.detect.detectors.base import slot_of
from svc.domain.detect.engine.slots import SLOT_S
from svc.store.accounts.kept_charts import TITLE_CHARS, KeptChartStore
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.judging.statistic_path import StatisticReads
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.web.cases.case_text import Title
from svc.web.feedback.feedback import name_rows
from svc.web.overview.board_reads import BoardReads
from svc.web.overview.board_view import BoardChart, csv_columns
from svc.web.overview.overview_charts import release_marks
from svc.web.overview.overview_period import NAMED, DayRange
from svc.web.overview.overview_reads import DIMENSIONS, TIMEOUT_S, Dimension, Overview, OverviewReads
from svc.web.overview.overview_view import charts, csv_lines, headline, table
from svc.web.shell import words
from svc.web.shell.filters import Filters, Token, read_filters
from svc.web.shell.page import PROJECT, Html, PageRoute, Sent, Visit
from svc.web.shell.render import query
from svc.web.traces.trace_call import SPAN_FIELDS

#: Filters that can be asked of spans and of traces alike, beside attributes.
_OF_BOTH: Final = frozenset({"model", "kind", "site", "session", "user"})
#: Names of feedback that are shown, those with most entries.
_NAMES_SHOWN: Final = 6
#: Cases that the second line names, and how many are looked through for them.
_CASES_NAMED: Final = 2
_CASES_READ: Final = 20
#: Releases that are marked in the charts, the newest.
_RELEASES_MARKED: Final = 8


@attrs.frozen
class Renaming:
    """A title that a chart of the board was to have, and why it was refused."""

    chart_id: UUID
    title: str
    wrong: str


async def overview(visit: Visit) -> Html:
    """The page."""
    return await overview_page(visit)


async def overview_page(visit: Visit, renaming: Renaming | None = None) -> Html:
    """The page, with a title that was refused in its field."""
    deadline = trio.current_time() + TIMEOUT_S
    by = _split_of(visit)
    period, dimension = DayRange.of(visit.query, visit.means.now()), DIMENSIONS[by]
    own_fields = await promoted_fields(visit.means.history, visit.project.id)
    filters, left_out = _filters(visit, own_fields)
    figures = await _read(visit, period, dimension, filters)
    rows, total = table(
        figures, dimension, lambda value: _row_address(visit, period, filters, dimension, value)
    )
    releases = await _releases(visit, period, deadline)
    context: dict[str, Any] = {
        "period": period,
        "named": NAMED,
        "by": by,
        "dimension": dimension,
        "dimensions": DIMENSIONS,
        "filters": filters,
        "left_out": left_out,
        "headline": headline(figures, period),
        "overview": figures,
        "charts": [
            attrs.evolve(chart, marks=release_marks(period, releases))
            # Several charts have the same steps, each with its address.
            for chart in charts(figures, period, dimension, cache(partial(traces_address, visit, filters)))
        ],
        "releases": releases,
        "as_table": visit.query.get("table", ""),
        "rows": rows,
        "total": total,
        "utc": UTC,
        "cases": await _cases(visit, period),
        # What people think is not narrowed by what spans hold.
        "feedback": [] if filters.tokens else await name_rows(visit, period.low, period.high, _NAMES_SHOWN),
        "nothing": bool(figures.traces is not None and not figures.traces.count and not filters.tokens)
        and await TraceCounts(visit.means.history).ends(visit.project.id) is None,
        "unpriced": traces_address(visit, read_filters("unpriced:yes"), period.low, period.high),
        "here": lambda **other: _here(visit, period, filters, by, other),
        "renaming": renaming,
        "title_chars": TITLE_CHARS,
    }
    # Last, within what the figures of the page have left of their time.
    context["board"] = await _board(visit, period, filters, own_fields, deadline)
    status = 400 if renaming is not None else 200
    return Html("overview/overview", context, status=status)


async def export(visit: Visit) -> Sent:
    """The figures of the charts as CSV, those of kept charts behind the page's own."""
    deadline = trio.current_time() + TIMEOUT_S
    by = _split_of(visit)
    period = DayRange.of(visit.query, visit.means.now())
    own_fields = await promoted_fields(visit.means.history, visit.project.id)
    filters, _ = _filters(visit, own_fields)
    figures = await _read(visit, period, DIMENSIONS[by], filters)
    board = await _board(visit, period, filters, own_fields, deadline)
    text = io.StringIO()
    csv.writer(text).writerows(csv_lines(figures, period, csv_columns(board)))
    name = f"overview-{period.first_day}-{period.last_day}.csv"
    return Sent(text.getvalue().encode(), "text/csv; charset=utf-8", file_name=name)


async def _board(
    visit: Visit, period: DayRange, filters: Filters, own_fields: Sequence[str], deadline: float
) -> Sequence[BoardChart]:
    """The kept charts, as far as they are read by the deadline."""
    charts_kept = await KeptChartStore(visit.means.database).list(visit.project.id)
    board = BoardReads(
        *(visit.means.history, visit.project.id, visit.base, own_fields, period, _span_filters(filters))
    )
    return await board.of(charts_kept, deadline)


def _split_of(visit: Visit) -> str:
    by = visit.query.get("by", "model")
    if by not in DIMENSIONS:
        raise Refused(BAD_REQUEST.saying(f"by is one of {', '.join(DIMENSIONS)}"))
    return by


def _filters(visit: Visit, own_fields: Collection[str]) -> tuple[Filters, list[str]]:
    """What of the bar all charts can be narrowed by, and what was left out."""
    typed = read_filters(visit.query.get("q", ""))
    tokens = [token for token in typed.tokens if _of_both(token, own_fields)]
    left_out = [str(token) for token in typed.tokens if token not in tokens]
    left_out += [f"“{typed.text}”"] if typed.text else []
    return read_filters(" ".join(map(str, tokens))), [*left_out, *typed.wrong]


def _of_both(token: Token, own_fields: Collection[str]) -> bool:
    return not token.excluded and (
        token.name in _OF_BOTH or token.name in CONVENTION_FIELDS or token.name in own_fields
    )


def _span_filters(filters: Filters) -> dict[str, Any]:
    """The bar as fields of spans."""
    span_filters = {
        name: filters.asked[field] for name, field in SPAN_FIELDS.items() if field in filters.asked
    }
    return span_filters | dict(filters.asked.get("attributes", ()))


async def _read(visit: Visit, period: DayRange, dimension: Dimension, filters: Filters) -> Overview:
    reads = OverviewReads(
        visit.means.history,
        visit.project.id,
        _span_filters(filters),
        filters.between(period.low, period.high),
    )
    return await reads.of(period, dimension)


async def _cases(visit: Visit, period: DayRange) -> list[tuple[str, Title]]:
    """Open cases that began in the period, the worst first."""
    page = await CaseStore(visit.means.questions).page(
        visit.project.id,
        state="open",
        detector=None,
        call_site_id=None,
        limit=_CASES_READ,
        cursor=None,
        now=period.now,
    )
    began = [
        (case["reference"], Title.of(case["title"]))
        for case in page["cases"]
        if period.low <= words.parsed(case["onset_at"]) < period.high
    ]
    return began[:_CASES_NAMED]


async def _releases(visit: Visit, period: DayRange, deadline: float) -> list[tuple[str, datetime]]:
    """Releases that were first seen in the period, the oldest first; none where that takes too long."""
    reads = StatisticReads(visit.means.questions)
    release_rows: list[tuple[str, int]] = []
    with suppress(Slow), trio.move_on_at(deadline):
        release_rows = await reads.releases(
            visit.project.id, slot_of(period.low), slot_of(period.high), _RELEASES_MARKED
        )
    return [(name, datetime.fromtimestamp(slot * SLOT_S, UTC)) for name, slot in reversed(release_rows)]


def traces_address(visit: Visit, filters: Filters, low: datetime, high: datetime, *, only: str = "") -> str:
    """The list of traces of a filter between two moments, narrowed by what `only` says in the bar."""
    bar = f"{filters} {only}".strip()
    # The list's range has both ends in it.
    until = high - timedelta(microseconds=1)
    return query(f"{visit.base}/traces", q=bar, **{"from": timestamp(low), "to": timestamp(until)})


def _row_address(
    visit: Visit, period: DayRange, filters: Filters, dimension: Dimension, value: str | None
) -> str:
    if value is None:
        return ""
    narrowed = read_filters(filters.with_(dimension.bar, value))
    return traces_address(visit, narrowed, period.low, period.high)


def _here(visit: Visit, period: DayRange, filters: Filters, by: str, other: dict[str, Any]) -> str:
    parameters = {**period.parameters, "q": str(filters), "by": by, **other}
    path = f"{visit.base}/overview{'/csv' if parameters.pop('csv', False) else ''}"
    return query(path, **{name: value for name, value in parameters.items() if value})


PAGES: Final = (
    PageRoute("GET", PROJECT + "/overview", "ORG_VIEW", overview),
    PageRoute("GET", PROJECT + "/overview/csv", "ORG_VIEW", export),
)
