"""`make bench-read`: how long answers take at a million spans over thirty days.

    python -m tests.bench.read [--spans 1000000] [--asks 60] [--beside 3000000]

The history is made in the database itself; what is asked goes through the real doors of a real service, the
query API and the MCP endpoint, idle and then under a thousand spans a second of ingest; between the two eight
agents call tools side by side. With `--beside`, each question is put in turns to two histories, idle, one of
them of that size. Prints Markdown for deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import httpx2
import msgspec
import trio

from protocol.query import timestamp
from svc import config
from svc.open_store import open_store
from svc.store.audit import OPERATOR
from svc.store.cubes import CubeStore
from svc.store.database import Connection
from svc.store.keys import KeyStore
from svc.store.partitions import DayPartitions
from svc.store.projects import ProjectStore
from tests.bench.__main__ import machine, percentile
from tests.bench.load import ask, generate
from tests.service import PLAIN, Service, running

DAYS = 30
#: Spans with the rare word.
RARE = 20

#: Ten spans a trace, a hundred traces a session; a name that twenty spans have, however many there are.
_SPANS = """
insert into span (project_id, trace_id, span_id, parent_span_id, kind, name, status, started_at, ended_at,
    created_at, call_site_id, tagged, session_id, user_id, provided_model_name, model_id, provider,
    input_tokens, output_tokens, total_cost, cost_source, input_preview, output_preview, frame)
select $1, decode(lpad(to_hex(n / 10), 32, '0'), 'hex'), decode(lpad(to_hex(n), 16, '0'), 'hex'),
    case when n % 10 = 0 then null else decode(lpad(to_hex(n - n % 10), 16, '0'), 'hex') end,
    (array['agent','llm','tool','llm','tool','llm','retrieval','llm','tool','llm'])[1 + n % 10],
    case when n % $6::bigint = 0 then 'a needle in the haystack' else 'chat step ' || n % 40 end,
    case when n % 33 = 0 then 'error' else 'ok' end, at, at + interval '900 milliseconds', at,
    'shop/' || n % 60, false, 'session-' || n / 1000, 'user-' || n % 500, 'gpt-4o',
    (array['gpt-4o','gpt-4o-mini','claude-sonnet-4-5'])[1 + n % 3],
    'openai', 900, 60, 0.0021, 'inferred', 'where is my parcel number ' || n, 'it is on its way, order ' || n,
    0
from generate_series($2::bigint, $3::bigint) n
cross join lateral (select $4::timestamptz + n * $5::interval as at) as times
"""

_TRACES = """
insert into trace (project_id, trace_id, name, started_at, ended_at, first_started_at, last_started_at,
    root_seen, session_id, user_id, call_site_id, span_count, error_count, status, total_tokens, total_cost,
    unpriced_spans, input_preview, output_preview, created_at, stale, due_at)
select project_id, trace_id, 'support', min(started_at), max(ended_at), min(started_at), max(started_at),
    true, min(session_id), min(user_id), 'shop/0', count(*), count(*) filter (where status = 'error'), 'ok',
    9600, sum(total_cost), 0, min(input_preview), min(output_preview), min(created_at), false, min(created_at)
