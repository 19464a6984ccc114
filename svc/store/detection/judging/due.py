"""What is to be judged: slots of buckets that changed, how far events reach, and whose turn it is.

Owns the table `judge_state`, and the rows of `tally_due` from when tallying notes them (`note_changes` of
`counting.tallies`): judges hold a project, read what is due, and settle it. Never judges.

Ordering: a slot is judged when it lies before the watermark, ten minutes behind the newest event, and when
nothing before it was counted within the last `QUIET_S`: spans of a history that is sent in one go come in any
order, and half a slot looks like a fault. Traces that last for hours must not hold everything up, so after
`PATIENCE_S` the watermark alone counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

import attrs

from protocol.detection import SiteGrain
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.slots import LATENESS_S, slot_at, watermark
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.store.detection.counting.tallies import QUIET_S
from svc.store.detection.judging.bucket_states import write_state
from svc.store.postgres.database import Connection, Database

#: For so long older slots that are still being counted hold up the newer ones.
PATIENCE_S: Final = 300
#: How long a judge that died keeps a project from the others: longer than a look may take.
HELD_S: Final = 300
#: Projects that one look finds, and subjects that one look takes on, at most.
PROJECTS: Final = 1_000
SUBJECTS: Final = 20_000
#: Traces that wait to be counted, of which the earliest is looked for: a round of tallying.
WAITING_READ: Final = 1_000

#: Which detectors go by the states of another.
FOLLOWERS: Final[Mapping[str, Sequence[str]]] = {
    name: [follower.name for follower in DETECTORS.values() if follower.after == name] for name in DETECTORS
}

# Whose slots are due: one step down the key for each project, and one more for the detector.
_WAITING: Final = """
with recursive step (id) as (
    (select min(project_id) from tally_due)
    union all
    select (select min(project_id) from tally_due where project_id > step.id)
    from step where step.id is not null
)
select s.id from step s where s.id is not null
  and exists (select from tally_due d where d.project_id = s.id and d.detector = $1)
  and not exists (select from project p where p.id = s.id and p.deleted_at is not null)
order by 1 limit $2
"""

# Hold a project, unless somebody else does.
_HOLD: Final = """
insert into judge_state as s (project_id, detector, holder, held_until, judged_at)
values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4), clock_timestamp())
on conflict (project_id, detector) do update set holder = excluded.holder, held_until = excluded.held_until
where s.holder is null or s.holder = excluded.holder or s.held_until < clock_timestamp()
returning extract(epoch from clock_timestamp() - judged_at)::float as waited_s
"""

# How far it may be judged. What waits to be counted may lie before anything that was counted lately: the
# earliest of the next few traces says how far back.
_REACH: Final = f"""
select (select min(extract(epoch from t.first_started_at))::float
        from (select trace_id, rated from fold_due where project_id = $1 order by place
            limit {WAITING_READ}) w
        join trace t on t.project_id = $1 and t.trace_id = w.trace_id and not w.rated) as waiting_s,
    array(select mark from mark_setting where project_id = $1 and muted) as muted_marks,
    (select site_grain from project where id = $1) as site_grain,
    touched_since < clock_timestamp() - interval '{LATENESS_S} s' as silent,
    newest_slot, hours_before, gone_before, extract(epoch from clock_timestamp())::float as now_s,
    least(case when touched_since > clock_timestamp() - interval '{2 * QUIET_S} s' then touched_low end,
          case when touched_since > clock_timestamp() - interval '{QUIET_S} s' then before_low end) as recent
from fold_state where project_id = $1
"""

# What is due before a slot; where another detector goes first, only what is not due for that one any more,
# unless it is held up itself: by a case, and then up to where it told what it found, or by an error. What it
# comes to later is noted then.
_DUE: Final = """
select b.measure, b.subject, b.detail, d.bucket_id, d.from_slot, d.last_slot, d.turn,
    o.from_slot is not null and not coalesce(w.waits or w.failure is not null, false) as early,
    case when w.waits then o.from_slot end as held
