"""The marks of traces as rows of `classifier_event`, written when a trace is tallied.

Owns: `write_marks`, called by tallying in the transaction that counts the trace. A row is named by what it
says, so that a trace that is tallied again keeps the marks that it still has, with the time at which each was
first stated, and loses the others. Retention takes marks away with their trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from svc.domain.marks.table import MARK_NAMES, MARKS, TraceMark
from svc.store.postgres.database import Connection

# What is stated of these traces no more.
_DROP: Final = """
delete from classifier_event where project_id = $1 and subject_trace_id = any($2::bytea[])
  and classifier_id = any($3::text[]) and id <> all($4::uuid[])
"""

# What is stated of them now; what was stated before keeps its time.
_STATE: Final = """
insert into classifier_event (project_id, id, classifier_id, version, severity, confidence, subject_kind,
    subject_session_id, subject_trace_id, subject_span_id, cause_span_id, call_site_id, summary)
select $1, m.id, m.name, m.version, 'low', m.confidence, 'span', t.session_id, m.trace_id, m.effect, m.cause,
    m.call_site_id, m.sentence
from unnest($2::uuid[], $3::text[], $4::smallint[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[],
    $9::text[], $10::text[])
    as m (id, name, version, confidence, trace_id, effect, cause, call_site_id, sentence)
join trace t on t.project_id = $1 and t.trace_id = m.trace_id
on conflict (project_id, id) do update
set subject_session_id = excluded.subject_session_id, call_site_id = excluded.call_site_id,
    summary = excluded.summary
where (classifier_event.subject_session_id, classifier_event.call_site_id, classifier_event.summary)
    is distinct from (excluded.subject_session_id, excluded.call_site_id, excluded.summary)
"""


async def write_marks(
    connection: Connection,
    project_id: int,
    marks: Mapping[bytes, Sequence[TraceMark]],
    tallied_before: Sequence[bytes],
) -> None:
    """Make these the marks of these traces; only those that were tallied before can have others."""
    rows = {
        _row_id(trace_id, mark): (trace_id, mark) for trace_id, of_trace in marks.items() for mark in of_trace
    }
    if tallied_before:
        names = list(MARK_NAMES)
        await connection.execute(_DROP, project_id, list(tallied_before), names, list(rows))
    if not rows:
        return
    # In one order for everybody who writes.
    stated = [(row_id, *rows[row_id]) for row_id in sorted(rows)]
    await connection.execute(
        _STATE,
        project_id,
        [row_id for row_id, _, _ in stated],
        [mark.name for _, _, mark in stated],
        [MARKS[mark.name].version for _, _, mark in stated],
        [MARKS[mark.name].confidence for _, _, mark in stated],
        [trace_id for _, trace_id, _ in stated],
        [mark.effect for _, _, mark in stated],
        [mark.cause for _, _, mark in stated],
        [mark.call_site_id for _, _, mark in stated],
        [mark.sentence for _, _, mark in stated],
    )


def _row_id(trace_id: bytes, mark: TraceMark) -> UUID:
    """The name of a mark within its project: the same for the same fact."""
    version = str(MARKS[mark.name].version)
    facts = b"\0".join(
        (trace_id, mark.name.encode(), version.encode(), mark.effect, mark.cause or b"", mark.detail.encode())
    )
    return UUID(bytes=hashlib.sha256(facts).digest()[:16], version=5)
