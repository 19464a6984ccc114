"""Real exporters land their spans: Python over HTTP and gRPC, JavaScript as JSON and protobuf."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from tests.e2e.environments import node_with
from tests.service import Service

JS = Path(__file__).parent / "js"


def http(service: Service, compression: Compression) -> SpanExporter:
    return HttpExporter(
        f"{service.url}/v1/traces",
        headers={"Authorization": f"Bearer {service.write_key}"},
        compression=compression,
    )


def grpc(service: Service, compression: Any) -> SpanExporter:
    return GrpcExporter(
        f"127.0.0.1:{service.grpc_port}",
        insecure=True,
        headers=(("authorization", f"Bearer {service.write_key}"),),
        compression=compression,
    )


def grpc_gzip(service: Service) -> SpanExporter:
    from grpc import Compression as GrpcCompression

    return grpc(service, GrpcCompression.Gzip)


EXPORTERS: dict[str, Callable[[Service], SpanExporter]] = {
    "http": lambda service: http(service, Compression.NoCompression),
    "http-gzip": lambda service: http(service, Compression.Gzip),
    "http-deflate": lambda service: http(service, Compression.Deflate),
    "grpc": lambda service: grpc(service, None),
    "grpc-gzip": grpc_gzip,
}


def tell_a_story(exporter: SpanExporter, session: str) -> None:
    """An agent that asks a model once, the way an instrumented application does."""
    provider = TracerProvider(resource=Resource.create({"service.name": "py-shop"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("app", "1.0")
    who = {"session.id": session}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk", **who}
    with tracer.start_as_current_span("invoke_agent clerk", attributes=agent):
        chat = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o-mini",
            "gen_ai.usage.input_tokens": 1000,
            "gen_ai.usage.output_tokens": 100,
            "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"grüße 🙂"}]}]',
            **who,
        }
        with tracer.start_as_current_span("chat gpt-4o-mini", attributes=chat):
            pass
    provider.shutdown()


def has_arrived(service: Service, session: str, call_site: str) -> None:
    """Count, facets and search say the same: model, tokens, cost, session."""
    service.wait_for_spans(2, session_id=session)
    filters = {"session_id": session}
    facets = service.ask("facets", {"dataset": "spans", "field": "model_id", "filters": filters})["facets"]
    assert facets == [{"value": "gpt-4o-mini", "count": 1}, {"value": None, "count": 1}]
    kinds = service.ask("facets", {"dataset": "spans", "field": "kind", "filters": filters})["facets"]
    assert [facet["value"] for facet in kinds] == ["agent", "llm"]
    (row,) = service.ask(
        "search", {"dataset": "spans", "q": "GRÜSSE 🙂".replace("SS", "ß"), "filters": filters}
    )["rows"]
    fields = row["fields"]
    assert fields["provided_model_name"] == "gpt-4o-mini"
    assert (fields["input_tokens"], fields["output_tokens"]) == (1000, 100)
    # 0.15 and 0.60 USD a million tokens, the list price of gpt-4o-mini.
    assert Decimal(str(fields["total_cost"])) == Decimal("0.00021")
    assert fields["cost_source"] == "inferred"
    assert fields["input_preview"] == "grüße 🙂"
    assert fields["call_site_id"].startswith(call_site)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_the_python_exporters_land_their_spans(service: Service, exporter: str) -> None:
    session = f"py-{exporter}-{uuid.uuid4()}"
    tell_a_story(EXPORTERS[exporter](service), session)
    has_arrived(service, session, "py-shop")


@pytest.fixture(scope="session")
def node() -> str:
    """node with the packages of the lock file."""
    return node_with(JS, next(iter(json.loads((JS / "package.json").read_text())["dependencies"])))


@pytest.mark.parametrize("kind", ["http", "proto"])
def test_the_javascript_exporters_land_their_spans(service: Service, node: str, kind: str) -> None:
    session = f"js-{kind}-{uuid.uuid4()}"
    subprocess.run(
        [node, "export.mjs", kind, service.url, service.write_key, session], cwd=JS, check=True, timeout=60
    )
    has_arrived(service, session, "js-shop")
