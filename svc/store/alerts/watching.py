"""What rules that look see: which are due, and how a look becomes events.

Owns the table `alert_watch` and what a look leaves in `alert_rule`. A subject that begins to fire is told
once, and once more when it is over; one that began while the rule was muted is told when the mute has ended.
Of several copies that look at the same time one writes: the others find that the rule was due at another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from protocol.alerts import FAILURE_CHARS, AlertFacts, AlertRule, CheckResult, RuleKind
from protocol.samples import Sample
from svc.store.alerts.outbox import facts_of, tell
from svc.store.alerts.rules import COLUMNS, rule_of
from svc.store.alerts.samples import keep_samples
from svc.store.postgres.database import Connection, Database

#: Rules looked at in one round, and subjects that one rule may have firing.
DUE_MOST: Final = 200
SUBJECTS_MOST: Final = 200
#: What a copy saw that is gone is forgotten.
_FORGOTTEN: Final = timedelta(days=1)


@attrs.define(eq=False)
class WatchStore:
    """All verbs raise `Outage`."""

    database: Database

    async def due(self, kinds: Sequence[RuleKind], now: datetime) -> Sequence[AlertRule]:
        """Rules of these kinds that are to look, the one that waits longest first."""
        # By the index of what is due.
        rows = await self.database.fetch(
            f"select {COLUMNS} from alert_rule r join project p on p.id = r.project_id"
            " where r.due_at <= $1 and r.kind = any($2::text[]) and p.deleted_at is null"
            f" order by r.due_at limit {DUE_MOST}",
            now,
            list(kinds),
        )
        return [rule_of(row) for row in rows]

    async def settle(
        self, rule: AlertRule, result: CheckResult, now: datetime, *, by_each_copy: bool = False
    ) -> bool:
        """Write what a look saw. False: another copy looked, or the rule was changed meanwhile.

        `by_each_copy`: every copy looks for itself, at subjects of its own.
        """

        async def work(connection: Connection) -> bool:
            # As it stood when it was due.
            is_current = await connection.fetchval(
                "select true from alert_rule where project_id = $1 and id = $2 and updated_at = $3"
                " and ($4 or due_at = $5) for update",
                rule.project_id,
                rule.id,
                rule.updated_at,
                by_each_copy,
                rule.due_at,
            )
            if not is_current:
                return False
            if result.trouble is None:
                await _compare(connection, rule, result, now)
                for subject, facts in result.told.items():
                    if not rule.is_muted(now):
                        await tell(connection, rule.project_id, rule.id, subject, "told", "told", facts, now)
            # When to look again; what every copy looks at is always due.
            await connection.execute(
                "update alert_rule set looked_at = $3, trouble = $4,"
                " due_at = case when $5 then due_at else $6 end where project_id = $1 and id = $2",
                rule.project_id,
                rule.id,
                now,
                None if result.trouble is None else result.trouble[:FAILURE_CHARS],
                by_each_copy,
                result.next_at,
            )
            return True

        return await self.database.run(work)

    async def keep_samples(self, samples: Mapping[RuleKind, Sample], now: datetime) -> None:
        """Keep what is known of the instance in this hour."""
        await keep_samples(self.database, samples, now)


async def _compare(connection: Connection, rule: AlertRule, result: CheckResult, now: datetime) -> None:
    # What it saw before, of what it looked at now.
    rows = await connection.fetch(
        "select subject, since, told from alert_watch where project_id = $1 and rule_id = $2"
        " and ($3 = '' or subject = $3)",
        rule.project_id,
        rule.id,
        result.covers,
    )
    watch_rows = {row["subject"]: row for row in rows}
    firing = dict(list(result.firing.items())[:SUBJECTS_MOST])
    for subject, facts in firing.items():
        await _fires(connection, rule, subject, facts, watch_rows.get(subject), now)
    for subject, row in watch_rows.items():
        if subject not in firing:
            await _ends(connection, rule, subject, row, now)
    # Those of copies that are gone.
    await connection.execute(
        "delete from alert_watch where project_id = $1 and rule_id = $2 and seen_at < $3",
        rule.project_id,
        rule.id,
        now - _FORGOTTEN,
    )


async def _fires(
    connection: Connection, rule: AlertRule, subject: str, facts: AlertFacts, watch: Any, now: datetime
) -> None:
    since = now if watch is None else watch["since"]
    announced = watch is not None and watch["told"]
    if not announced and not rule.is_muted(now):
        await tell(connection, rule.project_id, rule.id, subject, since.isoformat(), "firing", facts, since)
        announced = True
    await connection.execute(
        "insert into alert_watch (project_id, rule_id, subject, since, seen_at, told)"
        " values ($1, $2, $3, $4, $5, $6) on conflict (project_id, rule_id, subject) do update"
        " set seen_at = excluded.seen_at, told = excluded.told",
        rule.project_id,
        rule.id,
        subject,
        since,
        now,
        announced,
    )


async def _ends(connection: Connection, rule: AlertRule, subject: str, row: Any, now: datetime) -> None:
    await connection.execute(
        "delete from alert_watch where project_id = $1 and rule_id = $2 and subject = $3",
        rule.project_id,
        rule.id,
        subject,
    )
    if not row["told"]:
        return
    mark = row["since"].isoformat()
    # In the words of its beginning.
    facts_text = await connection.fetchval(
        "select facts::text from alert_event where project_id = $1 and rule_id = $2 and subject = $3"
        " and mark = $4",
        rule.project_id,
        rule.id,
        subject,
        mark,
    )
    facts = AlertFacts(title=subject) if facts_text is None else facts_of(facts_text)
    await tell(connection, rule.project_id, rule.id, subject, f"over {mark}", "over", facts, now)
