"""Tallies: what detectors counted, by project, bucket and slot.

Owns the tables `tally_bucket`, `tally` and `tally_witness`: adding and taking away what traces were tallied
as, reading sums for the engines, and `note_changes`, which says in `tally_due` and `fold_state` what became
due for judges. `tallying` writes them within its transaction, judges read them, `tidying` brings old ones to
hours. Never knows what a measure means.

Bounds: a project has at most `BUCKETS` buckets, a subject at most `DETAILS` details of a measure. Beyond, a
detail is counted as `OTHER`, and a new subject is left out and told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from svc.domain.detect.detectors.base import OTHER, MeasureName, Observation
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.slots import SLOTS_PER_HOUR
from svc.domain.detect.engine.tallies import RateTallies, SizeTallies
from svc.domain.feedback.rating_detectors import RATES, SHARES, SIZES
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

BUCKETS: Final = 20_000
DETAILS: Final = 200
#: Witnesses that one question brings at most, newest first.
WITNESSES_SHOWN: Final = 5_000
#: What was counted longer ago than this is followed by nothing older, as far as one can tell.
QUIET_S: Final = 20

#: A measure, its subject and its detail.
BucketName = tuple[MeasureName, str, str]
#: Bucket, slot, bin, units, failures.
Entry = tuple[int, int, int, int, int]
#: Bucket, slot, trace, spans, signature.
Witness = tuple[int, int, bytes, tuple[bytes, ...], str | None]

# The sums of a bucket in the order of slots; those that are on their way to hours are read as if there.
_READ: Final = """
select case when t.slot < s.hours_before then t.slot - t.slot % 12 else t.slot end as slot, t.bin,
    sum(t.units)::bigint as units, sum(t.failures)::bigint as failures
from tally_bucket b join fold_state s on s.project_id = b.project_id
join tally t on t.project_id = b.project_id and t.bucket_id = b.id
where b.project_id = $1 and b.measure = $2 and b.subject = $3 and b.detail = $4
  and t.slot >= greatest($5, s.gone_before) and t.slot < $6
group by 1, 2 having sum(t.units) <> 0 or sum(t.failures) <> 0 order by 1, 2
"""

# Add up; what was not there before begins here.
_ADD: Final = """
insert into tally (project_id, bucket_id, slot, bin, units, failures)
select $1, n.* from unnest($2::bigint[], $3::integer[], $4::smallint[], $5::bigint[], $6::bigint[])
    as n (bucket_id, slot, bin, units, failures) order by 2, 3, 4
on conflict (project_id, bucket_id, slot, bin) do update
set units = tally.units + excluded.units, failures = tally.failures + excluded.failures
"""

# What came to nothing leaves no row, so that the table is the same as if it had never been.
_EMPTY: Final = """
delete from tally t using unnest($2::bigint[], $3::integer[], $4::smallint[]) as n (bucket_id, slot, bin)
where t.project_id = $1 and t.bucket_id = n.bucket_id and t.slot = n.slot and t.bin = n.bin
  and t.units = 0 and t.failures = 0
"""

#: Which detectors judge a measure.
JUDGES: Final[Sequence[tuple[MeasureName, str]]] = tuple(
    (measure, detector.name) for detector in DETECTORS.values() for measure in detector.measures
)

# What changed is due for every detector that judges its measure.
_NOTE: Final = """
insert into tally_due as due (project_id, detector, bucket_id, from_slot, last_slot)
select $1, j.detector, c.bucket_id, c.first, c.last
from unnest($2::bigint[], $3::integer[], $4::integer[]) as c (bucket_id, first, last)
join tally_bucket b on b.project_id = $1 and b.id = c.bucket_id
join unnest($5::text[], $6::text[]) as j (measure, detector) on j.measure = b.measure
order by 2, 3
on conflict (project_id, detector, bucket_id) do update
set from_slot = least(due.from_slot, excluded.from_slot),
    last_slot = greatest(due.last_slot, excluded.last_slot), turn = due.turn + 1
