"""`make bench-detect`, third part: the processor time that counting a settled span takes.

    python -m tests.bench.tallying [--spans 10000] [--rounds 3] [--keep FOLDER] [--hold]

Two kinds of traffic are written into a database of its own and settled: the flood's, whose long texts came
before, and agents', who resend their history. Then every trace is tallied in rounds, each as if for the first
time. Prints what this process took a span, PostgreSQL apart, and a digest of all that was counted: two trees
can be measured in turns on one folder that is kept. With `--hold` it exits 1 when a span takes longer than
`BAR_US` in both together; under load it does.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import trio

from protocol.storage import Batch
from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.domain.intake.batches import decoder
from svc.domain.pricing.prices import PriceBook
from svc.runtime.garbage import collect_seldom
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.postgres.clock import server_clock
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DayPartitions
from svc.store.spans.call_sites import CallSites
from svc.store.spans.traces import PostgresTraceStore
from svc.store.spans.writing import SpanStore
from tests.bench.load import fresh, make_template, text
from tests.store.settling import settle_at
from tests.wire import request, span

#: 5 % of a core at 1,000 spans a second.
BAR_US: Final = 50.0
#: Spans in a request.
REQUEST: Final = 100
SPANS_PER_TRACE: Final = 10
TEMPLATES: Final = 8
FLOOD: Final = 1
AGENTS: Final = 2
TRAFFICS: Final = {"the flood's": FLOOD, "agents'": AGENTS}
SECRET_KEY: Final = b"k" * 32

#: All that was counted, by names instead of numbers.
_COUNTED: Final = (
    "select b.measure, b.subject, b.detail, t.slot, t.bin, t.units, t.failures from tally t"
    " join tally_bucket b on b.project_id = t.project_id and b.id = t.bucket_id"
    " where t.project_id = $1 order by 1, 2, 3, 4, 5",
    "select b.measure, b.subject, b.detail, w.slot, w.trace_id, w.spans, w.signature from tally_witness w"
    " join tally_bucket b on b.project_id = w.project_id and b.id = w.bucket_id"
    " where w.project_id = $1 order by 1, 2, 3, 4, 5",
    "select trace_id, slot, spans, texts from trace_fold where project_id = $1 order by 1",
)


def flood(spans: int, now_ns: int) -> Iterator[bytes]:
    """Bodies as `make bench` floods with."""
    templates = [make_template(seed, REQUEST) for seed in range(TEMPLATES)]
    for number in range(spans // REQUEST):
        yield bytes(fresh(templates[number % TEMPLATES], now_ns + number * 1_000_000))


def agents(spans: int, now_ns: int) -> Iterator[bytes]:
    """Bodies of agents: a root, four model calls that resend their history, five tools."""
    dice = random.Random(7)
    told = text(dice, 900)
    tools = msgspec.json.encode(
        [{"type": "function", "name": f"tool_{n}", "description": text(dice, 120)} for n in range(8)]
    ).decode()
    resource = {"service.name": "agents", "service.version": "2026.11"}
    batch: list[Any] = []
    for number in range(spans // SPANS_PER_TRACE):
        batch += _agent(dice, number, now_ns + number * 10_000_000, told, tools)
        if len(batch) >= REQUEST:
            yield request(*batch, resource=resource).SerializeToString()
            batch = []
    if batch:
        yield request(*batch, resource=resource).SerializeToString()


def _agent(dice: random.Random, number: int, begin_ns: int, told: str, tools: str) -> Iterator[Any]:
    trace_id = b"AGENT" + number.to_bytes(11, "big")
    shared = {"gen_ai.conversation.id": f"conversation-{number // 3}"}

    def made(place: int, name: str, attributes: dict[str, Any], status: int = 0) -> Any:
        return span(
            name,
            shared | attributes,
            trace_id=trace_id,
            span_id=b"A" + (number * SPANS_PER_TRACE + place).to_bytes(7, "big"),
            parent=b"A" + (number * SPANS_PER_TRACE).to_bytes(7, "big") if place else b"",
            start_ns=begin_ns + place * 1_000_000,
            end_ns=begin_ns + place * 1_000_000 + dice.randrange(10_000_000, 900_000_000),
            status_code=status,
        )

    yield made(0, "invoke_agent desk", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"})
    history: list[Any] = [_message("system", told), _message("user", text(dice, 400))]
    place = 1
    for turn in range(4):
        answer: dict[str, Any] = _message("assistant", text(dice, 300))
        called = [f"tool_{dice.randrange(8)}" for _ in range(2 if turn == 0 else 1)]
        for at, tool in enumerate(called):
            arguments = {"query": text(dice, 60), "limit": dice.randrange(50)}
            call = {"type": "tool_call", "id": f"call-{turn}-{at}", "name": tool, "arguments": arguments}
            if turn < 3 or at:
                answer["parts"].append(call)
        answer["finish_reason"] = "tool_call" if turn < 3 else "stop"
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "claude-sonnet-4-5",
            "gen_ai.response.model": "claude-sonnet-4-5",
            "gen_ai.response.id": f"msg_{dice.getrandbits(64):x}",
            "gen_ai.response.finish_reasons": [answer["finish_reason"]],
            "gen_ai.usage.input_tokens": dice.randint(200, 4000),
            "gen_ai.usage.output_tokens": dice.randint(20, 800),
            "gen_ai.tool.definitions": tools,
            "gen_ai.input.messages": msgspec.json.encode(history).decode(),
            "gen_ai.output.messages": msgspec.json.encode([answer]).decode(),
            "server.address": "api.anthropic.com",
        }
        yield made(place, "chat claude-sonnet-4-5", chat)
        place += 1
        history.append({k: v for k, v in answer.items() if k != "finish_reason"})
        for at, tool in enumerate(called):
            failing = dice.random() < 0.02
            result = {"rows": [text(dice, 300), text(dice, 300)]}
            said = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": f"call-{turn}-{at}",
                "gen_ai.tool.call.arguments": msgspec.json.encode({"query": text(dice, 60)}).decode(),
                "gen_ai.tool.call.result": msgspec.json.encode(result).decode(),
            }
            yield made(
                place,
                f"execute_tool {tool}",
                said | ({"error.type": "Timeout"} if failing else {}),
                2 if failing else 0,
            )
            place += 1
            history.append(
                {
                    "role": "tool",
                    "parts": [{"type": "tool_call_response", "id": f"call-{turn}-{at}", "response": result}],
                }
            )


def _message(role: str, said: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": said}]}


async def fill(database: Database, spans: int) -> None:
    """Write both kinds and have them settled."""
    decode = decoder(PriceBook())
    store = SpanStore(database, DayPartitions(database), CallSites(), server_clock)
    now = datetime.now(UTC)
    now_ns = int((now - timedelta(minutes=20)).timestamp()) * 1_000_000_000
    for project_id, bodies in ((FLOOD, flood(spans, now_ns)), (AGENTS, agents(spans, now_ns))):
        for body in bodies:
            for group in decode(Batch(project_id, body, REQUEST, now, 0.0)):
                await store.write(group)
    await settle_at(now + timedelta(hours=1), PostgresTraceStore(database))


_FOLDED: Final = (
    "tally",
    "tally_witness",
    "tally_bucket",
    "tally_due",
    "trace_fold",
    "fold_due",
    "fold_state",
)


async def forget(database: Database, project_id: int) -> None:
    """As if none of its traces had been tallied."""

    async def work(connection: Connection) -> None:
        for table in _FOLDED:
            # From that list.
            await connection.execute(f"delete from {table} where project_id = $1", project_id)
        # In an order of their own.
        await connection.execute(
            "insert into fold_due (project_id, trace_id)"
            " select project_id, trace_id from trace where project_id = $1 order by md5(trace_id)",
            project_id,
        )

    await database.run(work)


async def digest(database: Database, project_id: int) -> str:
    """A digest of all that was counted."""
    whole = hashlib.sha256()
    for statement in _COUNTED:
        for row in await database.fetch(statement, project_id):
            whole.update(repr(tuple(row)).encode())
    return whole.hexdigest()[:16]


def server_s(server: int) -> float:
    """The CPU seconds of a server and of those of its processes that are there."""
    found = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if server in (int(fields[1]), int(stat.parent.name)):
            found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def parent_of(pid: int) -> int:
    """The process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def measure(tally_updater: Path, spans: int, rounds: int) -> float:
    """Tally all of it so often; the worst of what a span took, in µs, PostgreSQL's with them."""
    worst_us = 0.0
    async with open_store(read_settings({"SVC_DATA_DIR": str(tally_updater)})) as store:
        database = store.database
        if not await database.fetch("select from trace limit 1"):
            await fill(database, spans)
        await database.fetch("analyze", timeout_s=600)
        queue = PostgresTallyQueue(database, secret_key=SECRET_KEY)
        # As the detecting process does.
        collect_seldom()
        [row] = await database.fetch("select pg_backend_pid() as pid")
        server = parent_of(row["pid"])
        for name, project_id in TRAFFICS.items():
            taken: list[tuple[float, float]] = []
            for _ in range(rounds):
                await forget(database, project_id)
                began_s, began_server_s = time.process_time(), server_s(server)
                tallied = 0
                while (done := await queue.tally(project_id)).traces:
                    tallied += done.spans
                own_us = (time.process_time() - began_s) / tallied * 1e6
                taken.append((own_us, (server_s(server) - began_server_s) / tallied * 1e6))
            # The first is that of a process that has seen nothing yet.
            own, served = (median(column) for column in zip(*taken[1:], strict=True))
            worst_us = max(worst_us, own + served)
            counted = await digest(database, project_id)
            print(f"| {name} | {taken[0][0]:.1f} | {own:.1f} | {served:.1f} | {counted} |", flush=True)
    return worst_us


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What tallying takes a span.")
    parser.add_argument("--spans", type=int, default=10_000, help="of each kind of traffic")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="a folder for the data, used again when it is there")
    parser.add_argument("--hold", action="store_true", help="fail above the bar")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trace-svc-bench-") as own:
        os.chmod(own, 0o755)
        tally_updater = arguments.keep or Path(own) / "data"
        print("\n### Tallying: µs of processor time a span\n")
        print("| spans | first round | later rounds | PostgreSQL | digest |\n|---|---|---|---|---|")
        worst_us = trio.run(measure, tally_updater, arguments.spans, arguments.rounds)
    raise SystemExit(1 if arguments.hold and worst_us > BAR_US else 0)


if __name__ == "__main__":
    main()
