"""What rounds of detection hold: projects that are tallied or judged, reports that are written.

The detecting process calls it once, before any of its rounds runs, where no other service works on the
database: then whoever held something was killed, and nobody need wait until it runs out. Never used beside
another replica.
"""

from __future__ import annotations

from typing import Final

from svc.store.postgres.database import Connection, Database

# Every project may be tallied, and judged by every detector.
_FOLDED: Final = "update fold_state set holder = null where holder is not null"
_JUDGED: Final = "update judge_state set holder = null where holder is not null"

# Every report of the rule that was being written may be taken over; those of agents are the runner's.
_REPORTED: Final = """
update rca_report set lease_until = clock_timestamp()
where engine = 'rule' and lease_until > clock_timestamp()
"""


async def give_up_all(database: Database) -> None:
    """Hold nothing any more, in the name of whoever was killed. Raises `Outage`."""

    async def work(connection: Connection) -> None:
        for statement in (_FOLDED, _JUDGED, _REPORTED):
            await connection.execute(statement)

    await database.run(work)
