"""How call sites, models and tools have been doing: one window of time against the one before it.

Counted from traces and spans themselves, in one walk over both windows, within a bound of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.store.postgres.database import Database

#: Subjects told at most, the busiest first.
SHOWN: Final = 200

_FIGURES: Final = ("n", "failed", "p50_ms", "p95_ms", "cost", "priced")


@attrs.frozen
class Window:
    """What one subject did in one window: quantiles in milliseconds, cost in USD over `priced` units."""

    n: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None
    cost: float | None
    priced: int

    @property
    def error_rate(self) -> float | None:
        """The share that failed."""
        return self.failed / self.n if self.n else None

    @property
    def cost_each(self) -> float | None:
        """What one cost, of those whose cost is known."""
        return self.cost / self.priced if self.cost is not None and self.priced else None


@attrs.frozen
class Vital:
    """A subject in both windows."""

    subject: str | None
    now: Window
    before: Window


def _figures(number: int, condition: str) -> str:
    took = "extract(epoch from ended_at - started_at)::float8 * 1000"
    return (
        f"count(*) filter (where {condition}) as n{number},"
        f" count(*) filter (where {condition} and status = 'error') as failed{number},"
        f" percentile_cont(0.5) within group (order by {took}) filter (where {condition}) as p50_ms{number},"
        f" percentile_cont(0.95) within group (order by {took}) filter (where {condition}) as p95_ms{number},"
        f" (sum(total_cost) filter (where {condition}))::float8 as cost{number},"
        f" count(total_cost) filter (where {condition}) as priced{number}"
    )


_WINDOWS: Final = f"{_figures(1, 'started_at >= $3')}, {_figures(0, 'started_at < $3')}"
_BUSIEST: Final = f" group by 1 order by n1 desc, n0 desc, 1 limit {SHOWN}"

# Traces of both windows by the index on started_at, by their call site.
_SITES: Final = (
    f"select call_site_id as subject, {_WINDOWS} from trace"
    " where project_id = $1 and started_at >= $2 and started_at < $4" + _BUSIEST
)
# Model calls of both windows by the index on created_at; a call that repeats another's usage is none.
_MODELS: Final = (
    f"select coalesce(model_id, provided_model_name) as subject, {_WINDOWS} from span"
    " where project_id = $1 and started_at >= $2 and started_at < $4 and created_at >= $2"
    " and kind in ('llm', 'reasoning', 'embedding') and usage_repeats is null" + _BUSIEST
)
# Tool calls likewise, by their name.
_TOOLS: Final = (
    f"select name as subject, {_WINDOWS} from span"
    " where project_id = $1 and started_at >= $2 and started_at < $4 and created_at >= $2"
    " and kind in ('tool', 'mcp')" + _BUSIEST
)
_OF: Final = {"sites": _SITES, "models": _MODELS, "tools": _TOOLS}


@attrs.define(eq=False)
class VitalsReads:
    """Reads one project at a time."""

    database: Database

    async def of(
        self, project_id: int, what: str, start: datetime, middle: datetime, end: datetime, timeout_s: float
    ) -> Sequence[Vital]:
        """Sites, models or tools: from the middle to the end, and from the start to it. Raises `Slow`."""
        rows = await self.database.fetch(_OF[what], project_id, start, middle, end, timeout_s=timeout_s)
        return [Vital(row["subject"], _window(row, 1), _window(row, 0)) for row in rows]


def _window(row: Any, number: int) -> Window:
    return Window(*(row[f"{name}{number}"] for name in _FIGURES))
