"""What detectors, agents and people keep of what is erased: references go, texts go, numbers stay.

Called by `svc.store.retention.erasing`. A table is walked along its key a stretch at a time, because none of
them has an index by trace: once an erasure, however many traces it has. A finding that cites one of them
keeps what was measured and loses what an agent or a person wrote of it; reports about its case go and may be
made anew, and what an agent did for them keeps its cost alone. So do reports and steps of agents that name an
erased trace or subject.

Ordering: findings, cases and reports are changed in the project's turn (`svc.store.detection.cases.trail`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final
from urllib.parse import quote_plus
from uuid import UUID

import attrs

from svc.store.detection.cases.trail import take_turn
from svc.store.postgres.database import Connection
from svc.store.retention.erasure_step import ErasureStep, StepOutcome

#: Rows looked at in one step; of those with long texts fewer.
ROWS: Final = 5_000
LONG_ROWS: Final = 100
#: What stands in the place of a text.
ERASED_TEXT: Final = "[erased]"
#: A shorter id is looked for in texts in quotes alone: as a word of its own it may be anything.
_PLAIN_CHARS: Final = 8

#: That a row is about an erased trace, or about a session that is gone by it.
_TRACE: Final = (
    "exists (select from erased_trace x where x.project_id = r.project_id and x.trace_id = r.{trace}"
    " and x.erasure_id = $2)"
)
_SESSION: Final = (
    "exists (select from erasing_session x where x.project_id = r.project_id and x.session_id = r.{session})"
)
#: That a text names an erased trace, or the subject.
_NAMES: Final = (
    "(strpos(r.{text}::text, $3) > 0 or exists (select from"
    " regexp_matches(r.{text}::text, '[0-9a-f]{{32}}', 'g') as m (hit) join erased_trace x"
    " on x.project_id = r.project_id and x.erasure_id = $2"
    " and x.trace_id = decode(m.hit[1], 'hex')))"
)


@attrs.frozen
class _Walk:
    """A table, its key behind the project, which of its rows are meant, and what becomes of them.

    `act` is SQL with the rows as `hit`, which have the key and `told`.
    """

    table: str
    keys: tuple[tuple[str, str], ...]
    condition: str
    act: str = ""
    about: str = "null::uuid"
    redact: Callable[[Connection, int, Collection[UUID]], Awaitable[None]] | None = None
    rows: int = ROWS


def _delete(table: str, keys: tuple[tuple[str, str], ...]) -> str:
    condition = " and ".join(f"r.{key} = hit.{key}" for key, _ in keys)
    return f"delete from {table} r using hit where r.project_id = $1 and {condition}"


_EVIDENCE: Final = (("finding_id", "uuid"), ("role", "smallint"), ("position", "integer"))
_WITNESS: Final = (("bucket_id", "bigint"), ("slot", "integer"), ("trace_id", "bytea"))
_EVENT: Final = (("id", "uuid"),)
_DUE: Final = (("place", "bigint"),)
_ENCODE: Final = (("detector", "text"), ("place", "bigint"))
_RUN_EVENT: Final = (("run_id", "uuid"), ("claim", "integer"), ("seq", "integer"))
_VIEW: Final = (("name", "text"),)
_CHART: Final = (("id", "uuid"),)
#: That a question of a page, as its address has it, names the subject.
_ASKS: Final = (
    "(strpos(r.{text}, $3) > 0"
    " or exists (select from unnest($6::text[]) as p (part) where strpos(r.{text} || '&', p.part) > 0))"
)
#: The fields of filters that hold an id.
_FILTERS: Final = {"user": ("user", "user_id"), "session": ("session", "session_id"), "trace": ("trace_id",)}


_RULE: Final = (("id", "uuid"),)
#: That a filter of an alert rule, or its name, names the subject; a short id has to be the whole of a filter
#: by what it is the id of, as in an address.
_WATCHES: Final = (
    "exists (select from jsonb_each_text(r.params -> 'filters') as f (field, value)"
    """ where strpos('"' || f.value || '"', $3) > 0 and (right(($6::text[])[1], 1) <> '&' or exists"""
    " (select from unnest($6::text[]) as p (part) where starts_with(p.part, f.field || '%3A'))))"
    """ or strpos('"' || r.name || '"', $3) > 0"""
)


async def _redact(connection: Connection, project_id: int, finding_ids: Collection[UUID]) -> None:
    """Take the texts from these findings and their cases, and what agents wrote of them."""
    await take_turn(connection, project_id)
    ids = sorted(set(finding_ids))
    await connection.execute(
        "update finding set triage_citations = null,"
        " triage_summary = case when triage_summary is not null then $3 end"
        " where project_id = $1 and id = any($2::uuid[])",
        *(project_id, ids, ERASED_TEXT),
    )
    rows = await connection.fetch(
        "select distinct case_id from case_finding where project_id = $1 and finding_id = any($2::uuid[])",
        *(project_id, ids),
    )
    await _redact_cases(connection, project_id, [row["case_id"] for row in rows])
    await _redact_runs(connection, project_id, ids)


async def _redact_cases(connection: Connection, project_id: int, case_ids: Collection[UUID]) -> None:
    """Take the rulings and reports of these cases away; the rule may write its report anew."""
    await take_turn(connection, project_id)
    ids = sorted(set(case_ids))
    await connection.execute(
        "update detection_case set ruling = null, rca_report_id = null, rule_report_due = true"
        " where project_id = $1 and id = any($2::uuid[])",
        *(project_id, ids),
    )
    await connection.execute(
        "delete from rca_report where project_id = $1 and case_id = any($2::uuid[])", project_id, ids
    )
    await _redact_runs(connection, project_id, ids)


async def _redact_runs(connection: Connection, project_id: int, subject_ids: Collection[UUID]) -> None:
    """Of what agents did about these, their cost stays."""
    rows = await connection.fetch(
        "update agent_run set outcome = null, request = null, failure = null"
        " where project_id = $1 and subject_id = any($2::uuid[]) returning id",
        *(project_id, sorted(set(subject_ids))),
    )
    await connection.execute(
        "delete from agent_event where project_id = $1 and run_id = any($2::uuid[])",
        *(project_id, [row["id"] for row in rows]),
    )


async def _forget_rules(connection: Connection, project_id: int, rule_ids: Collection[UUID]) -> None:
    """Remove these alert rules, with what they told and what of it is on its way."""
    ids = sorted(set(rule_ids))
    # The rule before what is its own, as those do who make messages of it.
    await connection.execute(
        "delete from alert_rule where project_id = $1 and id = any($2::uuid[])", project_id, ids
    )
    for table in ("alert_event", "alert_watch", "alert_delivery"):
        await connection.execute(
            f"delete from {table} where project_id = $1 and rule_id = any($2::uuid[])", project_id, ids
        )


_WALKS: Final = (
    _Walk(
        "finding_evidence",
        _EVIDENCE,
        f"{_TRACE.format(trace='trace_id')} or {_SESSION.format(session='session_id')}",
        _delete("finding_evidence", _EVIDENCE),
        about="r.finding_id",
        redact=_redact,
    ),
    _Walk("tally_witness", _WITNESS, _TRACE.format(trace="trace_id"), _delete("tally_witness", _WITNESS)),
    _Walk(
        "classifier_event",
        _EVENT,
        f"{_TRACE.format(trace='subject_trace_id')} or {_SESSION.format(session='subject_session_id')}",
        _delete("classifier_event", _EVENT),
    ),
    _Walk("fold_due", _DUE, _TRACE.format(trace="trace_id"), _delete("fold_due", _DUE)),
    _Walk("encode_due", _ENCODE, _TRACE.format(trace="trace_id"), _delete("encode_due", _ENCODE)),
    _Walk(
        "rca_report",
        _EVENT,
        _NAMES.format(text="report"),
        about="r.case_id",
        redact=_redact_cases,
        rows=LONG_ROWS,
    ),
    _Walk(
        "agent_event",
        _RUN_EVENT,
        _NAMES.format(text="details"),
        _delete("agent_event", _RUN_EVENT),
        rows=LONG_ROWS,
    ),
    _Walk("saved_view", _VIEW, _ASKS.format(text="query"), _delete("saved_view", _VIEW)),
    _Walk(
        "kept_chart",
        _CHART,
        f"{_ASKS.format(text='question')} or strpos(r.title, $3) > 0",
        _delete("kept_chart", _CHART),
    ),
    _Walk("alert_rule", _RULE, _WATCHES, about="r.id", redact=_forget_rules),
)


async def walk_evidence(step: ErasureStep) -> StepOutcome:
    """The next stretch of the next table."""
    number = int(step.place[0]) if step.place else 0
    if number == len(_WALKS):
        return StepOutcome(over=True, counts=await _unname(step))
    walk, project_id = _WALKS[number], step.erasure.project_id
    cursor = list(step.place[1:])
    names = [key for key, _ in walk.keys]
    bounds = ", ".join(f"$4::text[]{[n + 1]}::{kind}" for n, (_, kind) in enumerate(walk.keys))
    since = f" and ({', '.join(f'r.{name}' for name in names)}) > ({bounds})" if cursor else ""
    act = f", acted as ({walk.act})" if walk.act else ""
    # A stretch of the key: its last row, and what of it is meant.
    row: Any = await step.connection.fetchrow(
        f"with batch as materialized (select r.* from {walk.table} r where r.project_id = $1{since}"
        f" and $4::text[] is not null order by {', '.join(f'r.{name}' for name in names)} limit $5),"
        f" hit as materialized (select {', '.join(f'r.{name}' for name in names)}, {walk.about} as told"
        f" from batch r where ({walk.condition}) and $2::uuid is not null and $3::text is not null"
        f" and $6::text[] is not null){act}"
        f" select (select count(*) from batch) as seen, (select count(*) from hit) as hits,"
        " array(select distinct told from hit where told is not null) as told,"
        f" array[{', '.join(f'last.{name}::text' for name in names)}] as last"
        f" from (select * from batch order by {', '.join(f'{name} desc' for name in names)} limit 1) last",
        *(project_id, step.erasure.id, _quoted(step.subject), cursor, walk.rows),
        _in_addresses(step.erasure.kind, step.subject),
    )
    if row is None:
        return StepOutcome((str(number + 1),))
    if walk.redact is not None and row["told"]:
        await walk.redact(step.connection, project_id, row["told"])
    counts = {walk.table: row["hits"]}
    if row["seen"] < walk.rows:
        return StepOutcome((str(number + 1),), counts=counts)
    return StepOutcome((str(number), *row["last"]), counts=counts)


def _quoted(subject: str) -> str:
    """A subject as it is looked for in texts."""
    return subject if len(subject) >= _PLAIN_CHARS else f'"{subject}"'


def _in_addresses(kind: str, subject: str) -> list[str]:
    """What of an address names a subject: a short id may be anything, so it is the whole of a filter."""
    escaped = subject.replace("\\", "\\\\").replace('"', '\\"')
    if len(subject) >= _PLAIN_CHARS:
        return [quote_plus(subject), quote_plus(escaped)]
    return [
        quote_plus(f"{field}:{value}") + end
        for field in _FILTERS[kind]
        for value in (subject, f'"{escaped}"')
        for end in "&+"
    ]


async def _unname(step: ErasureStep) -> dict[str, int]:
    """Findings and cases about a session that is gone keep no id of it; nor do their labels."""
    renamed = 0
    for table in ("finding", "detection_case"):
        status: str = await step.connection.execute(
            f"update {table} r set subject_label = $3,"
            " subject_id = 'erased ' || left(md5($2::text || subject_id), 16)"
            " where project_id = $1 and subject_kind = 'session'"
            f" and {_SESSION.format(session='subject_id')}",
            *(step.erasure.project_id, step.erasure.digest.hex(), ERASED_TEXT),
        )
        renamed += int(status.rpartition(" ")[2])
    return {"subjects": renamed}


async def forget_sessions(step: ErasureStep) -> dict[str, int]:
    """Sessions and feedback that are no trace's: once all traces of an erasure are gone."""
    erasure, connection = step.erasure, step.connection
    project_id = erasure.project_id
    if erasure.kind == "session":
        await connection.execute(
            "insert into erasing_session (project_id, session_id) values ($1, $2) on conflict do nothing",
            *(project_id, erasure.subject),
        )
    # Those that have a trace left are somebody else's as well, or go on.
    await connection.execute(
        "delete from session s where s.project_id = $1 and exists (select from erasing_session e"
        " where e.project_id = s.project_id and e.session_id = s.id) and not exists"
        " (select from trace t where t.project_id = s.project_id and t.session_id = s.id)",
        project_id,
    )
    await connection.execute(
        "delete from erasing_session e using session s where e.project_id = $1 and s.project_id = $1"
        " and s.id = e.session_id",
        project_id,
    )
    if erasure.kind == "user":
        await connection.execute(
            "update session set user_id = null where project_id = $1 and user_id = $2",
            *(project_id, erasure.subject),
        )
    rows = await connection.fetch(
        "delete from feedback f where f.project_id = $1 and ((f.author = $2 and $3 = 'user')"
        " or exists (select from erasing_session e where e.project_id = f.project_id"
        " and e.session_id = f.session_id)) returning f.firing_id",
        *(project_id, erasure.subject, erasure.kind),
    )
    await connection.execute(
        "delete from classifier_event where project_id = $1 and id = any($2::uuid[])",
        *(project_id, [row["firing_id"] for row in rows]),
    )
    return {"feedback": len(rows)}
