"""`trace-svc retention show | run`: the terms of each project and what they keep, or a sweep right now.

Works beside the running service: a day that its own sweep has dropped meanwhile is simply gone already.
With `SVC_RETENTION_ENABLED=false` it deletes nothing and ends with 1, unless `--force` overrides that.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import Final

import attrs

from protocol.operator import OperatorError
from protocol.storage import Freed
from svc.application.bounds import default_terms
from svc.application.open_store import open_store
from svc.commands.terminal import offer_json, print_json, printable
from svc.config.table import Settings
from svc.domain.quantities import counted, size
from svc.store.retention.sweep import RetentionStore

OFF: Final = "SVC_RETENTION_ENABLED is false: nothing was deleted. Set it to true, or use --force once"
OVERRIDDEN: Final = "SVC_RETENTION_ENABLED is false, overridden by --force: deleting what has expired"


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    showing = verbs.add_parser(
        "show", help="show how long each project keeps data, and the days and bytes on disk"
    )
    sweep = verbs.add_parser("run", help="delete what has expired now, and show what was freed")
    sweep.add_argument("--force", action="store_true", help="delete even if SVC_RETENTION_ENABLED is false")
    for verb in (showing, sweep):
        offer_json(verb)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` where retention is off and nobody overrides that."""
    if arguments.verb == "run" and not settings.retention_enabled:
        if not arguments.force:
            raise OperatorError(OFF)
        print(OVERRIDDEN, file=sys.stderr)
    async with open_store(settings) as store:
        retention = RetentionStore(store.database, default_terms(settings))
        if arguments.verb == "show":
            await _show(retention, settings, as_json=arguments.json)
        else:
            await _sweep(retention, as_json=arguments.json)


async def _show(retention: RetentionStore, settings: Settings, *, as_json: bool) -> None:
    if as_json:
        projects = [
            {
                "project": f"{project.org_slug}/{project.slug}",
                "traces_days": project.terms.traces,
                "detections_days": project.terms.detections,
                "rules": [attrs.asdict(rule) for rule in project.rules],
                "is_default": project.override.traces is None and project.override.detections is None,
            }
            for project in await retention.projects()
        ]
        tables = [dict(row) for row in await retention.sizes()]
        print_json({"enabled": settings.retention_enabled, "projects": projects, "tables": tables})
        return
    state = "every hour" if settings.retention_enabled else "off (SVC_RETENTION_ENABLED=false)"
    print(f"sweep: {state}")
    for project in await retention.projects():
        own = project.override
        print(
            f"{project.org_slug}/{project.slug}: traces {_term(project.terms.traces, own.traces)}, "
            f"detections {_term(project.terms.detections, own.detections)}"
        )
        for rule in project.rules:
            print(printable(f"  traces with {rule.field} {rule.value}: {counted(rule.days, 'day')}"))
    for row in await retention.sizes():
        span = f", {row['oldest']} to {row['newest']}" if row["days"] else ""
        print(f"{row['table']}: {row['days']} days{span}, {size(row['bytes'])}")


def _term(days: int, own: int | None) -> str:
    return (f"{days} days" if days else "for ever") + (" (default)" if own is None else "")


async def _sweep(retention: RetentionStore, *, as_json: bool) -> None:
    rows: Counter[str] = Counter()
    days: Counter[str] = Counter()
    freed_bytes = 0

    def note(freed: Freed) -> None:
        nonlocal freed_bytes
        rows[freed.table] += freed.rows
        days[freed.table] += freed.days
        freed_bytes += freed.bytes

    await retention.sweep(datetime.now(UTC), note)
    if as_json:
        tables = {table: {"rows": rows[table], "whole_days": days[table]} for table in sorted(rows)}
        print_json({"freed_bytes": freed_bytes, "tables": tables})
        return
    for table in sorted(rows):
        # A day that goes whole is not counted, only estimated.
        if days[table]:
            print(f"{table}: {days[table]} whole days, about {rows[table]} rows")
        else:
            print(f"{table}: {rows[table]} rows")
    print(f"{size(freed_bytes)} of disk space freed" if freed_bytes else "no whole day had expired")
