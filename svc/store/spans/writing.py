"""Writing spans: one transaction for a group of batches.

Owns the identity rule (contract §3): a span is `(project, trace_id, span_id)`; a re-sent one replaces the
stored one when its end (else its start) is not older, and keeps the first `created_at`.

How it stays fast: the insert of the trace row says which traces were known before this group. Spans of a
new trace cannot be stored already, so they are copied straight; only spans of known traces are looked up,
within the days that the trace has spans in. One that is stored to the byte, as when an exporter tries again
after a time-out, is left alone with its trace. The row lock on the trace makes two writers of one trace take
turns, and traces are locked in one order everywhere, so writers cannot deadlock.

What was erased is not stored again (`tombstones`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, Final

import asyncpg
import attrs
import msgspec

from protocol.storage import Written
from svc.domain.calendar import day_of
from svc.domain.feedback.entries import Feedback
from svc.domain.intake.batches import StoredSpan
from svc.domain.spans.span import SpanRow
from svc.domain.traces.agent_path import AGENT
from svc.domain.traces.duplicate_calls import mark_duplicate_calls
from svc.domain.traces.rollup import TraceRollup, roll_up
from svc.domain.traces.tool_calls import dedupe_tool_calls
from svc.store.aggregates.closed_hours import CUBED, mark_dirty
from svc.store.aggregates.rollups import hold_rollups
from svc.store.feedback.writing import write_feedback
from svc.store.postgres.clock import Clock, server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DayPartitions, midnight
from svc.store.postgres.statistics import YoungTables
from svc.store.postgres.tombstones import ErasureState, erased_among, hold, rescue_messages, rescue_values
from svc.store.spans.attribute_codes import AttributeCodes
from svc.store.spans.call_sites import CallSite, CallSites
from svc.store.spans.copying import copy_spans
from svc.store.spans.dating import count_past
from svc.store.spans.groups import age, newest_of_each, say_agents
from svc.store.spans.payloads import (
    Framed,
    MessageKey,
    Messages,
    copy_frames,
    drop_unnamed_frames,
    frame_up,
)
from svc.store.spans.sessions import activities, touch_sessions
from svc.store.spans.traces import KnownTrace, insert_or_lock, sure_of, touch

log = logging.getLogger(__name__)

TraceKey = tuple[int, bytes]

#: Of one write, while days that its rows belong to are made beside it.
WRITE_TRIES: Final = 4
#: The tables that hold rows of one span.
_OF_A_SPAN: Final = ("span", "tool_call")

TOOL_CALL_COLUMNS: Final = (
    "project_id",
    "trace_id",
    "span_id",
    "index",
    "embedded",
    "name",
    "call_id",
    "status",
    "error_type",
    "error_message",
    "call_site_id",
    "started_at",
    "created_at",
)


class _Kept(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A span of the group that will be written, and the `created_at` it will carry."""

    span: StoredSpan
    created_at: datetime
    new: bool = True


#: The erasures, and the changes of the server, that are known of.
_Epoch = tuple[str, int]


class _Outdated(Exception):
    """Something was erased or the server changed: what is remembered as stored is not to be trusted."""

    def __init__(self, epoch: _Epoch) -> None:
        super().__init__(epoch)
        self.epoch = epoch


