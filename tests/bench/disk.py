"""`make bench-disk`: what conversations take on disk whose every turn resends the history.

    python -m tests.bench.disk [--conversations 200] [--turns 20]

Each turn says 2 KB that is new, in two messages, and sends all earlier ones along, as agents do; it is a
span, once in a trace of the whole conversation and once in a trace of its own. All goes through the real door
of a real service; counted is all that the service writes into its database, tables and indexes, until
detectors have counted every trace; then every payload is read back and compared byte for byte. Prints
Markdown for deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import os
import random
import string
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Connection, Database
from svc.store.spans.payloads import read_payloads
from tests import wire
from tests.bench.load import text
from tests.service import Service, measured, until

#: What one message says; two are new in a turn.
MESSAGE_BYTES: Final = 1000
#: Spans in a request.
BATCH: Final = 50

#: Every table of ours but the catalogues, with its indexes and long values.
_SIZES = """
select coalesce(parent.relname, leaf.relname) as name, sum(pg_total_relation_size(leaf.oid))::bigint as bytes
from pg_class leaf
left join pg_inherits on inhrelid = leaf.oid left join pg_class parent on parent.oid = inhparent
where leaf.relkind = 'r' and leaf.relnamespace = 'public'::regnamespace
group by 1
"""


def turns(conversations: int, count: int, *, apart: bool) -> Iterator[list[Any]]:
    """The spans of each turn, one for each conversation; `apart`, each is a trace."""
    dice = random.Random(20)
    # Made of random letters, and many: compression is to find no more in them than in what people write.
    words = ["".join(dice.choices(string.ascii_lowercase, k=dice.randint(2, 10))) for _ in range(5000)]
    histories: list[list[dict[str, Any]]] = [[] for _ in range(conversations)]
    traces = [os.urandom(16) for _ in range(conversations)]

    def message(role: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": text(dice, MESSAGE_BYTES, words)}]}

    for _ in range(count):
        made = []
        for number, history in enumerate(histories):
            history.append(message("user"))
            asked = msgspec.json.encode(history).decode()
            history.append(message("assistant"))
            now_ns = time.time_ns()
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.conversation.id": f"conversation-{number}",
                "gen_ai.usage.input_tokens": 250 * len(history),
                "gen_ai.usage.output_tokens": 250,
                "gen_ai.input.messages": asked,
                "gen_ai.output.messages": msgspec.json.encode(history[-1:]).decode(),
            }
            made.append(
                wire.span(
                    "chat gpt-4o",
                    attributes,
                    trace_id=os.urandom(16) if apart else traces[number],
                    span_id=os.urandom(8),
                    start_ns=now_ns - 900_000_000,
                    end_ns=now_ns,
                )
            )
        yield made


def send(service: Service, spans: list[Any]) -> int:
    """The bytes of the requests that carry these spans."""
    size = 0
    for at in range(0, len(spans), BATCH):
        body = wire.request(*spans[at : at + BATCH], resource={"service.name": "bench"}).SerializeToString()
        size += len(body)
        answer = service.send(body)
        assert answer.status_code == 200, answer.text
    return size


async def sizes(database: Database) -> dict[str, int]:
    """Bytes on disk by table."""
    return {row["name"]: row["bytes"] for row in await database.fetch(_SIZES)}


async def counted(database: Database) -> bool:
    """Whether detectors have counted every trace, after which nothing more is written."""
    (row,) = await database.fetch(
        "select (select count(*) from trace) = (select count(*) from trace_fold)"
        " and not exists (select from fold_due) as counted"
    )
    return bool(row["counted"])


async def payloads(database: Database) -> dict[bytes, bytes]:
    """Each stored span as it came, by its id."""

    async def work(connection: Connection) -> dict[bytes, bytes]:
        rows = await connection.fetch("select trace_id, span_id, started_at, frame from span")
        return {
            row["span_id"]: span.raw
            for row in rows
            for span in (await read_payloads(connection, 1, [tuple(row.values())])).values()
        }

    return await database.run(work, timeout_s=600)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.disk", description=__doc__.split("\n")[0])
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    for apart in (False, True):
        raw_bytes, spans, more = growth(arguments.conversations, arguments.turns, apart=apart)
        total = sum(more.values())
        print(
            f"\n{arguments.conversations} conversations of {arguments.turns} turns, {spans:,} spans, ", end=""
        )
        print(("a trace each turn" if apart else "a trace each conversation") + ", all read back:\n")
        print("| | MB | share |\n|---|---|---|")
        print(f"| payloads as they were sent | {raw_bytes / 1e6:.1f} | 1 |")
        print(f"| tables and indexes; at most 0.25 is wanted | {total / 1e6:.1f} | {total / raw_bytes:.3f} |")
        for name, size in sorted(more.items(), key=lambda item: -item[1])[:5]:
            print(f"| of that `{name}` | {size / 1e6:.1f} | {size / raw_bytes:.3f} |")


def growth(conversations: int, count: int, *, apart: bool) -> tuple[int, int, dict[str, int]]:
    """The bytes that were sent, the spans in them, and by how many bytes each table has grown."""
    with measured() as service:
        before = trio.run(_ask, service, sizes)
        raw_bytes = 0
        sent: dict[bytes, bytes] = {}
        for spans in turns(conversations, count, apart=apart):
            raw_bytes += send(service, spans)
            sent |= {span.span_id: span.SerializeToString() for span in spans}
        service.wait_for_spans(len(sent), timeout_s=120)
        until(lambda: trio.run(_ask, service, counted), timeout_s=120, every_s=1)
        after = trio.run(_ask, service, sizes)
        found = trio.run(_ask, service, payloads)
    assert found == sent, "a payload did not come back as it was sent"
    grown = {name: size - before.get(name, 0) for name, size in after.items() if size > before.get(name, 0)}
    return raw_bytes, len(sent), grown


async def _ask(service: Service, question: Any) -> Any:
    async with open_store(read_settings(dict(service.env)), as_it_is=True) as store:
        return await question(store.database)


if __name__ == "__main__":
    main()
