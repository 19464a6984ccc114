"""`trace-svc findings list | show`: the causes behind firings, beside a running server. Writes nothing."""

from __future__ import annotations

import argparse
from typing import Any

from protocol.operator import OperatorError
from protocol.refusals import NO_SUCH_FINDING
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import (
    id_of,
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
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.findings import FindingStore
from svc.store.postgres.database import Database


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", metavar="verb")
    listing = verbs.add_parser("list", help="findings, newest first")
    listing.add_argument("--all", action="store_true", help="include unconfirmed findings")
    listing.add_argument("--detector", help="only of this detector")
    listing.add_argument("--call-site", help="only of this call site")
    showing = verbs.add_parser("show", help="one finding with its measurements")
    showing.add_argument("id", help="the id that `findings list` shows")
    for verb in (listing, showing):
        name_project(verb)
        offer_json(verb)
    lists_bare(parser, listing)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` for a finding or a project that is not there."""
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        if arguments.verb == "list":
            page = await FindingStore(store.database).list(
                project.id,
                status=None,
                call_site_id=arguments.call_site,
                detector=arguments.detector,
                confirmed_only=not arguments.all,
            )
            print_json(page) if arguments.json else _print_list(page)
        else:
            finding = await _finding(store.database, project.id, arguments.id)
            print_json(finding) if arguments.json else _print_one(finding)


def _print_list(page: dict[str, Any]) -> None:
    print_listed({"ID": "id", "STATUS": "status", "SEVERITY": "severity"}, page["findings"])
    if page["withheld"]:
        print(f"{page['withheld']} more unconfirmed; --all shows them")


async def _finding(database: Database, project_id: int, name: str) -> dict[str, Any]:
    finding_id = id_of(name, NO_SUCH_FINDING.message)
    finding = await FindingStore(database).one(project_id, finding_id)
    evidence = await EvidenceStore(database).page(
        project_id, finding_id, role=None, count_only=True, limit=1, cursor=None
    )
    if finding is None or evidence is None:
        raise OperatorError(NO_SUCH_FINDING.message)
    return {**finding, "counts": evidence["counts"], "recorded_counts": evidence["recorded_counts"]}


def _print_one(finding: dict[str, Any]) -> None:
    print(printable(finding["title"]))
    if finding["basis"]:
        print(printable(finding["basis"]))
    ruled = f", {finding['triageVerdict']}: {finding['triageSummary']}" if finding["triageVerdict"] else ""
    print_columns(
        [
            ("id", finding["id"]),
            ("status", f"{finding['status']}, severity {finding['severity']}{ruled}"),
            ("detector", finding["detector"]),
            ("since", f"{minute(finding['onset_at'])}, last seen {minute(finding['last_seen_at'])}"),
            ("value", value_line(finding)),
            ("traces", str(finding["trace_count"])),
            ("evidence", ", ".join(f"{n} {role}" for role, n in finding["counts"].items() if n) or "-"),
        ]
    )
