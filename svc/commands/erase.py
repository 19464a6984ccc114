"""`trace-svc erase --trace ID | --session ID | --user ID`: what the law asks for.

Works in portions beside a running service, which goes on with it when this is killed. `--dry-run` counts and
changes nothing, and says when the same id was erased before.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import trio

from protocol.operator import OperatorError
from protocol.storage import Erasable, Outage
from svc.application.open_store import open_store
from svc.backup.erased import ErasedNotes
from svc.commands.target import name_project, named_project
from svc.commands.terminal import offer_json, print_json, printable
from svc.config.table import Settings
from svc.domain.quantities import count, counted
from svc.runtime.clock import now
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.projects import Project
from svc.store.postgres.database import Database
from svc.store.retention.erasing import Erasing
from svc.store.retention.erasures import Erasure, ErasureStore

#: How often a run on a terminal says how far it is, the pause after a step, and how an outage is waited out.
_REPORT_EVERY_S: Final = 2.0
_PAUSE_S: Final = 0.02
_TRIES: Final = 10
_AGAIN_S: Final = 1.0

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
KINDS: Final[tuple[Erasable, ...]] = ("trace", "session", "user")
#: What is counted, in the order in which it is said.
_COUNTED: Final = {
    "traces": "trace",
    "spans": "span",
    "tool_calls": "tool call",
    "feedback": "feedback entry",
    "messages": "shared message",
    "values": "attribute value",
    "letter_spans": "span in dead letters",
}
_PLURALS: Final = {"feedback": "feedback entries", "letter_spans": "spans in dead letters"}


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Erases a trace, a session or all data of a user: rows, payloads, messages that no other trace\n"
        "uses, search index, evidence, feedback, dead letters. Spans that arrive later are rejected. This\n"
        "cannot be undone. If the command is interrupted, the service finishes the work, or you run it\n"
        "again."
    )
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--trace", metavar="ID", help="the trace with this id, 32 hexadecimal digits")
    chosen.add_argument("--session", metavar="ID", help="all traces of this session")
    chosen.add_argument("--user", metavar="ID", help="all traces of this user")
    parser.add_argument(
        "--dry-run", action="store_true", help="count what would be erased, and change nothing"
    )
    name_project(parser)
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Erase, or count. Raises `OperatorError`, `Outage`, `OSError`."""
    kind = next(kind for kind in KINDS if getattr(arguments, kind) is not None)
    subject: str = getattr(arguments, kind)
    if kind == "trace":
        subject = subject.lower()
        if not _TRACE_ID.fullmatch(subject):
            raise OperatorError("a trace id has 32 hexadecimal digits")
    if not subject:
        raise OperatorError(f"say which {kind}")
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        if arguments.dry_run:
            await _preview(store.database, project, kind, subject, as_json=arguments.json)
        else:
            await _erase(store.database, settings, project, (kind, subject), as_json=arguments.json)


async def _preview(
    database: Database, project: Project, kind: Erasable, subject: str, *, as_json: bool
) -> None:
    counts = await Erasing(database).preview(project.id, kind, subject)
    earlier = await ErasureStore(database).earlier(project.id, kind, subject)
    if as_json:
        print_json(
            _facts(project, kind, counts) | {"erased": False, "earlier": [_earlier(e) for e in earlier]}
        )
        return
    print(f"{_name(project)}: {counted(counts['traces'], 'trace')} with {counted(counts['spans'], 'span')}")
    for erasure in earlier:
        print(printable(f"already requested: {erasure.asked_at:%Y-%m-%d %H:%M} UTC by {erasure.asked_by}"))
    print("nothing was erased; run it without --dry-run to erase for good")


async def _erase(
    database: Database,
    settings: Settings,
    project: Project,
    named: tuple[Erasable, str],
    *,
    as_json: bool,
) -> None:
    (kind, subject), erasures = named, ErasureStore(database)
    erasure = await erasures.ask(project.id, kind, subject, actor=OPERATOR, now=now())
    if erasure is None:
        raise OperatorError(
            "too many erasures are pending in this project; wait until the service has done them"
        )
    await ErasedNotes.of(settings).write_down(erasures, now)
    finished = await _work_off(database, erasure)
    if as_json:
        print_json(_facts(project, kind, finished.counts) | {"erased": True, "id": str(finished.id)})
        return
    print(f"erased from {_name(project)}: {_said(finished.counts)}")
    print(f"recorded in the audit as {finished.digest.hex()[:16]}…, without the name")


async def _work_off(database: Database, erasure: Erasure) -> Erasure:
    """Make steps until this one is done; those that were asked for before it come first."""
    erasing, store, last_s = Erasing(database), ErasureStore(database), time.monotonic()
    attempts = 0
    while True:
        try:
            step = await erasing.step(erasure.project_id)
            current = await store.one(erasure.project_id, erasure.id)
            attempts = 0
        except Outage:
            # A deadlock with a writer ends so too, and is over when it is tried again.
            attempts += 1
            if attempts == _TRIES:
                raise
            await trio.sleep(_AGAIN_S)
            continue
        if current is None or current.finished_at is not None:
            return current or erasure
        if step is not None and sys.stderr.isatty() and time.monotonic() - last_s > _REPORT_EVERY_S:
            last_s = time.monotonic()
            print(f"{step.phase}: {_said(step.counts)}", file=sys.stderr)
        await trio.sleep(_PAUSE_S)


def _said(counts: Mapping[str, int]) -> str:
    parts = [
        f"{count(counts[name])} {_PLURALS.get(name, word + 's') if counts[name] != 1 else word}"
        for name, word in _COUNTED.items()
        if counts.get(name)
    ]
    return ", ".join(parts) or "nothing to erase"


def _name(project: Project) -> str:
    return f"{project.org_slug}/{project.slug}"


def _facts(project: Project, kind: Erasable, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "project": _name(project),
        "kind": kind,
        "counts": {name: counts.get(name, 0) for name in _COUNTED},
    }


def _earlier(erasure: Erasure) -> dict[str, Any]:
    return {
        "asked_at": erasure.asked_at.isoformat(),
        "asked_by": erasure.asked_by,
        "finished": erasure.finished_at is not None,
    }
