"""Tallying: settled traces become tallies, each exactly once, and anew when they change.

Owns the tables `fold_due`, `fold_state` and `trace_fold`, and the order of a round: hold the project, read
some traces, let the detectors look at them outside any transaction, then in one transaction take their places
off the queue, take out what they were tallied as, and put in what they are now. A crash anywhere before the
commit leaves everything as it was. Whoever lost the project meanwhile writes nothing. The tally updater calls
it.

A trace of which spans or payloads have aged out since stays as it was tallied: what was counted stays
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

import attrs
import trio

from protocol.detection_rounds import Tallied
from protocol.otlp.reading import WireSpan
from svc.domain.detect.detectors.base import Observation, ObserverContext, Schema, detail, slot_of
from svc.domain.detect.detectors.settled_trace import TEXTUAL, SettledTrace, SpanTexts, texts_of
from svc.domain.detect.detectors.table import DETECTORS, observe
from svc.domain.marks.detector import MARKS_DETECTOR
from svc.domain.marks.table import EVIDENCE_MARKS, TraceMark
from svc.domain.output_schema import compiled_schema
from svc.store.aggregates.rollups import note_evals
from svc.store.detection.counting.mark_rows import write_marks
from svc.store.detection.counting.path_facets import PathFacets, TracePaths, path_calls
from svc.store.detection.counting.settled_traces import Due, DueTrace, due_traces, settled_traces
from svc.store.detection.counting.tallies import (
    BucketName,
    Entry,
    Horizon,
    Resolved,
    Witness,
    add_witnesses,
    change,
    drop_witnesses,
    note_changes,
    packed,
    resolve,
    unpacked,
)
from svc.store.detection.counting.tidying import to_hours
from svc.store.postgres.database import Connection, Database

#: How long a replica that died in a round keeps a project from the others: longer than a round may take.
HELD_S: Final = 180
#: Projects that one look finds at most.
PROJECTS: Final = 1_000
#: How long the detectors look at traces without letting others of the process have a turn.
_TURN_S: Final = 0.01
#: Compiled schemas that are remembered; then all are forgotten.
_SCHEMAS_BOUND: Final = 512

# Whose traces wait: one step down the key for each project. Those of a deleted one are left to the purge.
_WAITING: Final = """
with recursive step (id) as (
    (select min(project_id) from fold_due)
    union all
    select (select min(project_id) from fold_due where project_id > step.id)
    from step where step.id is not null
)
select s.id from step s where s.id is not null
  and not exists (select from project p where p.id = s.id and p.deleted_at is not null) limit $1
"""

# Hold a project, unless somebody else does.
_HOLD: Final = """
insert into fold_state as s (project_id, holder, held_until)
values ($1, $2, clock_timestamp() + make_interval(secs => $3))
on conflict (project_id) do update set holder = excluded.holder, held_until = excluded.held_until
where s.holder is null or s.holder = excluded.holder or s.held_until < clock_timestamp()
returning holder
"""

# Whether it is still held, until the end of this transaction.
_STILL: Final = """
select hours_before, gone_before from fold_state where project_id = $1 and holder = $2 for update
"""

# Whoever comes next may have it.
_GIVE_UP: Final = "update fold_state set holder = null where project_id = $1 and holder = $2"

# What call sites should answer, and a hash of it.
_SCHEMAS: Final = """
select call_site_id, output_schema::text as schema, md5(output_schema::text) as hash from call_site_intent
where project_id = $1 and output_schema is not null
"""

# What is set of marks and of call sites, by keys; without a row every mark is stated.
_SETTINGS: Final = """
select (select not enabled from detector_setting where project_id = $1 and detector = $2) as off,
    array(select mark from mark_setting where project_id = $1 and not enabled) as marks_off,
    (select site_grain from project where id = $1) as site_grain
"""

# Take places off the queue; those that somebody took meanwhile are not among them.
_TAKE: Final = """
delete from fold_due where project_id = $1 and place = any($2::bigint[]) returning trace_id
"""

# What these traces were tallied as.
_FOLDED: Final = """
select trace_id, spans, texts, body from trace_fold where project_id = $1 and trace_id = any($2::bytea[])
"""

# An encoder is to be asked about these.
_ENCODE: Final = """
insert into encode_due (project_id, detector, trace_id)
select $1, d.detector, t.trace_id from unnest($2::text[]) as d (detector)
    cross join unnest($3::bytea[]) as t (trace_id)
