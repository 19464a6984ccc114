"""After a restore: whom the notes of earlier erasures mean, among all that was brought back.

Called by `trace-svc restore`, on a database that nobody else uses yet. Notes hold keyed digests, so every
trace is looked at once and its ids are digested; what a note means is asked for as of the moment of that
note, so that what somebody did since they were erased stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import attrs

from protocol.storage import Erasable, ErasedNote
from svc.store.postgres.database import Database
from svc.store.postgres.tombstones import digest_of
from svc.store.retention.days import STEP_TIMEOUT_S
from svc.store.retention.erasures import ErasureStore

TRACES: Final = 2_000

# A stretch of traces with every session and user that they or their spans name.
_NAMES: Final = """
with batch as materialized (
    select trace_id, session_id, user_id, first_started_at, last_started_at from trace
    where project_id = $1 and trace_id > $2 order by trace_id limit $3
)
select trace_id, session_id, user_id from batch
union
select s.trace_id, s.session_id, s.user_id from batch b cross join lateral (
    select s.trace_id, s.session_id, s.user_id from span s where s.project_id = $1 and s.trace_id = b.trace_id
    and s.started_at between b.first_started_at and b.last_started_at offset 0) s
order by trace_id
"""

#: A kind and an id.
_Subject = tuple[Erasable, str]


@attrs.define(eq=False)
class ErasedAgain:
    """Both verbs raise `Outage`."""

    database: Database

    async def ask(self, notes: Sequence[ErasedNote], actor: str, now: datetime) -> int:
        """Ask for everything that these notes mean. Returns how many erasures that are."""
        asked = 0
        projects = await self.database.fetch(
            "select p.id, o.slug || '/' || p.slug as name from project p"
            " join organization o on o.id = p.org_id"
        )
        for project in projects:
            ours = [note for note in notes if note.project == project["name"]]
            if ours:
                asked += await self._ask(project["id"], ours, actor, now)
        return asked

    async def _ask(self, project_id: int, notes: Sequence[ErasedNote], actor: str, now: datetime) -> int:
        moments = {(note.kind, note.salt, note.digest): note.asked_at for note in notes}
        salts = {note.salt for note in notes}
        meant_since: dict[_Subject, datetime] = {}
        cursor: bytes = b""
        while True:
            rows = await self.database.fetch(_NAMES, project_id, cursor, TRACES, timeout_s=STEP_TIMEOUT_S)
            subjects: set[_Subject] = set()
            for row in rows:
                subjects.add(("trace", row["trace_id"].hex()))
                if row["session_id"]:
                    subjects.add(("session", row["session_id"]))
                if row["user_id"]:
                    subjects.add(("user", row["user_id"]))
            for kind, subject in subjects:
                for salt in salts:
                    digest = digest_of(bytes.fromhex(salt), kind, subject).hex()
                    asked_at = moments.get((kind, salt, digest))
                    if asked_at is not None:
                        meant_since[kind, subject] = max(asked_at, meant_since.get((kind, subject), asked_at))
            if not rows:
                break
            cursor = rows[-1]["trace_id"]
        store = ErasureStore(self.database)
        for (kind, subject), asked_at in sorted(meant_since.items()):
            await store.ask(project_id, kind, subject, actor=actor, now=asked_at, noted_at=now)
        return len(meant_since)