from span group by project_id, trace_id on conflict do nothing
"""


async def fill(env: dict[str, str], spans: int) -> str:
    """The history: partitions, spans, traces, sessions, cubes, statistics. Returns an admin key."""
    async with open_store(config.read(env)) as store:
        now = datetime.now(UTC)
        start = now - timedelta(days=DAYS)
        step = timedelta(days=DAYS) / spans
        project = await ProjectStore(store.database).make_default()
        days = DayPartitions(store.database)
        await days.ensure([(start + timedelta(days=day)).date() for day in range(DAYS + 2)], now)
        for first in range(0, spans, 50_000):
            last = min(first + 50_000, spans) - 1

            async def some(connection: Connection, first: int = first, last: int = last) -> None:
                await connection.execute(_SPANS, project.id, first, last, start, step, spans // RARE)

            await store.database.run(some, timeout_s=600)

        async def rest(connection: Connection) -> None:
            await connection.execute(_TRACES)
            await connection.execute(
                "insert into session"
                " select project_id, session_id, min(user_id), min(started_at), max(ended_at) from span"
                " where session_id is not null group by 1, 2"
            )

        await store.database.run(rest, timeout_s=600)
        while (await CubeStore(store.database).build(now, 500)).more:
            pass

        async def analyze(connection: Connection) -> None:
            await connection.execute("vacuum analyze")

        await store.database.run(analyze, transaction=False, timeout_s=600)
        return (await KeyStore(store.database).create(project.id, "bench", "admin", actor=OPERATOR)).plaintext


def questions(now: datetime) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is asked, by name."""
    month = {"from": timestamp(now - timedelta(days=DAYS)), "to": timestamp(now)}
    spans: dict[str, Any] = {"dataset": "spans"}
    return {
        "newest page of spans": ("search", {**spans, "limit": 50}),
        "page of spans of one session": (
            "search",
            {**spans, "limit": 50, "filters": {"session_id": "session-500"}},
        ),
        "page of failed spans": ("search", {**spans, "limit": 50, "filters": {"status": "error"}}),
        "spans of one trace": ("search", {**spans, "filters": {"trace_id": f"{50_000:032x}"}}),
        "count, 30 days": ("count", {**spans, "range": month}),
        "count with a filter, 30 days": (
            "count",
            {**spans, "range": month, "filters": {"model_id": "gpt-4o"}},
        ),
        "timeseries by hour, 30 days": ("timeseries", {**spans, "interval": "hour", "range": month}),
        "timeseries by day, 30 days": ("timeseries", {**spans, "interval": "day", "range": month}),
        "facets by model, 30 days": ("facets", {**spans, "field": "model_id", "range": month}),
        "facets by session, 30 days": ("facets", {**spans, "field": "session_id", "range": month}),
        "search for a common word": ("search", {**spans, "q": "parcel", "limit": 50}),
        "search for a rare word": ("search", {**spans, "q": "needle", "limit": 50}),
    }


