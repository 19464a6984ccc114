"""`trace-svc agent-runs list | show | triage | rca | cancel`: runs of agents, beside a running server.

A run is only stored here; the launcher of the service has it done.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any, Final, get_args
from uuid import UUID

from protocol.agents import RUN_KINDS, NotPressed, RunKind, RunState
from protocol.detection import Author
from protocol.operator import OperatorError
from protocol.refusals import NO_SUCH_CASE, NO_SUCH_FINDING, NO_SUCH_RUN
from svc.commands.columns import print_columns, printable
from svc.commands.place import name_project, named_project
from svc.commands.printing import lists_bare, minute, offer_json, print_json
from svc.config.table import Settings
from svc.domain.quantities import money
from svc.store.accounts.audit import OPERATOR
from svc.store.agents.reads import RunReads
from svc.store.agents.runs import RunStore
from svc.store.detection.cases import CaseStore
from svc.store.postgres.database import Database
from svc.wiring.open_store import open_store

_OPERATOR: Final = Author("person", OPERATOR)
_REFUSED: Final = {"CLOSED": "it is closed already", "OVERRULED": "a person has decided of it"}


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="verb")
    listing = verbs.add_parser("list", help="runs, newest first")
    listing.add_argument("--kind", choices=RUN_KINDS, help="only of this kind")
    listing.add_argument("--state", choices=get_args(RunState), help="only in this state")
    listing.add_argument("--limit", type=int, default=50, help="at most so many (default: %(default)s)")
    showing = verbs.add_parser("show", help="one run with what happened in it")
    cancelling = verbs.add_parser("cancel", help="have a run end")
    for verb in (showing, cancelling):
        verb.add_argument("run", help="the id that `agent-runs list` shows")
    triaging = verbs.add_parser("triage", help="have an agent judge a finding")
    triaging.add_argument("subject", metavar="finding", help="the id that `findings list` shows")
    looking = verbs.add_parser("rca", help="have an agent look for the cause of a case")
    looking.add_argument("subject", metavar="case", help="its reference, C-12, or its id")
    for verb in (listing, showing, cancelling, triaging, looking):
        name_project(verb)
        offer_json(verb)
    lists_bare(parser, listing)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` for what is not there, or cannot be."""
    if arguments.verb == "list" and not 1 <= arguments.limit <= 1_000:
        raise OperatorError("--limit must be from 1 to 1000")
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        reads = RunReads(store.database)
        if arguments.verb == "list":
            page = await reads.page(
                project.id, kind=arguments.kind, state=arguments.state, limit=arguments.limit, cursor=None
            )
            print_json(page) if arguments.json else _print_list(page["runs"])
        elif arguments.verb in ("triage", "rca"):
            run_id = await _press(store.database, project.id, arguments.verb, arguments.subject)
            await _show(reads, project.id, run_id, arguments)
        else:
            run_id = _id(arguments.run, NO_SUCH_RUN.message)
            if arguments.verb == "cancel":
                did = await RunStore(store.database).cancel(project.id, run_id, _OPERATOR, datetime.now(UTC))
                if did is not True:
                    raise OperatorError(NO_SUCH_RUN.message if did is None else "the run is over")
            await _show(reads, project.id, run_id, arguments)


async def _press(database: Database, project_id: int, kind: RunKind, name: str) -> UUID:
    missing = NO_SUCH_FINDING.message
    if kind == "rca":
        missing = NO_SUCH_CASE.message
        subject_id = await CaseStore(database).id_of(project_id, name)
        if subject_id is None:
            raise OperatorError(missing)
    else:
        subject_id = _id(name, missing)
    made = await RunStore(database).press(project_id, kind, subject_id, _OPERATOR, datetime.now(UTC))
    if isinstance(made, NotPressed):
        raise OperatorError(_REFUSED.get(made.code, missing))
    return made.run_id


def _id(name: str, missing: str) -> UUID:
    try:
        return UUID(name)
    except ValueError:
        raise OperatorError(missing) from None


async def _show(reads: RunReads, project_id: int, run_id: UUID, arguments: argparse.Namespace) -> None:
    found = await reads.one(project_id, run_id)
    if found is None:
        raise OperatorError(NO_SUCH_RUN.message)
    print_json(found) if arguments.json else _print_one(found)


def _print_list(runs: list[dict[str, Any]]) -> None:
    rows = [("ID", "KIND", "STATE", "ASKED FOR", "BY", "TURNS", "USD", "CAME TO")]
    for one in runs:
        rows.append(
            (
                one["id"],
                one["kind"],
                _state(one),
                minute(one["requested_at"]),
                one["requested_by"],
                str(one["spent"].get("turns", 0)),
                _usd(one),
                (one["outcome"] or one["failure"] or "")[:60],
            )
        )
    print_columns(rows)


def _state(one: dict[str, Any]) -> str:
    return f"{one['state']}: {one['reason']}" if one["reason"] else str(one["state"])


def _usd(one: dict[str, Any]) -> str:
    usd = one["spent"].get("usd", 0.0)
    return "no price" if usd is None else money(usd)


def _print_one(one: dict[str, Any]) -> None:
    print_columns(
        [
            ("id", one["id"]),
            ("kind", f"{one['kind']} of {one['subject_id']}"),
            ("state", _state(one) + (", to be cancelled" if one["cancelling"] else "")),
            ("asked for", f"{minute(one['requested_at'])} by {one['requested_by']}"),
            ("model", one["model"] or "-"),
            ("used", f"{one['spent'].get('turns', 0)} turns, {_usd(one)} USD"),
            ("came to", one["outcome"] or one["failure"] or "-"),
        ]
    )
    for event in one["events"]:
        said = " ".join(f"{name}={value}" for name, value in event["details"].items() if name != "spent")
        print(printable(f"{event['at'][11:19]} {event['kind']} {said}".rstrip()))
