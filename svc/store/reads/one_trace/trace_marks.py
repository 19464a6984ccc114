"""The marks of one trace, with the names of the spans that they speak of.

Called by the page of a trace. Bounded by what a trace may have (`svc.domain.marks.rules`).
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.domain.marks.rules import TRACE_MARKS
from svc.domain.marks.table import MARK_NAMES, MARKS, MarkKind
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.reads.one_trace.skeleton import TraceHead


@attrs.frozen
class MarkedSpan:
    """A span that a mark speaks of: its id in hexadecimal, and its name, None where its row is gone."""

    span_id: str
    name: str | None


@attrs.frozen
class StatedMark:
    """A mark of a trace: its kind, the sentence, the span at which the fact shows, and the model call that
    asked, None where nobody knows it.
    """

    kind: MarkKind
    sentence: str
    effect: MarkedSpan
    cause: MarkedSpan | None

    @property
    def told_of(self) -> frozenset[str]:
        """The spans it speaks of, by id."""
        return frozenset(span.span_id for span in (self.effect, self.cause) if span is not None)


# By the index on traces, in the order of the spans; names by the keys of the spans.
_MARKS: Final = """
select e.classifier_id, e.summary, e.subject_span_id, e.cause_span_id, effect.name, cause.name as cause_name
from (
    select * from classifier_event where project_id = $1 and subject_trace_id = $2
    and classifier_id = any($3::text[]) offset 0
) e
left join lateral (
    select name, started_at from span s where s.project_id = $1 and s.trace_id = $2
    and s.span_id = e.subject_span_id and s.started_at between $4 and $5 limit 1
) effect on true
left join lateral (
    select name from span s where s.project_id = $1 and s.trace_id = $2
    and s.span_id = e.cause_span_id and s.started_at between $4 and $5 limit 1
) cause on true
where e.subject_span_id is not null
order by effect.started_at, e.subject_span_id, e.classifier_id limit $6
"""


@attrs.define(eq=False)
class TraceMarkReads:
    """Raises `Outage`."""

    database: Database

    async def of(self, project_id: int, trace_id: bytes, head: TraceHead) -> list[StatedMark]:
        """The marks of a trace by the start of the spans at which they show."""
        rows = await self.database.fetch(
            _MARKS,
            project_id,
            trace_id,
            list(MARK_NAMES),
            head.first_started_at,
            head.last_started_at,
            TRACE_MARKS,
            timeout_s=READ_TIMEOUT_S,
        )
        return [
            StatedMark(
                MARKS[row["classifier_id"]],
                row["summary"],
                MarkedSpan(row["subject_span_id"].hex(), row["name"]),
                None
                if row["cause_span_id"] is None
                else MarkedSpan(row["cause_span_id"].hex(), row["cause_name"]),
            )
            for row in rows
        ]
