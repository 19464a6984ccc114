"""What stands behind a change: how widely it is spread, its kinds of failure, the evidence of a finding.

Owns reads of `tally_witness` and `trace_fold` for whoever judges, and the columns of `finding` that say how
far its evidence has been gathered. Never decides of a finding.

Evidence is gathered a page at a time, in order of slots, so that a finding of a busy subject costs each look
the same; none of its roles is a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from protocol.detection import Ref
from svc.domain.detect.detectors.base import MEASURES, MeasureName
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, slot_at
from svc.domain.detect.engine.tallies import RateTallies
from svc.domain.detect.findings.bucket import Watched
from svc.domain.detect.findings.judging import Counted
from svc.store.detection.cases.evidence import append
from svc.store.detection.cases.trail import take_turn
from svc.store.detection.counting.tallies import TallyStore, unpacked
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: Traces that one page of evidence looks at.
PAGE: Final = 5_000
#: Sessions are counted up to so many traces.
SESSIONS_OF: Final = 1_000
#: Evidence of what was usual reaches back so far from the end of the reference.
BASELINE_SLOTS: Final = 3 * SLOTS_PER_DAY
#: Single events that one look brings at most, the newest.
EVENTS_MOST: Final = 5_000
#: Traces that stand for the others.
EXEMPLARS: Final = 3
#: Kinds of failure that are told at most.
SIGNATURES: Final = 8
#: Subjects whose order of appearance is read; any later one counts as the next.
SUBJECTS: Final = 20_000

# Units and failures of each detail of a subject by slot.
_DETAILS: Final = """
select b.detail, t.slot, sum(t.units)::bigint as units, sum(t.failures)::bigint as failures
from tally_bucket b join tally t on t.project_id = b.project_id and t.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and b.subject = $3 and t.slot >= $4 and t.slot < $5
group by 1, 2 order by 1, 2
"""

# The first slot of a subject that is still counted.
_FIRST: Final = """
select min(f.slot) as slot from tally_bucket b join lateral (
    select slot from tally t where t.project_id = b.project_id and t.bucket_id = b.id order by slot limit 1
) f on true where b.project_id = $1 and b.measure = $2 and b.subject = $3
"""

# The subjects of a measure by when they appeared.
_APPEARANCES: Final = f"""
select b.subject from tally_bucket b join lateral (
    select slot from tally t where t.project_id = b.project_id and t.bucket_id = b.id order by slot limit 1
) f on true where b.project_id = $1 and b.measure = $2
group by 1 order by min(f.slot), 1 limit {SUBJECTS}
"""

# How widely failures are spread; a trace outside any session is one of its own.
_SPREAD: Final = f"""
select count(distinct w.slot) as slots, count(distinct w.trace_id) as traces,
    count(distinct coalesce(t.session_id, encode(w.trace_id, 'hex'))) as sessions
from (
    select w.slot, w.trace_id from tally_bucket b
    join tally_witness w on w.project_id = b.project_id and w.bucket_id = b.id
    where b.project_id = $1 and b.measure = $2 and b.subject = $3
      and w.slot >= $4 and w.slot < $5 order by w.slot limit {SESSIONS_OF}
) w left join trace t on t.project_id = $1 and t.trace_id = w.trace_id
"""

# Kinds of failure, the most frequent first.
_SIGNATURES: Final = """
select w.signature, count(*) as n, min(w.slot) as first from tally_bucket b
join tally_witness w on w.project_id = b.project_id and w.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and b.subject = $3 and w.slot >= $4 and w.slot < $5
  and w.signature is not null
group by 1 order by 2 desc, 1 limit $6
"""

# A page of traces by the slot of their first span, with what each was counted as.
_FOLDS: Final = f"""
select slot, trace_id, body from trace_fold
where project_id = $1 and slot >= $2 and slot < $3 and (slot, trace_id) > ($4, $5)
order by slot, trace_id limit {PAGE}
"""

# Failing traces of these buckets, in order.
_FAILING: Final = f"""
select w.slot, w.trace_id, w.spans, w.signature from tally_witness w
where w.project_id = $1 and w.bucket_id = any($2::bigint[]) and w.slot >= $3 and w.slot < $4
order by w.slot, w.trace_id limit {PAGE}
"""

# What stands behind buckets, the newest first.
_EVENT_JUDGES: Final = f"""
select w.slot, w.trace_id, w.spans, w.signature,
    coalesce(t.session_id, encode(w.trace_id, 'hex')) as session
