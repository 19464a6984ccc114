"""Who exports into a project, by day: what decoders saw and what the doors refused.

Owns `exporter_day` and `rejection_day`. Writers add their counters to what stands there, under the row's
lock; days older than `KEPT_DAYS` go. Read by the ingest doctor. Lost counters
(a crash between two rounds) lose a few seconds of statistics and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from protocol.rest.ingest_report import ExporterReport, IngestReport, RefusedSpans
from protocol.rest.query import timestamp
from svc.domain.exporters.counters import DEMO_SCOPE, Exporter, Key, SeenSpans
from svc.domain.exporters.renamed_keys import KNOWN_KEYS, RenamedKey, Sightings, merge_sightings, renamed_keys
from svc.domain.exporters.report import exporter_report, worst_first
from svc.store.postgres.database import Connection, Database

KEPT_DAYS: Final = 30
#: Exporters kept for each project and day, and shown in a report.
MOST_EXPORTERS: Final = 300
MOST_SHOWN: Final = 100
#: Exporters and days that are looked through for renamed keys, of all projects.
_MOST_ROWS: Final = 2_000

#: Spans refused since the last round, by project and reason.
Rejections = Mapping[tuple[int, str], int]


@attrs.define(eq=False)
class ExporterStore:
    """Writes what decoders and listeners saw, and reads reports."""

    database: Database

    async def add(self, seen: Mapping[Key, SeenSpans], rejected: Rejections, now: datetime) -> None:
        """Add these counters. Raises `Outage`."""
        if seen or rejected:
            await self.database.run(lambda connection: _add(connection, seen, rejected, now))

    async def renamed(self, now: datetime) -> list[tuple[str, str, str, RenamedKey]]:
        """Keys that exporters of any project renamed lately: organization, project, service and what."""
        # What came since yesterday, of every project.
        recent = await self.database.fetch(
            "select o.slug as org, p.slug as project, service, sdk, sdk_version, scope, scope_version,"
            " last_seen_at, seen from exporter_day d join project p on p.id = d.project_id"
            " join organization o on o.id = p.org_id where d.day >= $1 and p.deleted_at is null"
            f" order by d.last_seen_at desc limit {_MOST_ROWS}",
            now.date() - timedelta(days=1),
        )
        by_project: dict[tuple[str, str], list[Any]] = {}
        for row in recent:
            by_project.setdefault((row["org"], row["project"]), []).append(row)
        return [
            (org, project, exporter.service, rename)
            for (org, project), rows in sorted(by_project.items())
            for exporter, renames in _renames(_by_exporter(rows)).items()
            for rename in renames
        ]

    async def report(self, project_id: int, now: datetime, days: int, place: str = "") -> IngestReport:
        """What the ingest doctor knows of a project over the last so many days.

        `place` are the options by which a command names the project, for the lines that it is told to run.
        """
        since = now.date() - timedelta(days=days - 1)

        async def work(connection: Connection) -> IngestReport:
            # The counters of each exporter and day.
            rows = await connection.fetch(
                "select service, sdk, sdk_version, scope, scope_version, last_seen_at, seen from exporter_day"
                " where project_id = $1 and day >= $2",
                project_id,
                since,
            )
            # What the doors refused.
            refused = await connection.fetch(
                "select reason, sum(spans)::bigint as spans, max(last_seen_at) as last_seen_at"
                " from rejection_day where project_id = $1 and day >= $2 group by reason order by 2 desc, 1",
                project_id,
                since,
            )
            # What the database refused, and waits as dead letters.
            buried = await connection.fetch(
                "select reason, sum(spans)::bigint as spans, max(buried_at) as last_seen_at from dead_letter"
                " where project_id = $1 group by reason order by 2 desc, 1 limit 20",
                project_id,
            )
            return IngestReport(since.isoformat(), _reports(rows, place), _refused(refused), _refused(buried))

        return await self.database.run(work, readonly=True)


def _refused(rows: list[Any]) -> list[RefusedSpans]:
    return [RefusedSpans(row["reason"], row["spans"], timestamp(row["last_seen_at"])) for row in rows]


def _reports(rows: list[Any], place: str) -> list[ExporterReport]:
    spans_of = _by_exporter(rows)
    calling = {exporter.service for exporter, spans in spans_of.items() if spans.model_calls}
    renames = _renames(spans_of)
    reports = [
        exporter_report(
            exporter,
            spans,
            calls_beside=exporter.service in calling,
            renames=renames.get(exporter, ()),
            place=place,
        )
        for exporter, spans in spans_of.items()
    ]
    return worst_first(reports)[:MOST_SHOWN]


def _by_exporter(rows: Iterable[Any]) -> dict[Exporter, SeenSpans]:
    spans_of: dict[Exporter, SeenSpans] = {}
    for row in rows:
        exporter = Exporter(
            row["service"], row["sdk"], row["sdk_version"], row["scope"], row["scope_version"]
        )
        # What `trace-svc demo` sent says nothing of anybody's exporter.
        if exporter.scope != DEMO_SCOPE:
            spans_of.setdefault(exporter, SeenSpans()).merge(_seen(row))
    return spans_of


def _renames(spans_of: Mapping[Exporter, SeenSpans]) -> dict[Exporter, list[RenamedKey]]:
    """Renamed keys, by the exporter that was seen last of all versions of one."""
    versions: dict[tuple[str, str, str], list[Exporter]] = {}
    for exporter in spans_of:
        versions.setdefault((exporter.service, exporter.sdk, exporter.scope), []).append(exporter)
    renames: dict[Exporter, list[RenamedKey]] = {}
    for exporters in versions.values():
        sightings: Sightings = {}
        for exporter in exporters:
            merge_sightings(sightings, spans_of[exporter].watched)
        newest = max(exporters, key=lambda exporter: spans_of[exporter].last_seen_at)
        if new_names := renamed_keys(sightings, KNOWN_KEYS):
            renames[newest] = new_names
    return renames


def _seen(row: Any) -> SeenSpans:
    return SeenSpans.of_json(msgspec.json.decode(row["seen"]), row["last_seen_at"])


async def _add(
    connection: Connection, seen: Mapping[Key, SeenSpans], rejected: Rejections, now: datetime
) -> None:
    days = {(project_id, day) for project_id, day, _ in seen}
    # How many exporters each of these days has: a client that renames itself with each batch fills no disk.
    counts = await connection.fetch(
        "select project_id, day, count(*) as n from exporter_day"
        " join unnest($1::bigint[], $2::date[]) as asked (project_id, day) using (project_id, day)"
        " group by 1, 2",
        [project_id for project_id, _ in days],
        [day for _, day in days],
    )
    room = {(row["project_id"], row["day"]): MOST_EXPORTERS - row["n"] for row in counts}
    # In the order of their keys, so that two writers cannot deadlock.
    for (project_id, day, digest), (exporter, counters) in sorted(_by_row(seen).items(), key=_row_key):
        standing = await _standing(connection, project_id, day, digest)
        if standing is None:
            if room.get((project_id, day), MOST_EXPORTERS) <= 0:
                exporter, digest = Exporter(), Exporter().digest()
            room[project_id, day] = room.get((project_id, day), MOST_EXPORTERS) - 1
            standing = await _first_sight(connection, project_id, day, digest, exporter, counters)
        counters.merge(standing)
        # The sum, under the lock taken above.
        await connection.execute(
            "update exporter_day set last_seen_at = $4, seen = $5"
            " where project_id = $1 and day = $2 and exporter = $3",
            project_id,
            day,
            digest,
            counters.last_seen_at,
            msgspec.json.encode(counters.as_json()).decode(),
        )
    for (project_id, reason), spans in sorted(rejected.items()):
        # Reasons are a short closed list of ours.
        await connection.execute(
            "insert into rejection_day (project_id, day, reason, spans, last_seen_at)"
            " values ($1, $2, $3, $4, $5) on conflict (project_id, day, reason) do update"
            " set spans = rejection_day.spans + excluded.spans, last_seen_at = excluded.last_seen_at",
            project_id,
            now.date(),
            reason,
            spans,
            now,
        )
    for table in ("exporter_day", "rejection_day"):
        # What nobody will ask for any more; the table name comes from the line above.
        await connection.execute(
            f"delete from {table} where project_id = any($1::bigint[]) and day < $2",
            sorted({project_id for project_id, _ in days} | {project_id for project_id, _ in rejected}),
            now.date() - timedelta(days=KEPT_DAYS),
        )


def _row_key(item: tuple[tuple[int, date, bytes], object]) -> tuple[int, date, bytes]:
    return item[0]


def _by_row(seen: Mapping[Key, SeenSpans]) -> dict[tuple[int, date, bytes], tuple[Exporter, SeenSpans]]:
    return {
        (project_id, day, exporter.digest()): (exporter, counters)
        for (project_id, day, exporter), counters in seen.items()
    }


async def _standing(connection: Connection, project_id: int, day: date, digest: bytes) -> SeenSpans | None:
    # One exporter's day, locked until the sum is written.
    row = await connection.fetchrow(
        "select seen, last_seen_at from exporter_day where project_id = $1 and day = $2 and exporter = $3"
        " for update",
        project_id,
        day,
        digest,
    )
    return None if row is None else _seen(row)


async def _first_sight(
    connection: Connection, project_id: int, day: date, digest: bytes, exporter: Exporter, seen: SeenSpans
) -> SeenSpans:
    # A row without counters; whoever comes second finds the first one's.
    await connection.execute(
        "insert into exporter_day"
        " (project_id, day, exporter, service, sdk, sdk_version, scope, scope_version, last_seen_at, seen)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, '{}') on conflict do nothing",
        project_id,
        day,
        digest,
        *attrs.astuple(exporter),
        seen.last_seen_at,
    )
    standing = await _standing(connection, project_id, day, digest)
    assert standing is not None, "the row was made in this transaction or before"
    return standing
