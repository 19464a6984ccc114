"""`trace-svc import PRODUCT SOURCE`: the history of another product, of a coding agent, or of an instance.

Beside the running service, on the same database. What is read is dated as its spans are. Killed, it goes on
where it was; done again, it adds nothing. At the end it says what came, what did not, and what does not move.

Secrets: credentials come from the environment and are never printed; payloads never are.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from protocol.importing import StoredSums
from protocol.operator import OperatorError
from protocol.rest.query import timestamp
from svc.application.history_import import PRODUCTS, ImportOrder, mover, source_of
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import Teller, offer_json, print_json, printable
from svc.config.table import Settings
from svc.importers.journal import Journal, MovedSpans, SourceSums, forget, journal
from svc.importers.moving import HistoryMove, window_of
from svc.importers.source import Source
from svc.runtime.clock import now
from svc.store.accounts.projects import Project
from svc.store.postgres.embedded.cluster import claim_private_folder

_HELP: Final = """\
Imports a history while the service is running. Spans keep their times.

  phoenix  URL          Arize Phoenix; PHOENIX_API_KEY if it needs one
  mlflow   URL          MLflow Tracking; MLFLOW_TRACKING_TOKEN, or _USERNAME and _PASSWORD
  langfuse URL|FOLDER   Langfuse; LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY, or the files of its blob export
  claude-code FOLDER    transcripts of Claude Code: ~/.claude/projects, or a part of it
  codex    FOLDER       rollouts of Codex: ~/.codex/sessions, or a part of it
  export   FILE|-       files of `trace-svc export spans` in any form, also with gzip

If it is interrupted, run it again with the same arguments to continue. Importing twice adds nothing.
Traces older than the project's retention are skipped and counted. It stops when the disk budget is
reached and can be continued later."""

_MISSING: Final = 1


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = _HELP
    parser.add_argument("product", choices=PRODUCTS)
    parser.add_argument("source", metavar="SOURCE", help="a URL, a file or a folder")
    parser.add_argument(
        "--source-project",
        metavar="NAME",
        help="Phoenix: its project (default: default); MLflow: id or name of the experiment (default: 0)",
    )
    parser.add_argument(
        "--service", metavar="NAME", help="service name for spans without one (default: the product's name)"
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        help="coding agents: whose sessions these are (default: the owner of the home folder)",
    )
    parser.add_argument(
        "--from",
        "--since",
        dest="low",
        metavar="TIME",
        help="only what started at this time or later, ISO 8601",
    )
    parser.add_argument(
        "--to", "--until", dest="high", metavar="TIME", help="only what started before; default: now"
    )
    parser.add_argument("--rate", type=_rate, default=0.0, metavar="N", help="at most N spans per second")
    parser.add_argument("--dry-run", action="store_true", help="read and count everything, but store nothing")
    parser.add_argument(
        "--again", action="store_true", help="start over, even if an earlier run was interrupted"
    )
    name_project(parser)
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Import. Returns 1 when something that was given is not stored. Raises `OperatorError`, `Outage`."""
    order = ImportOrder(
        arguments.product,
        arguments.source,
        arguments.source_project,
        arguments.service or arguments.product,
        _instant(arguments.low),
        _instant(arguments.high),
        arguments.user,
    )
    teller = Teller()
    with source_of(order, os.environ, teller.say) as source:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(teller.beat, f"waiting for {source.name} or the database")
            status = await _import(arguments, settings, order, source, teller)
            nursery.cancel_scope.cancel()
    return status


async def _import(
    arguments: argparse.Namespace, settings: Settings, order: ImportOrder, source: Source, teller: Teller
) -> int:
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        moving = await mover(
            settings,
            store.database,
            project.id,
            source,
            now,
            spans_a_s=arguments.rate,
            dry=arguments.dry_run,
            tell=teller.say,
        )
        if moving.expired_before is not None:
            print(
                f"{project.org_slug}/{project.slug} keeps traces that started on"
                f" {moving.expired_before:%Y-%m-%d} or later; older ones are skipped"
                " (see `trace-svc retention show`)",
                file=sys.stderr,
            )
        file = settings.data_dir / "import" / order.journal_name(project.id)
        with _journal(file, order, dry=arguments.dry_run, again=arguments.again) as import_journal:
            if import_journal.resumed:
                print(
                    f"continuing after page {import_journal.moved.pages} of an earlier run", file=sys.stderr
                )
            await moving.run(import_journal, teller)
            source_sums, stored_sums = await moving.compare(import_journal)
            counted = (source_sums, stored_sums)
            if arguments.json:
                print_json(_facts(project, order, source, import_journal, counted, dry=arguments.dry_run))
            else:
                _report(project, order, source, moving, import_journal, counted)
        if not arguments.dry_run:
            forget(file)
    return (
        _MISSING
        if not arguments.dry_run and _missing(import_journal.moved, source_sums, stored_sums) > 0
        else 0
    )


