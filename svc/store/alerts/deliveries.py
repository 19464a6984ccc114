"""Deliveries as they move: claimed, sent, tried again later, given up, replayed; and as people see them.

Owns the table `alert_delivery`, but for its making, and how a channel is doing. A delivery that somebody
holds is theirs while their token stands in its row. One message at a time goes to a channel, and a channel
that fails is left alone for a while, so that one dead receiver holds nobody else up. Leases and rests are
told by the database's clock, the only one that all copies share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal
from uuid import UUID

import attrs
import msgspec

from protocol.alerts import (
    FAILURE_CHARS,
    LEASE_S,
    TRIES,
    AlertMessage,
    DeliveryLease,
    DeliveryState,
    Undelivered,
)
from protocol.rest.query import timestamp
from svc.store.accounts.audit import record
from svc.store.alerts.channels import COLUMNS, channel_of
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset

#: How long a channel is left alone after its second failure in a row; it doubles.
CHANNEL_REST_S: Final = 30.0
CHANNEL_REST_MOST_S: Final = 600.0

# The message that is due longest, of a channel that nobody sends to and that does not rest; of those about
# one thing the first that was made.
_CLAIM: Final = f"""
with found as (
    select q.project_id, q.id from alert_delivery q
    join alert_channel a on a.project_id = q.project_id and a.id = q.channel_id
    where q.state = 'queued' and q.due_at <= now() and q.tries < {TRIES}
        and (q.lease_until is null or q.lease_until <= now())
        and a.off_at is null and (a.rests_until is null or a.rests_until <= now())
        and not exists (select from alert_delivery h where h.project_id = q.project_id
            and h.channel_id = q.channel_id and h.state = 'queued' and h.lease_until > now())
        and not exists (select from alert_delivery e where e.project_id = q.project_id
            and e.channel_id = q.channel_id and e.dedup_key = q.dedup_key and e.state = 'queued'
            and e.seq < q.seq)
    order by q.due_at, q.seq limit 1
    for update of q skip locked
), held as (
    update alert_delivery d set tries = d.tries + 1, lease_token = gen_random_uuid(),
        lease_until = now() + {LEASE_S} * interval '1 second'
    from found where d.project_id = found.project_id and d.id = found.id
    returning d.project_id, d.id as delivery_id, d.lease_token, d.tries, d.channel_id,
        d.message::text as message
)
select h.delivery_id, h.lease_token, h.tries, h.message, {COLUMNS} from held h
join alert_channel a on a.project_id = h.project_id and a.id = h.channel_id
"""

_NEWEST: Final = Keyset("alert deliveries", (("made_at", "moment"), ("id", "uuid")))

Replayed = Literal["queued", "missing", "waits", "no channel"]


@attrs.define(eq=False)
class PostgresDeliveryStore:
    """All verbs raise `Outage`."""

    database: Database

    async def claim(self) -> DeliveryLease | None:
        """Hold a message that is due, if any is; one whose holder died is taken over when its lease is."""
        rows = await self.database.fetch(_CLAIM)
        return _lease(rows[0]) if rows else None

    async def sent(self, lease: DeliveryLease, status: int | None) -> bool:
        """It arrived. False: the lease was lost."""

        async def work(connection: Connection) -> bool:
            # Over, if it is still this one's.
            is_held = await _set(
                connection, lease, "state = 'sent', status = $4, failure = null, ended_at = now()", status
            )
            if is_held:
                await channel_took(connection, lease.project_id, lease.channel.id)
            return is_held

        return await self.database.run(work)

    async def failed(self, lease: DeliveryLease, why: Undelivered) -> DeliveryState | None:
        """It did not arrive: tried again later, or dead after the last try. None: the lease was lost."""

        async def work(connection: Connection) -> DeliveryState | None:
            rest_s = why.rest_s(lease.tries)
            is_last = rest_s is None
            is_held = await _set(
                connection,
                lease,
                "state = case when $4 then 'dead' else 'queued' end, status = $5, failure = $6,"
                " ended_at = case when $4 then now() end, due_at = now() + $7 * interval '1 second'",
                is_last,
                why.status,
                why.why[:FAILURE_CHARS],
                rest_s or 0.0,
            )
            if not is_held:
                return None
            # Left alone the longer the more often it failed in a row, and as long as it wants.
            await connection.execute(
                "update alert_channel set failures = least(failures + 1, 1000), last_error = $3,"
                " off_at = case when $4 then now() end, rests_until = now() + greatest($5::float8,"
                " case when failures = 0 then 0 else least($6::float8 * 2 ^ least(failures - 1, 20),"
                " $7::float8) end)"
                " * interval '1 second' where project_id = $1 and id = $2",
                lease.project_id,
                lease.channel.id,
                why.why[:FAILURE_CHARS],
                why.gone,
                why.wanted_rest_s,
                CHANNEL_REST_S,
                CHANNEL_REST_MOST_S,
            )
            return "dead" if is_last else "queued"

        return await self.database.run(work)

    async def release(self, lease: DeliveryLease) -> bool:
        """Give it back at once, as if it had not been tried: the process ends. False: it was lost."""
        return await self.database.run(
            lambda connection: _set(connection, lease, "tries = tries - 1"), timeout_s=2.0
        )

    async def give_up(self) -> int:
        """End what nobody holds any more after its last try, and what waits for a channel that is off."""
        # A handful: those whose holder was killed at the last try, or whose channel was told to be gone.
        rows = await self.database.fetch(
            "update alert_delivery d set state = 'dead', lease_token = null, lease_until = null,"
            " ended_at = now(), failure = case when a.off_at is not null"
            " then 'the channel is off: its receiver said that it is gone'"
            " else coalesce(d.failure, 'the service ended at its last try') end"
            " from alert_channel a where a.project_id = d.project_id and a.id = d.channel_id"
            " and d.state = 'queued' and (d.lease_until is null or d.lease_until <= now())"
            " and (d.tries >= $1 or a.off_at is not null) returning d.id",
            TRIES,
        )
        return len(rows)

    async def counts(self) -> Mapping[str, Any]:
        """`{queued, dead, oldest_at, resting, off}` of all projects: dead ones of the last day."""
        # By the indexes of what waits and of what is newest.
        rows = await self.database.fetch(
            "select count(*) filter (where state = 'queued') as queued,"
            " min(made_at) filter (where state = 'queued') as oldest_at,"
            " count(*) filter (where state = 'dead') as dead,"
            " (select count(*) from alert_channel where rests_until > now()) as resting,"
            " (select count(*) from alert_channel where off_at is not null) as off"
            " from alert_delivery where state = 'queued' or ended_at > now() - interval '1 day'"
        )
        return dict(rows[0].items())

    async def replay(self, project_id: int, delivery_id: UUID, actor: str) -> Replayed:
        """Have a message sent once more, under the id that it had."""

        async def work(connection: Connection) -> Replayed:
            # As it stands, and whether its channel is there.
            delivery: Any = await connection.fetchrow(
                "select d.state, a.name from alert_delivery d left join alert_channel a"
                " on a.project_id = d.project_id and a.id = d.channel_id and a.off_at is null"
                " where d.project_id = $1 and d.id = $2 for update of d",
                project_id,
                delivery_id,
            )
            if delivery is None:
                return "missing"
            if delivery["state"] == "queued":
                return "waits"
            if delivery["name"] is None:
                return "no channel"
            await connection.execute(
                "update alert_delivery set state = 'queued', tries = 0, due_at = now(), ended_at = null,"
                " failure = null, status = null where project_id = $1 and id = $2",
                project_id,
                delivery_id,
            )
            await record(
                connection,
                "alert_delivery.replay",
                actor=actor,
                project_id=project_id,
                subject=("alert_delivery", str(delivery_id)),
                details={"channel": delivery["name"]},
            )
            return "queued"

        return await self.database.run(work)

    async def page(
        self,
        project_id: int,
        *,
        state: DeliveryState | None,
        channel_id: UUID | None,
        limit: int,
        cursor: str | None,
    ) -> dict[str, Any]:
        """`{deliveries, next_cursor}`, newest first."""
        where = Where.of(project_id, "d.")
        where.equal("d.state", state)
        where.equal("d.channel_id", channel_id)
        where.after(["d.made_at", "d.id"], _NEWEST.place(cursor))
        # One page and one row more, down the index of this order.
        rows = await self.database.fetch(
            "select d.id, d.state, d.tries, d.due_at, d.status, d.failure, d.made_at, d.ended_at,"
            " d.channel_id, a.name as channel, d.rule_id, d.message::text as message from alert_delivery d"
            " left join alert_channel a on a.project_id = d.project_id and a.id = d.channel_id"
            f" where {where.sql()} order by d.made_at desc, d.id desc limit {where.value(limit + 1)}",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        page, next_cursor = _NEWEST.page(rows, limit)
        return {"deliveries": [_delivery(row) for row in page], "next_cursor": next_cursor}


async def channel_took(connection: Connection, project_id: int, channel_id: UUID) -> None:
    """Note that a channel's receiver took a message just now."""
    await connection.execute(
        "update alert_channel set failures = 0, rests_until = null, last_error = null,"
        " last_sent_at = now() where project_id = $1 and id = $2",
        project_id,
        channel_id,
    )


