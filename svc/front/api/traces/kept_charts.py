"""`{p}/kept-charts`: questions of Explore whose charts stand on the project's Overview, for everybody in it.

`keep_question` is the rule for whoever keeps one; the pages keep by it too. Texts narrow no chart, so that
only filters can be sent.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from protocol.refusals import (
    BAD_CHART,
    CHART_KEPT,
    NO_SUCH_CHART,
    TOO_MANY_CHARTS,
    UNKNOWN_FIELD,
    Refusal,
)
from protocol.rest.kept_charts import KeptChartChange, KeptChartShown
from protocol.rest.orgs import Removed
from protocol.rest.query import Range, bounds, timestamp
from protocol.text import clean
from svc.domain.queries.datasets import DATASETS
from svc.domain.queries.filter_line import as_line, can_be_typed, read_line
from svc.domain.queries.kept_question import KeptQuestion
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.accounts.kept_charts import (
    MOST_CHARTS,
    QUESTION_CHARS,
    RANGE_DAYS,
    TITLE_CHARS,
    KeptChart,
    KeptChartStore,
)
from svc.store.reads.questions.attributes import require_fields
from svc.store.reads.questions.questions import ask, field_of
from svc.store.reads.questions.spans_by_payload import parted

_NO_TITLE: Final = "give the chart a title"
_LONG_TITLE: Final = "a title has at most {most} characters; this one has {length}"
_LONG_QUESTION: Final = "the filter of this chart is too long to keep; shorten it"
_LONG_RANGE: Final = "a chart of a fixed range covers at most {most} days; choose a shorter range"
_HALF_A_RANGE: Final = "a chart covers the days of Overview or a range with both ends"
_FULL: Final = "Overview holds {most} charts at most; remove one there first"
_NO_LINE: Final = "no chart is kept that filters by '{name}'"


def plain_title(typed: str) -> str:
    """A title as it is kept."""
    return clean(" ".join(typed.split()))


def title_refusal(title: str) -> Refusal | None:
    """Why a plain title cannot be taken."""
    if not title:
        return BAD_CHART.saying(_NO_TITLE)
    if len(title) > TITLE_CHARS:
        return BAD_CHART.saying(_LONG_TITLE.format(most=TITLE_CHARS, length=len(title)))
    return None


async def keep_question(
    call: Call[Any], title: str, question: str, fixed: tuple[datetime, datetime] | None
) -> KeptChart | Refusal:
    """Keep a question that can be asked; `fixed` is the range of its own."""
    title = plain_title(title)
    if (refusal := title_refusal(title)) is not None:
        return refusal
    if fixed is not None and (fixed[1] - fixed[0]).days >= RANGE_DAYS:
        return BAD_CHART.saying(_LONG_RANGE.format(most=RANGE_DAYS))
    if len(question) > QUESTION_CHARS:
        return BAD_CHART.saying(_LONG_QUESTION)
    store = KeptChartStore(call.means.database)
    match await store.keep(call.project.id, title, question, call.caller.label):
        case "too many":
            return TOO_MANY_CHARTS.saying(_FULL.format(most=MOST_CHARTS))
        case "kept already":
            return CHART_KEPT
        case chart:
            return chart


async def get_charts(call: Call[None]) -> list[KeptChartShown]:
    """The charts that are kept on the project's Overview, in their order."""
    return [_view(chart) for chart in await KeptChartStore(call.means.questions).list(call.project.id)]


async def post_chart(call: Call[KeptChartChange]) -> KeptChartShown | Refusal:
    """Keep a chart on the project's Overview, behind the others."""
    body = call.body
    low, high = bounds(body.range)
    fixed = None if low is None or high is None else (low, high)
    if body.range is not None and fixed is None:
        return BAD_CHART.saying(_HALF_A_RANGE)
    question = ask(call.project.id, body.dataset, (low, high), body.filters, by=body.by, measure=body.measure)
    # What payloads tell narrows a chart as well.
    await parted(call.means.questions, call.project.id, question.filters)
    dataset = question.dataset
    field = next(field for field in dataset.fields if field.facetable)
    if body.group_by is not None:
        field = field_of(dataset, body.group_by, facet=True)
        await require_fields(call.means.questions, call.project.id, [field])
    for name in body.filters:
        if not can_be_typed(name):
            return UNKNOWN_FIELD.saying(_NO_LINE.format(name=name[:120]))
    kept_question = KeptQuestion(
        dataset.name,
        as_line(body.filters),
        field.name,
        question.measure.name,
        body.by or dataset.times[-1],
        *(("", "") if fixed is None else map(timestamp, fixed)),
    )
    chart = await keep_question(call, body.title, kept_question.text, fixed)
    return chart if isinstance(chart, Refusal) else _view(chart)


async def delete_chart(call: Call[None]) -> Removed | Refusal:
    """Take a chart off the project's Overview."""
    chart_id = call.id_of("chartId", NO_SUCH_CHART)
    store = KeptChartStore(call.means.database)
    return Removed() if await store.remove(call.project.id, chart_id, call.caller.label) else NO_SUCH_CHART


def _view(chart: KeptChart) -> KeptChartShown:
    question = KeptQuestion.read(chart.question)
    dataset, tokens = DATASETS.get(question.dataset), read_line(question.line)
    filters = [token for token in tokens if dataset is not None and dataset.field(token.name) is not None]
    return KeptChartShown(
        id=str(chart.id),
        title=chart.title,
        dataset=question.dataset,
        measure=question.measure,
        group_by=question.field,
        filters={token.name: token.value for token in filters},
        text=" ".join(token.text for token in tokens if token not in filters),
        by=question.by,
        range=Range(question.first, question.end) if question.end else None,
        explore=f"/explore?{chart.question}",
        kept_by=chart.kept_by,
        kept_at=timestamp(chart.kept_at),
    )


_CHARTS: Final = PROJECT + "/kept-charts"

ROUTES: Final = (
    Route("GET", _CHARTS, "ORG_VIEW", get_charts, list[KeptChartShown]),
    Route(
        "POST", _CHARTS, "ORG_MANAGE", post_chart, KeptChartShown, body=KeptChartChange, status=201,
        refusals=(BAD_CHART, CHART_KEPT, TOO_MANY_CHARTS),
    ),
    Route(
        "DELETE", _CHARTS + "/{chartId}", "ORG_MANAGE", delete_chart, Removed, refusals=(NO_SUCH_CHART,)
    ),
)  # fmt: skip
