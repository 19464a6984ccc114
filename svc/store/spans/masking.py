"""What projects have masked before anything is stored, and how often that happened.

Owns the tables `masking_rule` and `masking_count`. People set rules over REST and on a page; decoders read
all of them every few seconds and bring their counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs

from svc.domain.intake.masking import MaskRule
from svc.store.accounts.audit import record
from svc.store.postgres.database import Connection, Database

#: How long counts are kept, and over how many days they are shown.
COUNTS_KEPT: Final = timedelta(days=90)
SHOWN: Final = timedelta(days=30)


@attrs.define(eq=False)
class MaskingStore:
    """All verbs raise `Outage`."""

    database: Database

    async def every_rule(self) -> Mapping[int, Sequence[MaskRule]]:
        """The rules of all projects that have some."""
        rules: dict[int, list[MaskRule]] = {}
        rows = await self.database.fetch(
            "select project_id, name, pattern from masking_rule"
            " order by project_id, pattern is not null, name"
        )
        for row in rows:
            rules.setdefault(row["project_id"], []).append(MaskRule(row["name"], row["pattern"]))
        return rules

    async def rules(self, project_id: int) -> Sequence[MaskRule]:
        """The rules of a project, classes first."""
        rows = await self.database.fetch(
            "select name, pattern from masking_rule where project_id = $1 order by pattern is not null, name",
            project_id,
        )
        return [MaskRule(row["name"], row["pattern"]) for row in rows]

    async def replace(self, project_id: int, rules: Sequence[MaskRule], *, actor: str, slug: str) -> None:
        """Replace the rules of a project. The audit has their names and patterns."""

        async def work(connection: Connection) -> None:
            await connection.execute("delete from masking_rule where project_id = $1", project_id)
            await connection.execute(
                "insert into masking_rule (project_id, name, pattern)"
                " select $1, * from unnest($2::text[], $3::text[])",
                *(project_id, [rule.name for rule in rules], [rule.pattern for rule in rules]),
            )
            await record(
                connection,
                "masking.update",
                actor=actor,
                project_id=project_id,
                subject=("project", slug),
                details={rule.name: rule.pattern or "class" for rule in rules},
            )

        await self.database.run(work)

    async def counts(self, project_id: int, now: datetime) -> Mapping[str, int]:
        """How often each was masked lately."""
        rows = await self.database.fetch(
            "select name, sum(n)::bigint as n from masking_count where project_id = $1"
            " and day >= $2::timestamptz::date group by name",
            *(project_id, now - SHOWN),
        )
        return {row["name"]: row["n"] for row in rows}

    async def add(self, counts: Mapping[tuple[int, str], int], now: datetime) -> None:
        """Add what a decoder counted."""
        if not counts:
            return

        async def work(connection: Connection) -> None:
            ordered = sorted(counts.items())
            await connection.execute(
                "insert into masking_count as c (project_id, name, day, n)"
                " select p, m, $4::timestamptz::date, n"
                " from unnest($1::bigint[], $2::text[], $3::bigint[]) as counted (p, m, n) order by 1, 2"
                " on conflict (project_id, name, day) do update set n = c.n + excluded.n",
                [project_id for (project_id, _), _ in ordered],
                [name for (_, name), _ in ordered],
                [n for _, n in ordered],
                now,
            )
            await connection.execute(
                "delete from masking_count where project_id = any($1::bigint[])"
                " and day < $2::timestamptz::date",
                *(sorted({project_id for project_id, _ in counts}), now - COUNTS_KEPT),
            )

        await self.database.run(work)
