"""`make bench-read`: how long answers take at a million spans over thirty days.

    python -m tests.bench.read [--spans 1000000] [--asks 60] [--only page] [--beside 3000000] [--keep FOLDER]

The history is made in the database itself; what is asked goes through the real doors of a real service, the
query API, the MCP endpoint and the web pages of somebody signed in, idle and then under a thousand spans a
second of ingest; between the two eight agents call tools side by side. With `--beside`, each question is put
in turns to two histories, idle, one of them of that size. Prints Markdown for deploy/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from protocol.rest.query import timestamp
from tests.bench.__main__ import machine, percentile
from tests.bench.history import DAYS, History, history, trace_id
from tests.bench.load import ask, generate
from tests.service import PLAIN, Service

_BASE = "/orgs/default/projects/default"


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
        "spans of one trace": ("search", {**spans, "filters": {"trace_id": trace_id(50_000).hex()}}),
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
        **measured_questions(month),
    }


def measured_questions(month: dict[str, str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Measures over thirty days of event time, most of them filtered and grouped."""
    about: dict[str, Any] = {"dataset": "spans", "range": month, "by": "started_at"}
    by_hour = {**about, "interval": "hour"}
    failed = {**about, "filters": {"status": "error"}}
    return {
        "measure: errors by hour": ("timeseries", {**by_hour, "measure": "errors"}),
        "measure: cost by model": ("facets", {**about, "field": "model_id", "measure": "cost"}),
        "measure: cost of a kind by hour and model": (
            "timeseries",
            {**by_hour, "measure": "cost", "group_by": "model_id", "filters": {"kind": "llm"}},
        ),
        "measure: tokens by day": ("timeseries", {**about, "interval": "day", "measure": "tokens"}),
        "measure: p95 by call site": (
            "facets",
            {**about, "field": "call_site_id", "measure": "duration_p95"},
        ),
        "measure: p95 by call site of a kind": (
            "facets",
            {**about, "field": "call_site_id", "measure": "duration_p95", "filters": {"kind": "tool"}},
        ),
        "measure: count of a kind that failed": (
            "count",
            {**failed, "filters": {"status": "error", "kind": "tool"}},
        ),
        "measure: users of what failed": ("count", {**failed, "measure": "users"}),
        "measure: traces of what failed": ("count", {**failed, "measure": "traces"}),
        "measure: failed spans by user": ("facets", {**failed, "field": "user_id"}),
        **compared_populations(month),
    }


