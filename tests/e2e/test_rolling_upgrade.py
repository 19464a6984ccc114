"""Two copies of the release before, replaced one after the other under load by this one: nobody notices."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import set_span_in_context

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.migrate import migrations
from tests.balancer import balanced
from tests.chaos.flood import stored
from tests.debian_postgres import DebianPostgres
from tests.releases import RELEASES
from tests.service import PLAIN, Service, running, until

pytestmark = [pytest.mark.alone, pytest.mark.release]

SECRETS = {"SVC_SECRET_KEY": "a" * 43 + "=", "SVC_AUTH_COOKIE_PASSWORD": "of the test, long enough for a key"}


class Load:
    """An application with a real exporter, and a reader of pages, queries and MCP, until told to stop.

    `failed` says what went wrong, of the exports and of the requests.
    """

    def __init__(self, url: str, write_key: str, admin_key: str) -> None:
        self.url, self.admin_key = url, admin_key
        self.exported: set[bytes] = set()
        self.failed: list[str] = []
        self.asked = 0
        self._write_key = write_key
        self._stop = threading.Event()
        self._client = httpx2.Client(base_url=url, timeout=30, **PLAIN)
        form = {"email": "owner@example.org", "password": "correct horse battery"}
        assert self._client.post("/signup", data=form, headers={"Origin": url}).status_code == 303
        self._threads = [threading.Thread(target=work) for work in (self._export, self._export, self._ask)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()

    def _export(self) -> None:
        headers = {"Authorization": f"Bearer {self._write_key}"}
        while not self._stop.is_set():
            # Applications come and go, and each keeps its connection.
            exporter = OTLPSpanExporter(f"{self.url}/v1/traces", headers=headers, timeout=30)
            for _ in range(20):
                spans = a_trace()
                if exporter.export(spans) is SpanExportResult.SUCCESS:
                    self.exported |= {_id(span) for span in spans}
                else:
                    self.failed.append("an export")
            exporter.shutdown()  # type: ignore[no-untyped-call]

    def _ask(self) -> None:
        headers = {"Authorization": f"Bearer {self.admin_key}", "Connection": "close"}
        tool = {"name": "list_traces", "arguments": {"limit": 5}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}
        project = "/orgs/default/projects/default"
        questions: list[tuple[str, dict[str, Any] | None]] = [
            ("/v1/query/count", {"dataset": "spans"}),
            ("/v1/query/search", {"dataset": "spans", "limit": 20}),
            ("/mcp", call),
            (f"{project}/traces", None),
            (f"{project}/settings/keys", None),
        ]
        while not self._stop.is_set():
            for path, body in questions:
                try:
                    if body is None:
                        answer = self._client.get(path, headers={"Connection": "close"})
                    else:
                        answer = self._client.post(path, json=body, headers=headers)
                except httpx2.TransportError as error:
                    self.failed.append(f"{path}: {error!r}")
                else:
                    if answer.status_code != 200 or '"isError":true' in answer.text:
                        self.failed.append(f"{path}: {answer.status_code} {answer.text[:300]}")
                self.asked += 1

    def until_more(self, spans: int, questions: int) -> None:
        """Wait until so much more was exported and asked."""
        spans, questions = len(self.exported) + spans, self.asked + questions

        def come() -> bool:
            assert self.failed == []
            return len(self.exported) >= spans and self.asked >= questions

        until(come)


def a_trace() -> list[ReadableSpan]:
    """An agent that asks a model a few times."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), id_generator=RandomIdGenerator())
    tracer = provider.get_tracer("of the test")
    root = tracer.start_span("invoke_agent shop", attributes={"gen_ai.operation.name": "invoke_agent"})
    ended: list[Any] = []
    for number in range(9):
        span = tracer.start_span(
            "chat gpt-4o",
            context=set_span_in_context(root),
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.usage.input_tokens": number + 1,
            },
        )
        span.end()
        ended.append(span)
    root.end()
    return [*ended, root]


def _id(span: ReadableSpan) -> bytes:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id.to_bytes(16, "big") + context.span_id.to_bytes(8, "big")


def balances(service: Service) -> bool:
    """Whether everything that this copy received has gone somewhere, and all of it was stored."""
    ledger = service.health()["components"]["ingest"]["details"]["ledger"]
    assert ledger["rejected"] == ledger["dead_lettered"] == 0
    return bool(ledger["waiting"] == ledger["balance"] == 0)


def test_each_copy_is_replaced_under_load_without_a_failed_request(
    postgres: DebianPostgres, open_folder: Path
) -> None:
    settings: dict[str, Any] = {
        "SVC_JDBC_URL": postgres.url,
        "SVC_INGEST_SPOOL_MODE": "disk",
        "SVC_INGEST_DECODERS": "0",
        **SECRETS,
    }
    with ExitStack() as stack:
        before = stack.enter_context(RELEASES[-1].code())
        folders = [open_folder / name for name in ("one", "two")]
        copies = [stack.enter_context(running(folders[0], first=True, code=before, **settings))]
        copies.append(stack.enter_context(running(folders[1], first=True, code=before, **settings)))
        write_key = copies[0].write_key
        admin_key = copies[0].command("keys", "create", "--scope", "admin", "--name", "load").strip()
        ports = [copy.port for copy in copies]
        front = stack.enter_context(balanced(ports))
        load = stack.enter_context(Load(f"http://127.0.0.1:{front}", write_key, admin_key))
        load.until_more(200, 20)
        until(lambda: all(copy.metric("svc_ingest_accepted_spans_total") > 0 for copy in copies))
        assert newest_step(copies[0]) == RELEASES[-1].step
        for place, folder in enumerate(folders):
            old = copies[place]
            # As any balancer does with a copy that is to go: no new connections, and a moment for the old.
            ports.remove(old.port)
            load.until_more(50, 10)
            assert old.stop() == 0
            assert "in the spool" not in old.log.read_text()
            copies[place] = stack.enter_context(running(folder, upgrades=True, **settings))
            ports.append(copies[place].port)
            load.until_more(400, 20)
            assert newest_step(copies[place]) == migrations()[-1].number
        until(lambda: all(copy.metric("svc_ingest_accepted_spans_total") > 0 for copy in copies))
        load.__exit__()
        assert load.failed == []
        until(lambda: all(balances(copy) for copy in copies))
        found = stored(copies[0].env)
        assert set(found) == load.exported
        assert set(found.values()) == {1}
        count = copies[1].ask("count", {"dataset": "spans"}, admin_key)["count"]
        assert count == len(load.exported)


def newest_step(service: Service) -> int:
    """The newest step of the schema."""

    async def main() -> int:
        async with open_store(read_settings(service.env), as_it_is=True) as store:
            rows = await store.database.fetch("select max(number) as newest from schema_migration")
            newest: int = rows[0]["newest"]
            return newest

    return trio.run(main)