"""

# What they are tallied as now.
_NOTE: Final = """
insert into trace_fold (project_id, trace_id, slot, spans, texts, body)
select $1, * from unnest($2::bytea[], $3::integer[], $4::integer[], $5::integer[], $6::bytea[])
on conflict (project_id, trace_id) do update
set slot = excluded.slot, spans = excluded.spans, texts = excluded.texts, body = excluded.body
"""


@attrs.frozen(eq=False)
class _Observed:
    """A trace after the detectors looked at it."""

    due: DueTrace
    slot: int
    #: How many payloads it had.
    texts: int
    observations: Sequence[Observation]
    marks: Sequence[TraceMark]
    #: Detectors that could not look at it.
    failed: Collection[str]
    #: Whether that is what they see of the whole trace.
    sure: bool


@attrs.define(eq=False)
class PostgresTallyQueue:
    """Implements the `TallyQueue` port. Each is a holder of its own. All verbs raise `Outage`."""

    database: Database
    #: The key of the digests by which secrets are distinguished.
    secret_key: bytes = attrs.field(default=b"", repr=False)
    #: Detectors that ask an encoder about each new trace.
    encoded: Sequence[str] = ()
    holder: UUID = attrs.field(factory=uuid4)
    _schemas: dict[str, Schema] = attrs.field(factory=dict)

    async def waiting(self) -> Sequence[int]:
        """Projects with traces to tally."""
        return [row["id"] for row in await self.database.fetch(_WAITING, PROJECTS)]

    async def tally(self, project_id: int) -> Tallied:
        """One round of a project: at most so many traces as `settled_traces` allows."""
        if not await self._hold(project_id):
            return Tallied(held=False)
        due, context, facets = await self.database.run(
            lambda connection: self._read(connection, project_id), readonly=True, snapshot=True
        )
        if not due.places:
            await self.database.fetch(_GIVE_UP, project_id, self.holder)
            return Tallied()
        rows = {trace.trace_id: trace.rows for trace in due.traces}
        paths = await path_calls(self.database, project_id, facets, rows)
        observed_by_trace = await _observe(due.traces, context, paths)
        await self._observe_again(project_id, observed_by_trace, context, paths)
        traces = list(observed_by_trace.values())
        tallied = await self.database.run(lambda connection: self._write(connection, project_id, due, traces))
        return attrs.evolve(
            tallied,
            more=due.more,
            unread=sum(trace.due.unread for trace in traces),
            failures=dict(Counter(name for trace in traces for name in trace.failed)),
        )

    async def _observe_again(
        self, project_id: int, observed: dict[bytes, _Observed], context: ObserverContext, paths: TracePaths
    ) -> None:
        """Look at whole traces where lean ones do not tell; one that is gone meanwhile was never there."""
        unsure = [trace_id for trace_id, trace in observed.items() if not trace.sure]

        async def read(connection: Connection) -> Sequence[DueTrace]:
            return await settled_traces(connection, project_id, unsure, TEXTUAL)

        while unsure:
            traces = await self.database.run(read, readonly=True, snapshot=True)
            outcomes = await _observe(traces, context, paths)
            observed.update(outcomes)
            if not outcomes:
                for trace_id in unsure:
                    del observed[trace_id]
                return
            unsure = [trace_id for trace_id in unsure if trace_id not in outcomes]

    async def to_hours(self, project_id: int) -> bool:
        """Bring some of a project's old tallies to hours. Whether there is more to do."""
        return await to_hours(self.database, project_id)

    async def _hold(self, project_id: int) -> bool:
        rows = await self.database.fetch(_HOLD, project_id, self.holder, HELD_S)
        return bool(rows)

    async def _read(self, connection: Connection, project_id: int) -> tuple[Due, ObserverContext, PathFacets]:
        due = await due_traces(connection, project_id)
        schemas: dict[str, tuple[str, Schema]] = {}
        for row in await connection.fetch(_SCHEMAS, project_id) if due.traces else ():
            if (compiled := self._compiled(row["schema"], row["hash"])) is not None:
                schemas[row["call_site_id"]] = (detail(row["hash"][:12]), compiled)
        settings: Any = await connection.fetchrow(_SETTINGS, project_id, MARKS_DETECTOR.name)
        context = ObserverContext(
            schemas=schemas,
            secret_key=self.secret_key,
            marks=not settings["off"],
            marks_off=frozenset(settings["marks_off"]),
            agents=settings["site_grain"] != "sent",
            whole_sites=settings["site_grain"] == "both",
        )
        return due, context, await PathFacets.read(connection, project_id, [t.rows for t in due.traces])

    def _compiled(self, text: str, digest: str) -> Schema | None:
        if (schema := self._schemas.get(digest)) is not None:
            return schema
        if len(self._schemas) >= _SCHEMAS_BOUND:
            self._schemas.clear()
        if (compiled := compiled_schema(text)) is not None:
            self._schemas[digest] = compiled
        return compiled

    async def _write(
        self, connection: Connection, project_id: int, due: Due, observed: Sequence[_Observed]
    ) -> Tallied:
        state = await connection.fetchrow(_STILL, project_id, self.holder)
        if state is None:
            return Tallied(held=False)
        horizon = Horizon(state["hours_before"], state["gone_before"])
        places = [position for positions in due.places.values() for position in positions]
        trace_ids = {row["trace_id"] for row in await connection.fetch(_TAKE, project_id, places)}
        earlier = {
            row["trace_id"]: row for row in await connection.fetch(_FOLDED, project_id, sorted(trace_ids))
        }
        fresh = [
            trace
            for trace in observed
            if trace.due.trace_id in trace_ids and not _aged(earlier.get(trace.due.trace_id), trace)
        ]
        resolved = await resolve(
            connection, project_id, (observation for trace in fresh for observation in trace.observations)
        )
        entries = {trace.due.trace_id: _tallied(trace.observations, resolved) for trace in fresh}
        old = {trace_id: unpacked(earlier[trace_id]["body"]) for trace_id in entries if trace_id in earlier}
        new_entries = [entry for of_trace in entries.values() for entry in of_trace]
        old_entries = [entry for of_trace in old.values() for entry in of_trace]
        await drop_witnesses(connection, project_id, _flat(old))
        await add_witnesses(connection, project_id, _witnesses(fresh, resolved, horizon))
        await change(
            connection,
            project_id,
            horizon,
            add=new_entries,
            subtract=old_entries,
        )
        await note_changes(connection, project_id, _changed(entries, old))
        await _note(connection, project_id, fresh, entries)
        marks = {trace.due.trace_id: trace.marks for trace in fresh}
        await write_marks(connection, project_id, marks, list(old))
        if fresh:
            await note_evals(connection, project_id, _counts_by_detector(fresh))
        if self.encoded and (
            new := [trace.due.trace_id for trace in fresh if trace.due.trace_id not in earlier]
        ):
            await connection.execute(_ENCODE, project_id, list(self.encoded), new)
        await connection.execute(_GIVE_UP, project_id, self.holder)
        return Tallied(
            traces=len(fresh),
            spans=sum(len(trace.due.rows) for trace in fresh),
            again=len(old),
            left_out=resolved.left_out,
        )