"""

#: Measures of what was thought of answers.
RATED_MEASURES: Final[Sequence[MeasureName]] = (*RATES.values(), *SIZES.values(), *SHARES)
_RATED: Final = """
select coalesce(array_agg(id), '{}') from tally_bucket
where project_id = $1 and id = any($2::bigint[]) and measure = any($3::text[])
"""

# How far events reach, and the earliest slot counted lately.
_TOUCH: Final = f"""
update fold_state set
    newest_slot = greatest(newest_slot, $2),
    before_low = case
        when touched_since > clock_timestamp() - interval '{QUIET_S} s' then before_low
        when touched_since > clock_timestamp() - interval '{2 * QUIET_S} s' then touched_low end,
    touched_low = case
        when touched_since > clock_timestamp() - interval '{QUIET_S} s' then least(touched_low, $3)
        else $3 end,
    touched_since = case
        when touched_since > clock_timestamp() - interval '{QUIET_S} s' then touched_since
        else clock_timestamp() end
where project_id = $1
"""


@attrs.frozen
class Horizon:
    """The slots of a project below which tallies stand in hours, and below which there are none."""

    hours_before: int = 0
    gone_before: int = 0

    def place(self, slot: int) -> int | None:
        """Where a slot's count stands; None where nothing is counted any more."""
        if slot < self.gone_before:
            return None
        return slot - slot % SLOTS_PER_HOUR if slot < self.hours_before else slot


@attrs.frozen
class Resolved:
    """Buckets by name, and how many observations had to be left out because there are too many buckets."""

    ids: Mapping[BucketName, int]
    left_out: int


async def resolve(connection: Connection, project_id: int, observations: Iterable[Observation]) -> Resolved:
    """The buckets of these observations, made where they are missing. The caller holds the project."""
    names = Counter(
        [(observation.measure, observation.subject, observation.detail) for observation in observations]
    )
    if not names:
        return Resolved({}, 0)
    ids = await _bucket_ids(connection, project_id, list(names))
    missing = sorted(names.keys() - ids.keys())
    if not missing:
        return Resolved(ids, 0)
    # How many there are, in all and of each of these subjects.
    room = BUCKETS - await connection.fetchval(
        "select count(*) from tally_bucket where project_id = $1", project_id
    )
    rows = await connection.fetch(
        "select b.measure, b.subject, count(*) as n from tally_bucket b"
        " join (select distinct * from unnest($2::text[], $3::text[])) as f (measure, subject)"
        " using (measure, subject) where b.project_id = $1 group by 1, 2",
        project_id,
        [measure for measure, _, _ in missing],
        [subject for _, subject, _ in missing],
    )
    details = Counter({(row["measure"], row["subject"]): row["n"] for row in rows})
    alias: dict[BucketName, BucketName] = {}
    new_names: list[BucketName] = []
    for measure, subject, detail in missing:
        name: BucketName = (measure, subject, detail)
        if detail and details[measure, subject] >= DETAILS:
            alias[name] = (measure, subject, OTHER)
            name = alias[name]
        if name not in ids and name not in new_names and len(new_names) < room:
            new_names.append(name)
            details[measure, subject] += 1
    # The new ones; one that was asked for as `OTHER` may be there already.
    await connection.execute(
        "insert into tally_bucket (project_id, measure, subject, detail)"
        " select $1, * from unnest($2::text[], $3::text[], $4::text[]) on conflict do nothing",
        project_id,
        *_columns(new_names, 3),
    )
    ids |= await _bucket_ids(connection, project_id, [*new_names, *alias.values()])
    ids |= {name: ids[target] for name, target in alias.items() if target in ids}
    return Resolved(ids, sum(n for name, n in names.items() if name not in ids))


