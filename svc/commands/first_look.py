"""`trace-svc first-look`: what can be said of a project before it has a baseline, as its page says it.

Looks only. A trace that is named can be opened by its id.
"""

from __future__ import annotations

import argparse

from svc.application.open_store import open_store
from svc.commands.target import name_project, named_project
from svc.commands.terminal import offer_json, print_json, printable
from svc.config.table import Settings
from svc.domain.first_look.text import as_json, as_lines
from svc.runtime.clock import now
from svc.store.reads.first_look import FirstLookReads


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Shows tools that have failed from the start, failed calls repeated unchanged, models without a\n"
        "price, what your exporter never sends, the most expensive and slowest traces, and the cost of a\n"
        "month."
    )
    name_project(parser)
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Print it. Raises `Outage`, and `OperatorError` for a project that is not there."""
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        look = await FirstLookReads(store.database).of(project.id, now())
    if arguments.json:
        print_json(as_json(look))
        return
    for line in as_lines(look):
        print(printable(line))
