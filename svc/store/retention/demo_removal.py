"""What `trace-svc demo` has sent, taken away again.

Called by `trace-svc demo --remove`. A trace is the demo's when its session is named as the demo names
sessions and each of its spans came from one of the demo's services; both have to hold. Findings and cases
that rest on nothing else go with them. No tombstones are put: the demo may be sent again. Texts that several
spans share go with their day, as everybody's do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import trio

from svc.store.aggregates.cubes import CubeStore
from svc.store.detection.cases.trail import take_turn
from svc.store.postgres.clock import Clock, server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.retention.days import BATCH_PAUSE_S, STEP_TIMEOUT_S
from svc.store.retention.traces import ERASED, delete_traces

#: Traces of one transaction, and hours that are built anew in a row.
TRACES: Final = 500
HOURS: Final = 4
#: How the demo names its sessions.
SESSIONS: Final = "^demo-[0-9]{1,6}-[0-9]{1,3}$"

# The next traces whose sessions have such a name, and whether every span of each has one of the services.
_NEXT: Final = """
with own as materialized (
    select array_agg(code) as codes from attribute_value
    where project_id = $1 and field = 'service' and value = any($3::text[])
), named as materialized (
    select t.trace_id, t.first_started_at, t.last_started_at from session s
    join trace t on t.project_id = s.project_id and t.session_id = s.id
    where s.project_id = $1 and s.id ~ $2 and t.trace_id > $4 order by t.trace_id limit $5
)
select n.trace_id, not exists (select from span p where p.project_id = $1 and p.trace_id = n.trace_id
    and p.started_at between n.first_started_at and n.last_started_at
    and not (coalesce(p.facets, '') ~ ('[' || array_to_string(own.codes, '') || ']'))) as sent
from named n, own where own.codes is not null order by n.trace_id
"""

# References to these traces, and what detectors and agents keep of them.
_EVIDENCE: Final = """
with refs as (
    delete from finding_evidence where project_id = $1 and trace_id = any($2::bytea[]) returning finding_id
), witnesses as (
    delete from tally_witness where project_id = $1 and trace_id = any($2::bytea[])
) select distinct finding_id from refs
"""

# The call sites of these traces.
_SITES: Final = """
select distinct call_site_id from trace where project_id = $1 and trace_id = any($2::bytea[])
"""

# Findings that name no trace, on one of these call sites at which nothing else happened: a rise that people
# were never told of is one.
_UNPROVEN: Final = """
select f.id from finding f where f.project_id = $1 and f.call_site_id = any($2::text[])
and not exists (select from finding_evidence e where e.project_id = f.project_id and e.finding_id = f.id)
and not exists (select from trace t where t.project_id = f.project_id and t.call_site_id = f.call_site_id)
"""

# Findings that rest on nothing any more, with the cases that list nothing else.
_FINDINGS: Final = """
with lone as materialized (
    select f.id from finding f where f.project_id = $1 and f.id = any($2::uuid[]) and not exists (
        select from finding_evidence e where e.project_id = f.project_id and e.finding_id = f.id
        and (e.trace_id is null or exists (select from trace t where t.project_id = e.project_id
            and t.trace_id = e.trace_id)))
), lone_case as materialized (
    select distinct l.case_id from case_finding l join lone on lone.id = l.finding_id
    where l.project_id = $1 and not exists (select from case_finding o where o.project_id = $1
        and o.case_id = l.case_id and o.finding_id not in (select id from lone))
), listed as (
    delete from case_finding l using lone where l.project_id = $1 and l.finding_id = lone.id
), trail as (
    delete from case_event e using lone_case c where e.project_id = $1 and e.case_id = c.case_id
), reports as (
    delete from rca_report r using lone_case c where r.project_id = $1 and r.case_id = c.case_id
), refs as (
    delete from finding_evidence e using lone where e.project_id = $1 and e.finding_id = lone.id
), cases as (
    delete from detection_case d using lone_case c where d.project_id = $1 and d.id = c.case_id returning d.id
), findings as (
    delete from finding f using lone where f.project_id = $1 and f.id = lone.id returning f.id
)
select (select count(*) from findings) as findings, (select count(*) from cases) as cases
"""


@attrs.define(eq=False)
class DemoRemoval:
    """Removes the demo from a project. Raises `Outage`; cut off, it is simply done again."""

    database: Database
    services: Sequence[str]
    clock: Clock = server_clock

    async def remove(self, project_id: int) -> Mapping[str, int]:
        """Take away what the demo sent. Returns counts."""
        counts, cursor, findings, sites = Counter[str](), b"", set[Any](), set[str]()
        while True:
            rows = await self.database.fetch(
                _NEXT, project_id, SESSIONS, self.services, cursor, TRACES, timeout_s=STEP_TIMEOUT_S
            )
            trace_ids = [row["trace_id"] for row in rows if row["sent"]]
            if trace_ids:
                counts += await self._delete(project_id, trace_ids, findings, sites)
            if len(rows) < TRACES:
                break
            cursor = rows[-1]["trace_id"]
            await trio.sleep(BATCH_PAUSE_S)
        unproven = await self.database.fetch(_UNPROVEN, project_id, sorted(sites), timeout_s=STEP_TIMEOUT_S)
        findings.update(row["id"] for row in unproven)
        counts += await self._drop_findings(project_id, sorted(findings))
        now: datetime = await self.database.run(self.clock, transaction=False)
        while await CubeStore(self.database).renew(project_id, now, HOURS):  # noqa: ASYNC110 - each builds some
            await trio.sleep(BATCH_PAUSE_S)
        return counts

    async def _delete(
        self, project_id: int, trace_ids: Sequence[bytes], findings: set[Any], sites: set[str]
    ) -> Counter[str]:
        async def work(connection: Connection) -> Counter[str]:
            now = await self.clock(connection)
            rows = await connection.fetch(_EVIDENCE, project_id, trace_ids)
            findings.update(row["finding_id"] for row in rows)
            sites.update(row["call_site_id"] for row in await connection.fetch(_SITES, project_id, trace_ids))
            deletion = await delete_traces(connection, project_id, trace_ids, now, ERASED)
            return Counter(traces=deletion["traces"], spans=deletion["spans"])

        return await self.database.run(work, timeout_s=STEP_TIMEOUT_S)

    async def _drop_findings(self, project_id: int, finding_ids: Sequence[Any]) -> Counter[str]:
        async def work(connection: Connection) -> Counter[str]:
            await take_turn(connection, project_id)
            row: Any = await connection.fetchrow(_FINDINGS, project_id, finding_ids)
            return Counter(findings=row["findings"], cases=row["cases"])

        return await self.database.run(work, timeout_s=STEP_TIMEOUT_S)
