"""What a page of traces of a session said: for each trace its first spans that speak, and its last ones.

Called by the page of a session. Bounded in traces, in spans of each trace and in bytes: a trace of
thousands of spans costs what one of forty costs, and says that there is more. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.rows import STORED_SPAN, span_row
from svc.store.reads.one_trace.trace_payloads import SPEAKING
from svc.store.reads.payloads import PayloadRows
from svc.store.spans.payloads import Envelopes, read_envelopes

#: Spans of one trace: from its beginning, and from its end, where the answer is.
FIRST_SPANS: Final = 30
LAST_SPANS: Final = 4
#: Payloads opened for one page.
PAGE_BYTES: Final = 8 * 1024 * 1024

_COLUMNS: Final = ", ".join(STORED_SPAN)


@attrs.frozen
class TraceTalk:
    """The spans of one trace that speak, oldest first, and whether some in the middle are left out."""

    spans: Sequence[dict[str, Any]]
    more: bool


@attrs.define(eq=False)
class SessionTalk:
    """Reads one page of traces at a time."""

    database: Database

    async def of(self, project_id: int, trace_ids: Sequence[bytes]) -> dict[str, TraceTalk]:
        """What these traces said, by their ids in hexadecimal; a trace without such spans is absent."""
        if not trace_ids:
            return {}

        async def work(connection: Connection) -> tuple[list[Any], Envelopes]:
            rows = await connection.fetch(
                _of_both_ends(), project_id, list(trace_ids), list(SPEAKING), FIRST_SPANS + 1, LAST_SPANS
            )
            keys = [(row["trace_id"], row["span_id"], row["started_at"], row["frame"]) for row in rows]
            return rows, await read_envelopes(connection, project_id, keys, PAGE_BYTES)

        rows, envelopes = await self.database.run(
            work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S
        )
        spans = await PayloadRows(rows, _fields, envelopes).shown(4 * PAGE_BYTES, every_field=True)
        by_trace: dict[str, list[dict[str, Any]]] = {}
        for span in spans:
            by_trace.setdefault(span["trace_id"], []).append(span)
        return {
            trace_id: TraceTalk(trace_spans, len(trace_spans) > FIRST_SPANS)
            for trace_id, trace_spans in by_trace.items()
        }


def _of_both_ends() -> str:
    """Each trace by its key, its spans by theirs within the days of the trace; both ends, each span once."""
    of_trace = (
        f"select {_COLUMNS} from span where project_id = $1 and trace_id = t.trace_id"
        " and started_at between t.first_started_at and t.last_started_at and kind = any($3::text[])"
    )
    return (
        "select s.* from (select * from trace where project_id = $1 and trace_id = any($2::bytea[])"
        " offset 0) t"
        f" cross join lateral ((({of_trace} order by started_at, span_id limit $4)"
        f" union ({of_trace} order by started_at desc, span_id desc limit $5))) s"
        " order by s.trace_id, s.started_at, s.span_id"
    )


def _fields(row: Any, available: bool) -> dict[str, Any]:
    return span_row({**row, "payload_available": available})
