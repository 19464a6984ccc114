"""Fills an instance with the code of a release, and writes down what was asked of it and answered.

Run by `python -m tests.releases NAME` with the code of that release first on the path, so everything that is
imported here is the release's. It asks only for what does not depend on the day.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.rollups import RollupStore
from svc.store.postgres.database import Connection
from tests.service import PLAIN, Service, running, until

#: Hours are summed up once they are over: what came just now came then.
AGO = timedelta(hours=5)


async def _aged(service: Service) -> None:
    """Have everything come in some hours ago, and sum those hours up."""

    async def work(connection: Connection) -> None:
        for table in ("span", "tool_call", "trace"):
            await connection.execute(f"update {table} set created_at = created_at - $1::interval", AGO)

    async with open_store(read_settings(service.env), as_it_is=True) as store:
        await store.database.run(work)
        for hours in (CubeStore(store.database), RollupStore(store.database)):
            while (await hours.build(datetime.now(UTC), 10_000)).more:
                pass


def _questions(service: Service) -> list[tuple[str, dict[str, Any]]]:
    """Paths and bodies."""
    asked: list[tuple[str, dict[str, Any]]] = []
    for dataset, fields in {
        "spans": ("kind", "name", "status", "model_id", "session_id", "call_site_id"),
        "tool_calls": ("name", "status", "error_type"),
    }.items():
        asked += [("/v1/query/count", {"dataset": dataset})]
        asked += [("/v1/query/facets", {"dataset": dataset, "field": field}) for field in fields]
        asked += [("/v1/query/count", {"dataset": dataset, "filters": {"status": "error"}})]
        asked += [("/v1/query/search", {"dataset": dataset, "limit": 100})]
    asked.append(("/v1/query/search", {"dataset": "spans", "q": "refund", "limit": 100}))
    rows = service.ask("search", {"dataset": "spans", "limit": 100})["rows"]
    spans = [row["fields"] for row in rows]
    tools = {
        "list_traces": {"limit": 50},
        "list_spans": {"limit": 50, "status": "error"},
        "list_sessions": {},
        "list_call_sites": {},
        "get_trace": {"trace_id": spans[0]["trace_id"], "fields": ["payload"]},
        "get_span": {"trace_id": spans[-1]["trace_id"], "span_id": spans[-1]["span_id"]},
    }
    for number, (name, arguments) in enumerate(tools.items()):
        call = {"name": name, "arguments": arguments}
        asked.append(("/mcp", {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}))
    return asked


def answered(url: str, key: str, path: str, body: dict[str, Any]) -> Any:
    """What a service says."""
    response = httpx2.post(
        f"{url}{path}", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=30, **PLAIN
    )
    assert response.status_code == 200, response.text
    said = response.json()
    assert not said.get("result", {}).get("isError"), said
    return said


def main(folder: Path) -> None:
    """Leave `data` and `answers.json` in the folder."""
    with running(folder / "data") as service:
        service.command("demo", "--url", service.url)
        until(lambda: service.health()["components"]["ingest"]["details"]["depth"] == 0)
        key = service.command("keys", "create", "--scope", "admin", "--name", "of the dump").strip()
        traces = {"name": "list_traces", "arguments": {"limit": 100}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": traces}

        def settled() -> bool:
            said = answered(service.url, key, "/mcp", call)["result"]["structuredContent"]["traces"]
            return bool(said) and all(trace["is_settled"] for trace in said)

        until(settled, timeout_s=300, every_s=1.0)
        trio.run(_aged, service)
        asked = _questions(service)
        answers = [(path, body, answered(service.url, key, path, body)) for path, body in asked]
    (folder / "answers.json").write_bytes(msgspec.json.encode({"key": key, "answers": answers}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