from (
    select * from tally_witness where project_id = $1 and bucket_id = any($2::bigint[])
    and slot >= $3 and slot < $4 order by slot desc, trace_id desc limit {EVENTS_MOST}
) w left join trace t on t.project_id = w.project_id and t.trace_id = w.trace_id
order by w.slot desc, w.trace_id desc
"""

# The buckets of a subject.
_BUCKETS: Final = """
select id, detail from tally_bucket where project_id = $1 and measure = $2 and subject = $3
"""


@attrs.frozen
class Breadth:
    """How widely something is seen: slots, traces, sessions, the last counted up to `SESSIONS_OF` traces."""

    slots: int
    traces: int
    sessions: int


@attrs.frozen
class Signature:
    """A kind of failure, how many traces have it, and the first slot in which it was seen."""

    name: str
    traces: int
    first: int


@attrs.frozen
class DetectedEvent:
    """A trace behind something seen: the spans that show it, its kind, and its session, or itself."""

    slot: int
    trace_id: bytes
    spans: tuple[bytes, ...]
    signature: str | None
    session: str


@attrs.frozen(eq=False)
class Gather:
    """What evidence a finding wants: members and failures in `[first, end)`, and the baseline's slots.

    `details` are those of a subject that count as failing; None: what was counted as such.
    """

    finding_id: UUID
    bucket: Watched
    first: int
    end: int
    baseline: tuple[int, int] | None
    members: bool = True
    details: frozenset[str] | None = None
    #: Bins nearest to the new median and 95 % mark, for sizes.
    near: tuple[int, ...] = ()


@attrs.define(eq=False)
class JudgeEvidenceStore:
    """All verbs raise `Outage`; slots are half open, `[first, end)`."""

    database: Database

    async def first_slot(self, project_id: int, bucket: Watched) -> int | None:
        """The first slot of a subject that is still counted, None without any."""
        rows = await self._read(_FIRST, project_id, bucket.measure, bucket.subject)
        return rows[0]["slot"] if rows else None

    async def appearances(self, project_id: int, measure: MeasureName) -> Mapping[str, int]:
        """The place of each subject of a measure in the order in which they appeared, from 1 on."""
        rows = await self._read(_APPEARANCES, project_id, measure)
        return {row["subject"]: place for place, row in enumerate(rows, 1)}

    async def counted(self, project_id: int, bucket: Watched, first: int, end: int) -> Counted:
        """What a subject is judged by."""
        measure = MEASURES[bucket.measure]
        if measure.details:
            return await self.details(project_id, bucket, first, end)
        tallies = TallyStore(self.database)
        count = tallies.rates if measure.unit is None else tallies.sizes
        return await count(project_id, bucket.whole, first, end)

    async def details(
        self, project_id: int, bucket: Watched, first: int, end: int
    ) -> Mapping[str, RateTallies]:
        """The counts of each detail of a subject."""
        rows = await self._read(_DETAILS, project_id, bucket.measure, bucket.subject, first, end)
        counts: dict[str, list[tuple[int, int, int]]] = {}
        for row in rows:
            counts.setdefault(row["detail"], []).append((row["slot"], row["units"], row["failures"]))
        return {detail: RateTallies.of(of_detail) for detail, of_detail in counts.items()}

    async def spread(self, project_id: int, bucket: Watched, first: int, end: int) -> Breadth:
        """How widely the failures of a subject are spread."""
        [row] = await self._read(_SPREAD, project_id, bucket.measure, bucket.subject, first, end)
        return Breadth(row["slots"], row["traces"], row["sessions"])

    async def traces(self, project_id: int, first: int, end: int) -> int:
        """How many traces of the project were counted."""
        # Along the index.
        rows = await self._read(
            "select count(*) as n from trace_fold where project_id = $1 and slot >= $2 and slot < $3",
            project_id,
            first,
            end,
        )
        return int(rows[0]["n"])

    async def signatures(
        self, project_id: int, bucket: Watched, first: int, end: int, limit: int = SIGNATURES
    ) -> Sequence[Signature]:
        """Kinds of failure of a subject, the most frequent first."""
        rows = await self._read(_SIGNATURES, project_id, bucket.measure, bucket.subject, first, end, limit)
        return [Signature(row["signature"], row["n"], row["first"]) for row in rows]

    async def events(
        self, project_id: int, bucket_ids: Sequence[int], first: int, end: int
    ) -> Sequence[DetectedEvent]:
        """What stands behind buckets, in order, at most the newest `EVENTS_MOST`."""
        rows = await self._read(_EVENT_JUDGES, project_id, list(bucket_ids), first, end)
        return [
            DetectedEvent(row["slot"], row["trace_id"], tuple(row["spans"]), row["signature"], row["session"])
            for row in reversed(rows)
        ]

    async def last_seen(self, project_id: int, finding_id: UUID) -> int:
        """The first slot after a finding was seen last."""
        # By the key.
        rows = await self._read(
            "select extract(epoch from last_seen_at)::float as at from finding"
            " where project_id = $1 and id = $2",
            project_id,
            finding_id,
        )
        return slot_at(rows[0]["at"]) + 1 if rows else 0

    async def gather(self, project_id: int, want: Gather) -> bool:
        """Append the next page of a finding's evidence. Whether there is more to gather by now."""

        async def work(connection: Connection) -> bool:
            await take_turn(connection, project_id)
            # How far it is gathered.
            progress = await connection.fetchrow(
                "select gathered_slot, gathered_id from finding where project_id = $1 and id = $2",
                project_id,
                want.finding_id,
            )
            if progress is None:
                return False
            rows = await connection.fetch(_BUCKETS, project_id, want.bucket.measure, want.bucket.subject)
            ids = [row["id"] for row in rows]
            failing = [r["id"] for r in rows if want.details is None or r["detail"] in want.details]
            refs: list[Ref] = []
            if not progress["gathered_slot"]:
                refs += await _firsts(connection, project_id, want, failing)
            position = max(progress["gathered_slot"], want.first), progress["gathered_id"]
            page = await connection.fetch(_FOLDS, project_id, position[0], want.end, *position)
            full = len(page) == PAGE
            end = page[-1]["slot"] if full else want.end
            if want.details is None:
                rows = await connection.fetch(_FAILING, project_id, failing, position[0], end + full)
            else:
                rows = _misfits(page, set(failing))
            refs += [ref for row in rows for ref in _refs(row)]
            if want.members:
                bucket_ids = set(ids)
                refs += [
                    Ref("member", trace_id=row["trace_id"])
                    for row in page
                    if _counted(row["body"], bucket_ids)
                ]
            await append(connection, project_id, want.finding_id, refs)
            # So far.
            await connection.execute(
                "update finding set gathered_slot = $3, gathered_id = $4 where project_id = $1 and id = $2",
                project_id,
                want.finding_id,
                end,
                page[-1]["trace_id"] if full else b"",
            )
            return full

        return await self.database.run(work)

    async def _buckets(self, project_id: int, bucket: Watched) -> list[Any]:
        return await self._read(_BUCKETS, project_id, bucket.measure, bucket.subject)

    async def _read(self, statement: str, *values: Any) -> list[Any]:
        return await self.database.fetch(statement, *values, timeout_s=READ_TIMEOUT_S)


