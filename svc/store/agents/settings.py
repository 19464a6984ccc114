"""What projects set of their agents.

Owns the table `agent_setting`. A change, its audit and the wake-up of what was parked (by a trigger of the
table) are one transaction.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.agents import RUN_KINDS, AgentSettings, ModelChoice
from svc.store.accounts.audit import record
from svc.store.postgres.database import Connection, Database

COLUMNS: Final = "triage_automatic, models::text as models, run_usd, day_usd"


@attrs.define(eq=False)
class AgentSettingStore:
    """All verbs raise `Outage`."""

    database: Database

    async def of(self, project_id: int) -> AgentSettings:
        """What the project set, or the defaults."""
        return await self.database.run(lambda connection: settings_of(connection, project_id), readonly=True)

    async def put(self, org_id: int, project_id: int, wanted: AgentSettings, actor: str) -> bool:
        """Replace them. False: an integration is none of the organization's model providers."""
        models = {
            kind: {"integration_id": str(choice.integration_id), "model": choice.model}
            for kind, choice in wanted.models.items()
        }

        async def work(connection: Connection) -> bool:
            ids = {choice.integration_id for choice in wanted.models.values()}
            # Those that are the organization's; nobody removes one meanwhile.
            known = await connection.fetch(
                "select id from integration where org_id = $1 and kind = 'model_provider'"
                " and id = any($2::uuid[]) for share",
                org_id,
                list(ids),
            )
            if len(known) != len(ids):
                return False
            # The whole row.
            await connection.execute(
                "insert into agent_setting (project_id, triage_automatic, models, run_usd, day_usd)"
                " values ($1, $2, $3::text::jsonb, $4, $5) on conflict (project_id) do update"
                " set triage_automatic = excluded.triage_automatic, models = excluded.models,"
                " run_usd = excluded.run_usd, day_usd = excluded.day_usd",
                project_id,
                wanted.triage_automatic,
                msgspec.json.encode(models).decode(),
                wanted.run_usd,
                wanted.day_usd,
            )
            await record(
                connection,
                "agent_settings.update",
                actor=actor,
                org_id=org_id,
                project_id=project_id,
                subject=("project", str(project_id)),
                details={
                    "triage_automatic": wanted.triage_automatic,
                    "models": models,
                    "run_usd": wanted.run_usd,
                    "day_usd": wanted.day_usd,
                },
            )
            return True

        return await self.database.run(work)


async def settings_of(connection: Connection, project_id: int) -> AgentSettings:
    """What the project set, or the defaults, within the caller's transaction."""
    # By its key.
    row: Any = await connection.fetchrow(
        f"select {COLUMNS} from agent_setting where project_id = $1", project_id
    )
    if row is None:
        return AgentSettings()
    stored = msgspec.json.decode(row["models"])
    models = {
        kind: ModelChoice(UUID(stored[kind]["integration_id"]), stored[kind]["model"])
        for kind in RUN_KINDS
        if kind in stored
    }
    return AgentSettings(row["triage_automatic"], models, row["run_usd"], row["day_usd"])
