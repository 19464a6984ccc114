"""How far what is built goes, for those who read it: the hours, and the slices of the hour under way.

Called by the readers of vitals, models and groups of traces, within one snapshot; what is not covered they
count from its rows. Never builds anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from svc.domain.calendar import gaps
from svc.domain.queries.datasets import SPANS, Dataset
from svc.store.aggregates.closed_hours import HOUR, SLICE
from svc.store.aggregates.slices import is_read
from svc.store.postgres.database import Connection

FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)


@attrs.frozen
class Covered:
    """How far what is built goes: the hours before `until`, without the `dirty` ones, and later `slices`."""

    until: datetime
    dirty: Sequence[datetime]
    slices: Sequence[datetime] = ()

    @property
    def raw(self) -> list[tuple[datetime, datetime]]:
        """The stretches of `created_at` whose rows are to be counted one by one."""
        of_slices = [(slice_, slice_ + SLICE) for slice_ in self.slices]
        return [*gaps(of_slices, self.until, FAR), *((hour, hour + HOUR) for hour in self.dirty)]


async def covered(
    connection: Connection, project_id: int, dataset: Dataset, first: datetime | None
) -> Covered | None:
    """What is built of the hours since `first`, as of this transaction's snapshot; None when nothing is.

    Without slices.
    """
    # How far the cubes are, and what of them has changed.
    row: Any = await connection.fetchrow(
        "select p.built_until, array(select hour from cube_dirty where project_id = $1"
        " and dataset = $2 and ($3::timestamptz is null or hour >= $3) and hour < p.built_until"
        " order by hour) as dirty from cube_progress p where project_id = $1 and dataset = $2",
        project_id,
        dataset.name,
        first,
    )
    return None if row is None else Covered(row["built_until"], row["dirty"])


async def covered_since(
    connection: Connection,
    project_id: int,
    dataset: Dataset,
    first: datetime,
    began_before: datetime | None = None,
) -> Covered:
    """As `covered`, for a question that looks at nothing before `first`: nothing built ends there.

    Of spans with the slices that have vitals, and of which each began before a moment.
    """
    built = await covered(connection, project_id, dataset, first)
    if built is None:
        return Covered(first, [])
    built = attrs.evolve(built, until=max(first, built.until))
    if dataset is not SPANS:
        return built
    condition = "with_vitals and ($3::timestamptz is null or latest < $3)"
    return await with_slices(connection, project_id, dataset, built, condition, began_before)


async def with_slices(
    connection: Connection,
    project_id: int,
    dataset: Dataset,
    built: Covered,
    condition: str = "true",
    *values: Any,
) -> Covered:
    """What is built, and of later slices those of a condition, whose values are numbered from $3 on."""
    # By their key.
    rows = await connection.fetch(
        f"select slice from {dataset.table}_slice s where project_id = $1 and slice >= $2 and {condition}"
        f" and {is_read(dataset)} order by slice",
        *(project_id, built.until, *values),
    )
    return attrs.evolve(built, slices=[row["slice"] for row in rows])
