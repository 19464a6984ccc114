"""The audit: who did what to what, written in the transaction of what it records.

Owns the table `audit_row`. `record` is called by the stores whose changes are audited, on their connection;
a change that is rolled back leaves no row. Rows are read here and never changed.

Secrets: `details` hold names, scopes, roles and modes; never a token, a password or a hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import attrs
import msgspec

from svc.store.postgres.database import Connection, Database

PAGE: Final = 200

#: The actor of what the command line does, and of what the service does on its own.
OPERATOR: Final = "operator"
SYSTEM: Final = "system"

Action = Literal[
    "key.create",
    "key.rotate",
    "key.revoke",
    "oauth.allow",
    "oauth.end",
    "project.create",
    "project.update",
    "project.delete",
    "org.update",
    "member.add",
    "member.update",
    "member.remove",
    "invitation.create",
    "invitation.withdraw",
    "invitation.accept",
    "invitation.decline",
    "signup_policy.update",
    "account.create",
    "account.password",
    "account.link",
    "retention.update",
    "retention.rules",
    "taxonomy.update",
    "provider.update",
    "provider.delete",
    "finding.confirm",
    "finding.reject",
    "finding.expect",
    "finding.reopen",
    "case.mute",
    "case.unmute",
    "case.resolve",
    "case.absorb",
    "case.reject",
    "case.reopen",
    "case.rca",
    "detector.call_sites",
    "detector.update",
    "mark.update",
    "dead_letter.replay",
    "dead_letter.discard",
    "agent_run.start",
    "agent_run.cancel",
    "agent_run.end",
    "agent_settings.update",
    "disk.drop",
    "alert_channel.update",
    "alert_channel.rotate",
    "alert_channel.delete",
    "alert_channel.test",
    "alert_rule.update",
    "alert_rule.mute",
    "alert_rule.delete",
    "alert_delivery.replay",
    "attribute.promote",
    "attribute.hide",
    "attribute.rename",
    "data.erase",
    "masking.update",
    "prices.update",
    "chart.keep",
    "chart.rename",
    "chart.remove",
    "set.create",
    "set.add",
    "set.note",
    "set.remove",
    "set.delete",
    "feedback.remove",
    "feedback.better",
    "feedback.bad",
]


@attrs.frozen
class AuditRow:
    """One row of the audit."""

    id: int
    action: str
    actor: str
    subject_kind: str
    subject_id: str
    details: Mapping[str, Any]
    occurred_at: datetime


async def record(
    connection: Connection,
    action: Action,
    *,
    actor: str,
    org_id: int | None = None,
    project_id: int | None = None,
    subject: tuple[str, str],
    details: Mapping[str, Any] | None = None,
) -> None:
    """Write one row. `subject` is its kind and its id; without an organization it is the project's."""
    # One row, in the transaction of its cause.
    await connection.execute(
        "insert into audit_row (org_id, project_id, action, actor, subject_kind, subject_id, details)"
        " values (coalesce($1::bigint, (select org_id from project where id = $2)), $2, $3, $4, $5, $6,"
        " $7::jsonb)",
        org_id,
        project_id,
        action,
        actor,
        *subject,
        msgspec.json.encode(details or {}).decode(),
    )


@attrs.define(eq=False)
class AuditStore:
    """Reads the audit, newest first."""

    database: Database

    async def page(
        self, *, org_id: int | None = None, project_id: int | None = None, before: int | None = None
    ) -> list[AuditRow]:
        """At most `PAGE` rows and one more, of a project or of an organization, older than `before`."""
        column, value = ("project_id", project_id) if project_id is not None else ("org_id", org_id)
        # One page by the identity, which grows with time.
        rows = await self.database.fetch(
            "select id, action, actor, subject_kind, subject_id, details, occurred_at from audit_row"
            f" where {column} = $1 and ($2::bigint is null or id < $2) order by id desc limit {PAGE + 1}",
            value,
            before,
        )
        return [
            AuditRow(**{**dict(row.items()), "details": msgspec.json.decode(row["details"])}) for row in rows
        ]
