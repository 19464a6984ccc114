"""`trace-svc secrets rotate | list`: seal every stored secret anew with the present key, or say what opens.

Works beside the running service. Each value is replaced on its own and only in place of what was opened, so a
rotation that is cut off is simply run again.

Secrets: plaintext passes from one key to the other and is never printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from functools import partial

import attrs

from protocol.operator import OperatorError
from protocol.sealed import Lost
from svc.config.table import Settings
from svc.secrets.sealing import Sealer
from svc.store.accounts.integrations import IntegrationStore
from svc.store.alerts.channels import AlertChannelStore
from svc.wiring.open_store import open_store


@attrs.frozen
class _Row:
    """One sealed value: what it is called, what it is for, and how it is replaced."""

    name: str
    sealed: str | None = attrs.field(repr=False)
    purpose: str
    reseal: Callable[[str], Awaitable[bool]]


class SomeLost(OperatorError):
    """Values remain that no key here opens; the text counts them."""


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs."""
    parser.description = (
        "To change the sealing key: set SVC_SECRET_KEY to the new one, add the old one to\n"
        "SVC_SECRET_KEY_PREVIOUS, restart the service, run `trace-svc secrets rotate`, drop the old one."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    verbs.add_parser("list", help="list the sealed values and whether a key here opens them")
    verbs.add_parser("rotate", help="seal every value anew with the present key")


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `SomeLost` when a value cannot be opened."""
    sealer = Sealer.of(settings)
    async with open_store(settings) as store:
        integrations, channels = IntegrationStore(store.database), AlertChannelStore(store.database)
        rows = [
            *(_Row(f"{row.kind} {row.name!r}", row.sealed, row.purpose, partial(integrations.reseal, row))
              for row in await integrations.all_sealed()),
            *(_Row(f"alert channel {row.name!r}", row.sealed, row.purpose, partial(channels.reseal, row))
              for row in await channels.all_sealed()),
        ]  # fmt: skip
        resealed = lost = 0
        for row in rows:
            assert row.sealed is not None, "only sealed rows were asked for"
            opened = sealer.open(row.sealed, row.purpose)
            if isinstance(opened, Lost):
                lost += 1
                print(f"lost      {row.name}: {opened.reason}")
            elif sealer.is_current(row.sealed):
                print(f"current   {row.name}")
            elif arguments.verb == "list":
                print(f"earlier   {row.name}: opens with a key of SVC_SECRET_KEY_PREVIOUS")
            elif await row.reseal(sealer.seal(opened, row.purpose)):
                resealed += 1
                print(f"resealed  {row.name}")
            else:
                print(f"changed   {row.name}: somebody has just entered it anew")
    if not rows:
        print("nothing is sealed here yet")
    elif arguments.verb == "rotate":
        print(f"{resealed} of {len(rows)} resealed with the present key")
    if lost:
        raise SomeLost(f"{lost} of {len(rows)} cannot be opened; nothing else is affected")
