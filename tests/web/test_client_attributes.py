"""What is found and promoted of ten clients: the doctor and Settings, Attributes say the same of each."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import attrs
import pytest

from protocol.storage import Batch
from svc.commands.report import print_attributes
from svc.domain.attributes.census import FIRST
from svc.domain.intake.batches import decoder
from svc.domain.pricing.prices import PriceBook
from svc.ingest.attributes import AttributeExchange
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.reads.questions.attributes import AttributeReads
from svc.store.reads.questions.questions import ask
from svc.store.spans.attribute_codes import AttributeCodes
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import PROJECT, Clock, one, store_of
from tests.web.test_attributes import PAGE
from tests.web.visitor import Visitor
from tests.wire import request

#: Spans that come in three rounds; keys are promoted after the second, so the last ones have their values.
ROUNDS: Final = (range(1, 1 + FIRST), range(1 + FIRST, 1 + 2 * FIRST), range(1 + 2 * FIRST, 25 + 2 * FIRST))


@attrs.frozen
class Client:
    """A client's scope, resource and span, and the values that its spans have in turn by field."""

    scope: str
    resource: Mapping[str, Any]
    #: By key; a list gives each span the next of its values.
    attributes: Mapping[str, Any]
    #: Fields with the values that are found.
    fields: Mapping[str, set[str]]


PLANS: Final = ["gold", "silver"]
SPOKEN: Final = {"service.name": "shop", "deployment.environment.name": "production"}
CHAT: Final = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
CLIENTS: Final = {
    "OpenTelemetry GenAI": Client(
        "opentelemetry.instrumentation.openai_v2",
        {**SPOKEN, "service.version": "4.3.0", "host.name": "node-1", "cloud.region": "eu-west-1"},
        {**CHAT, "gen_ai.response.finish_reasons": ["stop"], "shop.plan": PLANS},
        {
            "environment": {"production"},
            "release": {"4.3.0"},
            "host": {"node-1"},
            "region": {"eu-west-1"},
            "operation": {"chat"},
            "attr.shop.plan": set(PLANS),
        },
    ),
    "OpenInference": Client(
        "openinference.instrumentation.openai",
        SPOKEN,
        {
            "openinference.span.kind": "LLM",
            "llm.finish_reason": "length",
            "metadata": ['{"plan": "gold", "tenant": "acme"}', '{"plan": "silver", "tenant": "globex"}'],
            "llm.prompt_template.version": "v7",
        },
        {
            "tenant": {"acme", "globex"},
            "prompt_version": {"v7"},
            "finish_reason": {"length"},
            "attr.metadata.plan": set(PLANS),
        },
    ),
    "Langfuse": Client(
        "langfuse-sdk",
        {"service.name": "shop"},
        {
            "langfuse.environment": "staging",
            "langfuse.release": "2026.11",
            "langfuse.observation.prompt.name": "support",
            "langfuse.observation.prompt.version": 3,
            "langfuse.trace.metadata.plan": PLANS,
        },
        {
            "environment": {"staging"},
            "release": {"2026.11"},
            "prompt_name": {"support"},
            "prompt_version": {"3"},
            "attr.metadata.plan": set(PLANS),
        },
    ),
    "LangSmith": Client(
        "langsmith",
        SPOKEN,
        {
            **CHAT,
            "langsmith.span.kind": "llm",
            "langsmith.span.tags": "beta, vip",
            "langsmith.metadata.plan": PLANS,
        },
        {"environment": {"production"}, "tag": {"beta", "vip"}, "attr.metadata.plan": set(PLANS)},
    ),
    "OpenLLMetry": Client(
        "opentelemetry.instrumentation.openai",
        SPOKEN,
        {
            "traceloop.span.kind": "workflow",
            "traceloop.prompt.key": "greeting",
            "traceloop.association.properties.tenant_id": "acme",
            "traceloop.association.properties.plan": PLANS,
        },
        {"prompt_name": {"greeting"}, "tenant": {"acme"}, "attr.metadata.plan": set(PLANS)},
    ),
    "Vercel AI SDK": Client(
        "ai",
        SPOKEN,
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.response.finishReason": "stop",
            "ai.telemetry.metadata.tenantId": "acme",
            "ai.telemetry.metadata.plan": PLANS,
        },
        {"tenant": {"acme"}, "finish_reason": {"stop"}, "attr.metadata.plan": set(PLANS)},
    ),
    "pydantic-ai": Client(
        "pydantic-ai",
        {**SPOKEN, "service.version": "1.0"},
        {**CHAT, "gen_ai.agent.name": "desk", "logfire.level_num": [9, 13, 17], "feature": ["on", "off"]},
        {"agent": {"desk"}, "release": {"1.0"}, "attr.feature": {"on", "off"}},
    ),
    "MLflow": Client(
        "mlflow",
        SPOKEN,
        {"mlflow.spanType": '"LLM"', "mlflow.trace.tags": ["vip", "beta"], "customer.id": "acme"},
        {"tag": {"vip", "beta"}, "tenant": {"acme"}},
    ),
    "Google ADK": Client(
        "gcp.vertex.agent",
        SPOKEN,
        {**CHAT, "gen_ai.agent.name": ["weather", "time"], "app.channel": ["web", "phone"]},
        {"agent": {"weather", "time"}, "attr.app.channel": {"web", "phone"}},
    ),
    "Claude Code": Client(
        "com.anthropic.claude_code",
        {**SPOKEN, "service.version": "2.1.0", "organization.id": "org-7"},
        {"terminal.type": ["vscode", "tmux"], "user.email": ["ann@home.example", "bob@home.example"]},
        {"release": {"2.1.0"}, "tenant": {"org-7"}, "attr.terminal.type": {"vscode", "tmux"}},
    ),
}


