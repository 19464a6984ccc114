"""Bodies and answers of `{p}/kept-charts`: questions whose charts stand on Overview. Shapes only."""

from __future__ import annotations

import msgspec

from protocol.rest.accounts import Instant
from protocol.rest.query import FilterValue, Range


class KeptChartChange(msgspec.Struct, forbid_unknown_fields=True):
    """A chart to keep. What is left out is as Explore has it: spans, counted by when they happened, grouped
    by the first field. Without a range the chart covers the days that Overview shows.
    """

    title: str
    dataset: str = "spans"
    measure: str = "count"
    group_by: str | None = None
    filters: dict[str, FilterValue] = msgspec.field(default_factory=dict)
    by: str | None = None
    range: Range | None = None


class KeptChartShown(msgspec.Struct, kw_only=True):
    """A kept chart. `text` is what its line says beside filters, which narrows no chart; `explore` is the
    path of its question on the pages, below the project's.
    """

    id: str
    title: str
    dataset: str
    measure: str
    group_by: str
    filters: dict[str, FilterValue]
    text: str
    by: str
    range: Range | None
    explore: str
    kept_by: str
    kept_at: Instant
