"""The question of Explore as its address writes it, and as Overview keeps it. Pure.

Called by Explore and by the board of Overview, so that both read an address alike. What the address leaves
out, or says in a way that is not known, falls back to what is usual. Never reads the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl

import attrs

from svc.domain.attributes.conventions import PREFIX
from svc.domain.queries.datasets import DATASETS, Dataset
from svc.domain.queries.filter_line import as_token, read_line
from svc.domain.queries.kept_question import KeptQuestion
from svc.domain.queries.measures import COUNT, MEASURES, QueryMeasure
from svc.store.reads.questions.buckets import INTERVALS
from svc.web.shell.filters import unknown_filter
from svc.web.shell.ranges import TimeRange
from svc.web.shell.render import query

#: The range `all` begins here: a drawing needs a beginning.
_FAR_BACK: Final = timedelta(days=90)
#: Longer filters are cut.
BAR_CHARS: Final = 2_000
_NOT_NARROWED: Final = "counts and charts are not narrowed by it"
_USUAL: Final = "spans"
_NO_DATASET: Final = "there is no dataset “{name}”, so this is about spans. Datasets are {datasets}"
_NAME_CHARS: Final = 60


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
    #: A dataset that the address names and that does not exist.
    no_dataset: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str], now: datetime, base: str, own_fields: Sequence[str]) -> Explored:
        """From the parameters of an address, where spans have these fields of the project's own as well.

        Raises `Refused` for a range that cannot be read.
        """
        dataset_name = asked.get("dataset", _USUAL)
        dataset = DATASETS.get(dataset_name, DATASETS[_USUAL])
        fields = field_names(dataset, own_fields)
        bar = asked.get("q", "").strip()[:BAR_CHARS]
        filters, text = _narrowed_by(dataset, bar)
        range_ = TimeRange.of(asked, now)
        field, interval = asked.get("field", ""), asked.get("interval", "")
        low, high = _bounds(range_)
        return cls(
            dataset,
            bar,
            filters,
            text,
            field if field in fields else fields[0],
            interval if interval in INTERVALS else "hour" if high - low <= timedelta(days=3) else "day",
            range_,
            base,
            next((MEASURES[name] for name in dataset.measures if name == asked.get("measure")), COUNT),
            asked["by"] if asked.get("by") in times_of(dataset) else times_of(dataset)[0],
            "" if dataset_name in DATASETS else dataset_name,
        )

    @property
    def unknown(self) -> list[str]:
        """Sentences on what the address names and is not known: a dataset, and what looks like a filter."""
        names = dict.fromkeys(token.name for token in read_line(self.bar) if token.name)
        fields = [field.name for field in self.dataset.fields]
        attributes = self.dataset.field(f"{PREFIX}any") is not None
        sentences = [
            unknown_filter(name, fields, _NOT_NARROWED, attributes=attributes)
            for name in names
            if self.dataset.field(name) is None
        ]
        if self.no_dataset:
            name, datasets = self.no_dataset[:_NAME_CHARS], ", ".join(DATASETS)
            sentences.insert(0, _NO_DATASET.format(name=name, datasets=datasets))
        return sentences

    @property
    def bounds(self) -> tuple[datetime, datetime]:
        """The two ends of its range."""
        return _bounds(self.range)

    def address(self, **other: Any) -> str:
        """The address of this question with something else in it."""
        return query(f"{self.base}/explore", **{**self._parts, **self.range.parameters, **other})

    def narrowed(self, value: str | None) -> str:
        """The address with a value of the field as a filter."""
        return self.address(q=with_filter(self.bar, self.field, value))

    def at(self, low: datetime, high: datetime) -> str:
        """The address of this question between two moments, in bars that suit them."""
        return attrs.evolve(self, range=TimeRange(None, low, high, self.range.now)).address(interval=None)

    @property
    def kept(self) -> str:
        """What stands behind the question mark where Overview keeps it.

        The range is part of it only where it is two instants: any other is for the page to choose, and so
        is how wide the bars are. One question is always written in one way.
        """
        instants = {} if self.range.preset else self.range.instants
        return KeptQuestion(
            self.dataset.name,
            self.bar,
            self.field,
            self.measure.name,
            self.by,
            instants.get("from", ""),
            instants.get("to", ""),
        ).text

    @property
    def _parts(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset.name,
            "q": self.bar,
            "field": self.field,
            "interval": self.interval,
            "measure": self.measure.name,
            "by": self.by,
        }


def parameters_of(question: str) -> dict[str, str]:
    """What stands behind a question mark, by name."""
    return dict(parse_qsl(question))


def with_filter(bar: str, field: str, value: str | None) -> str:
    """The bar with one filter more."""
    return f"{bar} {as_token(field, value)}".strip()


def field_names(dataset: Dataset, own_fields: Sequence[str]) -> list[str]:
    """The fields that a dataset is grouped by, with those of the project's own."""
    names = [field.name for field in dataset.fields if field.facetable]
    return [*names, *own_fields] if dataset.has_attributes else names


def times_of(dataset: Dataset) -> tuple[str, ...]:
    """The times that a range can be on, first the one that people mean."""
    return tuple(reversed(dataset.times))


def _bounds(range_: TimeRange) -> tuple[datetime, datetime]:
    return range_.low or range_.now - _FAR_BACK, range_.high or range_.now


def _narrowed_by(dataset: Dataset, bar: str) -> tuple[dict[str, str | None], str]:
    """The filters of a bar, and what of it is a text to search for."""
    filters: dict[str, str | None] = {}
    texts: list[str] = []
    for token in read_line(bar):
        if dataset.field(token.name) is not None:
            filters[token.name] = token.value
        else:
            texts.append(token.text)
    return filters, " ".join(texts)