async def _observe(
    traces: Iterable[DueTrace], context: ObserverContext, paths: TracePaths
) -> dict[bytes, _Observed]:
    """Have the detectors look at the traces that have spans."""
    observed: dict[bytes, _Observed] = {}
    began_s = trio.current_time()
    for trace in traces:
        if trace.rows:
            of_trace = paths.get(trace.trace_id, {}) if context.agents else {}
            observed[trace.trace_id] = _observed(trace, context, of_trace)
        # A round takes tenths of a second: others want to be served in between.
        if trio.current_time() - began_s > _TURN_S:
            await trio.lowlevel.checkpoint()
            began_s = trio.current_time()
    return observed


def _observed(trace: DueTrace, context: ObserverContext, paths: Mapping[bytes, str]) -> _Observed:
    texts: dict[bytes, SpanTexts] = {}
    sure = True
    complete = True
    span: WireSpan | None
    for row, span, spared in trace.payloads():
        texts[row.span_id] = span_texts = texts_of(span, row.kind, spared)
        # Freed before the next is opened, in whose place it lies.
        span = None
        sure &= span_texts.sure
        complete &= spared is None
    result = observe(SettledTrace.of(trace.rows, trace.call_site_id, texts, paths, trace.ratings), context)
    if sure and not complete:
        # The user may have sent the secret first, a tool may have been heard: those payloads were not read.
        sure = all([observation.measure != "secret_high" for observation in result.observations])
        sure = sure and all([mark.name not in EVIDENCE_MARKS for mark in result.marks])
    slot = slot_of(trace.rows[0].started_at)
    return _Observed(trace, slot, len(texts), result.observations, result.marks, result.failed.keys(), sure)


