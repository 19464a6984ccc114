"""The hours in which a question has rows, as spans by column tell them.

Called by lists of spans and of traces that ask one span for several things at once, of which no index knows
more than one. Never reads more of rows than what columns do not cover.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from typing import Final

import attrs

from svc.domain.calendar import hour_of
from svc.store.postgres.database import Database, left_s
from svc.store.reads.questions.columns.answers import column_cells
from svc.store.reads.questions.columns.asked import Grouping, columns_know
from svc.store.reads.questions.questions import Question

HOUR: Final = timedelta(hours=1)
#: Hours that are told apart, the newest.
MOST_HOURS: Final = 60 * 24


@attrs.frozen
class FilledHours:
    """Hours with rows. Of those before `first` it is only known whether there are any."""

    hours: Set[datetime]
    first: datetime
    earlier: bool

    def has(self, moment: datetime) -> bool:
        """Whether the hour of a moment may have rows."""
        return self.earlier if moment < self.first else hour_of(moment) in self.hours


async def hours_of(database: Database, questions: Sequence[Question], until_s: float) -> FilledHours | None:
    """The hours, by the time that the questions are on, in which any of them has rows.

    None where columns do not know. What is in the future counts as of this hour. Raises `Outage`, also when
    it is later than `until_s` on Trio's clock.
    """
    if not all(columns_know(question, None) for question in questions):
        return None
    rows = await database.fetch("select date_trunc('hour', now(), 'UTC') as hour", timeout_s=left_s(until_s))
    newest: datetime = rows[0]["hour"]
    starts = [newest - HOUR * back for back in reversed(range(MOST_HOURS))]
    hours: set[datetime | None] = set()
    for question in questions:
        cells = await column_cells(database, question, Grouping("hour", starts), left_s(until_s))
        if cells is None:
            return None
        hours.update(hour for hour, _value in cells)
    # Rows that columns do not cover have hours of their own, however old they are.
    apart = {hour for hour in hours if hour is not None and hour >= starts[0]}
    return FilledHours(apart, starts[0], earlier=len(apart) < len(hours))
