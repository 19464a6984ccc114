"""What was erased and may not come back: asked by everybody who writes, before anything is stored.

Owns the tables `erased_trace` and `erased_subject`, the salt and the epoch in `instance_fact`, and the lock
between writers and an erasure. `svc.store.retention.erasures` puts tombstones there; writers of spans,
feedback and dead letters ask here. A late span of an erased trace is dropped, and so is what an erased
session or user did before they were erased; what they do later is stored.

Ordering: a writer holds its projects for its whole transaction, shared, and reads tombstones and epoch after
that. An erasure that holds a project alone for a moment knows that every writer since sees
what it wrote before. Where the epoch moved, messages or values of attributes were deleted that a process may
remember as stored.

Secrets: sessions and users stand here as keyed digests alone.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import attrs

from protocol.storage import Erasable
from svc.domain.spans.span import SpanRow
from svc.store.postgres.database import Connection

#: The first half of the advisory locks, the second is the project's.
_LOCK: Final = 0x6572_6173
#: How long an erasure waits for writers before it lets the next ones pass.
_WAIT: Final = "300ms"

_SHARED: Final = "select pg_advisory_xact_lock_shared($1, p) from unnest($2::integer[]) as projects (p)"

_STATE: Final = """
select (select value from instance_fact where name = 'erasure_epoch') as epoch,
    (select value from instance_fact where name = 'erasure_salt') as salt,
    array(select p from unnest($1::bigint[]) as asked (p) where
        exists (select from erased_trace e where e.project_id = p)
        or exists (select from erased_subject e where e.project_id = p)) as marked,
    array(select p from unnest($1::bigint[]) as asked (p) where
        exists (select from erasing_message e where e.project_id = p)
        or exists (select from erasing_value e where e.project_id = p)) as erasing
