"""`trace-svc reconcile FILE`: a provider's usage export beside what was traced. Writes nothing."""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path
from typing import Final

from protocol.operator import OperatorError
from protocol.rest.bills import BilledDay, BillReconciled
from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import offer_json, print_columns, print_json, printable
from svc.config.table import Settings
from svc.domain.billing.exports import MOST_BYTES, read_bill
from svc.domain.billing.rows import NoExport
from svc.store.reads.usage.bills import BillReads, TooManyGroups

_HELP: Final = """\
Compares what a provider billed with the cost of the traced calls, by day and model, and shows the call sites
and traces behind each difference. Days are UTC, amounts are USD. The file is not kept.

  OpenAI       costs or usage: the dashboard's export (CSV), or the answer of /v1/organization/costs or usage
  Anthropic    cost or usage: the console's export (CSV), or the answer of the Admin API's reports
  OpenRouter   activity: the export (CSV), or the answer of /api/v1/activity
  AWS          rows of Bedrock in a Cost and Usage Report, 1 or 2 (CSV or JSON)

Files may be gzipped. At most 92 days, 200,000 rows and 32 MiB at once."""

_GZIP: Final = b"\x1f\x8b"
_DIFFERS: Final = 1
_NAME_CHARS: Final = 44


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = _HELP
    parser.add_argument("file", metavar="FILE", help="the export, or - for standard input")
    name_project(parser)
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Compare. Returns 1 when a day or model does not agree. Raises `OperatorError`, `OSError`, `Outage`."""
    try:
        bill = read_bill(_content(arguments.file))
    except NoExport as error:
        raise OperatorError(str(error)) from None
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        try:
            answer = await BillReads(store.database).reconciled(project.id, bill)
        except TooManyGroups:
            raise OperatorError("these days have too many models and call sites; export fewer days") from None
    print_json(answer) if arguments.json else _print(answer)
    return 0 if answer.agreeing_rows == answer.all_rows else _DIFFERS


def _content(name: str) -> bytes:
    """The file, unpacked, as far as one byte more than it may have."""
    if name == "-":
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        with Path(name).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    if not data.startswith(_GZIP):
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES + 1)
    except zlib.error:
        raise OperatorError(f"{name} starts like gzip but is not") from None


def _print(answer: BillReconciled) -> None:
    agreeing = f"{answer.agreeing_rows:,} of {answer.all_rows:,} rows agree"
    print(printable(f"{answer.export}, {answer.first_day} to {answer.last_day}: {agreeing}"))
    if answer.billed_cost is not None:
        print(f"billed ${answer.billed_cost}, here ${answer.our_cost}, difference ${answer.difference}")
    else:
        print(f"the file has tokens but no cost; here ${answer.our_cost}")
    for reason, rows in sorted(answer.skipped.items()):
        print(printable(f"left out: {rows:,} rows {reason}"))
    print()
    table = [("DAY", "MODEL", "BILLED $", "HERE $", "DIFFERENCE", "TOKENS BILLED", "TOKENS HERE", "")]
    table += [
        (
            row.day,
            row.model[:_NAME_CHARS],
            row.billed_cost or "–",
            row.our_cost or "–",
            row.difference or "–",
            "–" if row.billed_tokens is None else f"{row.billed_tokens:,}",
            "–" if row.our_tokens is None else f"{row.our_tokens:,}",
            "agrees" if row.agrees else "",
        )
        for row in sorted(answer.rows, key=lambda row: (row.day, row.model))
    ]
    print_columns(table)
    for row in answer.rows:
        if not row.agrees:
            _explain(row)
    if answer.all_rows > len(answer.rows):
        print(f"\n{len(answer.rows):,} of {answer.all_rows:,} rows shown, those with the largest differences")


def _explain(row: BilledDay) -> None:
    print()
    print(printable(f"{row.day} {row.model}: {'; '.join(row.reasons) or 'the cost differs'}"))
    for site in row.call_sites:
        unpriced = f", {site.unpriced:,} without a price" if site.unpriced else ""
        print(printable(f"  call site {site.call_site_id}: {site.calls:,} calls, ${site.cost}{unpriced}"))
    for trace in row.traces:
        cost = "no price" if trace.cost is None else f"${trace.cost}"
        print(f"  trace {trace.trace_id}: {trace.calls:,} calls, {cost}")