def _counted(body: bytes, ids: set[int]) -> bool:
    return any(entry[0] in ids for entry in unpacked(body))


def _misfits(page: Sequence[Any], ids: set[int]) -> list[Any]:
    """The traces of a page that these buckets count, as failing ones of which no span is known."""
    return [
        {"trace_id": row["trace_id"], "spans": (), "signature": None}
        for row in page
        if _counted(row["body"], ids)
    ]


def _refs(row: Any, role: Any = "witness") -> list[Ref]:
    """The spans that show a failure, or its trace where none was named."""
    spans = [Ref(role, trace_id=row["trace_id"], span_id=span_id) for span_id in row["spans"]]
    return spans or [Ref(role, trace_id=row["trace_id"])]


async def _firsts(connection: Connection, project_id: int, want: Gather, failing: list[int]) -> list[Ref]:
    """What is gathered once: where it began, traces that stand for others, and what was usual."""
    refs: list[Ref] = []
    if want.details is None:
        page = await connection.fetch(_FAILING, project_id, failing, want.first, want.end)
    else:
        page = _misfits(
            await connection.fetch(_FOLDS, project_id, want.first, want.end, want.first, b""), set(failing)
        )
    signatures: set[str | None] = set()
    for row in page:
        if not refs:
            refs += _refs(row, "changepoint")[:1]
        if row["signature"] not in signatures and len(signatures) < EXEMPLARS:
            signatures.add(row["signature"])
            refs.append(attrs.evolve(_refs(row, "exemplar")[0], rank=len(signatures)))
    ids = {
        row["id"]
        for row in await connection.fetch(_BUCKETS, project_id, want.bucket.measure, want.bucket.subject)
    }
    if want.near:
        refs += await _nearest(connection, project_id, want, ids)
    if want.baseline is not None and want.members:
        first, end = want.baseline
        position: tuple[int, bytes] = first, b""
        while True:
            rows = await connection.fetch(_FOLDS, project_id, first, end, *position)
            refs += [Ref("baseline", trace_id=row["trace_id"]) for row in rows if _counted(row["body"], ids)]
            if len(rows) < PAGE:
                break
            position = rows[-1]["slot"], rows[-1]["trace_id"]
    return refs


async def _nearest(connection: Connection, project_id: int, want: Gather, ids: set[int]) -> list[Ref]:
    """Of the newest traces those whose values lie nearest to the marks."""
    # The newest page, backwards along the index.
    rows = await connection.fetch(
        "select slot, trace_id, body from trace_fold where project_id = $1 and slot >= $2 and slot < $3"
        f" order by slot desc, trace_id desc limit {PAGE}",
        project_id,
        want.first,
        want.end,
    )
    values = [
        (entry[2], row["trace_id"]) for row in rows for entry in unpacked(row["body"]) if entry[0] in ids
    ]
    refs: list[Ref] = []
    for rank, near in enumerate(want.near, start=1):
        candidates = [value for value in values if value[1] not in {ref.trace_id for ref in refs}]
        if candidates:
            refs.append(
                Ref("exemplar", trace_id=min(candidates, key=lambda v: abs(v[0] - near))[1], rank=rank)
            )
    # The first one after the change.
    for row in await connection.fetch(_FOLDS, project_id, want.first, want.end, want.first, b""):
        if _counted(row["body"], ids):
            return [*refs, Ref("changepoint", trace_id=row["trace_id"])]
    return refs
