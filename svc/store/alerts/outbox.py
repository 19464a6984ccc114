"""The outbox: what happened, once for each rule that tells it, in the transaction in which it happened.

Owns how rows of `alert_event` are written. Called by the trail of cases and by the watch; what is rolled back
there was never told here, and what is committed is not lost. Nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from protocol.alerts import TEXT_CHARS, TITLE_CHARS, AlertFacts, EventState, RuleKind
from svc.store.postgres.database import Connection

#: Which rules a step in the trail of a case is for.
_STEPS: Final[Mapping[str, RuleKind]] = {
    "opened": "case.opened",
    "reopened": "case.reopened",
    "resolved": "case.resolved",
    "absorbed": "case.resolved",
    "rejected": "case.resolved",
}

# One row for each rule of the project that wants to hear of it, and for each that told of this case before
# and leads to where an incident is to be closed. A muted case is nobody's business.
_TELL: Final = f"""
insert into alert_event (project_id, rule_id, subject, mark, state, facts, occurred_at)
select r.project_id, r.id, 'C-' || c.number, $4, case when r.kind = $3 then 'told' else 'over' end,
    jsonb_build_object('title', left(c.title, {TITLE_CHARS}), 'severity', c.severity,
        'path', '/cases/C-' || c.number, 'text', left(case when $3 = 'case.resolved'
            then 'It is ' || c.resolution || '.' else c.basis end, {TEXT_CHARS})), $5
from alert_rule r
join detection_case c on c.project_id = r.project_id and c.id = $2
where r.project_id = $1 and (
    (r.kind = $3 and c.state <> 'muted' and (r.muted_until is null or r.muted_until <= now())
        and c.severity_rank >= case r.params ->> 'least_severity' when 'high' then 3 when 'medium' then 2
            else 1 end
        and (jsonb_array_length(coalesce(r.params -> 'detectors', '[]')) = 0
            or r.params -> 'detectors' ? c.detector))
    or ($3 = 'case.resolved' and r.kind in ('case.opened', 'case.reopened')
        and exists (select from alert_channel a where a.project_id = r.project_id
            and a.id = any(r.channels) and a.kind = 'pagerduty')
        and exists (select from alert_event e where e.project_id = r.project_id and e.rule_id = r.id
            and e.subject = 'C-' || c.number and e.state = 'told'))
)
on conflict do nothing
"""


async def tell_of_case(
    connection: Connection, project_id: int, case_id: UUID, step: str, step_id: int, now: datetime
) -> None:
    """Tell the rules of a project of a step in the trail of a case, in the transaction of that step."""
    kind = _STEPS.get(step)
    if kind is not None:
        await connection.execute(_TELL, project_id, case_id, kind, f"{step} {step_id}", now)


async def tell(
    connection: Connection,
    project_id: int,
    rule_id: UUID,
    subject: str,
    mark: str,
    state: EventState,
    facts: AlertFacts,
    now: datetime,
) -> None:
    """Write what one rule tells, unless it is there."""
    # By the unique key of an occurrence.
    await connection.execute(
        "insert into alert_event (project_id, rule_id, subject, mark, state, facts, occurred_at)"
        " values ($1, $2, $3, $4, $5, $6::text::jsonb, $7) on conflict do nothing",
        project_id,
        rule_id,
        subject,
        mark,
        state,
        msgspec.json.encode(facts).decode(),
        now,
    )


def facts_of(stored: str) -> AlertFacts:
    """The facts of a row."""
    facts: Any = msgspec.json.decode(stored, type=AlertFacts)
    assert isinstance(facts, AlertFacts), "the decoder makes nothing else"
    return facts
