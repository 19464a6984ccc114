"""Retention: the terms of each project, and the sweep that lets what has expired go.

Owns the tables `retention_override` and `kept_trace` and the order of a sweep, which writes down mutes that
have ended on its way. What traffic fills goes a day at a time (`svc.store.retention.days`): a day that no
project needs is dropped whole, and only days that projects with a longer term still need are thinned row by
row, in small transactions with a pause between them. The rest is in `svc.store.retention.projects`, and what
goes earlier by its attributes in `rules`.

Ordering: spans go before their trace row, so that a trace row without spans is one whose spans have gone.
Every step is a transaction of its own and repeats harmlessly: a sweep that is cut off at any point is taken
up by the next, and two replicas may sweep at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.detection import CLOSED_STATUSES
from protocol.storage import Freed
from svc.domain.retention.terms import Cutoffs, Override, RetentionRule, Terms, cutoffs
from svc.store.detection.cases.case_states import MUTES_ENDED, CaseStates
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DAILY, existing, lock_days
from svc.store.retention import days as expiry
from svc.store.retention import projects as expiry_rest
from svc.store.retention.future import future, sweep_future
from svc.store.retention.rules import latest_cutoff, read_rules, sweep_rules

#: Tables that go one day ahead of the others.
AHEAD: Final = ("span_message", "span_payload")

# The traces past any term, or of times that have not come, that must stay: cited by the evidence of an open
# finding or of an unresolved case, by themselves or through their session, the very subject of one, or in a
# set.
_CITED: Final = """
with open_finding as materialized (
    select f.project_id, f.id from finding f
    where f.status <> all($2::text[])
       or exists (select from case_finding l
                  join detection_case c on c.project_id = l.project_id and c.id = l.case_id
                  where l.project_id = f.project_id and l.finding_id = f.id and c.state <> 'resolved')
), cited as (
    select e.project_id, e.trace_id, e.session_id from finding_evidence e
    join open_finding f on f.project_id = e.project_id and f.id = e.finding_id
    union all
    select c.project_id, decode(c.subject_id, 'hex'), null from detection_case c
    where c.state <> 'resolved' and c.subject_kind = 'trace' and c.subject_id ~ '^[0-9a-f]{32}$'
    union all
    select c.project_id, null, c.subject_id from detection_case c
    where c.state <> 'resolved' and c.subject_kind = 'session'
    union all
    select e.project_id, e.trace_id, null from trace_set_entry e
), wanted as (
    select t.project_id, t.trace_id from cited c
    join trace t on t.project_id = c.project_id and t.trace_id = c.trace_id
    where t.first_started_at < $1 or t.last_started_at >= $3
    union
    select t.project_id, t.trace_id from cited c
    join trace t on t.project_id = c.project_id and t.session_id = c.session_id
    where c.trace_id is null and (t.first_started_at < $1 or t.last_started_at >= $3)
), gone as (
    delete from kept_trace k where not exists (
        select from wanted w where w.project_id = k.project_id and w.trace_id = k.trace_id)
)
insert into kept_trace (project_id, trace_id) select project_id, trace_id from wanted on conflict do nothing
"""


async def cite(connection: Connection, before: datetime, now: datetime) -> None:
    """Bring `kept_trace` up to date with what is cited now, of what started before a moment."""
    await connection.execute(_CITED, before, list(CLOSED_STATUSES), future(now))


@attrs.frozen
class Stored:
    """One project as `trace-svc retention show` tells it."""

    org_slug: str
    slug: str
    override: Override
    terms: Terms
    rules: Sequence[RetentionRule] = ()


async def read_override(connection: Connection, project_id: int) -> Override:
    """What a project sets."""
    # Its row; none means that nothing is set.
    row = await connection.fetchrow(
        "select trace_ttl_days, detection_ttl_days from retention_override where project_id = $1", project_id
    )
    return Override() if row is None else Override(row["trace_ttl_days"], row["detection_ttl_days"])


async def write_override(connection: Connection, project_id: int, override: Override) -> None:
    """Replace what a project sets, both terms at once (spec, "Settings endpoints")."""
    # The row, with null where the install's default applies again.
    await connection.execute(
        "insert into retention_override (project_id, trace_ttl_days, detection_ttl_days) values ($1, $2, $3)"
        " on conflict (project_id) do update set trace_ttl_days = excluded.trace_ttl_days,"
        " detection_ttl_days = excluded.detection_ttl_days",
        project_id,
        override.traces,
        override.detections,
    )


@attrs.define(eq=False)
class RetentionStore:
    """Implements the `Retention` port. `defaults` are the install's terms. All verbs raise `Outage`."""

    database: Database
    defaults: Terms

    async def sweep(self, now: datetime, freed: Callable[[Freed], None]) -> None:
        """Let go of everything that has expired; `freed` is told after each committed step.

        Cancellation: between any two steps, and within one the transaction is undone.
        """
        projects = {project_id: cutoffs(terms, now) for project_id, terms in (await self._terms()).items()}
        default = cutoffs(self.defaults, now)
        ends = [_latest([default, *projects.values()]), await latest_cutoff(self.database, now)]
        latest = max((end for end in ends if end is not None), default=None)
        if latest is not None:
            await self._keep(latest, now)
        await sweep_rules(self.database, now, freed)
        days = await self.database.run(existing, readonly=True)
        for table in sorted(DAILY, key=lambda table: table not in AHEAD):
            expired = {project_id: _cutoff_of(table, cut) for project_id, cut in projects.items()}
            for day in (day for parent, day in days if parent == table):
                await expiry.sweep_day(
                    self.database, table, day, expired, _cutoff_of(table, default), now, freed
                )
            await expiry.sweep_default(self.database, table, expired, now, freed)
        await sweep_future(
            self.database, {project_id: cut.traces for project_id, cut in projects.items()}, now, freed
        )
        for project_id, cut in projects.items():
            await self._end_mutes(project_id, now)
            await expiry_rest.sweep_project(self.database, project_id, cut, now, freed)

    async def projects(self) -> list[Stored]:
        """Every living project with its terms and rules."""

        async def work(connection: Connection) -> list[Stored]:
            # The projects and what each sets, by name.
            rows = await connection.fetch(
                "select p.id, o.slug as org_slug, p.slug, r.trace_ttl_days, r.detection_ttl_days"
                " from project p join organization o on o.id = p.org_id"
                " left join retention_override r on r.project_id = p.id"
                " where p.deleted_at is null order by 2, 3"
            )
            projects = []
            for row in rows:
                override = Override(row["trace_ttl_days"], row["detection_ttl_days"])
                terms, rules = override.over(self.defaults), await read_rules(connection, row["id"])
                projects.append(Stored(row["org_slug"], row["slug"], override, terms, rules))
            return projects

        return await self.database.run(work, readonly=True)

    async def sizes(self) -> list[Mapping[str, Any]]:
        """`{table, days, oldest, newest, bytes}` of each table that is kept by the day."""

        async def work(connection: Connection) -> list[Mapping[str, Any]]:
            days = await existing(connection)
            sizes: list[Mapping[str, Any]] = []
            for table in DAILY:
                # All its partitions together, with their indexes and the default one.
                size = await connection.fetchval(
                    "select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits"
                    " where inhparent = $1::text::regclass",
                    table,
                )
                of_it = [day for parent, day in days if parent == table]
                sizes.append(
                    {
                        "table": table,
                        "days": len(of_it),
                        "oldest": min(of_it, default=None),
                        "newest": max(of_it, default=None),
                        "bytes": size or 0,
                    }
                )
            return sizes

        return await self.database.run(work, readonly=True)

    async def _terms(self) -> dict[int, Terms]:
        # Every project, deleted ones too: their rows go with the days they lie in.
        rows = await self.database.fetch(
            "select p.id, r.trace_ttl_days, r.detection_ttl_days from project p"
            " left join retention_override r on r.project_id = p.id order by p.id"
        )
        return {
            row["id"]: Override(row["trace_ttl_days"], row["detection_ttl_days"]).over(self.defaults)
            for row in rows
        }

    async def _end_mutes(self, project_id: int, now: datetime) -> None:
        while await CaseStates(self.database).end_mutes(project_id, now) == MUTES_ENDED:
            pass

    async def _keep(self, before: datetime, now: datetime) -> None:
        """Bring `kept_trace` up to date with what is cited now."""

        async def work(connection: Connection) -> None:
            # The disk budget notes what is cited too, and drops in the same transaction.
            await lock_days(connection)
            await cite(connection, before, now)

        await self.database.run(work, timeout_s=expiry.STEP_TIMEOUT_S)


def _cutoff_of(table: str, cut: Cutoffs) -> datetime | None:
    return cut.payloads if table in AHEAD else cut.traces


def _latest(all_cutoffs: Sequence[Cutoffs]) -> datetime | None:
    return max((cut.payloads for cut in all_cutoffs if cut.payloads is not None), default=None)
