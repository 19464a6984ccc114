"""What projects set of their agents.

Owns the table `agent_setting`. A change, its audit and the wake-up of what was parked (by a trigger of the
table) are one transaction.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.agents import RUN_KINDS, AgentSettings, ModelChoice, RepoChoice
from svc.store.accounts.audit import record
from svc.store.postgres.database import Connection, Database

COLUMNS: Final = "triage_automatic, models::text as models, run_usd, day_usd, repository::text as repository"


@attrs.define(eq=False)
class AgentSettingStore:
    """All verbs raise `Outage`."""

    database: Database

    async def of(self, project_id: int) -> AgentSettings:
        """What the project set, or the defaults."""
        return await self.database.run(lambda connection: settings_of(connection, project_id), readonly=True)

    async def put(self, org_id: int, project_id: int, settings: AgentSettings, actor: str) -> bool:
        """Replace them. False: an integration is none of the organization's, or of another kind."""
        models = {
            kind: {
                "integration_id": str(choice.integration_id),
                "model": choice.model,
                "output_tokens": choice.output_tokens,
                "context_tokens": choice.context_tokens,
            }
            for kind, choice in settings.models.items()
        }

        repository = _stored(settings.repository)

        async def work(connection: Connection) -> bool:
            ids = {choice.integration_id for choice in settings.models.values()}
            git = set() if settings.repository is None else {settings.repository.integration_id} - {None}
            # Those that are the organization's; nobody removes one meanwhile.
            integrations = await connection.fetch(
                "select id from integration where org_id = $1 and (kind = 'model_provider'"
                " and id = any($2::uuid[]) or kind = 'git' and id = any($3::uuid[])) for share",
                org_id,
                list(ids),
                list(git),
            )
            if len(integrations) != len(ids) + len(git):
                return False
            await connection.execute(
                "insert into agent_setting"
                " (project_id, triage_automatic, models, run_usd, day_usd, repository)"
                " values ($1, $2, $3::text::jsonb, $4, $5, $6::text::jsonb)"
                " on conflict (project_id) do update set triage_automatic = excluded.triage_automatic,"
                " models = excluded.models,"
                " run_usd = excluded.run_usd, day_usd = excluded.day_usd, repository = excluded.repository",
                project_id,
                settings.triage_automatic,
                msgspec.json.encode(models).decode(),
                settings.run_usd,
                settings.day_usd,
                None if repository is None else msgspec.json.encode(repository).decode(),
            )
            await record(
                connection,
                "agent_settings.update",
                actor=actor,
                org_id=org_id,
                project_id=project_id,
                subject=("project", str(project_id)),
                details={
                    "triage_automatic": settings.triage_automatic,
                    "models": models,
                    "run_usd": settings.run_usd,
                    "day_usd": settings.day_usd,
                    "repository": repository,
                },
            )
            return True

        return await self.database.run(work)


def _stored(choice: RepoChoice | None) -> dict[str, str | None] | None:
    if choice is None:
        return None
    integration_id = None if choice.integration_id is None else str(choice.integration_id)
    return {"clone_url": choice.clone_url, "ref": choice.ref, "integration_id": integration_id}


async def settings_of(connection: Connection, project_id: int) -> AgentSettings:
    """What the project set, or the defaults, within the caller's transaction."""
    row: Any = await connection.fetchrow(
        f"select {COLUMNS} from agent_setting where project_id = $1", project_id
    )
    if row is None:
        return AgentSettings()
    choices = msgspec.json.decode(row["models"])
    models = {
        kind: ModelChoice(
            UUID(choices[kind]["integration_id"]),
            choices[kind]["model"],
            choices[kind].get("output_tokens"),
            choices[kind].get("context_tokens"),
        )
        for kind in RUN_KINDS
        if kind in choices
    }
    repository = None
    if row["repository"] is not None:
        choice = msgspec.json.decode(row["repository"])
        integration_id = choice["integration_id"]
        repository = RepoChoice(
            choice["clone_url"], choice["ref"], None if integration_id is None else UUID(integration_id)
        )
    return AgentSettings(row["triage_automatic"], models, row["run_usd"], row["day_usd"], repository)
