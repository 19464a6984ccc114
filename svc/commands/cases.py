"""`trace-svc cases list | show | resolve | mute | unmute | absorb | reject`: outages and changes.

It works beside a server. What moves a case is recorded in its trail and in the audit, as the operator's.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from protocol.detection import Author, CaseRefusal
from protocol.operator import OperatorError
from protocol.refusals import CASE_REFUSALS, NO_SUCH_CASE
from protocol.rest.query import timestamp
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import (
    lists_bare,
    minute,
    offer_json,
    print_columns,
    print_json,
    print_listed,
    printable,
    value_line,
)
from svc.config.table import Settings
from svc.domain.quantities import percent
from svc.store.accounts.audit import OPERATOR
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.cases import CaseStore
from svc.store.postgres.database import Database

#: The author of what the command line does.
_OPERATOR: Final = Author("person", OPERATOR)


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="verb")
    listing = verbs.add_parser("list", help="cases, worst first")
    listing.add_argument(
        "--state", choices=("open", "muted", "resolved"), default="open", help="default: %(default)s"
    )
    listing.add_argument("--detector", help="only of this detector")
    listing.add_argument("--call-site", help="only of this call site")
    listing.add_argument("--limit", type=int, default=100, help="how many at most (default: %(default)s)")
    showing = verbs.add_parser("show", help="one case with its findings and history")
    resolving = verbs.add_parser("resolve", help="resolve a case, with the reason")
    muting = verbs.add_parser("mute", help="mute a case")
    muting.add_argument("--days", type=float, help="for how many days (default: until somebody unmutes it)")
    unmuting = verbs.add_parser("unmute", help="unmute a case")
    absorbing = verbs.add_parser("absorb", help="close a case because this is the new normal")
    rejecting = verbs.add_parser("reject", help="close a case because nothing is wrong, with the reason")
    for verb in (showing, resolving, muting, unmuting, absorbing, rejecting):
        verb.add_argument("case", help="its reference, such as C-12, or its id")
    for verb in (resolving, absorbing, rejecting):
        verb.add_argument("--reason", default="", help="why")
    for verb in (listing, showing, resolving, muting, unmuting, absorbing, rejecting):
        name_project(verb)
        offer_json(verb)
    lists_bare(parser, listing)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` for a case that is not there, or that cannot be moved so."""
    now = datetime.now(UTC)
    if arguments.verb == "list" and not 1 <= arguments.limit <= 1_000:
        raise OperatorError("--limit must be from 1 to 1000")
    if arguments.verb == "mute" and arguments.days is not None and not 0 < arguments.days <= 36_500:
        raise OperatorError("--days must be above 0")
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        cases = CaseStore(store.database)
        if arguments.verb == "list":
            page = await cases.page(
                project.id,
                state=arguments.state,
                detector=arguments.detector,
                call_site_id=arguments.call_site,
                limit=arguments.limit,
                cursor=None,
                now=now,
            )
            print_json(page) if arguments.json else _print_list(page)
        elif arguments.verb == "show":
            case = await cases.one(project.id, arguments.case, now)
            if case is None:
                raise OperatorError(NO_SUCH_CASE.message)
            print_json(case) if arguments.json else _print_one(case)
        else:
            case_id = await cases.id_of(project.id, arguments.case)
            if case_id is None:
                raise OperatorError(NO_SUCH_CASE.message)
            await _move(store.database, project.id, case_id, arguments, now)


async def _move(
    database: Database, project_id: int, case_id: UUID, arguments: argparse.Namespace, now: datetime
) -> None:
    states = CaseStates(database)
    match arguments.verb:
        case "resolve":
            moved = await states.resolve(project_id, case_id, arguments.reason, _OPERATOR, now)
        case "absorb":
            moved = await states.absorb(project_id, case_id, arguments.reason, _OPERATOR, now)
        case "reject":
            moved = await states.reject(project_id, case_id, arguments.reason, _OPERATOR, now)
        case "mute":
            until = None if arguments.days is None else now + timedelta(days=arguments.days)
            moved = await states.mute(project_id, case_id, _OPERATOR, now, until)
        case _:
            moved = await states.unmute(project_id, case_id, _OPERATOR, now)
    if isinstance(moved, CaseRefusal):
        if moved.code == "REASON_REQUIRED":
            raise OperatorError("say why: --reason must not be blank")
        by = "" if moved.by is None else f" (by {moved.by}"
        time_text = "" if moved.at is None or not by else f", {minute(timestamp(moved.at))}"
        raise OperatorError(CASE_REFUSALS[moved.code].message + (f"{by}{time_text})" if by else ""))
    if arguments.json:
        print_json({"reference": moved.reference, "state": moved.state})
    else:
        print(f"{moved.reference} is {moved.state}")


def _print_list(page: dict[str, Any]) -> None:
    print_listed({"CASE": "reference", "SEVERITY": "severity", "STATE": "state"}, page["cases"])
    if page["next_cursor"] is not None:
        print("there are more: raise --limit to see them")


def _print_one(case: dict[str, Any]) -> None:
    print(printable(f"{case['reference']}  {case['title']}"))
    if case["basis"]:
        print(printable(case["basis"]))
    resolution = f", {case['resolution']}: {case['resolution_reason'] or '-'}" if case["resolution"] else ""
    until = f" until {minute(case['muted_until'])}" if case["muted_until"] else ""
    print_columns(
        [
            ("state", f"{case['state']}{until}{resolution}"),
            ("severity", case["severity"]),
            ("since", f"{minute(case['onset_at'])}, last seen {minute(case['last_seen_at'])}"),
            ("value", value_line(case)),
            ("analysed", "yes" if case["rca_available"] else "runs" if case["rca_report_id"] else "no"),
        ]
    )
    rows = [("FINDING", "ROLE", "STATUS", "EXPLAINED", "TITLE")]
    for finding in case["findings"]:
        share = finding["explained_share"]
        rows.append(
            (
                finding["id"],
                finding["role"],
                finding["status"],
                "-" if share is None else percent(share),
                finding["title"],
            )
        )
    print_columns(rows)
    for step in case["events"]:
        line = f"{minute(step['created_at'])}  {step['kind']} by {step['actor']}  {step['summary']}"
        print(printable(line.rstrip()))
