"""Rules of a project: what is told, to which channels, and until when it is muted.

Owns the table `alert_rule`, but for what a look leaves in it. Each act of a person is audited in its
transaction. What a rule may ask for is checked before it comes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import asyncpg
import attrs
import msgspec

from protocol.alerts import RULES_MAX, AlertRule
from svc.store.accounts.audit import record
from svc.store.accounts.projects import lock_project
from svc.store.postgres.database import Connection, Database

COLUMNS: Final = (
    "r.project_id, r.id, r.kind, r.name, r.params::text as params, r.channels, r.created_at, r.updated_at,"
    " r.muted_until, r.muted_by, r.due_at, r.looked_at, r.trouble, r.told_at"
)

RuleUnchanged = Literal["taken", "too many", "no such channel"]


@attrs.define(eq=False)
class AlertRuleStore:
    """Reads and changes rules. All verbs raise `Outage`."""

    database: Database

    async def list(self, project_id: int) -> Sequence[AlertRule]:
        """Those of a project, by name."""
        rows = await self.database.fetch(
            f"select {COLUMNS} from alert_rule r where r.project_id = $1 order by r.name limit $2",
            project_id,
            RULES_MAX,
        )
        return [rule_of(row) for row in rows]

    async def one(self, project_id: int, rule_id: UUID) -> AlertRule | None:
        """One of a project, or None."""
        rows = await self.database.fetch(
            f"select {COLUMNS} from alert_rule r where r.project_id = $1 and r.id = $2", project_id, rule_id
        )
        return rule_of(rows[0]) if rows else None

    async def put(self, rule: AlertRule, actor: str) -> RuleUnchanged | None:
        """Insert it, or replace the one of its id. A rule that looks begins anew: it forgets what it saw."""

        async def work(connection: Connection) -> RuleUnchanged | None:
            await lock_project(connection, rule.project_id)
            count = await connection.fetchval(
                "select count(*) from alert_rule where project_id = $1 and id <> $2",
                rule.project_id,
                rule.id,
            )
            if count >= RULES_MAX:
                return "too many"
            # Those of the project; nobody removes one meanwhile.
            channels = await connection.fetch(
                "select id from alert_channel where project_id = $1 and id = any($2::uuid[]) for share",
                rule.project_id,
                list(rule.channels),
            )
            if len(channels) != len(set(rule.channels)):
                return "no such channel"
            # The whole row; its beginning and its mute stay.
            await connection.execute(
                "insert into alert_rule (project_id, id, kind, name, params, channels, due_at, created_at,"
                " updated_at) values ($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8, $9)"
                " on conflict (project_id, id) do update set kind = excluded.kind, name = excluded.name,"
                " params = excluded.params, channels = excluded.channels, due_at = excluded.due_at,"
                " updated_at = excluded.updated_at, looked_at = null, trouble = null",
                rule.project_id,
                rule.id,
                rule.kind,
                rule.name,
                msgspec.json.encode(rule.params).decode(),
                list(rule.channels),
                rule.due_at,
                rule.created_at,
                rule.updated_at,
            )
            # What it saw by its earlier words.
            await connection.execute(
                "delete from alert_watch where project_id = $1 and rule_id = $2", rule.project_id, rule.id
            )
            # A value of a filter may name a person who is erased later: the audit keeps which fields.
            params = dict(rule.params)
            if "filters" in params:
                params["filters"] = sorted(params["filters"])
            details = {"kind": rule.kind, "name": rule.name, "params": params}
            await _audited(connection, "alert_rule.update", rule, actor, details)
            return None

        try:
            return await self.database.run(work)
        except asyncpg.UniqueViolationError:
            return "taken"

    async def remove(self, rule: AlertRule, actor: str) -> bool:
        """Remove it with what it has not told yet. What is on its way goes on. Whether it was there."""

        async def work(connection: Connection) -> bool:
            # One row, by its key; whoever gathers for it waits, or is waited for.
            removed_id = await connection.fetchval(
                "delete from alert_rule where project_id = $1 and id = $2 returning id",
                rule.project_id,
                rule.id,
            )
            if removed_id is None:
                return False
            for table in ("alert_event", "alert_watch"):
                # What stands under it; the name comes from the line above.
                await connection.execute(
                    f"delete from {table} where project_id = $1 and rule_id = $2", rule.project_id, rule.id
                )
            await _audited(connection, "alert_rule.delete", rule, actor, {"name": rule.name})
            return True

        return await self.database.run(work)

    async def mute(self, rule: AlertRule, until: datetime | None, actor: str, now: datetime) -> bool:
        """Have it keep still until a moment, or speak again. False: it is gone."""

        async def work(connection: Connection) -> bool:
            # One row, by its key. What it sees it tells at once when it may.
            rule_id = await connection.fetchval(
                "update alert_rule set muted_until = $3, muted_by = $4, due_at = case when due_at is null"
                " then null else least(due_at, $5) end where project_id = $1 and id = $2 returning id",
                rule.project_id,
                rule.id,
                until,
                None if until is None else actor,
                now,
            )
            if rule_id is None:
                return False
            details = {"name": rule.name, "until": None if until is None else until.isoformat()}
            await _audited(connection, "alert_rule.mute", rule, actor, details)
            return True

        return await self.database.run(work)


async def _audited(
    connection: Connection,
    action: Literal["alert_rule.update", "alert_rule.delete", "alert_rule.mute"],
    rule: AlertRule,
    actor: str,
    details: dict[str, Any],
) -> None:
    await record(
        connection,
        action,
        actor=actor,
        project_id=rule.project_id,
        subject=("alert_rule", str(rule.id)),
        details=details,
    )


def rule_of(row: Any) -> AlertRule:
    """A row, read; its columns as `COLUMNS` has them."""
    fields = {field.name: row[field.name] for field in attrs.fields(AlertRule)}
    params = msgspec.json.decode(fields["params"])
    return AlertRule(**{**fields, "params": params, "channels": tuple(fields["channels"])})