"""


@attrs.frozen
class ErasureState:
    """What a writer has to know: the epoch, and in which of its projects something was or is being erased."""

    epoch: str = ""
    salt: bytes = b""
    marked: frozenset[int] = frozenset()
    erasing: frozenset[int] = frozenset()


async def hold(connection: Connection, project_ids: Collection[int]) -> ErasureState:
    """Hold these projects as a writer until the end of the transaction, and say what was erased."""
    ordered = sorted(project_ids)
    await connection.execute(_SHARED, _LOCK, sorted({project_id % 2**31 for project_id in ordered}))
    # With a later snapshot than the lock's.
    row: Any = await connection.fetchrow(_STATE, ordered)
    salt = bytes.fromhex(row["salt"] or "")
    return ErasureState(row["epoch"] or "", salt, frozenset(row["marked"]), frozenset(row["erasing"]))


async def hold_alone(connection: Connection, project_id: int) -> None:
    """Hold a project as an erasure does, until the end of the transaction: nobody writes meanwhile.

    Raises `LockNotAvailableError` when writers do not let it in for a while.
    """
    await connection.execute(f"set local lock_timeout = '{_WAIT}'")
    await connection.execute("select pg_advisory_xact_lock($1, $2)", _LOCK, project_id % 2**31)
    await connection.execute("set local lock_timeout = 0")


async def move_epoch(connection: Connection) -> None:
    """From now on nobody trusts what they remember as stored. The caller holds the project alone."""
    await connection.execute(
        "insert into instance_fact (name, value) values ('erasure_epoch', $1)"
        " on conflict (name) do update set value = excluded.value",
        secrets.token_hex(8),
    )


async def salt_of(connection: Connection) -> bytes:
    """The key of the digests of this install, made at its first erasure."""
    await connection.execute(
        "insert into instance_fact (name, value) values ('erasure_salt', $1) on conflict do nothing",
        secrets.token_hex(32),
    )
    value: str = await connection.fetchval("select value from instance_fact where name = 'erasure_salt'")
    return bytes.fromhex(value)


def digest_of(salt: bytes, kind: Erasable, subject: str) -> bytes:
    """The keyed digest of an id; a trace is named by its hexadecimal id."""
    return hmac.digest(salt, f"{kind}:{subject}".encode("utf-8", "surrogatepass"), sha256)


@attrs.frozen
class ErasedAmong:
    """What of a group was erased."""

    state: ErasureState
    traces: frozenset[tuple[int, bytes]]
    #: By project and digest: since when they may act again.
    subjects: dict[tuple[int, bytes], datetime]

    def holds(self, project_id: int, row: SpanRow) -> bool:
        """Whether a span may not be stored."""
        return self.forbids(project_id, row.trace_id, row.session_id, row.user_id, row.started_at)

    def forbids(
        self,
        project_id: int,
        trace_id: bytes | None,
        session_id: str | None,
        user_id: str | None,
        moment: datetime,
    ) -> bool:
        """Whether what somebody did at a moment may not be stored."""
        if trace_id is not None and (project_id, trace_id) in self.traces:
            return True
        if not self.subjects:
            return False
        for kind, subject in _subjects(session_id, user_id):
            erased_at = self.subjects.get((project_id, digest_of(self.state.salt, kind, subject)))
            if erased_at is not None and moment < erased_at:
                return True
        return False


#: A project, a trace, a session, a user.
_Named = tuple[int, bytes | None, str | None, str | None]


async def erased_among(
    connection: Connection, state: ErasureState, mentions: Iterable[_Named]
) -> ErasedAmong | None:
    """What was erased of what these things name, of projects that have tombstones; None when nothing was."""
    wanted_ids = {item for item in mentions if item[0] in state.marked}
    if not wanted_ids:
        return None
    traces = {(project_id, trace_id) for project_id, trace_id, _, _ in wanted_ids if trace_id is not None}
    digests = {
        (project_id, digest_of(state.salt, kind, subject))
        for project_id, _, session_id, user_id in wanted_ids
        for kind, subject in _subjects(session_id, user_id)
    }
    trace_rows = await connection.fetch(
        "select project_id, trace_id from unnest($1::bigint[], $2::bytea[]) as a (project_id, trace_id)"
        " join erased_trace e using (project_id, trace_id)",
        *_columns(traces),
    )
    rows = await connection.fetch(
        "select project_id, digest, e.before from unnest($1::bigint[], $2::bytea[]) as a (project_id, digest)"
        " join erased_subject e using (project_id, digest)",
        *_columns(digests),
    )
    if not trace_rows and not rows:
        return None
    return ErasedAmong(
        state,
        frozenset((row["project_id"], row["trace_id"]) for row in trace_rows),
        {(row["project_id"], row["digest"]): row["before"] for row in rows},
    )


def _subjects(session_id: str | None, user_id: str | None) -> list[tuple[Erasable, str]]:
    subjects: list[tuple[Erasable, str]] = []
    if session_id:
        subjects.append(("session", session_id))
    if user_id:
        subjects.append(("user", user_id))
    return subjects


def _columns(keys: Collection[tuple[int, bytes]]) -> tuple[list[int], list[bytes]]:
    ordered = sorted(keys)
    return [project_id for project_id, _ in ordered], [key for _, key in ordered]


async def rescue_messages(
    connection: Connection, project_id: int, keys: Collection[tuple[datetime, bytes]]
) -> None:
    """Somebody writes these messages, each of a day: an erasure that runs leaves them."""
    ordered = sorted(keys)
    await connection.execute(
        "with held as (select e.started_at, e.hash from erasing_message e"
        " join unnest($2::timestamptz[], $3::bytea[]) as a (started_at, hash) using (started_at, hash)"
        " where e.project_id = $1 order by e.started_at, e.hash for update of e)"
        " delete from erasing_message e using held where e.project_id = $1"
        " and e.started_at = held.started_at and e.hash = held.hash",
        project_id,
        [started_at for started_at, _ in ordered],
        [digest for _, digest in ordered],
    )


async def rescue_values(connection: Connection, project_id: int, codes: Sequence[str]) -> None:
    """Somebody writes these characters of attribute values: an erasure that runs leaves them."""
    await connection.execute(
        "with held as (select code from erasing_value where project_id = $1 and code = any($2::text[])"
        " order by code for update)"
        " delete from erasing_value e using held where e.project_id = $1 and e.code = held.code",
        project_id,
        codes,
    )