def calls(now: datetime, spans: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """What agents call, by name of the figure: single reads and pages, then aggregates."""
    month = {"from": timestamp(now - timedelta(days=DAYS)), "to": timestamp(now)}
    week = {
        "from": timestamp(now - timedelta(days=DAYS - 7)),
        "to": timestamp(now - timedelta(days=DAYS - 14)),
    }
    middle = spans // 20 * 10
    trace_id = f"{middle // 10:032x}"
    return {
        "get_project": ("get_project", {}),
        "list_call_sites": ("list_call_sites", {}),
        "list_traces": ("list_traces", {}),
        "list_traces, failed": ("list_traces", {"status": "error"}),
        "list_traces, a week long ago": ("list_traces", {"range": week}),
        "get_trace": ("get_trace", {"trace_id": trace_id}),
        "get_span": ("get_span", {"trace_id": trace_id, "span_id": f"{middle:016x}"}),
        "list_spans": ("list_spans", {}),
        "list_spans, failed tools": ("list_spans", {"status": "error", "kind": "tool"}),
        "list_spans, one call site": ("list_spans", {"call_site_id": "shop/7"}),
        "list_spans, a rare word": ("list_spans", {"q": "needle"}),
        "list_sessions": ("list_sessions", {}),
        "get_session": ("get_session", {"id": f"session-{middle // 1000}"}),
        "list_cases": ("list_cases", {}),
        "query_count, 30 days": ("query_count", {"dataset": "spans", "range": month}),
        "query_timeseries by day, 30 days": (
            "query_timeseries",
            {"dataset": "spans", "interval": "day", "range": month},
        ),
        "query_facets by call site, 30 days": (
            "query_facets",
            {"dataset": "spans", "field": "call_site_id", "range": month},
        ),
        "query_facets by session, 30 days": (
            "query_facets",
            {"dataset": "spans", "field": "session_id", "range": month},
        ),
    }


@attrs.frozen
class History:
    """A service with so many spans, and a key of its own for MCP."""

    service: Service
    spans: int
    admin_key: str


@contextmanager
def history(spans: int) -> Iterator[History]:
    """A service that is filled with so many spans."""
    with running() as service:
        started_s = time.perf_counter()
        admin_key = trio.run(fill, dict(service.env), spans)
        print(f"filled with {spans:,} spans in {time.perf_counter() - started_s:.0f} s")
        yield History(service, spans, admin_key)


def ask_all(histories: Sequence[History], asks: int) -> list[dict[str, tuple[float, float]]]:
    """p50 and p95 in milliseconds of each question and each call, for each history, asked in turns."""
    now = datetime.now(UTC)
    asked = [
        {
            **{
                name: (f"/v1/query/{route}", each.service.query_key, body)
                for name, (route, body) in questions(now).items()
            },
            **{
                f"MCP {name}": ("/mcp", each.admin_key, called(tool, arguments))
                for name, (tool, arguments) in calls(now, each.spans).items()
            },
        }
        for each in histories
    ]
    found: list[dict[str, tuple[float, float]]] = [{} for _ in histories]
    with ExitStack() as stack:
        clients = [
            stack.enter_context(httpx2.Client(base_url=each.service.url, timeout=60, **PLAIN))
            for each in histories
        ]
        for name in asked[0]:
            times_ms: list[list[float]] = [[] for _ in histories]
            while len(times_ms[0]) < asks and sum(map(sum, times_ms)) < 20_000:
                for client, requests, times in zip(clients, asked, times_ms, strict=True):
                    times.append(_timed(client, *requests[name]))
            for times, figures in zip(times_ms, found, strict=True):
                figures[name] = (percentile(times, 0.5), percentile(times, 0.95))
    return found


def _timed(client: httpx2.Client, path: str, key: str, body: dict[str, Any]) -> float:
    """Milliseconds until a good answer."""
    asked_s = time.perf_counter()
    response = client.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
    took_ms = (time.perf_counter() - asked_s) * 1000
    assert response.status_code == 200, response.text
    assert "error" not in response.json(), response.text
    assert not response.json().get("result", {}).get("isError"), response.text
    return took_ms


def called(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The JSON-RPC request of a call."""
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def agents(asked: History, seconds: float) -> tuple[float, int, float]:
    """Eight clients, each calling as fast as it is answered: calls a second, errors, p95 in milliseconds."""
    bodies = [
        msgspec.json.encode(called(tool, arguments))
        for tool, arguments in calls(datetime.now(UTC), asked.spans).values()
    ]
    latencies_s, errors = ask(asked.service.port, asked.admin_key, "/mcp", bodies, clients=8, seconds=seconds)
    return len(latencies_s) / seconds, errors, percentile(latencies_s, 0.95) * 1000


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.read")
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--asks", type=int, default=60)
    parser.add_argument("--beside", type=int, help="only compare with a second history of so many spans")
    arguments = parser.parse_args()
    if arguments.beside is None:
        alone(arguments.spans, arguments.asks)
    else:
        compare(arguments.spans, arguments.beside, arguments.asks)


def alone(spans: int, asks: int) -> None:
    """One history, idle and beside ingest."""
    with history(spans) as asked:
        (idle,) = ask_all([asked], asks)
        a_second, errors, tail_ms = agents(asked, 15.0)
        load = threading.Thread(target=_ingest, args=(asked.service, 60.0))
        load.start()
        (busy,) = ask_all([asked], max(10, asks // 3))
        load.join()
    print(f"\n{machine()}, {spans:,} spans")
    print("\n| question | p50 idle | p95 idle | p50 busy | p95 busy |\n|---|---|---|---|---|")
    for name, (median, tail) in idle.items():
        print(
            f"| {name} | {median:.1f} ms | {tail:.1f} ms | {busy[name][0]:.1f} ms | {busy[name][1]:.1f} ms |"
        )
    print(f"\nEight agents at once: {a_second:,.0f} calls/s, {errors} errors, p95 {tail_ms:.0f} ms.")


def compare(spans: int, more_spans: int, asks: int) -> None:
    """Two histories, idle, each question put to both in turns: a machine's speed drifts."""
    with history(spans) as less, history(more_spans) as more:
        figures = ask_all([less, more], asks)
    print(f"\n{machine()}, {spans:,} and {more_spans:,} spans")
    print("\n| question | p50 | p95 | p50 of more | p95 of more | p50, times | p95, times |")
    print("|---|---|---|---|---|---|---|")
    for name, (median, tail) in figures[0].items():
        median_of_more, tail_of_more = figures[1][name]
        print(
            f"| {name} | {median:.1f} ms | {tail:.1f} ms | {median_of_more:.1f} ms | {tail_of_more:.1f} ms"
            f" | {median_of_more / median:.2f} | {tail_of_more / tail:.2f} |"
        )


def _ingest(service: Service, seconds: float) -> None:
    generate(service.port, service.write_key, spans=100, connections=4, seconds=seconds, per_second=10)


if __name__ == "__main__":
    main()