def said(client: Client, number: int) -> dict[str, Any]:
    """The attributes of the span of this number."""
    return {
        key: value[number % len(value)] if isinstance(value, list) else value
        for key, value in client.attributes.items()
    }


async def send(store: Database, exchange: AttributeExchange, client: Client, numbers: range) -> None:
    """As a decoding process takes them, which then tells the store what it counted."""
    assert exchange.codes is not None
    spans = [one(n + 1, trace_id=n.to_bytes(16, "big"), attributes=said(client, n)) for n in numbers]
    body = request(*spans, resource=client.resource, scope=client.scope).SerializeToString()
    decode = decoder(PriceBook(), fields=exchange.reader, census=exchange.census)
    batch = Batch(PROJECT, body, len(spans), now(), 0.0)
    await attrs.evolve(store_of(store, Clock()), codes=exchange.codes).write(
        list(chain.from_iterable(decode(batch)))
    )
    await exchange.exchange(store, now())


@pytest.mark.parametrize("name", CLIENTS)
async def test_what_a_client_says_of_itself_can_be_asked_and_is_shown(
    store: Database, owner: Visitor, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    client = CLIENTS[name]
    exchange = AttributeExchange(codes=AttributeCodes(store))
    for numbers in ROUNDS:
        await send(store, exchange, client, numbers)

    print_attributes(await AttributeReads(store).fields(PROJECT))
    active, _, others = capsys.readouterr().out.partition("\nother attributes\n")
    page = (await owner.get(PAGE)).text
    for field, values in client.fields.items():
        assert f"\n  {field}, {len(values)} value" in active
        assert f"<code>{field}</code>" in page
        facets = await JsonQueries(store).facets(ask(PROJECT, "spans", (None, None), None), field, 100)
        assert {facet["value"] for facet in facets["facets"]} - {None} == values
    # Whoever wrote is shown nowhere.
    assert "home.example" not in page + active + others
    assert ("attr.user.email" in others) == ("user.email" in client.attributes)