async def _bucket_ids(
    connection: Connection, project_id: int, names: Sequence[BucketName]
) -> dict[BucketName, int]:
    rows = await connection.fetch(
        "select b.id, b.measure, b.subject, b.detail from tally_bucket b"
        " join (select distinct * from unnest($2::text[], $3::text[], $4::text[])) as n"
        " (measure, subject, detail) using (measure, subject, detail) where b.project_id = $1",
        project_id,
        *_columns(names, 3),
    )
    return {(row["measure"], row["subject"], row["detail"]): row["id"] for row in rows}


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    table = list(rows)
    return [[row[n] for row in table] for n in range(width)]


async def change(
    connection: Connection,
    project_id: int,
    horizon: Horizon,
    *,
    add: Iterable[Entry],
    subtract: Iterable[Entry],
) -> int:
    """Count some and uncount others, all at once; how many cells changed. The caller holds the project."""
    deltas: dict[tuple[int, int, int], list[int]] = {}
    for sign, entries in ((1, add), (-1, subtract)):
        for bucket_id, slot, bin_, units, failures in entries:
            cell_slot = horizon.place(slot)
            if cell_slot is not None:
                delta = deltas.setdefault((bucket_id, cell_slot, bin_), [0, 0])
                delta[0] += sign * units
                delta[1] += sign * failures
    changes = [(key, delta) for key, delta in sorted(deltas.items()) if delta != [0, 0]]
    if not changes:
        return 0
    await connection.execute(_ADD, project_id, *_columns([(*key, *delta) for key, delta in changes], 5))
    shrunk = [key for key, delta in changes if min(delta) < 0]
    if shrunk:
        await connection.execute(_EMPTY, project_id, *_columns(shrunk, 3))
    return len(changes)


async def add_witnesses(connection: Connection, project_id: int, witnesses: Sequence[Witness]) -> None:
    """Note the traces behind failures."""
    if witnesses:
        await connection.copy_records_to_table(
            "tally_witness",
            columns=("project_id", "bucket_id", "slot", "trace_id", "spans", "signature"),
            records=[(project_id, *witness) for witness in witnesses],
        )


async def drop_witnesses(
    connection: Connection, project_id: int, entries: Iterable[tuple[bytes, Entry]]
) -> None:
    """Forget what these traces showed, by the entries with failures that they were tallied as."""
    failures = [(bucket_id, slot, trace_id) for trace_id, (bucket_id, slot, _, _, n) in entries if n]
    if failures:
        await connection.execute(
            "delete from tally_witness w using unnest($2::bigint[], $3::integer[], $4::bytea[])"
            " as gone (bucket_id, slot, trace_id) where w.project_id = $1"
            " and w.bucket_id = gone.bucket_id and w.slot = gone.slot and w.trace_id = gone.trace_id",
            project_id,
            *_columns(failures, 3),
        )


@attrs.frozen
class Failing:
    """A failing trace of a bucket: the slot, the spans that show it, and the kind of failure."""

    slot: int
    trace_id: bytes
    spans: tuple[bytes, ...]
    signature: str | None


#: Traces that one page of `members` looks at.
MEMBERS_PAGE: Final = 5_000

_entries: Final = msgspec.msgpack.Decoder(list[Entry])


def packed(entries: Sequence[Entry]) -> bytes:
    """What a trace was counted as, to be stored."""
    return msgspec.msgpack.encode(entries)


def unpacked(body: bytes) -> list[Entry]:
    """What a trace was counted as."""
    return _entries.decode(body)


