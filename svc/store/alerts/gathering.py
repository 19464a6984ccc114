"""From the outbox to messages: what a rule has to tell is gathered, composed and queued in one transaction.

Owns how rows of `alert_delivery` are made and events marked as gathered. So each event stands in messages
exactly once, however often a process is killed and however many copies gather. Bounded: a rule makes messages
once a minute at most, a message stands for 500 events, and 1,000 messages may wait for a channel.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from protocol.alerts import (
    EVENTS_A_MESSAGE,
    GATHER_S,
    MESSAGE_REST_S,
    QUEUED_MAX,
    AlertEvent,
    AlertMessage,
    AlertPlace,
)
from svc.domain.alerts.channels.table import CHANNELS
from svc.domain.alerts.composing import composed
from svc.store.alerts.outbox import facts_of
from svc.store.alerts.rules import COLUMNS, rule_of
from svc.store.postgres.database import Connection, Database

#: Rules that one gathering goes through.
RULES_GATHERED: Final = 100
_FULL: Final = f"{QUEUED_MAX} messages wait for this channel already"
_OFF: Final = "the channel is off: its receiver said that it is gone"

# Rules with something to tell that has waited for others of its kind, and that may make a message again.
_READY: Final = f"""
select w.project_id, w.rule_id from (
    select project_id, rule_id, min(written_at) as first from alert_event
    where gathered_at is null group by project_id, rule_id) w
join alert_rule r on r.project_id = w.project_id and r.id = w.rule_id
where w.first <= now() - $1 * interval '1 second'
    and (r.told_at is null or r.told_at <= now() - $2 * interval '1 second')
order by w.first limit {RULES_GATHERED}
"""


@attrs.define(eq=False)
class GatheringStore:
    """Makes messages. All verbs raise `Outage`. The two times are arguments for tests alone."""

    database: Database
    gather_s: float = GATHER_S
    rest_s: float = MESSAGE_REST_S

    async def gather(self, now: datetime) -> int:
        """Queue messages for all rules that have something to tell. How many were made."""
        ready = await self.database.fetch(_READY, self.gather_s, self.rest_s)
        messages = 0
        for row in ready:
            messages += await self._rule(row["project_id"], row["rule_id"], now)
        return messages

    async def _rule(self, project_id: int, rule_id: UUID, now: datetime) -> int:
        async def work(connection: Connection) -> int:
            # The rule and its place, unless another copy gathers for it.
            rule_row: Any = await connection.fetchrow(
                f"select {COLUMNS}, o.slug as org, p.slug as project from alert_rule r"
                " join project p on p.id = r.project_id join organization o on o.id = p.org_id"
                " where r.project_id = $1 and r.id = $2 and p.deleted_at is null"
                " and (r.told_at is null or r.told_at <= now() - $3 * interval '1 second')"
                " for update of r skip locked",
                project_id,
                rule_id,
                self.rest_s,
            )
            if rule_row is None:
                return 0
            # The events that no message holds yet, in their order.
            rows = await connection.fetch(
                "update alert_event e set gathered_at = now() from (select id from alert_event"
                " where project_id = $1 and rule_id = $2 and gathered_at is null order by id limit $3) w"
                " where e.project_id = $1 and e.id = w.id"
                " returning e.id, e.subject, e.state, e.facts::text as facts, e.occurred_at",
                project_id,
                rule_id,
                EVENTS_A_MESSAGE,
            )
            events = [_event(row) for row in sorted(rows, key=lambda row: row["id"])]
            messages = await _queue(connection, rule_row, events, now) if events else 0
            if messages:
                # Its rest begins.
                await connection.execute(
                    "update alert_rule set told_at = now() where project_id = $1 and id = $2",
                    project_id,
                    rule_id,
                )
            return messages

        return await self.database.run(work)


async def _queue(connection: Connection, rule_row: Any, events: list[AlertEvent], now: datetime) -> int:
    rule, alert_place = rule_of(rule_row), AlertPlace(rule_row["org"], rule_row["project"])
    # Where it goes, and how much waits there.
    channels = await connection.fetch(
        "select a.id, a.kind, a.off_at, (select count(*) from alert_delivery d where d.project_id = $1"
        " and d.channel_id = a.id and d.state = 'queued') as waiting from alert_channel a"
        " where a.project_id = $1 and a.id = any($2::uuid[]) order by a.id",
        rule.project_id,
        list(rule.channels),
    )
    messages = 0
    for channel in channels:
        incidents = CHANNELS[channel["kind"]].keeps_incidents
        room = QUEUED_MAX - channel["waiting"]
        for message in composed(rule, events, alert_place, incidents=incidents):
            failure = _OFF if channel["off_at"] is not None else _FULL if room <= 0 else None
            await _insert(connection, rule.project_id, rule.id, channel["id"], message, failure, now)
            room -= 1
            messages += 1
    return messages


async def _insert(
    connection: Connection,
    project_id: int,
    rule_id: UUID,
    channel_id: UUID,
    message: AlertMessage,
    failure: str | None,
    now: datetime,
) -> None:
    # Due at once; one that cannot wait is dead, where people see it and may replay it.
    await connection.execute(
        "insert into alert_delivery (project_id, rule_id, channel_id, message, state, due_at, failure,"
        " made_at, ended_at) values ($1, $2, $3, $4::text::jsonb, case when $5::text is null then 'queued'"
        " else 'dead' end, now(), $5, $6, case when $5::text is null then null else now() end)",
        project_id,
        rule_id,
        channel_id,
        msgspec.json.encode(message).decode(),
        failure,
        now,
    )


def _event(row: Any) -> AlertEvent:
    return AlertEvent(row["id"], row["subject"], row["state"], facts_of(row["facts"]), row["occurred_at"])