def compared_populations(month: dict[str, str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Two populations of traces over thirty days."""
    half = timestamp(datetime.fromisoformat(month["from"]) + timedelta(days=DAYS / 2))
    before, since = {"from": month["from"], "to": half}, {"from": half, "to": month["to"]}
    healthy, failing = ({"range": month, "failed_spans": failed} for failed in (False, True))
    tools = {"range": month, "filters": {"kind": "tool", "status": "error"}}
    of_a_model = {"filters": {"model_id": "gpt-4o"}}
    return {
        "measure: before and since": (
            "compare",
            {"baseline": {"range": before}, "comparison": {"range": since}},
        ),
        "measure: healthy and failing": ("compare", {"baseline": healthy, "comparison": failing}),
        "measure: all and failed tools": ("compare", {"baseline": {"range": month}, "comparison": tools}),
        "measure: a model before and since": (
            "compare",
            {"baseline": {"range": before, **of_a_model}, "comparison": {"range": since, **of_a_model}},
        ),
    }


def calls(now: datetime, of: History) -> dict[str, tuple[str, dict[str, Any]]]:
    """What agents call, by name of the figure: every tool at least once."""
    month = {"from": timestamp(now - timedelta(days=DAYS)), "to": timestamp(now)}
    week = {
        "from": timestamp(now - timedelta(days=DAYS - 7)),
        "to": timestamp(now - timedelta(days=DAYS - 14)),
    }
    hour = {"from": timestamp(now - timedelta(hours=1)), "to": timestamp(now + timedelta(hours=1))}
    middle = of.spans // 20 * 10
    some = trace_id(middle // 10).hex()
    spans, tools, events = ({"dataset": name} for name in ("spans", "tool_calls", "classifier_events"))
    # Tools of another site, and calls of this one.
    nowhere = {"kind": "tool", "call_site_id": "shop/7"}
    return {
        "get_project": ("get_project", {}),
        "list_call_sites": ("list_call_sites", {}),
        "list_failure_modes": ("list_failure_modes", {}),
        "list_cases": ("list_cases", {}),
        "get_case": ("get_case", {"id": "C-1"}),
        "list_findings": ("list_findings", {}),
        "get_finding": ("get_finding", {"id": of.finding_id}),
        "get_finding_evidence of 2,000": ("get_finding_evidence", {"finding_id": of.finding_id}),
        "list_traces": ("list_traces", {}),
        "list_traces, failed": ("list_traces", {"status": "error"}),
        "list_traces, a week long ago": ("list_traces", {"range": week}),
        "list_traces, a span that is nowhere": ("list_traces", {"filters": nowhere}),
        "list_traces, a common word": ("list_traces", {"q": "parcel"}),
        "list_traces, a rare word": ("list_traces", {"q": "needle"}),
        "list_traces, a part of an id": ("list_traces", {"q": some[-6:]}),
        "list_traces, a whole id": ("list_traces", {"q": some}),
        "list_traces, a rare model": ("list_traces", {"model": "o1-mini"}),
        "list_traces, a model long gone": ("list_traces", {"model": "gpt-3.5-turbo"}),
        "list_traces, one call site": ("list_traces", {"call_site_id": "shop/7"}),
        "get_trace": ("get_trace", {"trace_id": some}),
        "get_trace with payloads": ("get_trace", {"trace_id": of.readable, "fields": ["payload"]}),
        "get_span": ("get_span", {"trace_id": of.readable, "span_id": f"{1:016x}"}),
        "list_spans": ("list_spans", {}),
        "list_spans, a span that is nowhere": ("list_spans", {"filters": nowhere}),
        "list_spans, failed tools": ("list_spans", {"status": "error", "kind": "tool"}),
        "list_spans, one call site": ("list_spans", {"call_site_id": "shop/7"}),
        "list_spans, a rare model": ("list_spans", {"model_id": "o1-mini"}),
        "list_spans, a model long gone": ("list_spans", {"model_id": "gpt-3.5-turbo"}),
        "list_spans, a rare word": ("list_spans", {"q": "needle"}),
        "list_spans with payloads": ("list_spans", {"fields": ["payload"], "range": hour}),
        "list_sessions": ("list_sessions", {}),
        "get_session": ("get_session", {"id": f"session-{middle // 1000}"}),
        "describe_dataset": ("describe_dataset", {}),
        "query_count, 30 days": ("query_count", {**spans, "range": month}),
        "query_timeseries by day, 30 days": (
            "query_timeseries",
            {**spans, "interval": "day", "range": month},
        ),
        "query_facets by call site, 30 days": (
            "query_facets",
            {**spans, "field": "call_site_id", "range": month},
        ),
        "query_facets by session, 30 days": (
            "query_facets",
            {**spans, "field": "session_id", "range": month},
        ),
        "query_facets of failed spans by call site": (
            "query_facets",
            {**spans, "field": "call_site_id", "range": month, "filters": {"status": "error"}},
        ),
        "query_facets of failed tool calls": (
            "query_facets",
            {**tools, "field": "name", "range": month, "filters": {"status": "error"}},
        ),
        "query_search of tool calls": ("query_search", {**tools}),
        "query_search of failed tool calls": ("query_search", {**tools, "filters": {"status": "error"}}),
        "query_search of tool calls, a rare word": ("query_search", {**tools, "q": "needle"}),
        "query_search of classifier events": ("query_search", {**events, "q": "repeats"}),
        "query_facets of classifier events": ("query_facets", {**events, "field": "classifier_id"}),
    }


def pages(now: datetime, of: History) -> dict[str, str]:
    """What a browser opens, by name of the figure."""
    middle = of.spans // 20 * 10
    some = trace_id(middle // 10).hex()
    month = "range=30d"
    return {
        "traces, 24 hours": "/traces",
        "traces, 30 days": f"/traces?{month}",
        "traces, 30 days, failed": f"/traces?{month}&q=status:error",
        "traces, 30 days, slow": f"/traces?{month}&q=latency:>5s",
        "traces, 30 days, one model": f"/traces?{month}&q=model:gpt-4o",
        "traces, 30 days, not a rare model": f"/traces?{month}&q=-model:o1-mini",
        "traces, 30 days, a rare word": f"/traces?{month}&q=needle",
        "traces, 30 days, a common word": f"/traces?{month}&q=parcel",
        "drawing of traces, 30 days, a common word": f"/traces/drawing?{month}&q=parcel",
        "drawing of traces, 30 days, a common word, further back": (
            f"/traces/drawing?{month}&q=parcel&further=1"
        ),
        "drawing of traces, 30 days, a common word of a rare model": (
            f"/traces/drawing?{month}&q=parcel+model:o1-mini"
        ),
        "traces, 30 days, nothing is so slow": f"/traces?{month}&q=latency:>50s",
        "traces, 30 days, dear and of no such user": f"/traces?{month}&q=cost:>0.01+-user:user-7",
        "traces, 30 days, many filters": (
            f"/traces?{month}&q=latency:<50s+-model:o1-mini+-user:user-7+kind:tool+site:shop/7+cost:>0.01"
        ),
        "rows of traces, 30 days": f"/traces/rows?{month}",
        "facets of traces, 24 hours": "/traces/facets",
        "facets of traces, 30 days": f"/traces/facets?{month}",
        "facets of traces, 30 days, not a rare model": f"/traces/facets?{month}&q=-model:o1-mini",
        "a trace": f"/traces/{some}",
        "columns of a trace": f"/traces/{some}/skeleton",
        "palette, a span id": f"/go?q={'9' * 16}",
        "sessions": "/sessions",
        "a session": f"/session?id=session-{middle // 1000}",
        "vitals, a day": "/vitals?range=24h",
        "vitals, 7 days": "/vitals?range=7d",
        "vitals of models, 7 days": "/vitals/models?range=7d",
        "vitals of tools, 7 days": "/vitals/tools?range=7d",
        "overview, 7 days": "/overview",
        "overview, 30 days by user": f"/overview?{month}&by=user",
        "explore, 30 days": f"/explore?{month}",
        "prices": "/prices",
    }


def ask_all(histories: Sequence[History], asks: int, only: str = "") -> list[dict[str, tuple[float, float]]]:
    """p50 and p95 in milliseconds of each question and each call, for each history, asked in turns."""
    now = datetime.now(UTC)
    asked: list[dict[str, tuple[str, str, dict[str, Any] | None]]] = [
        {
            **{
                name: (f"/v1/query/{route}", each.service.query_key, body)
                for name, (route, body) in questions(now).items()
            },
            **{
                f"MCP {name}": ("/mcp", each.admin_key, called(tool, arguments))
                for name, (tool, arguments) in calls(now, each).items()
            },
            **{f"page: {name}": (f"{_BASE}{path}", "", None) for name, path in pages(now, each).items()},
        }
        for each in histories
    ]
    found: list[dict[str, tuple[float, float]]] = [{} for _ in histories]
    with ExitStack() as stack:
        clients = [
            stack.enter_context(httpx2.Client(base_url=each.service.url, timeout=60, **PLAIN))
            for each in histories
        ]
        for client, each in zip(clients, histories, strict=True):
            each.sign_in(client)
        for name in asked[0]:
            if only not in name:
                continue
            times_ms: list[list[float]] = [[] for _ in histories]
            while len(times_ms[0]) < asks and sum(map(sum, times_ms)) < 20_000:
                for client, requests, times in zip(clients, asked, times_ms, strict=True):
                    times.append(_timed(client, *requests[name]))
            for times, figures in zip(times_ms, found, strict=True):
                figures[name] = (percentile(times, 0.5), percentile(times, 0.95))
            # All of it is printed at the end; should it not come to that, this is there.
            print(
                name,
                *(f"{figures[name][0]:.1f} {figures[name][1]:.1f}" for figures in found),
                file=sys.stderr,
            )
    return found


def _timed(client: httpx2.Client, path: str, key: str, body: dict[str, Any] | None) -> float:
    """Milliseconds until a good answer; without a body a page is opened."""
    asked_s = time.perf_counter()
    if body is None:
        page = client.get(path)
        took_ms = (time.perf_counter() - asked_s) * 1000
        assert page.status_code == 200 or "/go?" in path, page.text
        return took_ms
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
    """Eight clients, each calling the nineteen tools in turn, as fast as it is answered.

    Calls a second, errors, p95 in milliseconds. Of each tool the first of its calls.
    """
    plainest = dict(reversed(calls(datetime.now(UTC), asked).values()))
    bodies = [msgspec.json.encode(called(tool, arguments)) for tool, arguments in plainest.items()]
    latencies_s, errors = ask(asked.service.port, asked.admin_key, "/mcp", bodies, clients=8, seconds=seconds)
    return len(latencies_s) / seconds, errors, percentile(latencies_s, 0.95) * 1000


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.read")
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--asks", type=int, default=60)
    parser.add_argument("--beside", type=int, help="only compare with a second history of so many spans")
    parser.add_argument("--only", default="", help="ask only what has this in its name, and idle")
    parser.add_argument("--keep", type=Path, help="where histories are left and found again")
    arguments = parser.parse_args()
    asks, only, kept = arguments.asks, arguments.only, arguments.keep
    if arguments.beside is None:
        alone(arguments.spans, asks, only, kept)
    else:
        compare(arguments.spans, arguments.beside, asks, only, kept)


def alone(spans: int, asks: int, only: str, kept: Path | None) -> None:
    """One history, idle and beside ingest; of some questions alone, idle."""
    with history(spans, kept) as asked:
        (idle,) = ask_all([asked], asks, only)
        if only:
            print(f"\n{machine()}, {asked.spans:,} spans")
            print("\n| question | p50 idle | p95 idle |\n|---|---|---|")
            for name, (median, tail) in idle.items():
                print(f"| {name} | {median:.1f} ms | {tail:.1f} ms |")
            return
        a_second, errors, tail_ms = agents(asked, 15.0)
        load = threading.Thread(target=_ingest, args=(asked.service, 60.0))
        load.start()
        (busy,) = ask_all([asked], max(10, asks // 3))
        load.join()
    print(f"\n{machine()}, {asked.spans:,} spans")
    print("\n| question | p50 idle | p95 idle | p50 busy | p95 busy |\n|---|---|---|---|---|")
    for name, (median, tail) in idle.items():
        print(
            f"| {name} | {median:.1f} ms | {tail:.1f} ms | {busy[name][0]:.1f} ms | {busy[name][1]:.1f} ms |"
        )
    print(f"\nEight agents at once: {a_second:,.0f} calls/s, {errors} errors, p95 {tail_ms:.0f} ms.")


def compare(spans: int, more_spans: int, asks: int, only: str, kept: Path | None) -> None:
    """Two histories, idle, each question put to both in turns: a machine's speed drifts."""
    with history(spans, kept) as less, history(more_spans, kept) as more:
        figures = ask_all([less, more], asks, only)
    print(f"\n{machine()}, {less.spans:,} and {more.spans:,} spans")
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