from tally_due d join tally_bucket b on b.project_id = d.project_id and b.id = d.bucket_id
left join tally_due o on o.project_id = $1 and o.detector = $5::text and o.bucket_id = d.bucket_id
    and o.from_slot < $3
left join judge_state w on w.project_id = $1 and w.detector = $5::text
where d.project_id = $1 and d.detector = $2 and d.from_slot < $3
order by b.measure, b.subject, b.detail limit $4
"""

# Judged up to a slot: what lies before it is settled, unless it changed meanwhile.
_SETTLE: Final = """
delete from tally_due d using unnest($3::bigint[], $4::bigint[]) as n (bucket_id, turn)
where d.project_id = $1 and d.detector = $2 and d.bucket_id = n.bucket_id and d.turn = n.turn
  and d.last_slot < $5
"""
_REST: Final = """
update tally_due d set from_slot = $5 from unnest($3::bigint[], $4::bigint[]) as n (bucket_id, turn)
where d.project_id = $1 and d.detector = $2 and d.bucket_id = n.bucket_id and d.turn = n.turn
  and d.from_slot < $5
"""

# Whoever goes by the states of this detector looks again at what it has judged: there may have been no state
# when they looked before.
_FOLLOW: Final = """
insert into tally_due as due (project_id, detector, bucket_id, from_slot, last_slot)
select $1, f.detector, n.bucket_id, n.first, n.last
from unnest($2::bigint[], $3::integer[], $4::integer[]) as n (bucket_id, first, last)
cross join unnest($5::text[]) as f (detector)
order by 2, 3
on conflict (project_id, detector, bucket_id) do update
set from_slot = least(due.from_slot, excluded.from_slot), turn = due.turn + 1
"""

# Buckets of which nothing is left need no judge.
_GONE: Final = """
delete from tally_due d where d.project_id = $1 and d.detector = $2
and not exists (select from tally_bucket b where b.project_id = d.project_id and b.id = d.bucket_id)
"""


@attrs.frozen
class DueBucket:
    """A bucket that changed from a slot on, and the turn that tells whether it changes meanwhile. `reach` is
    the slot up to which the detector that goes first has told what it found.
    """

    id: int
    detail: str
    from_slot: int
    last_slot: int
    turn: int
    reach: int


@attrs.frozen(eq=False)
class JudgedSubject:
    """What a look at a subject came to: its state, and the midnights on the way there from `since` on."""

    bucket: Watched
    state: BucketState
    since: int
    checkpoints: Sequence[BucketState]


@attrs.frozen(eq=False)
class DueWork:
    """What a judge takes on: what is due by subject, and the slot up to which it may be judged.

    `quiet` is false while older slots are still being counted, or another detector is to judge first: then
    nothing of them is due, and the judge comes back soon. `fine_from` is the first slot of which tallies of
    five minutes are kept, `site_grain` what the project takes for a call site,
    `muted_marks` are those of which nothing is reported.
    """

    until: int
    due: Mapping[Watched, Sequence[DueBucket]]
    quiet: bool
    fine_from: int
    site_grain: SiteGrain = "sent"
    muted_marks: Collection[str] = ()


@attrs.define(eq=False)
class DueStore:
    """What is due for detectors. Each is a holder of its own. All verbs raise `Outage`."""

    database: Database
    holder: UUID = attrs.field(factory=uuid4)

    async def waiting(self, detector: str) -> Sequence[int]:
        """Projects in which something is due."""
        return [row["id"] for row in await self.database.fetch(_WAITING, detector, PROJECTS)]

    async def take(
        self, project_id: int, detector: str, *, at_once: bool = False, after: str | None = None
    ) -> DueWork | None:
        """Hold a project and see what is due in it; None: another has it.

        `at_once` waits for no watermark; `after` names a detector that judges a subject first.
        """
        hold_rows = await self.database.fetch(_HOLD, project_id, detector, self.holder, HELD_S)
        if not hold_rows:
            return None
        rows = await self.database.fetch(_REACH, project_id)
        if not rows or (newest := rows[0]["newest_slot"]) is None:
            return DueWork(0, {}, quiet=True, fine_from=0)
        now, recent = slot_at(rows[0]["now_s"]), rows[0]["recent"]
        if (waiting_s := rows[0]["waiting_s"]) is not None:
            recent = min(slot_at(waiting_s), slot_at(waiting_s) if recent is None else recent)
        # Event times ahead of our clock do not count. Where nothing has come for as long as spans may be
        # late, the newest are judged too: a first try of five traces has no next one to move the mark.
        wait = 1 if rows[0]["silent"] else watermark(0.0)
        until = newest + 1 if at_once else min(newest, now) + wait
        quiet = True
        if recent is not None and recent < until and not at_once and hold_rows[0]["waited_s"] < PATIENCE_S:
            until, quiet = recent, False
        due: dict[Watched, list[DueBucket]] = {}
        for row in await self.database.fetch(_DUE, project_id, detector, until, SUBJECTS, after):
            if row["early"]:
                quiet = False
                continue
            of_subject = due.setdefault(Watched(row["measure"], row["subject"]), [])
            reach = until if row["held"] is None else row["held"]
            of_subject.append(
                DueBucket(
                    row["bucket_id"], row["detail"], row["from_slot"], row["last_slot"], row["turn"], reach
                )
            )
        fine_from = max(rows[0]["hours_before"], rows[0]["gone_before"])
        return DueWork(until, due, quiet, fine_from, rows[0]["site_grain"] or "sent", rows[0]["muted_marks"])

    async def still(self, project_id: int, detector: str) -> bool:
        """Hold on to a project; False: another has it."""
        return bool(await self.database.fetch(_HOLD, project_id, detector, self.holder, HELD_S))

    async def settle(
        self,
        project_id: int,
        detector: str,
        judged: Sequence[DueBucket],
        until: int,
        write: JudgedSubject | None,
    ) -> bool:
        """Keep what a look at a subject came to. False: another has the project, nothing was written."""

        async def work(connection: Connection) -> bool:
            # Still ours, until the end of this transaction.
            is_holder = await connection.fetchval(
                "select true from judge_state where project_id = $1 and detector = $2 and holder = $3"
                " for update",
                project_id,
                detector,
                self.holder,
            )
            if not is_holder:
                return False
            if write is not None:
                await write_state(
                    connection, project_id, detector, write.bucket, write.state, since=write.since,
                    checkpoints=write.checkpoints,
                )  # fmt: skip
            ids, turns = [bucket.id for bucket in judged], [bucket.turn for bucket in judged]
            if ids and FOLLOWERS[detector]:
                # First, as whoever counts takes them in the order of names.
                await connection.execute(
                    _FOLLOW,
                    project_id,
                    ids,
                    [bucket.from_slot for bucket in judged],
                    [bucket.last_slot for bucket in judged],
                    FOLLOWERS[detector],
                )
            for statement in (_SETTLE, _REST):
                await connection.execute(statement, project_id, detector, ids, turns, until)
            return True

        return await self.database.run(work)

    async def give_up(
        self,
        project_id: int,
        detector: str,
        until: int | None,
        *,
        waits: bool = False,
        failure: str | None = None,
    ) -> None:
        """Let others have the project; say how far it was judged, and what went wrong."""

        async def work(connection: Connection) -> None:
            await connection.execute(_GONE, project_id, detector)
            # Free, and how it went.
            await connection.execute(
                "update judge_state set holder = null, held_until = null,"
                " until_slot = coalesce($4, until_slot),"
                " judged_at = case when $4::integer is null and $5::text is null then judged_at"
                " else clock_timestamp() end,"
                " waits = $6, failure = $5::text,"
                " failed_at = case when $5 is not null then clock_timestamp() end"
                " where project_id = $1 and detector = $2 and holder = $3",
                project_id,
                detector,
                self.holder,
                until,
                failure,
                waits,
            )

        await self.database.run(work)

    async def health(self, project_id: int) -> Mapping[str, Any]:
        """When each detector judged the project last, up to which slot, and what went wrong then."""
        rows = await self.database.fetch(
            "select detector, judged_at, until_slot, failed_at, failure from judge_state"
            " where project_id = $1",
            project_id,
        )
        return {row["detector"]: row for row in rows}
