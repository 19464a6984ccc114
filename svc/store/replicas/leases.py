"""Who of several copies does what only one may do: a row for each duty, held for a while and renewed.

Owns the table `lease`. Called by the actor that keeps the leases of this copy. Time is the database's: clocks
of copies differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from svc.store.postgres.database import Database


@attrs.frozen
class PostgresLeaseStore:
    """The leases as one copy, `holder`, sees them."""

    database: Database
    holder: str

    async def take(self, names: Sequence[str], life_s: float) -> frozenset[str]:
        """Take or renew these. Returns those that are ours for `life_s` from the question on."""
        # Those that are free, over or ours.
        rows = await self.database.fetch(
            "insert into lease as held (name, holder, until)"
            " select name, $2, now() + make_interval(secs => $3) from unnest($1::text[]) name"
            " on conflict (name) do update set holder = excluded.holder, until = excluded.until"
            " where held.holder = excluded.holder or held.until < now()"
            " returning name",
            sorted(names),
            self.holder,
            life_s,
            timeout_s=life_s / 3,
        )
        return frozenset(row["name"] for row in rows)

    async def release(self) -> None:
        """Give up all of ours, so that another copy takes over at once."""
        # Ours alone.
        await self.database.fetch("delete from lease where holder = $1", self.holder, timeout_s=2.0)
