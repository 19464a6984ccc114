"""Present prices or the present mapping over stored history, a few traces at a time.

Owns the table `rework`. A step locks its traces as every writer does, rewrites the spans that change, marks
their hours for the cubes, rolls the traces up anew and notes how far it is, all in one transaction: a killed
run is taken up where it was, and a running service is never more than one step behind.

Ordering: traces are locked in the order of their keys, before spans, marks and sessions, as writers do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal

import attrs

from protocol.operator import OperatorError
from protocol.otlp.reading import WireSpan
from svc.domain.intake.batches import StoredSpan
from svc.domain.intake.inherited_models import inherit_models
from svc.domain.intake.packing import Parts
from svc.domain.intake.rework import CHANGEABLE, differs, totals
from svc.domain.queries.datasets import SPANS, TOOL_CALLS
from svc.domain.spans.span import SpanRow, ToolCall
from svc.domain.traces.agent_path import AGENT_PATH
from svc.domain.traces.rollup import TraceRollup, roll_up
from svc.domain.traces.tool_calls import dedupe_tool_calls
from svc.store.aggregates.closed_hours import mark_dirty
from svc.store.postgres.clock import Clock, server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.tombstones import hold, rescue_values
from svc.store.spans.attribute_codes import encode_within
from svc.store.spans.call_sites import CallSites
from svc.store.spans.large_traces import roll_trace
from svc.store.spans.payloads import read_payloads
from svc.store.spans.rework_progress import COUNTED, Progress, progress_of
from svc.store.spans.session_calls import drop_calls_run_elsewhere
from svc.store.spans.sessions import activities, move_sessions
from svc.store.spans.trace_rollups import SPAN_FIELDS
from svc.store.spans.writing import TOOL_CALL_COLUMNS, tool_call_records

Kind = Literal["reprice", "remap"]

#: A step takes at most this many traces, and stops adding them at so many spans: under a second of locks.
STEP_TRACES: Final = 200
STEP_SPANS: Final = 2000
#: One trace may be larger than any step.
STEP_TIMEOUT_S: Final = 600.0

_TYPES: Final[Mapping[str, str]] = {
    "parent_span_id": "bytea",
    "ended_at": "timestamptz",
    "tagged": "boolean",
    **{name: "bigint" for name in CHANGEABLE if name.endswith("_tokens")},
    **{name: "numeric" for name in CHANGEABLE if name.endswith("_cost")},
}

# Changed spans, every column that may change; the bounds let the planner skip all other days.
_UPDATE: Final = (
    "update span s set "
    + ", ".join(f"{name} = new.{name}" for name in CHANGEABLE)
    + " from unnest($4::bytea[], $5::bytea[], $6::timestamptz[], "
    + ", ".join(f"${7 + n}::{_TYPES.get(name, 'text')}[]" for n, name in enumerate(CHANGEABLE))
    + f") as new (trace_id, span_id, started_at, {', '.join(CHANGEABLE)})"
    " where s.project_id = $1 and s.started_at between $2 and $3 and s.trace_id = new.trace_id"
    " and s.span_id = new.span_id and s.started_at = new.started_at returning s.created_at"
)


class AlreadyAtWork(OperatorError):
    """Somebody else reworks the same project in the same way."""


@attrs.define(eq=False)
class _Trace:
    """One trace of a step: its row, its spans as stored, and as they ought to be."""

    row: Any
    stored: list[SpanRow]
    made: list[SpanRow]

    @cached_property
    def rollup(self) -> TraceRollup:
        """Of the spans as they ought to be."""
        return roll_up(self.made)

    @cached_property
    def changed(self) -> list[tuple[SpanRow, SpanRow]]:
        """The spans that change, before and after. A call that a tool's span tells too is dropped here."""
        repeated = dedupe_tool_calls(self.made)
        for new in self.made:
            if any((new.span_id, call.index) in repeated for call in new.tool_calls):
                new.tool_calls = tuple(
                    call for call in new.tool_calls if (new.span_id, call.index) not in repeated
                )
        pairs = zip(self.stored, self.made, strict=True)
        return [(old, new) for old, new in pairs if differs(old, new) or _calls(old) != _calls(new)]


