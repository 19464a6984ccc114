"""`trace-svc secrets rotate | list`: seal every stored secret anew with the present key, or say what opens.

Works beside the running service. Each value is replaced on its own and only in place of what was opened, so a
rotation that is cut off is simply run again.

Secrets: plaintext passes from one key to the other and is never printed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import attrs

from protocol.operator import OperatorError
from protocol.sealed import Lost
from svc.application.open_store import open_store
from svc.commands.terminal import offer_json, print_json, printable
from svc.config.table import Settings
from svc.secrets.sealing import Sealer
from svc.store.accounts.integrations import IntegrationStore
from svc.store.alerts.channels import AlertChannelStore


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
        "To change the encryption key: set SVC_SECRET_KEY to the new key, add the old one to\n"
        "SVC_SECRET_KEY_PREVIOUS, restart the service, run `trace-svc secrets rotate`, then remove "
        "the old key."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    listing = verbs.add_parser("list", help="list the encrypted values and whether they can be decrypted")
    rotate = verbs.add_parser("rotate", help="encrypt every value again with the current key")
    for verb in (listing, rotate):
        offer_json(verb)


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
        values: list[dict[str, str]] = []
        for row in rows:
            state, note = await _looked_at(sealer, row, rotates=arguments.verb == "rotate")
            values.append({"name": row.name, "state": state, "note": note})
            if not arguments.json:
                print(printable(f"{state:<9} {row.name}{': ' * bool(note)}{note}"))
    states = Counter(value["state"] for value in values)
    if arguments.json:
        print_json({"values": values, "resealed": states["resealed"], "lost": states["lost"]})
    elif not values:
        print("no encrypted values yet")
    elif arguments.verb == "rotate":
        print(f"{states['resealed']} of {len(values)} encrypted again with the current key")
    if states["lost"]:
        raise SomeLost(f"{states['lost']} of {len(values)} cannot be decrypted; nothing else is affected")


async def _looked_at(sealer: Sealer, row: _Row, *, rotates: bool) -> tuple[str, str]:
    """The state of a value, which is sealed anew where that is wanted, and what is to be said about it."""
    assert row.sealed is not None, "only sealed rows were asked for"
    opened = sealer.open(row.sealed, row.purpose)
    if isinstance(opened, Lost):
        return "lost", opened.reason
    if sealer.is_current(row.sealed):
        return "current", ""
    if not rotates:
        return "earlier", "decrypted with a key of SVC_SECRET_KEY_PREVIOUS"
    if await row.reseal(sealer.seal(opened, row.purpose)):
        return "resealed", ""
    return "changed", "somebody has just changed it"
