"""A question as columns and rows are both asked for it: its measures, filters, buckets and group.

Made by whoever asks columns (`answers`, `traces`), read by `segments` and `rows`. Reads dictionaries of
attributes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from svc.domain.calendar import EPOCH, hour_of
from svc.domain.columns.encoding import TEXTS
from svc.domain.columns.scan import Scan
from svc.domain.queries.datasets import SPANS, Field
from svc.domain.queries.measures import MeasureName
from svc.store.aggregates.cubes import ceil_hour
from svc.store.postgres.database import Database
from svc.store.reads.questions.attributes import dictionary_of
from svc.store.reads.questions.questions import Question, filter_text, stored_value

_HOUR: Final = timedelta(hours=1)
_END: Final = datetime(9999, 12, 31, tzinfo=UTC)
#: A filter on this leaves so few rows that its index is quicker.
_NARROW: Final = frozenset({"session_id"})


@attrs.frozen
class Grouping:
    """What an answer is split by: buckets of an interval by their beginnings, a field, or both.

    `values` are those of the field that are wanted, None for all.
    """

    interval: str | None = None
    starts: Sequence[datetime] = ()
    field: Field | None = None
    values: frozenset[str | None] | None = None


def columns_know(question: Question, field: Field | None) -> bool:
    """Whether columns hold all that a question needs."""
    if question.spans is not None:
        return False
    if question.dataset is not SPANS or any(asked.name in _NARROW for asked in question.fields):
        return False
    fields = (*question.fields, *(() if field is None else (field,)))
    return all(asked.type == "attribute" or asked.name in TEXTS for asked in fields)


async def asked_of_columns(database: Database, question: Question, grouping: Grouping) -> AskedColumns:
    """The question with the dictionaries of its attributes. Raises `Outage`."""
    fields = (*question.fields, *(() if grouping.field is None else (grouping.field,)))
    dictionaries = {
        field.name: await dictionary_of(database, question.project_id, field.name)
        for field in fields
        if field.type == "attribute"
    }
    return AskedColumns(question, grouping, dictionaries, [measure.name for measure in question.measures])


def hours_since_epoch(moment: datetime) -> int:
    """The number of an hour, as columns count them."""
    return (moment - EPOCH) // _HOUR


@attrs.frozen
class AskedColumns:
    """A question with the dictionaries of its attributes.

    `measures` are all of the question, or those that are read together. `to_end_of_hour` is said of event
    time: columns serve all of the last hour, though the range ends within it, since none of their spans is
    later.
    """

    question: Question
    grouping: Grouping
    dictionaries: Mapping[str, Mapping[str, str | None]]
    measures: Sequence[MeasureName]
    to_end_of_hour: bool = False

    @property
    def group(self) -> str | None:
        """The column that the answer is split by."""
        return None if self.grouping.field is None else _column(self.grouping.field)

    @property
    def scan(self) -> Scan:
        """The same as it is asked of columns: whole hours only. What is covered cuts those of arrival."""
        question, low, end = self.question, max(EPOCH, self.question.low or EPOCH), self._end
        low = ceil_hour(low) if question.by_event_time else hour_of(low)
        return Scan(
            measures=self.measures,
            by_event_time=question.by_event_time,
            hours=(hours_since_epoch(low), hours_since_epoch(max(low, end))),
            filters=self._filters(),
            starts=[hours_since_epoch(start) for start in self.grouping.starts],
            group=self.group,
            groups_of=self.groups_of,
        )

    @property
    def edges(self) -> list[tuple[datetime, datetime]]:
        """The stretches of a range of event time that are no whole hours to columns."""
        low, high = self.question.low, self.question.high
        if low is not None and high is not None and ceil_hour(low) > hour_of(high):
            return [(low, high)]
        edges: list[tuple[datetime, datetime]] = []
        if low is not None and low < ceil_hour(low):
            edges.append((low, ceil_hour(low)))
        if high is not None and self._end < high:
            edges.append((self._end, high))
        return edges

    def groups_of(self, value: str | None) -> Sequence[str | None]:
        """The groups of a value of the column: itself, or those of an attribute, None for none."""
        groups: Sequence[str | None] = (value,)
        field, values = self.grouping.field, self.grouping.values
        if field is not None and field.type == "attribute":
            codes = self.dictionaries[field.name]
            groups = [codes[code] for code in value or "" if code in codes] or (None,)
        return groups if values is None else [group for group in groups if group in values]

    @property
    def _end(self) -> datetime:
        if self.question.high is None:
            return _END
        to_end = self.to_end_of_hour or not self.question.by_event_time
        return ceil_hour(self.question.high) if to_end else hour_of(self.question.high)

    def _filters(self) -> dict[str, Callable[[str | None], bool]]:
        tests: dict[str, list[Callable[[str | None], bool]]] = {}
        for field, value in self.question.filters:
            test = self._test(field, None if value is None else filter_text(value))
            tests.setdefault(_column(field), []).append(test)
        return {column: _all_of(several) for column, several in tests.items()}

    def _test(self, field: Field, text: str | None) -> Callable[[str | None], bool]:
        if field.type != "attribute":
            stored = None if text is None else stored_value(field, text)
            return lambda value: value == stored
        codes = self.dictionaries[field.name]
        if text is None:
            return lambda value: not any(code in codes for code in value or "")
        fitting = {code for code, shown in codes.items() if shown == text}
        return lambda value: any(code in fitting for code in value or "")


def _column(field: Field) -> str:
    return "facets" if field.type == "attribute" else field.name


def _all_of(tests: Sequence[Callable[[str | None], bool]]) -> Callable[[str | None], bool]:
    return lambda value: all(test(value) for test in tests)
