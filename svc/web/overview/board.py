"""The forms of a project's board: keep a chart of Explore on Overview, rename, move and remove it there.

A title that is refused stays in its field. Forms lead back to the page that they were sent from, in the state
in which it was.
"""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

import attrs
import msgspec

from protocol.refusals import BAD_REQUEST, Refusal
from svc.front.api.traces.kept_charts import keep_question, plain_title, title_refusal
from svc.store.accounts.kept_charts import KeptChartStore
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.questions.questions import ask
from svc.web.overview.explore import explore_page
from svc.web.overview.explore_question import Explored, parameters_of
from svc.web.overview.overview import Renaming, overview_page
from svc.web.shell import words
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query

_GONE: Final = "this chart is no longer on Overview"
#: The parameters of Overview that make its state.
_STATE: Final = ("range", "from", "to", "q", "by", "table")


class KeepForm(msgspec.Struct):
    """A chart to keep: its title, and the question as the address of Explore has it."""

    question: str = ""
    title: str = ""


class ChartForm(msgspec.Struct):
    """A chart of the board, and the state of the page that holds the form, as its address has it."""

    chart: str = ""
    state: str = ""

    @property
    def chart_id(self) -> UUID | None:
        """Which chart; None where that is no id."""
        try:
            return UUID(self.chart)
        except ValueError:
            return None


class TitleForm(ChartForm):
    """A chart with another title."""

    title: str = ""


class MoveForm(ChartForm):
    """A chart that changes places with the one before it, or after it."""

    direction: Literal["up", "down"] = "up"


async def keep(visit: Visit) -> Html | Go:
    """Keep a chart. Raises `Refused` for a question that cannot be asked."""
    form: KeepForm = visit.form
    parameters = parameters_of(form.question)
    own_fields = await promoted_fields(visit.means.history, visit.project.id)
    explored = Explored.of(parameters, visit.means.now(), visit.base, own_fields)
    ask(visit.project.id, explored.dataset.name, explored.bounds, explored.filters, by=explored.by)
    fixed = None if explored.range.preset else explored.bounds
    chart = await keep_question(visit.call, form.title, explored.kept, fixed)
    if isinstance(chart, Refusal):
        wrong = words.sentence(chart.message)
        return await explore_page(attrs.evolve(visit, query=parameters), typed=form.title, wrong=wrong)
    return Go(explored.address(kept="yes"))


async def rename(visit: Visit) -> Html | Go | Refusal:
    """Give a chart another title."""
    form: TitleForm = visit.form
    title, chart_id = plain_title(form.title), form.chart_id
    if chart_id is None:
        return BAD_REQUEST.saying(_GONE)
    if (refusal := title_refusal(title)) is not None:
        renaming = Renaming(chart_id, form.title, words.sentence(refusal.message))
        return await overview_page(attrs.evolve(visit, query=_state(form)), renaming)
    store, actor = KeptChartStore(visit.means.database), visit.call.caller.label
    if not await store.rename(visit.project.id, chart_id, title, actor):
        return BAD_REQUEST.saying(_GONE)
    return _back(visit, form, f"kept-{chart_id}")


async def move(visit: Visit) -> Go | Refusal:
    """Move a chart by one place."""
    form: MoveForm = visit.form
    if form.chart_id is None:
        return BAD_REQUEST.saying(_GONE)
    await KeptChartStore(visit.means.database).move(visit.project.id, form.chart_id, form.direction)
    return _back(visit, form, f"kept-{form.chart_id}")


async def remove(visit: Visit) -> Go | Refusal:
    """Take a chart off the board; one that is gone already is no matter."""
    form: ChartForm = visit.form
    if form.chart_id is None:
        return BAD_REQUEST.saying(_GONE)
    store = KeptChartStore(visit.means.database)
    await store.remove(visit.project.id, form.chart_id, visit.call.caller.label)
    return _back(visit, form, "board")


def _state(form: ChartForm) -> dict[str, str]:
    return {name: value for name, value in parameters_of(form.state).items() if name in _STATE}


def _back(visit: Visit, form: ChartForm, anchor: str) -> Go:
    return Go(f"{query(visit.base + '/overview', **_state(form))}#{anchor}")


_CHARTS: Final = PROJECT + "/overview/charts"

PAGES: Final = (
    PageRoute("POST", PROJECT + "/explore/keep", "ORG_MANAGE", keep, form=KeepForm),
    PageRoute("POST", _CHARTS + "/rename", "ORG_MANAGE", rename, form=TitleForm),
    PageRoute("POST", _CHARTS + "/move", "ORG_MANAGE", move, form=MoveForm),
    PageRoute("POST", _CHARTS + "/remove", "ORG_MANAGE", remove, form=ChartForm),
)