#: How a span ought to be: from its row, and from the span as it came when its payload is wanted.
Remake = Callable[[SpanRow, WireSpan | None], SpanRow]


@attrs.define(eq=False)
class ReworkStore:
    """Reworks one project. `version` names what history is brought to."""

    database: Database
    project_id: int
    kind: Kind
    version: str
    remake: Remake
    clock: Clock = server_clock

    async def resumed(self) -> Progress:
        """Where a killed run of the same kind and version was; else the beginning, which is noted."""

        async def work(connection: Connection) -> Progress:
            row = await connection.fetchrow(
                "select * from rework where project_id = $1 and kind = $2 and version = $3"
                " and finished_at is null",
                self.project_id,
                self.kind,
                self.version,
            )
            if row is not None:
                return progress_of(row)
            # What an earlier run found is of no use any more.
            await connection.execute(
                "delete from rework where project_id = $1 and kind = $2", self.project_id, self.kind
            )
            await connection.execute(
                "insert into rework (project_id, kind, version, after_trace_id, spans, traces, changed_spans,"
                " changed_traces, without_payload, cost_before, cost_after, tokens_before, tokens_after,"
                " unpriced_before, unpriced_after, started_at)"
                " values ($1, $2, $3, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, $4)",
                self.project_id,
                self.kind,
                self.version,
                await self.clock(connection),
            )
            return Progress()

        return await self.database.run(work)

    async def preview(self, progress: Progress) -> Progress:
        """Look at the next traces and change nothing."""

        async def work(connection: Connection) -> Progress:
            chosen = await self._next(connection, progress.after_trace_id)
            traces, missing = await self._remade(connection, chosen, readonly=True)
            return _advanced(progress, chosen, traces, missing)

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=STEP_TIMEOUT_S)

    async def apply(self, progress: Progress) -> Progress:
        """Change the next traces, and note how far that is."""

        async def work(connection: Connection) -> Progress:
            state = await hold(connection, [self.project_id])
            chosen = await self._next(connection, progress.after_trace_id)
            # Their rows, locked in the order of writers; one may have gone meanwhile.
            locked = await connection.fetch(
                "select trace_id, due_at, first_started_at, last_started_at from trace"
                " where project_id = $1 and trace_id = any($2::bytea[]) order by trace_id for update",
                self.project_id,
                [row["trace_id"] for row in chosen],
            )
            traces, missing = await self._remade(connection, locked)
            if state.erasing:
                codes = {code for trace in traces for row in trace.made for code in row.facets or ""}
                await rescue_values(connection, self.project_id, sorted(codes))
            await self._write(connection, traces)
            advanced = _advanced(progress, chosen, traces, missing)
            await self._note(connection, progress, advanced)
            return advanced

        return await self.database.run(work, timeout_s=STEP_TIMEOUT_S)

    async def _next(self, connection: Connection, after: bytes) -> list[Any]:
        rows = await connection.fetch(
            "select trace_id, due_at, first_started_at, last_started_at, span_count from trace"
            " where project_id = $1 and trace_id > $2 order by trace_id limit $3",
            self.project_id,
            after,
            STEP_TRACES,
        )
        spans, chosen = 0, list[Any]()
        for row in rows:
            spans += row["span_count"]
            if chosen and spans > STEP_SPANS:
                break
            chosen.append(row)
        return chosen

    async def _remade(
        self, connection: Connection, chosen: Sequence[Any], *, readonly: bool = False
    ) -> tuple[list[_Trace], int]:
        """The spans of these traces, stored and as they ought to be, and how many lost their payload."""
        if not chosen:
            return [], 0
        of_traces = (
            self.project_id,
            [row["trace_id"] for row in chosen],
            min(row["first_started_at"] for row in chosen),
            max(row["last_started_at"] for row in chosen),
        )
        # All their spans, from the days they have spans in.
        records = await connection.fetch(
            f"select {SPAN_FIELDS}, facets, frame from span"
            " where project_id = $1 and trace_id = any($2::bytea[]) and started_at between $3 and $4"
            " order by trace_id, span_id",
            *of_traces,
        )
        fields = [dict(record.items()) for record in records]
        frames = [row.pop("frame") for row in fields]
        stored = [SpanRow(**row) for row in fields]
        payloads: Mapping[tuple[bytes, bytes], WireSpan] = {}
        if self.kind == "remap":
            keys = [
                (row.trace_id, row.span_id, row.started_at, frame)
                for row, frame in zip(stored, frames, strict=True)
            ]
            payloads = await read_payloads(connection, self.project_id, keys)
            await self._with_tool_calls(connection, of_traces, stored)
        by_trace: dict[bytes, _Trace] = {row["trace_id"]: _Trace(row, [], []) for row in chosen}
        missing = 0
        for row in stored:
            span = payloads.get((row.trace_id, row.span_id))
            lost = self.kind == "remap" and span is None
            missing += lost
            trace = by_trace[row.trace_id]
            trace.stored.append(row)
            trace.made.append(row if lost else self.remake(row, span))
        for trace in by_trace.values():
            inherit_models(trace.made, payloads, self.remake)
            if self.kind == "remap" and trace.made:
                for row in trace.made:
                    row.belong(trace.rollup.session_id, trace.rollup.user_id)
        if self.kind == "remap":
            remade = [row for trace in by_trace.values() for row in trace.made if row.attributes]
            await encode_within(connection, self.project_id, remade, readonly=readonly)
            await self._with_paths(connection, by_trace.values())
        return [trace for trace in by_trace.values() if trace.stored], missing

    async def _with_paths(self, connection: Connection, traces: Iterable[_Trace]) -> None:
        """Agent paths come of whole traces: a span keeps its own until its trace is tallied anew."""
        rows = await connection.fetch(
            "select code from attribute_value where project_id = $1 and field = $2",
            self.project_id,
            AGENT_PATH,
        )
        codes = {row["code"] for row in rows}
        for trace in traces:
            for old, new in zip(trace.stored, trace.made, strict=True):
                kept = "".join(code for code in old.facets or "" if code in codes)
                if new is not old and kept:
                    new.facets = (new.facets or "") + kept

    async def _with_tool_calls(
        self, connection: Connection, of_traces: tuple[object, ...], stored: Sequence[SpanRow]
    ) -> None:
        records = await connection.fetch(
            "select trace_id, span_id, index, name, call_id, status, error_type, error_message from tool_call"
            " where project_id = $1 and trace_id = any($2::bytea[]) and started_at between $3 and $4"
            " order by trace_id, span_id, index",
            *of_traces,
        )
        calls: dict[tuple[bytes, bytes], list[ToolCall]] = {}
        for record in records:
            fields = dict(record.items())
            calls.setdefault((fields.pop("trace_id"), fields.pop("span_id")), []).append(ToolCall(**fields))
        for row in stored:
            row.tool_calls = tuple(calls.get((row.trace_id, row.span_id), ()))

    async def _write(self, connection: Connection, traces: Sequence[_Trace]) -> None:
        now = await self.clock(connection)
        changed = [new for trace in traces for _, new in trace.changed]
        if changed:
            moments = [row.started_at for row in changed]
            written = await connection.fetch(
                _UPDATE,
                self.project_id,
                min(moments),
                max(moments),
                [row.trace_id for row in changed],
                [row.span_id for row in changed],
                moments,
                *([getattr(row, name) for row in changed] for name in CHANGEABLE),
            )
            marks = [(self.project_id, row["created_at"]) for row in written]
            await mark_dirty(connection, marks, SPANS, now, slow=True)
            spans = [StoredSpan(self.project_id, row, Parts(b"", [], {}, 0)) for row in changed]
            await CallSites().insert_new(connection, spans, now)
        if self.kind == "remap":
            await self._write_tool_calls(connection, traces, now)
        for trace in traces:
            if trace.changed:
                row = {**dict(trace.row.items()), "project_id": self.project_id}
                await roll_trace(connection, row, now, slow=True)
        changed_keys = [(self.project_id, trace.row["trace_id"]) for trace in traces if trace.changed]
        await drop_calls_run_elsewhere(connection, changed_keys, now)
        await self._move_sessions(connection, [trace for trace in traces if trace.changed])

    async def _write_tool_calls(
        self, connection: Connection, traces: Sequence[_Trace], now: datetime
    ) -> None:
        fresh = [new for trace in traces for old, new in trace.changed if _calls(old) != _calls(new)]
        if not fresh:
            return
        identities = (
            [row.trace_id for row in fresh],
            [row.span_id for row in fresh],
            [row.started_at for row in fresh],
        )
        # When these spans were first stored: their tool calls carry the same time.
        records = await connection.fetch(
            "select s.trace_id, s.span_id, s.created_at"
            " from unnest($2::bytea[], $3::bytea[], $4::timestamptz[]) as a (trace_id, span_id, started_at)"
            " join span s using (trace_id, span_id, started_at) where s.project_id = $1",
            self.project_id,
            *identities,
        )
        created = {(row["trace_id"], row["span_id"]): row["created_at"] for row in records}
        # All calls of these spans; what is right of them comes back below.
        await connection.execute(
            "delete from tool_call t using unnest($2::bytea[], $3::bytea[], $4::timestamptz[])"
            " as gone (trace_id, span_id, started_at) where t.project_id = $1"
            " and t.trace_id = gone.trace_id and t.span_id = gone.span_id and t.started_at = gone.started_at",
            self.project_id,
            *identities,
        )
        calls = [
            record
            for row in fresh
            for record in tool_call_records(self.project_id, row, created[row.trace_id, row.span_id])
        ]
        if calls:
            await connection.copy_records_to_table("tool_call", columns=TOOL_CALL_COLUMNS, records=calls)
        marks = [(self.project_id, created_at) for created_at in created.values()]
        await mark_dirty(connection, marks, TOOL_CALLS, now, slow=True)

    async def _move_sessions(self, connection: Connection, traces: Sequence[_Trace]) -> None:
        left_sessions: set[tuple[int, str]] = set()
        joined_traces = {}
        for trace in traces:
            old, new = roll_up(trace.stored), trace.rollup
            if old.session_id != new.session_id or old.user_id != new.user_id:
                joined_traces[self.project_id, trace.row["trace_id"]] = new
                if old.session_id is not None and old.session_id != new.session_id:
                    left_sessions.add((self.project_id, old.session_id))
        await move_sessions(connection, activities(joined_traces), left_sessions)

    async def _note(self, connection: Connection, previous: Progress, current: Progress) -> None:
        # How far this run is, unless another one has moved it.
        noted = await connection.execute(
            "update rework set after_trace_id = $3, spans = $4, traces = $5, changed_spans = $6,"
            " changed_traces = $7, without_payload = $8, cost_before = $9, cost_after = $10,"
            " tokens_before = $11, tokens_after = $12, unpriced_before = $13, unpriced_after = $14,"
            " finished_at = $15 where project_id = $1 and kind = $2 and version = $17"
            " and after_trace_id = $16",
            self.project_id,
            self.kind,
            *(getattr(current, name) for name in COUNTED),
            current.before.cost,
            current.after.cost,
            current.before.tokens,
            current.after.tokens,
            current.before.unpriced,
            current.after.unpriced,
            await self.clock(connection) if current.finished else None,
            previous.after_trace_id,
            self.version,
        )
        if noted != "UPDATE 1":
            raise AlreadyAtWork(f"another {self.kind} of this project is at work")


def _calls(row: SpanRow) -> list[tuple[Any, ...]]:
    return [tuple(record[2:12]) for record in tool_call_records(0, row, row.started_at)]


def _advanced(progress: Progress, chosen: Sequence[Any], traces: Sequence[_Trace], missing: int) -> Progress:
    old_totals, new_totals = progress.before, progress.after
    for trace in traces:
        old_totals, new_totals = old_totals.plus(totals(trace.stored)), new_totals.plus(totals(trace.made))
    changed = [len(trace.changed) for trace in traces]
    return Progress(
        after_trace_id=chosen[-1]["trace_id"] if chosen else progress.after_trace_id,
        spans=progress.spans + sum(len(trace.stored) for trace in traces),
        traces=progress.traces + len(traces),
        changed_spans=progress.changed_spans + sum(changed),
        changed_traces=progress.changed_traces + sum(map(bool, changed)),
        without_payload=progress.without_payload + missing,
        before=old_totals,
        after=new_totals,
        finished=not chosen,
    )