@attrs.define(eq=False)
class SpanStore:
    """Stores groups of decoded spans.

    With `dated`, which an import has, a new span is dated as that says and no later than now; without it, as
    of its arrival. A trace is then dated by the end of its spans in the group.
    """

    database: Database
    days: DayPartitions
    call_sites: CallSites
    clock: Clock = server_clock
    messages: Messages = attrs.field(factory=Messages)
    dated: Callable[[StoredSpan], datetime] | None = None
    codes: AttributeCodes = attrs.field(
        default=attrs.Factory(lambda self: AttributeCodes(self.database), takes_self=True)
    )
    young: YoungTables = attrs.field(
        default=attrs.Factory(lambda self: YoungTables(self.database), takes_self=True)
    )
    #: Up to when what is remembered may be trusted.
    _epoch: _Epoch = attrs.field(default=("", 0), init=False)

    async def write(self, rows: Sequence[StoredSpan]) -> Written:
        """Store the rows. Raises `Outage`, or `StoreRefused` when the database refuses the data."""
        if not rows:
            return Written(0, 0)
        spans = newest_of_each(rows)
        # What hides the name of an agent hides it in paths: tallying makes them of what is stored.
        say_agents(spans, self.codes.hiding(AGENT))
        await self._ensure_days({span.day for span in spans})
        stored, messages, call_sites, epoch = await self._written(spans, frame_up(spans))
        if epoch == self._epoch:
            self.call_sites.remember(call_sites)
            self.messages.remember(messages)
        await self.young.count(span.day for span in spans)
        return Written(stored=stored, duplicates=len(rows) - stored)

    async def _written(
        self, spans: list[StoredSpan], framed: Framed
    ) -> tuple[int, list[MessageKey], list[CallSite], _Epoch]:
        """What was written, and up to when it knows of all."""
        attempt = 0
        while True:
            attempt += 1
            epoch = self._epoch
            await self.codes.encode(spans)
            try:
                work = partial(self._write, spans=spans, framed=framed, epoch=epoch)
                return (*await self.database.run(work), epoch)
            except asyncpg.CheckViolationError:
                # A day was made while rows of it were on their way to the default partition.
                if attempt >= WRITE_TRIES:
                    raise
            except _Outdated as outdated:
                self._trust_nothing(outdated.epoch)

    def _trust_nothing(self, epoch: _Epoch) -> None:
        """What is remembered as stored may have been erased, or never have come to the server of now.

        A standby that follows asynchronously and is promoted lacks the last transactions.
        """
        if epoch != self._epoch:
            self.codes.forget()
            self.call_sites.forget()
            self.messages.forget()
            self._epoch = epoch

    async def _ensure_days(self, days: set[date]) -> None:
        new = self.days.unknown(days)
        if new:
            await self.days.ensure_some(new, await self.database.run(self.clock, transaction=False))

    async def _write(
        self, connection: Connection, spans: list[StoredSpan], framed: Framed, epoch: _Epoch
    ) -> tuple[int, list[MessageKey], list[CallSite]]:
        state = await hold(connection, {span.project_id for span in spans})
        current = (state.epoch, self.database.server_changes)
        if current != epoch:
            raise _Outdated(current)
        now = await self.clock(connection)
        spans = await _without_erased(connection, state, spans)
        if not spans:
            return 0, [], []
        by_trace: dict[TraceKey, list[StoredSpan]] = {}
        by_project: dict[int, list[SpanRow]] = {}
        for span in spans:
            by_project.setdefault(span.project_id, []).append(span.row)
            by_trace.setdefault((span.project_id, span.row.trace_id), []).append(span)
        for rows in by_project.values():
            mark_duplicate_calls(rows)
        rollups = {key: _rolled(group) for key, group in by_trace.items()}
        if self.dated is not None:
            await hold_rollups(connection, by_project)
        nameless = {
            key for key, group in by_trace.items() if rollups[key].is_partly_named(span.row for span in group)
        }
        known_traces = await insert_or_lock(
            connection, rollups, now, incomplete=nameless, dated=self.dated is not None
        )
        new = {key: rollup for key, rollup in rollups.items() if key not in known_traces}
        if known_traces:
            writes = await _against_known(connection, spans, known_traces, now)
            changed = {(item.span.project_id, item.span.row.trace_id) for item in writes}
            rollups = {key: rollup for key, rollup in rollups.items() if key in changed}
            await touch(connection, {key: rollups[key] for key in known_traces if key in changed}, now)
        else:
            writes = [_Kept(span, now) for span in spans]
        replaced = [item for item in writes if not item.new]
        if self.dated is not None:
            writes = [
                msgspec.structs.replace(item, created_at=min(now, self.dated(item.span)))
                if item.new
                else item
                for item in writes
            ]
            past = [(item.span.project_id, item.created_at) for item in writes if item.new]
            await count_past(connection, past, new, now)
        await _copy(connection, writes, framed)
        await _write_feedback(connection, writes, now)
        messages = await self.messages.insert_new(connection, [item.span for item in writes])
        call_sites = await self.call_sites.insert_new(connection, [item.span for item in writes], now)
        await touch_sessions(connection, activities(sure_of(rollups, known_traces)))
        return len(writes) - len(replaced), messages, call_sites


async def _without_erased(
    connection: Connection, state: ErasureState, spans: list[StoredSpan]
) -> list[StoredSpan]:
    """The spans that may be stored; what they share with what is being erased is theirs from now on."""
    if state.marked:
        erased = await erased_among(
            connection,
            state,
            ((s.project_id, s.row.trace_id, s.row.session_id, s.row.user_id) for s in spans),
        )
        if erased is not None:
            spans = [span for span in spans if not erased.holds(span.project_id, span.row)]
    for project_id in sorted(state.erasing):
        group = [span for span in spans if span.project_id == project_id]
        messages = {(midnight(span.day), digest) for span in group for digest in span.payload.messages}
        await rescue_messages(connection, project_id, messages)
        await rescue_values(
            connection, project_id, sorted({code for span in group for code in span.row.facets or ""})
        )
    return spans


def _rolled(group: list[StoredSpan]) -> TraceRollup:
    """The roll-up of the spans of one trace in this group; right as it stands when the trace is new."""
    rows = [span.row for span in group]
    rollup = roll_up(rows)
    for row in rows:
        row.mark(rollup.repeats.get(row.span_id))
        # Without the root it is not known yet which of its spans says whose the trace is.
        if rollup.root_seen:
            row.belong(rollup.session_id, rollup.user_id)
    repeated = dedupe_tool_calls(rows)
    if repeated:
        for row in rows:
            if row.tool_calls:
                row.tool_calls = tuple(
                    call for call in row.tool_calls if (row.span_id, call.index) not in repeated
                )
    return rollup


