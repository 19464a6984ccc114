"""Rules that are told even while the database is away: read beforehand, and written down after.

Called by the teller of outages. What it told becomes what the watch would have left: the subject is firing
and told, its event is in messages, each message stands among the deliveries under the id that it was sent
with. So nothing is told twice, the watch tells when it is over, and what did not arrive is sent on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.alerts import (
    FAILURE_CHARS,
    AlertChannel,
    AlertPlace,
    DirectLetter,
    StandingRule,
    ToldDirectly,
)
from svc.store.alerts.channels import COLUMNS as CHANNEL_COLUMNS
from svc.store.alerts.channels import channel_of
from svc.store.alerts.deliveries import channel_took
from svc.store.alerts.rules import COLUMNS, rule_of
from svc.store.postgres.database import Connection, Database

#: Rules that are kept at hand, of all projects, the oldest first.
STANDING_MOST: Final = 200
TIMEOUT_S: Final = 5.0

# Rules about ingest itself that look, where they stand, and whether they told of this subject already.
_RULES: Final = f"""
select {COLUMNS}, o.slug as org, p.slug as project, exists (select from alert_watch w
    where w.project_id = r.project_id and w.rule_id = r.id and w.subject = $1 and w.told) as told
from alert_rule r
join project p on p.id = r.project_id
join organization o on o.id = p.org_id
where r.due_at is not null and r.kind = 'ingest.down' and p.deleted_at is null
    and cardinality(r.channels) > 0
order by r.created_at, r.id limit {STANDING_MOST}
"""


@attrs.define(eq=False)
class PostgresStandingStore:
    """`subject` is what this copy is called in such rules. Both verbs raise `Outage`."""

    database: Database
    subject: str

    async def standing(self) -> Sequence[StandingRule]:
        """The rules, each with the channels that are not off."""

        async def work(connection: Connection) -> Sequence[StandingRule]:
            rules = await connection.fetch(_RULES, self.subject)
            if not rules:
                return ()
            rows = await connection.fetch(
                f"select {CHANNEL_COLUMNS} from alert_channel a where a.project_id = any($1::bigint[])"
                " and a.id = any($2::uuid[]) and a.off_at is null order by a.name",
                [row["project_id"] for row in rules],
                [channel_id for row in rules for channel_id in row["channels"]],
            )
            return _standing(rules, [channel_of(row) for row in rows])

        return await self.database.run(work, readonly=True, timeout_s=TIMEOUT_S)

    async def write_down(self, report: ToldDirectly) -> None:
        """Write what a rule sent, once; nothing where the rule was removed meanwhile."""

        async def work(connection: Connection) -> None:
            # The rule before what is its own.
            exists = await connection.fetchval(
                "select true from alert_rule where project_id = $1 and id = $2 for update",
                report.rule.project_id,
                report.rule.id,
            )
            if exists:
                await _fires(connection, report)
                for letter in report.letters:
                    await _insert_delivery(connection, report, letter)

        await self.database.run(work)


def _standing(rows: Sequence[Any], channels: Sequence[AlertChannel]) -> Sequence[StandingRule]:
    by_key: dict[tuple[int, UUID], AlertChannel] = {
        (channel.project_id, channel.id): channel for channel in channels
    }
    rules = []
    for row in rows:
        keys = [(row["project_id"], channel_id) for channel_id in row["channels"]]
        rule_channels = tuple(by_key[key] for key in keys if key in by_key)
        rules.append(
            StandingRule(rule_of(row), AlertPlace(row["org"], row["project"]), rule_channels, row["told"])
        )
    return rules


async def _fires(connection: Connection, report: ToldDirectly) -> None:
    # One that began while the rule was muted keeps its beginning.
    since = await connection.fetchval(
        "insert into alert_watch (project_id, rule_id, subject, since, seen_at, told)"
        " values ($1, $2, $3, $4, now(), true) on conflict (project_id, rule_id, subject) do update"
        " set seen_at = excluded.seen_at, told = true returning since",
        report.rule.project_id,
        report.rule.id,
        report.subject,
        report.since,
    )
    # In messages already; whoever tells that it is over finds its words here.
    await connection.execute(
        "insert into alert_event (project_id, rule_id, subject, mark, state, facts, occurred_at, gathered_at)"
        " values ($1, $2, $3, $4, 'firing', $5::text::jsonb, $6, now()) on conflict do nothing",
        report.rule.project_id,
        report.rule.id,
        report.subject,
        since.isoformat(),
        msgspec.json.encode(report.facts).decode(),
        report.since,
    )


async def _insert_delivery(connection: Connection, report: ToldDirectly, letter: DirectLetter) -> None:
    # Under the id that its receiver knows.
    await connection.execute(
        "insert into alert_delivery (project_id, id, rule_id, channel_id, message, state, tries, due_at,"
        " status, failure, made_at, ended_at) values ($1, $2, $3, $4, $5::text::jsonb, $6, $7,"
        " now() + $8 * interval '1 second', $9, $10, $11, case when $6 <> 'queued' then now() end)"
        " on conflict do nothing",
        report.rule.project_id,
        letter.delivery_id,
        report.rule.id,
        letter.channel_id,
        msgspec.json.encode(letter.message).decode(),
        letter.state,
        letter.tries,
        letter.again_s,
        letter.status,
        None if letter.failure is None else letter.failure[:FAILURE_CHARS],
        letter.made_at,
    )
    if letter.state == "sent":
        await channel_took(connection, report.rule.project_id, letter.channel_id)
