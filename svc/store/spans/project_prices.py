"""What projects say that models cost.

Owns the table `project_price`. People set prices over REST and on a page; whoever decodes spans reads all of
them every few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from svc.domain.pricing.project_prices import ModelPrice, ranked_prices
from svc.domain.pricing.rates import OwnPrices
from svc.store.accounts.audit import record
from svc.store.postgres.database import Connection, Database

_COLUMNS: Final = "model, provider, input, output, cache_read, cache_write, cache_write_1h"


@attrs.define(eq=False)
class ProjectPriceStore:
    """All verbs raise `Outage`."""

    database: Database

    async def every(self) -> Mapping[int, OwnPrices]:
        """The prices of all projects that have some."""
        prices: dict[int, list[ModelPrice]] = {}
        # As many as people have typed: hundreds.
        for row in await self.database.fetch(f"select project_id, {_COLUMNS} from project_price"):
            prices.setdefault(row["project_id"], []).append(_price(row))
        ranked = {project_id: ranked_prices(each) for project_id, each in prices.items()}
        return {project_id: own for project_id, own in ranked.items() if own is not None}

    async def of(self, project_id: int) -> Sequence[ModelPrice]:
        """The prices of a project."""
        rows = await self.database.fetch(
            f"select {_COLUMNS} from project_price where project_id = $1 order by model, provider", project_id
        )
        return [_price(row) for row in rows]

    async def replace(self, project_id: int, prices: Sequence[ModelPrice], *, actor: str, slug: str) -> None:
        """Replace the prices of a project. The audit has them."""

        async def work(connection: Connection) -> None:
            await connection.execute("delete from project_price where project_id = $1", project_id)
            await connection.execute(
                f"insert into project_price (project_id, {_COLUMNS}) select $1, * from"
                " unnest($2::text[], $3::text[], $4::numeric[], $5::numeric[], $6::numeric[], $7::numeric[],"
                " $8::numeric[])",
                project_id,
                [price.key[0] for price in prices],
                [price.key[1] for price in prices],
                [price.input for price in prices],
                [price.output for price in prices],
                [price.cache_read for price in prices],
                [price.cache_write for price in prices],
                [price.cache_write_1h for price in prices],
            )
            await record(
                connection,
                "prices.update",
                actor=actor,
                project_id=project_id,
                subject=("project", slug),
                details={
                    " ".join(filter(None, (price.key[1], price.key[0]))): f"{price.input} / {price.output}"
                    for price in prices
                },
            )

        await self.database.run(work)


def _price(row: Any) -> ModelPrice:
    return ModelPrice(
        row["model"],
        row["provider"] or None,
        row["input"],
        row["output"],
        row["cache_read"],
        row["cache_write"],
        row["cache_write_1h"],
    )
