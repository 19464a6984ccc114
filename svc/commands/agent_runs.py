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
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import id_of, lists_bare, minute, offer_json, print_columns, print_json, printable
from svc.config.table import Settings
from svc.domain.quantities import money
from svc.store.accounts.audit import OPERATOR
from svc.store.agents.reads import RunReads
from svc.store.agents.runs import PostgresRunStore
from svc.store.detection.cases.cases import CaseStore
from svc.store.postgres.database import Database

_OPERATOR: Final = Author("person", OPERATOR)
_REFUSED: Final = {"CLOSED": "it is already closed", "OVERRULED": "somebody has already decided about it"}


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="verb")
    listing = verbs.add_parser("list", help="runs, newest first")
    listing.add_argument("--kind", choices=RUN_KINDS, help="only of this kind")
    listing.add_argument("--state", choices=get_args(RunState), help="only in this state")
    listing.add_argument("--limit", type=int, default=50, help="how many at most (default: %(default)s)")
    showing = verbs.add_parser("show", help="one run and what happened in it")
    cancelling = verbs.add_parser("cancel", help="end a run")
    for verb in (showing, cancelling):
        verb.add_argument("run", help="the id that `agent-runs list` shows")
    triaging = verbs.add_parser("triage", help="let an agent judge a finding")
    triaging.add_argument("subject", metavar="finding", help="the id that `findings list` shows")
    looking = verbs.add_parser("rca", help="let an agent look for the cause of a case")
    looking.add_argument("subject", metavar="case", help="its reference, such as C-12, or its id")
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
            run_id = id_of(arguments.run, NO_SUCH_RUN.message)
            if arguments.verb == "cancel":
                did = await PostgresRunStore(store.database).cancel(
                    project.id, run_id, _OPERATOR, datetime.now(UTC)
                )
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
        subject_id = id_of(name, missing)
    press = await PostgresRunStore(database).press(project_id, kind, subject_id, _OPERATOR, datetime.now(UTC))
    if isinstance(press, NotPressed):
        raise OperatorError(_REFUSED.get(press.code, missing))
    return press.run_id


async def _show(reads: RunReads, project_id: int, run_id: UUID, arguments: argparse.Namespace) -> None:
    agent_run = await reads.one(project_id, run_id)
    if agent_run is None:
        raise OperatorError(NO_SUCH_RUN.message)
    print_json(agent_run) if arguments.json else _print_one(agent_run)


def _print_list(runs: list[dict[str, Any]]) -> None:
    rows = [("ID", "KIND", "STATE", "ASKED FOR", "BY", "TURNS", "USD", "CAME TO")]
    for agent_run in runs:
        rows.append(
            (
                agent_run["id"],
                agent_run["kind"],
                _state(agent_run),
                minute(agent_run["requested_at"]),
                agent_run["requested_by"],
                str(agent_run["spent"].get("turns", 0)),
                _usd(agent_run),
                (agent_run["outcome"] or agent_run["failure"] or "")[:60],
            )
        )
    print_columns(rows)


def _state(run_fields: dict[str, Any]) -> str:
    return (
        f"{run_fields['state']}: {run_fields['reason']}" if run_fields["reason"] else str(run_fields["state"])
    )


def _usd(run_fields: dict[str, Any]) -> str:
    usd = run_fields["spent"].get("usd", 0.0)
    return "no price" if usd is None else money(usd)


def _print_one(run_fields: dict[str, Any]) -> None:
    print_columns(
        [
            ("id", run_fields["id"]),
            ("kind", f"{run_fields['kind']} of {run_fields['subject_id']}"),
            ("state", _state(run_fields) + (", to be cancelled" if run_fields["cancelling"] else "")),
            ("requested", f"{minute(run_fields['requested_at'])} by {run_fields['requested_by']}"),
            ("model", run_fields["model"] or "-"),
            ("used", f"{run_fields['spent'].get('turns', 0)} turns, {_usd(run_fields)} USD"),
            ("came to", run_fields["outcome"] or run_fields["failure"] or "-"),
        ]
    )
    for event in run_fields["events"]:
        details = " ".join(f"{name}={value}" for name, value in event["details"].items() if name != "spent")
        print(printable(f"{event['at'][11:19]} {event['kind']} {details}".rstrip()))