async def _set(connection: Connection, lease: DeliveryLease, columns: str, *values: Any) -> bool:
    # The message, if it is still this one's; nobody holds it after.
    status = await connection.execute(
        f"update alert_delivery set {columns}, lease_token = null, lease_until = null"
        " where project_id = $1 and id = $2 and lease_token = $3",
        lease.project_id,
        lease.delivery_id,
        lease.token,
        *values,
    )
    return status == "UPDATE 1"


def _message(stored: str) -> AlertMessage:
    message: Any = msgspec.json.decode(stored, type=AlertMessage)
    assert isinstance(message, AlertMessage), "the decoder makes nothing else"
    return message


def _lease(row: Any) -> DeliveryLease:
    return DeliveryLease(
        row["project_id"],
        row["delivery_id"],
        row["lease_token"],
        row["tries"],
        channel_of(row),
        _message(row["message"]),
    )


def _delivery(row: Any) -> dict[str, Any]:
    message = _message(row["message"])
    return {
        "id": str(row["id"]),
        "state": row["state"],
        "tries": row["tries"],
        "due_at": timestamp(row["due_at"]) if row["state"] == "queued" else None,
        "status": row["status"],
        "failure": row["failure"],
        "made_at": timestamp(row["made_at"]),
        "ended_at": None if row["ended_at"] is None else timestamp(row["ended_at"]),
        "channel_id": str(row["channel_id"]),
        "channel": row["channel"],
        "rule_id": str(row["rule_id"]),
        "rule": message.rule,
        "kind": message.kind,
        "title": message.title,
        "severity": message.severity,
        "path": message.path,
    }
