"""How far a rework of history is, as it is noted and told.

Owned by `svc.store.spans.rework`, which writes it; commands and the preview of prices read it. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from svc.domain.intake.rework import Totals

#: The counters of a run, which have columns of their names.
COUNTED: Final = tuple(
    ["after_trace_id", "spans", "traces", "changed_spans", "changed_traces", "without_payload"]
)


@attrs.frozen
class Progress:
    """What a run has looked at and changed so far. `after_trace_id` is the last trace it has seen."""

    after_trace_id: bytes = b""
    spans: int = 0
    traces: int = 0
    changed_spans: int = 0
    changed_traces: int = 0
    without_payload: int = 0
    before: Totals = attrs.field(factory=Totals)
    after: Totals = attrs.field(factory=Totals)
    finished: bool = False


def progress_of(row: Any) -> Progress:
    """From a row of `rework`."""
    return Progress(
        **{name: row[name] for name in COUNTED},
        before=Totals(row["cost_before"], int(row["tokens_before"]), row["unpriced_before"]),
        after=Totals(row["cost_after"], int(row["tokens_after"]), row["unpriced_after"]),
    )