@contextmanager
def _journal(file: Path, order: ImportOrder, *, dry: bool, again: bool) -> Iterator[Journal]:
    window = window_of(order.low, order.high, now())
    if dry:
        with (
            tempfile.TemporaryDirectory(prefix="trace-svc-import-") as folder,
            journal(Path(folder) / file.name, window) as import_journal,
        ):
            yield import_journal
        return
    claim_private_folder(file.parent)
    if again:
        forget(file)
    with journal(file, window) as import_journal:
        yield import_journal


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise OperatorError(f"{text!r} is not a time; expected one like 2026-11-01T00:00:00Z") from None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 <= rate <= 1e9:
        raise argparse.ArgumentTypeError("expected a number of spans per second, or 0 for no limit")
    return rate


def _missing(moved: MovedSpans, source_sums: SourceSums, stored_sums: StoredSums) -> int:
    """Spans that were given, are not stored, and that nothing explains."""
    return source_sums.spans - stored_sums.spans - moved.expired - moved.outside - sum(moved.refused.values())


def _facts(
    project: Project,
    order: ImportOrder,
    source: Source,
    import_journal: Journal,
    counted: tuple[SourceSums, StoredSums],
    *,
    dry: bool,
) -> dict[str, Any]:
    """The outcome for programs: `moved` over all runs, `given` by the source, `now_here` in the project."""
    moved, (source_sums, stored_sums) = import_journal.moved, counted
    return {
        "project": f"{project.org_slug}/{project.slug}",
        "source": source.name,
        "place": order.place,
        "from": import_journal.window.low,
        "to": import_journal.window.high,
        "dry_run": dry,
        "given": attrs.asdict(source_sums),
        "moved": attrs.asdict(moved),
        "now_here": None if dry else attrs.asdict(stored_sums),
        "missing": None if dry else max(0, _missing(moved, source_sums, stored_sums)),
        "stays_behind": list(source.leaves),
    }


def _report(
    project: Project,
    order: ImportOrder,
    source: Source,
    moving: HistoryMove,
    import_journal: Journal,
    counted: tuple[SourceSums, StoredSums],
) -> None:
    moved, (source_sums, stored_sums) = import_journal.moved, counted
    low = "the beginning" if import_journal.window.low is None else timestamp(import_journal.window.low)
    dry = moving.store is None
    stored = moved.read - moved.outside - moved.expired if dry else moved.stored
    lines = [
        ("project", f"{project.org_slug}/{project.slug}"),
        ("from", f"{source.name}, {order.place}"),
        ("range", f"{low} to {timestamp(import_journal.window.high)}"),
        ("given", f"{source_sums.traces:,} traces, {source_sums.spans:,} spans{_tokens_text(source_sums)}"),
        # Whether they are here already only storing them tells.
        ("would send", f"{stored:,} spans; those that are already here are not stored again")
        if dry
        else ("stored", f"{stored:,} spans"),
    ]
    if moved.oldest is not None:
        lines.append(("started", f"{moved.oldest} to {moved.newest}"))
    if not dry:
        lines.append(("already here", f"{moved.known:,} spans"))
        lines.append(("now here", _stored_text(stored_sums)))
    if moved.expired:
        lines.append(("too old", f"{moved.expired:,} spans older than the project's retention"))
    if moved.outside:
        lines.append(("out of range", f"{moved.outside:,} spans"))
    lines += [("refused", f"{n:,}: {reason}") for reason, n in sorted(moved.refused.items())]
    if moved.without_model:
        lines.append(
            ("no model", f"{moved.without_model:,} model calls without a model name: they have no cost")
        )
    if moved.without_session:
        lines.append(("no session", f"{moved.without_session:,} spans without one"))
    if not source_sums.spans:
        lines.append(("empty", _empty_text(order, moved)))
    elif not dry:
        lines.append(("compared", _compared(moved, source_sums, stored_sums)))
    lines += [("not imported", sentence) for sentence in source.leaves]
    for name, text in lines:
        print(printable(f"{name:<14} {text}"))
    if dry and source_sums.spans:
        print("\nnothing was stored; run it without --dry-run to import")


def _empty_text(order: ImportOrder, moved: MovedSpans) -> str:
    """Why nothing came of it."""
    span_count = "no spans that can be read" if moved.refused else "no spans"
    window = "" if order.low is None and order.high is None else " in this range"
    return f"the source holds {span_count}{window}: there was nothing to import"


def _tokens_text(source_sums: SourceSums) -> str:
    return "" if source_sums.tokens is None else f", {source_sums.tokens:,} tokens"


def _stored_text(stored_sums: StoredSums) -> str:
    again = f", {stored_sums.again:,} of them sent twice and counted once" if stored_sums.again else ""
    return f"{stored_sums.traces:,} traces, {stored_sums.spans:,} spans, {stored_sums.tokens:,} tokens{again}"


def _compared(moved: MovedSpans, source_sums: SourceSums, stored_sums: StoredSums) -> str:
    missing = _missing(moved, source_sums, stored_sums)
    if missing > 0:
        return f"{missing:,} spans are missing here; run it again"
    if stored_sums.spans < source_sums.spans:
        return f"all spans but the {source_sums.spans - stored_sums.spans:,} left out are here"
    if source_sums.tokens is None or source_sums.tokens in (
        stored_sums.tokens,
        stored_sums.tokens - stored_sums.again,
    ):
        return "equal"
    return (
        f"every span is here; {source_sums.tokens:,} tokens there and {stored_sums.tokens:,} here:"
        " the difference is what is not said by the spans themselves, or not in a way that is understood"
    )