async def _against_known(
    connection: Connection, spans: list[StoredSpan], known_traces: dict[TraceKey, KnownTrace], now: datetime
) -> list[_Kept]:
    """Which spans to write, after deleting the stored ones that they replace.

    Those of new traces, those that are not stored, and those that are stored otherwise and not newer.
    """
    candidates = [span for span in spans if (span.project_id, span.row.trace_id) in known_traces]
    for span in candidates:
        trace = known_traces[span.project_id, span.row.trace_id]
        span.row.belong(trace.session_id, trace.user_id)
    # The stored rows of these identities. The bounds let the planner skip all other days.
    rows = await connection.fetch(
        "select s.project_id, s.trace_id, s.span_id, s.started_at, s.created_at, s.frame, s.digest,"
        " coalesce(s.ended_at, s.started_at) as age"
        " from unnest($1::bigint[], $2::bytea[], $3::bytea[]) as asked (project_id, trace_id, span_id)"
        " join span s using (project_id, trace_id, span_id)"
        " where s.started_at between $4 and $5",
        [span.project_id for span in candidates],
        [span.row.trace_id for span in candidates],
        [span.row.span_id for span in candidates],
        min(trace.first_at for trace in known_traces.values()),
        max(trace.last_at for trace in known_traces.values()),
    )
    stored = {(row["project_id"], row["trace_id"], row["span_id"]): row for row in rows}
    writes, replaced = [], []
    for span in spans:
        earlier = stored.get((span.project_id, span.row.trace_id, span.row.span_id))
        if earlier is None:
            writes.append(_Kept(span, now))
        elif earlier["digest"] == span.payload.digest:
            continue
        elif age(span.row) >= earlier["age"]:
            writes.append(_Kept(span, earlier["created_at"], new=False))
            replaced.append(earlier)
    if replaced:
        marks = [(row["project_id"], row["created_at"]) for row in replaced]
        for dataset in CUBED:
            await mark_dirty(connection, marks, dataset, now)
        await _delete(connection, replaced)
    return writes


async def _delete(connection: Connection, rows: Sequence[Any]) -> None:
    identities = [(row["project_id"], row["trace_id"], row["span_id"], row["started_at"]) for row in rows]
    for table in _OF_A_SPAN:
        # The replaced rows, in each daily table; the table name comes from the closed list.
        await connection.execute(
            f"delete from {table} t using"
            " unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::timestamptz[])"
            " as gone (project_id, trace_id, span_id, started_at)"
            " where t.project_id = gone.project_id and t.trace_id = gone.trace_id"
            " and t.span_id = gone.span_id and t.started_at = gone.started_at",
            *(list(column) for column in zip(*identities, strict=True)),
        )
    await drop_unnamed_frames(
        connection,
        [(row["project_id"], row["trace_id"], day_of(row["started_at"]), row["frame"]) for row in rows],
    )


async def _write_feedback(connection: Connection, writes: list[_Kept], now: datetime) -> None:
    by_project: dict[int, list[Feedback]] = {}
    for item in writes:
        if item.span.feedback:
            by_project.setdefault(item.span.project_id, []).extend(item.span.feedback)
    # In one order for all who write.
    for project_id, entries in sorted(by_project.items()):
        without_room = await write_feedback(connection, project_id, entries, now)
        if without_room:
            log.info("dropped %d feedback names: the project has reached its limit", len(without_room))


async def _copy(connection: Connection, writes: list[_Kept], framed: Framed) -> None:
    """Copy spans, payloads and tool calls into their tables."""
    if not writes:
        return
    keys = [
        framed.of_span[item.span.project_id, item.span.row.trace_id, item.span.row.span_id] for item in writes
    ]
    await copy_spans(
        connection,
        (
            (item.span.project_id, item.created_at, frame, item.span.payload.digest, item.span.row)
            for item, (_, _, _, frame) in zip(writes, keys, strict=True)
        ),
    )
    await copy_frames(connection, framed, dict.fromkeys(keys))
    calls = [
        record
        for item in writes
        for record in tool_call_records(item.span.project_id, item.span.row, item.created_at)
    ]
    if calls:
        await connection.copy_records_to_table("tool_call", columns=TOOL_CALL_COLUMNS, records=calls)


def tool_call_records(project_id: int, row: SpanRow, created_at: datetime) -> list[tuple[Any, ...]]:
    """The rows of a span's tool calls, in the order of `TOOL_CALL_COLUMNS`."""
    return [
        (
            project_id,
            row.trace_id,
            row.span_id,
            call.index,
            row.kind not in ("tool", "mcp"),
            call.name,
            call.call_id,
            call.status,
            call.error_type,
            call.error_message,
            row.call_site_id,
            row.started_at,
            created_at,
        )
        for call in row.tool_calls
    ]