@attrs.define(eq=False)
class TallyStore:
    """Reads tallies. All verbs raise `Outage`; slots are half open, `[first, end)`."""

    database: Database

    async def names(self, project_id: int, measure: MeasureName) -> list[tuple[str, str]]:
        """Subjects and details of a measure, in order."""
        rows = await self.database.fetch(
            "select subject, detail from tally_bucket where project_id = $1 and measure = $2 order by 1, 2",
            project_id,
            measure,
            timeout_s=READ_TIMEOUT_S,
        )
        return [(row["subject"], row["detail"]) for row in rows]

    async def rates(self, project_id: int, name: BucketName, first: int, end: int) -> RateTallies:
        """Units and failures of a bucket by slot."""
        rows = await self.database.fetch(_READ, project_id, *name, first, end, timeout_s=READ_TIMEOUT_S)
        return RateTallies.of((row["slot"], row["units"], row["failures"]) for row in rows)

    async def sizes(self, project_id: int, name: BucketName, first: int, end: int) -> SizeTallies:
        """Histograms of a bucket by slot."""
        rows = await self.database.fetch(_READ, project_id, *name, first, end, timeout_s=READ_TIMEOUT_S)
        return SizeTallies.of_rows((row["slot"], row["bin"], row["units"]) for row in rows)

    async def witnesses(self, project_id: int, name: BucketName, first: int, end: int) -> list[Failing]:
        """The newest failing traces of a bucket, at most `WITNESSES_SHOWN`, newest slot first."""
        # Along the key, backwards.
        rows = await self.database.fetch(
            "select w.slot, w.trace_id, w.spans, w.signature from tally_bucket b"
            " join tally_witness w on w.project_id = b.project_id and w.bucket_id = b.id"
            " where b.project_id = $1 and b.measure = $2 and b.subject = $3 and b.detail = $4"
            f" and w.slot >= $5 and w.slot < $6 order by w.slot desc, w.trace_id limit {WITNESSES_SHOWN}",
            project_id,
            *name,
            first,
            end,
            timeout_s=READ_TIMEOUT_S,
        )
        return [Failing(row["slot"], row["trace_id"], tuple(row["spans"]), row["signature"]) for row in rows]

    async def members(
        self, project_id: int, name: BucketName, first: int, end: int, after: tuple[int, bytes] | None = None
    ) -> tuple[list[tuple[int, bytes]], tuple[int, bytes] | None]:
        """Traces counted under a bucket as slot and id, failing or not, by the slots of their first spans,
        and the place to go on behind, None at the end. A page looks at `MEMBERS_PAGE` traces.
        """
        # Along the index, as what each was tallied.
        rows = await self.database.fetch(
            "select f.slot, f.trace_id, f.body, b.id from tally_bucket b"
            " join trace_fold f on f.project_id = b.project_id"
            " where b.project_id = $1 and b.measure = $2 and b.subject = $3 and b.detail = $4"
            " and f.slot >= $5 and f.slot < $6 and (f.slot, f.trace_id) > ($7, $8)"
            f" order by f.slot, f.trace_id limit {MEMBERS_PAGE}",
            project_id,
            *name,
            first,
            end,
            *(after or (first, b"")),
            timeout_s=READ_TIMEOUT_S,
        )
        traces = [
            (row["slot"], row["trace_id"])
            for row in rows
            if any(entry[0] == row["id"] for entry in unpacked(row["body"]))
        ]
        last_row = rows[-1] if len(rows) == MEMBERS_PAGE else None
        return traces, None if last_row is None else (last_row["slot"], last_row["trace_id"])


async def note_changes(connection: Connection, project_id: int, entries: Iterable[Entry]) -> None:
    """Note what was counted, and what no longer is, for those who judge. The caller holds the project."""
    reached: dict[int, tuple[int, int]] = {}
    for bucket_id, slot, _, _, _ in entries:
        if (bounds := reached.get(bucket_id)) is None:
            reached[bucket_id] = slot, slot
        elif not bounds[0] <= slot <= bounds[1]:
            reached[bucket_id] = min(bounds[0], slot), max(bounds[1], slot)
    if not reached:
        return
    await connection.execute(
        _NOTE,
        project_id,
        list(reached),
        [first for first, _ in reached.values()],
        [last_slot for _, last_slot in reached.values()],
        [measure for measure, _ in JUDGES],
        [detector for _, detector in JUDGES],
    )
    # Ratings come as late as people please: nothing waits for what they are about.
    rated = await connection.fetchval(_RATED, project_id, list(reached), RATED_MEASURES)
    prompt = [bounds for bucket_id, bounds in reached.items() if bucket_id not in rated]
    if prompt:
        await connection.execute(
            _TOUCH,
            project_id,
            max(last_slot for _, last_slot in prompt),
            min(first for first, _ in prompt),
        )
