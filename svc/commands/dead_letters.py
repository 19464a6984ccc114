"""`trace-svc dead-letters list | show | replay | drop`: the way back for what could not be stored.

Works beside a running service, on the same database. `show` prints payload, on purpose and to standard
output only; nothing here logs it.
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain

from protocol.inflate import Unreadable
from protocol.operator import OperatorError
from protocol.otlp.reading import read_protobuf, walk
from protocol.rest.query import timestamp
from protocol.storage import Batch, Written
from protocol.text import clean_value
from svc.application.brokers import bring_home
from svc.application.open_store import open_store
from svc.commands.terminal import print_json, printable
from svc.config.table import Settings
from svc.domain.intake.batches import decoder
from svc.domain.intake.masking import Masker
from svc.domain.pricing.prices import PriceBook
from svc.ingest.prices import price_book
from svc.store.accounts.audit import OPERATOR
from svc.store.postgres.partitions import DayPartitions
from svc.store.spans.call_sites import CallSites
from svc.store.spans.dead_letter_requests import NO_BOUND, Chosen, DeadLetterRequests
from svc.store.spans.dead_letters import DeadLetterStore
from svc.store.spans.masking import MaskingStore
from svc.store.spans.project_prices import ProjectPriceStore
from svc.store.spans.writing import SpanStore


def add(parser: argparse.ArgumentParser) -> None:
    """The verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    verbs.add_parser("list", help="list dead letters, oldest first")
    show = verbs.add_parser("show", help="show one dead letter with its spans as JSON")
    show.add_argument("id", type=int, help="the id that `dead-letters list` shows")
    for name, text in (
        ("replay", "try to store dead letters again, and remove those that succeed"),
        ("drop", "delete dead letters for good"),
    ):
        verb = verbs.add_parser(name, help=text)
        chosen = verb.add_mutually_exclusive_group(required=True)
        chosen.add_argument("ids", type=int, nargs="*", default=[], metavar="id", help="ids of dead letters")
        chosen.add_argument("--all", action="store_true", help="all of them")


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Run one verb. Raises `OperatorError` for a letter that is not there, `Outage` without the database."""
    async with open_store(settings) as store:
        requests = DeadLetterRequests(store.database)
        buried = DeadLetterStore(store.database)
        if settings.spool_mode == "kafka" and (letter_count := await bring_home(settings, buried)):
            print(f"fetched {letter_count} dead letters from the broker", file=sys.stderr)
        match arguments.verb:
            case "list":
                await _list(requests)
            case "show":
                await _show(requests, arguments.id)
            case "replay":
                days = DayPartitions(store.database, settings.trace_ttl_days)
                spans = SpanStore(store.database, days, CallSites())
                await _replay(requests, price_book(settings.prices_file), spans, _ids(arguments))
            case "drop":
                ids, dropped = _ids(arguments), 0
                for location in await requests.scopes(ids, OPERATOR):
                    dropped += (await requests.discard(location, Chosen(ids))).letters
                print(f"dropped {dropped} dead letters")
            case other:
                raise AssertionError(other)


def _ids(arguments: argparse.Namespace) -> list[int] | None:
    return None if arguments.all else arguments.ids


async def _list(requests: DeadLetterRequests) -> None:
    last_id, letters = 0, 0
    while page := await requests.everywhere(last_id, 100):
        for letter in page:
            if not letters:
                print("ID  SPANS  GAVE UP                      PROJECT  REASON")
            letters += 1
            last_id = letter.id
            columns = (letter.id, letter.spans, timestamp(letter.buried_at), letter.project_id, letter.reason)
            print(printable("  ".join(str(column) for column in columns)))
    if not letters:
        print("no dead letters")


async def _show(requests: DeadLetterRequests, letter_id: int) -> None:
    page = await requests.everywhere(letter_id - 1, 1)
    if not page or page[0].id != letter_id:
        raise OperatorError(f"there is no dead letter {letter_id}; `dead-letters list` shows them")
    (letter,) = page
    print(f"dead letter {letter.id}: {letter.spans} spans of project {letter.project_id}")
    print(f"received {timestamp(letter.received_at)}, given up {timestamp(letter.buried_at)}")
    print(printable(f"reason: {letter.reason}"))
    try:
        spans = list(walk(read_protobuf(letter.body)))
    except Unreadable as error:
        print(printable(f"{len(letter.body)} bytes that are not OTLP: {error}"))
        return
    for span in spans:
        fields = {
            "trace_id": span.trace_id.hex(),
            "span_id": span.span_id.hex(),
            "name": clean_value(span.name),
            "attributes": clean_value(span.attributes),
            "resource": clean_value(span.resource.attributes),
        }
        print_json(fields)


async def _replay(
    requests: DeadLetterRequests, prices: PriceBook, spans: SpanStore, ids: list[int] | None
) -> None:
    masker = Masker()
    masker.adopt(await MaskingStore(spans.database).every_rule())
    prices.adopt_projects(await ProjectPriceStore(spans.database).every())
    decode = decoder(prices, masker=masker)

    async def write(batch: Batch) -> Written:
        return await spans.write(list(chain.from_iterable(decode(batch))))

    outcomes = [
        await requests.replay(location, Chosen(ids), write, NO_BOUND)
        for location in await requests.scopes(ids, OPERATOR)
    ]
    stored, refused = (
        sum(outcome.stored for outcome in outcomes),
        sum(outcome.refused for outcome in outcomes),
    )
    print(f"replayed {sum(outcome.letters for outcome in outcomes)} dead letters, {stored} spans stored")
    if refused:
        print(f"{refused} dead letters were refused again; `dead-letters list` shows why")
