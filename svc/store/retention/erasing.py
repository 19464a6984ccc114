"""How something is erased: step by step, each a transaction of its own, beside ingest.

Called by the eraser of the service and by `trace-svc erase`; which of them makes a step does not matter. The
row of the erasure is locked while one is made, says how far it is, and is taken up where it was after a kill.
Of a project one erasure is at work, the oldest: they share what perhaps nobody else has.

Phases, in order: `finding` its traces and putting tombstones, `deleting` them in portions
(`svc.store.retention.traces`), `evidence` of them that detectors and agents keep (`erased_evidence`), dead
`letters` (`erased_letters`), the `hours` of cubes and search built anew, `messages` and `values` that nobody
else has (`erased_words`). Before two of them every writer is waited for that does not know of the tombstones
yet.

Numbers: counts, costs and durations of spans and traces come down, for their hours are built anew from the
rows that are left, as when a late span changes one. What detectors tallied and the hourly metrics stay:
numbers that say of nobody whose they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import asyncpg
import attrs
import msgspec

from protocol.storage import Erasable
from svc.domain.calendar import day_of
from svc.domain.intake.packing import Frame
from svc.domain.traces.agent_path import AGENT_PATH
from svc.store.aggregates.cubes import CubeStore, drop_day_columns
from svc.store.postgres.clock import Clock, server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.tombstones import hold_alone
from svc.store.postgres.transactions import one_transaction
from svc.store.retention.days import STEP_TIMEOUT_S
from svc.store.retention.erased_evidence import forget_sessions, walk_evidence
from svc.store.retention.erased_letters import clean_letters
from svc.store.retention.erased_words import drop_messages, drop_values
from svc.store.retention.erasure_step import DONE, ErasureStep, StepOutcome
from svc.store.retention.erasures import Erasure, ErasureStore, bury, erasure_of
from svc.store.retention.traces import ERASED, delete_traces
from svc.store.spans.loop_turn import LoopTurn
from svc.store.spans.payloads import opened_frame

#: Traces that are looked at in one step for a user, named by a session, and deleted in one; a step takes no
#: further trace behind so many spans, and builds so many hours.
LOOKED_AT: Final = 2_000
NAMED: Final = 500
DELETED: Final = 100
DELETED_SPANS: Final = 5_000
HOURS: Final = 4

_ROW: Final = (
    "select project_id, id, kind, subject, digest, asked_by, asked_at, phase, counts::text, finished_at,"
    " place from erasure where project_id = $1 and finished_at is null"
    " order by asked_at, id limit 1 for update"
)

# A stretch of traces, and which of them are of a user: by themselves, by a span, or by their session where
# they name nobody. What began since they were erased, and came since, is left.
_OF_USER: Final = """
with batch as materialized (
    select * from trace t where t.project_id = $1 and t.trace_id > $2 order by t.trace_id limit $5
)
select trace_id, span_count, least(first_started_at, created_at) < $4 and (user_id = $3
    or user_id is null and exists (select from session s where s.project_id = $1 and s.id = batch.session_id
        and s.user_id = $3 offset 0)
    or exists (select from span s where s.project_id = $1 and s.trace_id = batch.trace_id
        and s.started_at between first_started_at and last_started_at and s.user_id = $3 offset 0)) as theirs
