"""The statistic of a bucket against its bar, drawn along time: the engine run again over the tallies kept.

Pages of findings ask. The look goes from the first tally that stands slot by slot, so that it may differ a
little from the one that fired: bars follow the traffic. In a thread, one at a time; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import attrs
import trio

from svc.domain.detect.detectors.base import MEASURES, MeasureName
from svc.domain.detect.engine.bars import budget_months
from svc.domain.detect.engine.drift_engine import DriftSettings, DriftState, judge_drift
from svc.domain.detect.engine.drift_reference import FLOOR
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, judge_rates
from svc.domain.detect.engine.slots import day_start
from svc.domain.detect.engine.tallies import RateTallies, SizeTallies
from svc.store.detection.counting.tallies import TallyStore
from svc.store.detection.judging.bucket_states import BucketStates
from svc.store.postgres.database import READ_TIMEOUT_S, Database

_looking: Final = trio.CapacityLimiter(1)

# From where the tallies of a bucket stand slot by slot.
_FIRST: Final = """
select greatest(min(t.slot), max(s.hours_before), max(s.gone_before)) as first
from tally_bucket b join fold_state s on s.project_id = b.project_id
join tally t on t.project_id = b.project_id and t.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and b.subject = $3 and b.detail = ''
"""

# Buckets, each with the slot in which it was counted first.
_FIRST_SEEN: Final = """tally_bucket b
join lateral (select t.slot from tally t where t.project_id = b.project_id and t.bucket_id = b.id
    order by t.slot limit 1) f on true"""

# When each release, prompt, set of tools, schema and answering model was first seen at each call site.
_MARKS: Final = f"""
select b.measure, b.subject, b.detail, f.slot from {_FIRST_SEEN}
where b.project_id = $1
  and b.measure in ('seen_release', 'seen_prompt', 'seen_tools', 'seen_schema', 'answered_model')
order by f.slot
"""

# When each release but the first ones was first seen in the project, the newest so many within a range. It
# goes through all buckets of releases: 35 ms where these are as many as a project may have (November 2026).
_RELEASES: Final = f"""
with seen as materialized (
    select b.detail, min(f.slot) as slot from {_FIRST_SEEN}
    where b.project_id = $1 and b.measure = 'seen_release' group by 1
)
select detail, slot from seen
where slot >= $2 and slot < $3 and slot > (select min(slot) from seen) order by slot desc, detail limit $4
"""


@attrs.frozen
class SeenFirst:
    """Something new at a call site: what kind of thing, which one, and in which slot it was seen first."""

    measure: str
    subject: str
    detail: str
    slot: int


@attrs.define(eq=False)
class StatisticReads:
    """All verbs raise `Outage`."""

    database: Database

    async def path(
        self, project_id: int, measure: str, subject: str, until: int, *, false_alarms_per_month: float
    ) -> list[tuple[int, float]] | None:
        """Slots with the statistic over its bar as of each; None for what no engine judges slot by slot."""
        definition = MEASURES.get(cast(MeasureName, measure))
        if definition is None or definition.details:
            return None
        # One row, without a slot when nothing was counted.
        rows = await self.database.fetch(_FIRST, project_id, measure, subject, timeout_s=READ_TIMEOUT_S)
        first = rows[0]["first"]
        if first is None or first >= until:
            return None
        months = budget_months(await BucketStates(self.database).armed(project_id), false_alarms_per_month)
        name = (cast(MeasureName, measure), subject, "")
        tallies = TallyStore(self.database)
        if definition.unit is not None:
            sizes = await tallies.sizes(project_id, name, first, until)
            return await trio.to_thread.run_sync(_of_sizes, sizes, first, until, months, limiter=_looking)
        rates = await tallies.rates(project_id, name, first, until)
        return await trio.to_thread.run_sync(_of_rates, rates, first, until, months, limiter=_looking)

    async def releases(self, project_id: int, first: int, end: int, limit: int) -> list[tuple[str, int]]:
        """Releases that were first seen between two slots, with the slot of each, the newest first; without
        those that the project began with.
        """
        rows = await self.database.fetch(_RELEASES, project_id, first, end, limit, timeout_s=READ_TIMEOUT_S)
        return [(row["detail"], row["slot"]) for row in rows]

    async def marks(self, project_id: int, first: int, end: int) -> list[SeenFirst]:
        """What was new at call sites that had had another one before, between two slots, oldest first."""
        rows = await self.database.fetch(_MARKS, project_id, timeout_s=READ_TIMEOUT_S)
        answered = {row["subject"] for row in rows if _answers(row)}
        keys: set[tuple[str, str]] = set()
        firsts = []
        for row in rows:
            # Where models that answer are recorded, a call without one failed.
            if row["measure"] == "answered_model" and row["subject"] in answered and not _answers(row):
                continue
            key = (row["measure"], row["subject"])
            if key in keys and first <= row["slot"] < end:
                firsts.append(SeenFirst(*key, row["detail"], row["slot"]))
            keys.add(key)
        return firsts


def _answers(row: Any) -> bool:
    return bool(row["measure"] == "answered_model" and not row["detail"].endswith(",null]"))


def _of_rates(rates: RateTallies, first: int, until: int, months: float) -> list[tuple[int, float]]:
    settings = RateSettings(months=months)
    judged = judge_rates(rates, settings, RateState.start(day_start(first)), until, path=True)
    path = judged.path
    return [] if path is None else _pairs((path.slots, path.rise))


def _of_sizes(sizes: SizeTallies, first: int, until: int, months: float) -> list[tuple[int, float]]:
    settings = DriftSettings(months=months, floor=FLOOR)
    judged = judge_drift(sizes, settings, DriftState.start(day_start(first)), until, path=True)
    path = judged.path
    return [] if path is None else _pairs((path.windows, path.up), (path.slots, path.tail))


def _pairs(*drawn: tuple[Any, Any]) -> list[tuple[int, float]]:
    """Slots with values of several arms, in their order; of two of one slot the higher."""
    highest: dict[int, float] = {}
    pairs: Iterable[tuple[int, float]] = (
        pair for slots, values in drawn for pair in zip(slots.tolist(), values.tolist(), strict=True)
    )
    for slot, value in pairs:
        highest[slot] = max(highest.get(slot, 0.0), value)
    return sorted(highest.items())