def _aged(earlier: Any, observed: _Observed) -> bool:
    """Whether some of what the trace was tallied from is gone."""
    return earlier is not None and (
        len(observed.due.rows) < earlier["spans"] or observed.texts < earlier["texts"]
    )


def _name(observation: Observation) -> BucketName:
    return observation.measure, observation.subject, observation.detail


def _tallied(observations: Iterable[Observation], resolved: Resolved) -> list[Entry]:
    """What a trace is counted as, one entry a cell, in order."""
    cells: dict[tuple[int, int, int], Entry] = {}
    ids = resolved.ids
    for observation in observations:
        if (bucket_id := ids.get((observation.measure, observation.subject, observation.detail))) is not None:
            slot = observation.slot
            bin_ = 0 if observation.value is None else observation.bin
            key = bucket_id, slot, bin_
            if (entry := cells.get(key)) is None:
                cells[key] = bucket_id, slot, bin_, 1, int(observation.failed)
            else:
                cells[key] = bucket_id, slot, bin_, entry[3] + 1, entry[4] + observation.failed
    return sorted(cells.values())


def _counts_by_detector(observed: Sequence[_Observed]) -> Mapping[str, int]:
    """How many traces each detector looked at; one that raised did not."""
    failures = Counter(name for trace in observed for name in trace.failed)
    return {
        name: len(observed) - failures[name]
        for name, detector in DETECTORS.items()
        if detector.observe is not None and failures[name] < len(observed)
    }


def _changed(new: Mapping[bytes, Sequence[Entry]], old: Mapping[bytes, Sequence[Entry]]) -> list[Entry]:
    # A trace that was rated is judged by that alone, not by all else that it was counted as before.
    return [entry for trace_id, of_trace in new.items() for entry in {*of_trace} ^ {*old.get(trace_id, ())}]


def _flat(entries: Mapping[bytes, Sequence[Entry]]) -> Iterable[tuple[bytes, Entry]]:
    return [(trace_id, entry) for trace_id, of_trace in entries.items() for entry in of_trace]


def _witnesses(observed: Sequence[_Observed], resolved: Resolved, horizon: Horizon) -> list[Witness]:
    witnesses: dict[tuple[int, int, bytes], Witness] = {}
    for trace in observed:
        for observation in trace.observations:
            if not observation.failed:
                continue
            bucket_id = resolved.ids.get(_name(observation))
            if bucket_id is not None and horizon.place(observation.slot) is not None:
                key = (bucket_id, observation.slot, trace.due.trace_id)
                witnesses.setdefault(key, (*key, observation.witnesses, observation.signature))
    return list(witnesses.values())


async def _note(
    connection: Connection,
    project_id: int,
    observed: Sequence[_Observed],
    entries: Mapping[bytes, Sequence[Entry]],
) -> None:
    if observed:
        await connection.execute(
            _NOTE,
            project_id,
            [trace.due.trace_id for trace in observed],
            [trace.slot for trace in observed],
            [len(trace.due.rows) for trace in observed],
            [trace.texts for trace in observed],
            [packed(entries[trace.due.trace_id]) for trace in observed],
        )