from batch order by trace_id
"""

# Traces of a session: by themselves, or by a span.
_OF_SESSION: Final = """
with named as materialized (
    select trace_id from trace where project_id = $1 and session_id = $3
    union select trace_id from span where project_id = $1 and session_id = $3
)
select t.trace_id, t.span_count, least(t.first_started_at, t.created_at) < $4 as theirs
from named n join trace t on t.project_id = $1 and t.trace_id = n.trace_id
where t.trace_id > $2 order by t.trace_id limit $5
"""

# The next traces that have a tombstone and are not gone, with their number of spans.
_NEXT: Final = """
select e.trace_id, t.span_count, t.first_started_at, t.last_started_at from erased_trace e
left join trace t on t.project_id = e.project_id and t.trace_id = e.trace_id
where e.project_id = $1 and e.erasure_id = $2 and not e.gone order by e.trace_id limit $3
"""


@attrs.define(eq=False)
class Erasing:
    """Makes the steps. All verbs raise `Outage`."""

    database: Database
    clock: Clock = server_clock

    async def projects(self) -> Sequence[int]:
        """Projects in which something is to be erased."""
        rows = await self.database.fetch(
            "select distinct project_id from erasure where finished_at is null order by 1"
        )
        return [row["project_id"] for row in rows]

    async def drop_expired(self, now: datetime) -> None:
        """Forget tombstones whose term is over."""
        await ErasureStore(self.database).drop_expired(now)

    async def preview(self, project_id: int, kind: Erasable, subject: str) -> Mapping[str, int]:
        """How many traces and spans would be erased; nothing changes."""
        if kind == "trace":
            rows = await self.database.fetch(
                "select span_count from trace where project_id = $1 and trace_id = $2",
                *(project_id, bytes.fromhex(subject)),
            )
            return {"traces": len(rows), "spans": sum(row["span_count"] for row in rows)}
        now, cursor, counts = await self._time(), b"", Counter[str]()
        statement, most = (_OF_USER, LOOKED_AT) if kind == "user" else (_OF_SESSION, NAMED)
        while True:
            rows = await self.database.fetch(
                statement, project_id, cursor, subject, now, most, timeout_s=STEP_TIMEOUT_S
            )
            matches = [row for row in rows if row["theirs"]]
            counts += Counter(traces=len(matches), spans=sum(row["span_count"] for row in matches))
            if len(rows) < most:
                return {"traces": counts["traces"], "spans": counts["spans"]}
            cursor = rows[-1]["trace_id"]

    async def step(self, project_id: int) -> Erasure | None:
        """Make the next step of the project's oldest erasure. How far it is then; None: there is none.

        A step that writers do not let in leaves it as it is.
        """

        async def work(connection: Connection) -> Erasure | None:
            with suppress(asyncpg.LockNotAvailableError):
                async with one_transaction(connection):
                    return await self._step(connection, project_id)
            async with one_transaction(connection):
                row = await connection.fetchrow(_ROW, project_id)
                return None if row is None else _erasure(row)

        erasure = await self.database.run(work, transaction=False, timeout_s=STEP_TIMEOUT_S)
        if erasure is not None and erasure.phase == "hours":
            # In transactions of their own.
            hours = await CubeStore(self.database).renew(project_id, await self._time(), HOURS)
            if hours == 0:
                await self.database.run(lambda connection: _hours_built(connection, erasure))
        return erasure

    async def _time(self) -> datetime:
        return await self.database.run(self.clock, transaction=False)

    async def _step(self, connection: Connection, project_id: int) -> Erasure | None:
        row = await connection.fetchrow(_ROW, project_id)
        if row is None:
            return None
        erasure = _erasure(row)
        phase = _PHASES.get(erasure.phase)
        if phase is None:
            return erasure
        step = ErasureStep(connection, erasure, tuple(row["place"]), await self.clock(connection))
        outcome = await phase(step)
        return await _advance(step, outcome)


def _erasure(row: Any) -> Erasure:
    return erasure_of({name: value for name, value in row.items() if name != "place"})


async def _advance(step: ErasureStep, outcome: StepOutcome) -> Erasure:
    """Note what a step did, and where the next one begins."""
    erasure = step.erasure
    counts = dict(Counter(erasure.counts) + Counter(outcome.counts))
    phase, cursor = erasure.phase, list(outcome.place)
    if outcome.over:
        phase, cursor = ORDER[ORDER.index(phase) + 1], []
    finished_at = step.now if phase == DONE else None
    if finished_at is not None:
        await step.connection.execute("delete from erasing_session where project_id = $1", erasure.project_id)
    await step.connection.execute(
        "update erasure set phase = $3, place = $4::text[], counts = $5::text::jsonb, finished_at = $6,"
        " subject = case when $6::timestamptz is null then subject end,"
        " days = case when $6::timestamptz is null"
        " then array(select distinct unnest(days || $7::timestamptz[])) else '{}' end"
        " where project_id = $1 and id = $2",
        *(erasure.project_id, erasure.id, phase, cursor, msgspec.json.encode(counts).decode()),
        *(finished_at, sorted(outcome.days)),
    )
    return attrs.evolve(erasure, phase=phase, counts=counts, finished_at=finished_at)


async def _find(step: ErasureStep) -> StepOutcome:
    erasure = step.erasure
    if erasure.kind == "trace":
        return StepOutcome(over=True)
    statement, most = (_OF_USER, LOOKED_AT) if erasure.kind == "user" else (_OF_SESSION, NAMED)
    cursor = bytes.fromhex(step.place[0]) if step.place else b""
    rows = await step.connection.fetch(
        statement, erasure.project_id, cursor, erasure.subject, erasure.asked_at, most
    )
    matches = [row["trace_id"] for row in rows if row["theirs"]]
    await bury(step.connection, erasure.project_id, erasure.id, matches, step.now)
    reached = (rows[-1]["trace_id"].hex(),) if rows else ()
    return StepOutcome(reached, over=len(rows) < most, counts={"looked_at": len(rows)})


async def _pass_writers(step: ErasureStep) -> StepOutcome:
    """Every writer that began before the tombstones, or before what is being erased was noted, has ended."""
    await hold_alone(step.connection, step.erasure.project_id)
    return StepOutcome(over=True)


async def _delete(step: ErasureStep) -> StepOutcome:
    erasure, connection = step.erasure, step.connection
    rows = await connection.fetch(_NEXT, erasure.project_id, erasure.id, DELETED)
    if not rows:
        return StepOutcome(over=True, counts=await forget_sessions(step))
    portion, spans = list[Any](), 0
    for row in rows:
        spans += row["span_count"] or 0
        if portion and spans > DELETED_SPANS:
            break
        portion.append(row)
    trace_ids = [row["trace_id"] for row in portion]
    present = [row for row in portion if row["span_count"] is not None]
    if present:
        await _note_messages(connection, erasure.project_id, present)
    deletion = await delete_traces(connection, erasure.project_id, trace_ids, step.now, ERASED)
    await connection.execute(
        "insert into erasing_value (project_id, code) select $1, v.code from attribute_value v"
        " where v.project_id = $1 and v.code = any($2::text[]) and v.field <> $3 and v.value <> ''"
        " order by 2 on conflict do nothing",
        *(erasure.project_id, deletion["codes"], AGENT_PATH),
    )
    await connection.execute(
        "insert into erasing_session (project_id, session_id)"
        " select $1, s from unnest($2::text[]) as lost (s)"
        " on conflict do nothing",
        *(erasure.project_id, deletion["sessions"]),
    )
    await connection.execute(
        "update erased_trace set gone = true where project_id = $1 and trace_id = any($2::bytea[])",
        *(erasure.project_id, trace_ids),
    )
    counts = {
        "traces": deletion["traces"],
        "spans": deletion["spans"],
        "tool_calls": deletion["calls"],
        "payloads": deletion["payloads"],
        "feedback": deletion["feedback"],
    }
    days = {day_of(hour) for hour in (*deletion["span_hours"], *deletion["trace_hours"])}
    return StepOutcome(counts=counts, days=days)


async def _note_messages(connection: Connection, project_id: int, traces: Sequence[Any]) -> None:
    """The messages that these traces share, perhaps with each other alone."""
    turn = LoopTurn()
    keys: set[tuple[datetime, bytes]] = set()
    # Their payloads, a few at a time.
    async for row in connection.cursor(
        "select started_at, body from span_payload where project_id = $1 and trace_id = any($2::bytea[])"
        " and started_at between $3 and $4",
        *(project_id, [row["trace_id"] for row in traces]),
        day_of(min(row["first_started_at"] for row in traces)),
        max(row["last_started_at"] for row in traces),
        prefetch=20,
    ):
        await turn.rest()
        frame: Frame | None = opened_frame(row["body"])
        if frame is not None:
            keys.update((row["started_at"], digest) for digest in frame.needed())
    ordered = sorted(keys)
    await connection.execute(
        "insert into erasing_message (project_id, started_at, hash)"
        " select $1, * from unnest($2::timestamptz[], $3::bytea[]) on conflict do nothing",
        *(project_id, [day for day, _ in ordered], [digest for _, digest in ordered]),
    )


async def _hours_built(connection: Connection, erasure: Erasure) -> None:
    """The hours are built anew. Columns of whole days stand until a quiet hour, so they are taken away."""
    row: Any = await connection.fetchrow(
        "select days, phase from erasure where project_id = $1 and id = $2 for update",
        *(erasure.project_id, erasure.id),
    )
    if row["phase"] != "hours":
        return
    await drop_day_columns(connection, erasure.project_id, row["days"])
    await connection.execute(
        "update erasure set phase = $3, place = '{}' where project_id = $1 and id = $2",
        *(erasure.project_id, erasure.id, ORDER[ORDER.index("hours") + 1]),
    )


#: What is done in each phase; `hours` is not here, for each is a transaction of its own.
_PHASES: Final[dict[str, Callable[[ErasureStep], Awaitable[StepOutcome]]]] = {
    "finding": _find,
    "telling": _pass_writers,
    "deleting": _delete,
    "evidence": walk_evidence,
    "letters": clean_letters,
    "passing": _pass_writers,
    "messages": drop_messages,
    "values": drop_values,
}
ORDER: Final = (
    "finding",
    "telling",
    "deleting",
    "evidence",
    "letters",
    "hours",
    "passing",
    "messages",
    "values",
    DONE,
)
