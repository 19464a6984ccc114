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
class StandingStore:
    """`subject` is what this copy is called in such rules. Both verbs raise `Outage`."""

    database: Database
    subject: str

    async def standing(self) -> Sequence[StandingRule]:
        """The rules, each with the channels that are not off."""

        async def work(connection: Connection) -> Sequence[StandingRule]:
            found = await connection.fetch(_RULES, self.subject)
            if not found:
                return ()
            # Their channels, by the key.
            rows = await connection.fetch(
                f"select {CHANNEL_COLUMNS} from alert_channel a where a.project_id = any($1::bigint[])"
                " and a.id = any($2::uuid[]) and a.off_at is null order by a.name",
                [row["project_id"] for row in found],
                [channel_id for row in found for channel_id in row["channels"]],
            )
            return _standing(found, [channel_of(row) for row in rows])

        return await self.database.run(work, readonly=True, timeout_s=TIMEOUT_S)

    async def write_down(self, told: ToldDirectly) -> None:
        """Write what a rule told, once; nothing where the rule is gone meanwhile."""

        async def work(connection: Connection) -> None:
            # The rule before what is its own.
            there = await connection.fetchval(
                "select true from alert_rule where project_id = $1 and id = $2 for update",
                told.rule.project_id,
                told.rule.id,
            )
            if there:
                await _fires(connection, told)
                for letter in told.letters:
                    await _kept(connection, told, letter)

        await self.database.run(work)


def _standing(found: Sequence[Any], channels: Sequence[AlertChannel]) -> Sequence[StandingRule]:
    known: dict[tuple[int, UUID], AlertChannel] = {(one.project_id, one.id): one for one in channels}
    rules = []
    for row in found:
        keys = [(row["project_id"], channel_id) for channel_id in row["channels"]]
        wanted = tuple(known[key] for key in keys if key in known)
        rules.append(StandingRule(rule_of(row), AlertPlace(row["org"], row["project"]), wanted, row["told"]))
    return rules


async def _fires(connection: Connection, told: ToldDirectly) -> None:
    # It fires since then and was told; one that began before, while the rule was muted, keeps its beginning.
    since = await connection.fetchval(
        "insert into alert_watch (project_id, rule_id, subject, since, seen_at, told)"
        " values ($1, $2, $3, $4, now(), true) on conflict (project_id, rule_id, subject) do update"
        " set seen_at = excluded.seen_at, told = true returning since",
        told.rule.project_id,
        told.rule.id,
        told.subject,
        told.since,
    )
    # In messages already; whoever tells that it is over finds its words here.
    await connection.execute(
        "insert into alert_event (project_id, rule_id, subject, mark, state, facts, occurred_at, gathered_at)"
        " values ($1, $2, $3, $4, 'firing', $5::text::jsonb, $6, now()) on conflict do nothing",
        told.rule.project_id,
        told.rule.id,
        told.subject,
        since.isoformat(),
        msgspec.json.encode(told.facts).decode(),
        told.since,
    )


async def _kept(connection: Connection, told: ToldDirectly, letter: DirectLetter) -> None:
    # Under the id that its receiver knows.
    await connection.execute(
        "insert into alert_delivery (project_id, id, rule_id, channel_id, message, state, tries, due_at,"
        " status, failure, made_at, ended_at) values ($1, $2, $3, $4, $5::text::jsonb, $6, $7,"
        " now() + $8 * interval '1 second', $9, $10, $11, case when $6 <> 'queued' then now() end)"
        " on conflict do nothing",
        told.rule.project_id,
        letter.delivery_id,
        told.rule.id,
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
        await channel_took(connection, told.rule.project_id, letter.channel_id)
