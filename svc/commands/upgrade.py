"""`trace-svc upgrade --check [--full]`: what the steps of this release will do to the database, rehearsed.

`--finish` removes what an upgrade to another PostgreSQL kept of the embedded database before it.

Asked of the new release, beside the running old one. The upgrade itself is the start of the new release.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from protocol.operator import OperatorError
from svc.application.open_store import open_store
from svc.application.upgrade_rehearsal import Rehearsal, rehearse_upgrade
from svc.commands.terminal import Teller, offer_json, print_columns, print_json
from svc.config.table import Settings
from svc.domain.quantities import count, duration, percent, size
from svc.domain.upgrade import StepRun
from svc.store.postgres.embedded.majors import discard_older

#: A window is needed: nobody should start the new release without having read why.
EXIT_WINDOW: Final = 1


class NoSuchUpgrade(OperatorError):
    """The command was asked for what the start of a release does."""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Rehearses the pending schema migrations on a scratch server, and shows for each how long it takes,\n"
        "which tables it locks, what it rewrites, how much disk it needs, and whether the earlier release\n"
        "can keep running. Times are scaled up from one percent of the rows (more for a small database, all\n"
        "of them with --full). The exit status is 1 if you need a maintenance window. It runs beside the\n"
        "service of the earlier release and changes nothing in the database.\n"
        "--finish removes the copy of the database that an upgrade of PostgreSQL has kept."
    )
    parser.add_argument("--check", action="store_true", help="rehearse with a part of the rows")
    parser.add_argument("--full", action="store_true", help="rehearse with all rows")
    parser.add_argument(
        "--finish", action="store_true", help="remove the kept copy of an older PostgreSQL database"
    )
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="folder for the scratch server")
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Rehearse and print. Raises `OperatorError`, `Outage`, `OSError`."""
    if arguments.finish:
        return await _finish(settings)
    if not (arguments.check or arguments.full):
        raise NoSuchUpgrade(
            "the new release upgrades the database when it starts; use --check to rehearse that"
        )
    async with open_store(settings, as_it_is=True) as store:
        rehearsal = await rehearse_upgrade(
            store.database, settings, full=arguments.full, scratch=arguments.scratch, told=Teller()
        )
    if arguments.json:
        print_json(rehearsal_facts(rehearsal))
    else:
        _print(rehearsal)
    return EXIT_WINDOW if rehearsal.verdict.outcome == "window" else 0


async def _finish(settings: Settings) -> int:
    async with open_store(settings) as store:
        if store.embedded is None:
            raise NoSuchUpgrade(
                "the database is a server of its own; this command only cleans up the embedded one"
            )
        home = store.embedded.cluster.home
        removals = await trio.to_thread.run_sync(discard_older, home)
    for major, freed in removals:
        print(f"removed the database of PostgreSQL {major} in {home / major}: {size(freed)} freed")
    if not removals:
        print("there is no copy of an older PostgreSQL database")
    return 0


def _print(rehearsal: Rehearsal) -> None:
    if not rehearsal.applied:
        print("the database has no schema yet; the first start creates it")
        return
    newest = max(rehearsal.applied)
    if not rehearsal.steps:
        print(f"the database is at step {newest}, and this release has no newer one: nothing to do")
        return
    print(f"the database is at step {newest}; {len(rehearsal.steps)} steps are pending")
    part = f"{percent(rehearsal.share)} of those that matter"
    print(f"rehearsed with {count(rehearsal.rows)} rows, {part}{_scaled(rehearsal)}\n")
    print_columns(
        [
            ("step", "kind", "takes", "locks", "rewrites", "disk"),
            *(_row(step) for step in rehearsal.steps),
        ]
    )
    print()
    for reason in rehearsal.verdict.reasons:
        print(reason)
    print(f"verdict: {rehearsal.verdict.text()}")


def _scaled(rehearsal: Rehearsal) -> str:
    return "" if rehearsal.share == 1 else "; times, log and disk are scaled to all"


def _row(step: StepRun) -> tuple[str, ...]:
    locks = (f"{out.table} ({out.whom}, {duration(out.seconds * 1000)})" for out in step.shut_out())
    return (
        f"{step.number} {step.name}",
        step.kind + (", beside ingest" if step.concurrent else ""),
        duration(step.took_s * 1000),
        ", ".join(locks) or "-",
        ", ".join(step.rewritten) or "-",
        size(step.disk_bytes),
    )


def rehearsal_facts(rehearsal: Rehearsal) -> dict[str, Any]:
    """What is printed, for programs, and every statement with it."""
    return {
        "newest_applied": max(rehearsal.applied, default=None),
        "rows": rehearsal.rows,
        "share": rehearsal.share,
        "verdict": rehearsal.verdict.outcome,
        "pause_s": rehearsal.verdict.pause_s,
        "reasons": list(rehearsal.verdict.reasons),
        "steps": [
            {
                "number": step.number,
                "name": step.name,
                "kind": step.kind,
                "reads_from": step.reads_from,
                "beside_ingest": step.concurrent,
                "took_s": step.took_s,
                "disk_bytes": step.disk_bytes,
                "shuts_out": [attrs.asdict(out) for out in step.shut_out()],
                "rewrites": step.rewritten,
                "statements": [
                    {
                        "text": statement.text,
                        "took_s": statement.took_s,
                        "wal_bytes": statement.wal_bytes,
                        "locks": dict(statement.locks),
                        "rewrites": list(statement.rewritten),
                    }
                    for statement in step.statements
                ],
            }
            for step in rehearsal.steps
        ],
    }
