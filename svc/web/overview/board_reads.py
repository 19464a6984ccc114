"""What the board of Overview reads: the answers of kept charts, one by one, in what time the page has left.

Called by `svc.web.overview.overview` once the page's own figures are there. A chart that cannot be asked any
more, or takes too long, says so in its place; it never keeps the others or the page from being shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from protocol.refusals import Refused
from protocol.storage import Slow
from svc.store.accounts.kept_charts import KeptChart
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import ask
from svc.web.overview.board_view import (
    SLOW,
    BoardChart,
    drawn,
    drawn_over,
    interval_of,
    is_additive,
    narrowed_by,
    no_longer_holds,
    notes_of,
)
from svc.web.overview.explore_question import Explored, parameters_of
from svc.web.overview.overview_period import DayRange
from svc.web.overview.overview_reads import SHOWN_APART
from svc.web.shell import words

#: All kept charts together, and one of them.
BOARD_TIMEOUT_S: Final = 5.0
CHART_TIMEOUT_S: Final = 2.0


@attrs.frozen
class BoardReads:
    """Reads the kept charts of one project over the days of a page."""

    database: Database
    project_id: int
    base: str
    own_fields: Sequence[str]
    period: DayRange
    #: The filter of the page, by fields of spans.
    filters: Mapping[str, str | None]

    async def of(self, charts: Sequence[KeptChart], deadline: float) -> Sequence[BoardChart]:
        """All charts in their order; what is not read by the deadline is left undrawn."""
        deadline = min(deadline, trio.current_time() + BOARD_TIMEOUT_S)
        return [await self._one(chart, deadline) for chart in charts]

    async def _one(self, chart: KeptChart, deadline: float) -> BoardChart:
        address, reason = f"{self.base}/explore?{chart.question}", SLOW
        try:
            explored = Explored.of(parameters_of(chart.question), self.period.now, self.base, self.own_fields)
            reason = no_longer_holds(chart, explored) or reason
            if reason == SLOW:
                with trio.move_on_at(min(deadline, trio.current_time() + CHART_TIMEOUT_S)):
                    return await self._read(chart, explored)
        except Refused as refused:
            reason = words.sentence(refused.refusal.message)
        except Slow:
            pass
        return BoardChart(chart, address, reason=reason)

    async def _read(self, chart: KeptChart, explored: Explored) -> BoardChart:
        narrowed, is_whole = narrowed_by(explored, self.filters)
        period = drawn_over(narrowed, self.period)
        bounds = (self.period.low, self.period.high) if explored.range.preset else explored.bounds
        queries = QueryStore(self.database)
        question, notes = await queries.chosen(
            ask(
                self.project_id,
                narrowed.dataset.name,
                bounds,
                narrowed.filters,
                by=narrowed.by,
                measure=narrowed.measure.name,
            )
        )
        answer = await queries.timeseries(
            question, interval_of(narrowed, period), narrowed.field, SHOWN_APART
        )
        total = None if is_additive(narrowed.measure) else await queries.count(question)
        answer_notes = [*notes, *(answer.notes or ()), *((total and total.notes) or ())]
        return BoardChart(
            chart,
            narrowed.at(*bounds),
            drawn(chart, narrowed, period, answer, total),
            notes=[
                *notes_of(narrowed, period, self.period, answer, is_whole=is_whole),
                *dict.fromkeys(answer_notes),
            ],
        )
