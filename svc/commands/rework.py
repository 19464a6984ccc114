"""`trace-svc reprice` and `trace-svc remap`: present prices or the present mapping over stored history.

Without `--apply` it looks at everything and says what would change. With it, it works in small steps beside a
running service; killed, it goes on where it was when it is started again.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import Any, Final

import attrs
import trio

from protocol.otlp.reading import WireSpan
from protocol.release import release
from protocol.storage import Outage
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import offer_json, print_json
from svc.config.table import Settings
from svc.domain.attributes.reading import AttributeReader
from svc.domain.intake.rework import remapped, repriced
from svc.domain.pricing.prices import PriceBook
from svc.domain.quantities import count, money
from svc.domain.spans.span import SpanRow
from svc.ingest.prices import price_book
from svc.store.accounts.projects import Project
from svc.store.postgres.database import Database
from svc.store.spans.attribute_keys import AttributeKeys
from svc.store.spans.project_prices import ProjectPriceStore
from svc.store.spans.rework import Kind, ReworkStore
from svc.store.spans.rework_progress import Progress

HELP: Final = (
    "Shows what would change, and with --apply changes it, a few hundred traces at a time, while "
    "the service is running. If it is interrupted, run it again to continue. Costs sent by the "
    "exporter stay."
)

#: How often a run on a terminal says how far it is, and how often it tries through an outage.
_REPORT_EVERY_S: Final = 2.0
_TRIES: Final = 10
_PAUSE_S: Final = 1.0


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments of either command."""
    parser.description = HELP
    if parser.prog.endswith("remap"):
        parser.description += " Spans whose payload has aged out are left as they are."
    parser.formatter_class = argparse.HelpFormatter
    parser.add_argument(
        "--apply", action="store_true", help="change the stored spans (default: only a preview)"
    )
    name_project(parser)
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Preview or apply, and print the outcome. Raises `Outage` when the database stays away."""
    prices = price_book(settings.prices_file)
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        prices.adopt_projects(await ProjectPriceStore(store.database).every())
        await _rework(store.database, project, arguments, prices.of(project.id))


async def _rework(
    database: Database, project: Project, arguments: argparse.Namespace, prices: PriceBook
) -> None:
    kind: Kind = arguments.command
    apply: bool = arguments.apply
    fields = AttributeReader()
    keys = AttributeKeys(database)
    promoted = (await keys.states()).promoted
    fields.adopt(promoted)
    pairs_of = partial(fields.pairs, project.id)

    def remake(row: SpanRow, span: WireSpan | None) -> SpanRow:
        return repriced(row, prices) if span is None else remapped(row, span, prices, pairs_of)

    basis = prices.version if kind == "reprice" else f"trace-svc {release()}, {prices.version}"
    store = ReworkStore(database, project.id, kind, basis, remake)
    progress = await store.resumed() if apply else Progress()
    is_whole = apply and kind == "remap" and not progress.traces
    if progress.traces:
        print(f"continuing after {progress.traces} traces of an earlier run", file=sys.stderr)
    last_s = time.monotonic()
    while not progress.finished:
        progress = await _step(store, progress, apply=apply)
        if sys.stderr.isatty() and time.monotonic() - last_s > _REPORT_EVERY_S:
            last_s = time.monotonic()
            print(f"{progress.traces} traces, {progress.changed_spans} spans to change", file=sys.stderr)
    if is_whole:
        await keys.have_history(project.id, promoted.get(project.id, {}).values())
    if arguments.json:
        print_json(_facts(project, store, progress, apply=apply))
    else:
        _report(project, store, progress, apply=apply)


async def _step(store: ReworkStore, progress: Progress, *, apply: bool) -> Progress:
    for attempt in range(_TRIES):
        try:
            return await (store.apply(progress) if apply else store.preview(progress))
        except Outage:
            # A deadlock with a writer ends so too, and is over when it is tried again.
            if attempt == _TRIES - 1:
                raise
            await trio.sleep(_PAUSE_S)
            if apply:
                # The step may have been committed before the connection was lost.
                progress = await store.resumed()
    raise AssertionError("unreachable")


def _facts(project: Project, store: ReworkStore, progress: Progress, *, apply: bool) -> dict[str, Any]:
    """The outcome for programs; with `applied` false it is what would change."""
    return {
        "project": f"{project.org_slug}/{project.slug}",
        "brought_to": store.version,
        "applied": apply,
        "spans": progress.spans,
        "traces": progress.traces,
        "changed_spans": progress.changed_spans,
        "changed_traces": progress.changed_traces,
        "without_payload": progress.without_payload,
        "before": attrs.asdict(progress.before) | {"cost": float(progress.before.cost)},
        "after": attrs.asdict(progress.after) | {"cost": float(progress.after.cost)},
    }


def _report(project: Project, store: ReworkStore, progress: Progress, *, apply: bool) -> None:
    did = "changed" if apply else "would change"
    totals_before, totals_after = progress.before, progress.after
    print(f"project      {project.org_slug}/{project.slug}")
    print(f"version      {store.version}")
    print(f"checked      {progress.spans} spans in {progress.traces} traces")
    print(f"{did:<12} {progress.changed_spans} spans in {progress.changed_traces} traces")
    if progress.without_payload:
        print(f"skipped      {progress.without_payload} spans whose payload has aged out")
    print(f"\n{'':<16}{'before':>20}{'after':>20}")
    print(f"{'cost':<16}{money(totals_before.cost):>20}{money(totals_after.cost):>20}")
    print(f"{'tokens':<16}{count(totals_before.tokens):>20}{count(totals_after.tokens):>20}")
    print(f"{'unpriced spans':<16}{count(totals_before.unpriced):>20}{count(totals_after.unpriced):>20}")
    if not apply and progress.changed_spans:
        print(f"\nnothing was changed; run `trace-svc {store.kind} --apply` to change it")
