"""What present prices would change of stored history, by model: a bounded look that changes nothing.

Called by the page of prices. It walks the same steps as `trace-svc reprice` without `--apply`, which looks at
everything. Trace ids are random, so their order is no order of time, and the first of them are a sample.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import attrs
import trio

from protocol.otlp.reading import WireSpan
from svc.domain.intake.rework import differs, repriced
from svc.domain.pricing.prices import PriceBook
from svc.domain.spans.span import SpanRow
from svc.store.postgres.database import Database
from svc.store.spans.rework import ReworkStore
from svc.store.spans.rework_progress import Progress

#: Spans of one look, and how long it may take; a step takes both a little further.
MOST_SPANS: Final = 20_000
MOST_S: Final = 4.0
#: Between two steps, so that those who wait for this process are answered.
_PAUSE_S: Final = 0.01


@attrs.define
class ModelChange:
    """What would change of one model's calls: how many of them, and their cost in USD before and after."""

    calls: int = 0
    before: Decimal = Decimal(0)
    after: Decimal = Decimal(0)
    #: Calls that would get their first price, and that would lose the one they have.
    priced: int = 0
    unpriced: int = 0


@attrs.frozen
class RepricePreview:
    """How far the look went, and what it found by model, the largest change first."""

    progress: Progress
    models: Mapping[str, ModelChange]


async def preview(database: Database, project_id: int, prices: PriceBook) -> RepricePreview:
    """Look at some of a project's traces. Raises `Outage`."""
    models: dict[str, ModelChange] = {}

    def remake(row: SpanRow, _span: WireSpan | None) -> SpanRow:
        new = repriced(row, prices)
        if row.usage_repeats is None and differs(row, new):
            change = models.setdefault(row.provided_model_name or "", ModelChange())
            change.calls += 1
            change.before += row.total_cost or 0
            change.after += new.total_cost or 0
            change.priced += row.total_cost is None and new.total_cost is not None
            change.unpriced += row.total_cost is not None and new.total_cost is None
        return new

    store = ReworkStore(database, project_id, "reprice", prices.version, remake)
    progress, began_s = Progress(), time.monotonic()
    while not progress.finished and progress.spans < MOST_SPANS and time.monotonic() - began_s < MOST_S:
        progress = await store.preview(progress)
        await trio.sleep(_PAUSE_S)
    largest = sorted(models.items(), key=lambda item: (-abs(item[1].after - item[1].before), item[0]))
    return RepricePreview(progress, dict(largest))
