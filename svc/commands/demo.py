"""`trace-svc demo`: a small, realistic set of agent traces, sent through the real OTLP door.

Makes two keys for the default project, sends, asks the query API what it now says, prints the answers and
revokes the keys. The traces begin within the last hour, speak OTel GenAI and OpenInference, and hold a tool
that fails, cached tokens, sessions and one model that has no price.

With `--weeks` it sends the story of `demo_story` instead, with past event times: enough for detectors to
learn what is usual and to find what was planted. The two share no service, agent, tool or user, so that no
detector takes one for a change of the other. Sent again it adds nothing: it goes where it was.

With `--remove` it takes both away again.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx2
import trio
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from protocol.operator import OperatorError
from protocol.rest.query import timestamp
from protocol.storage import Outage
from svc.commands.demo_removal import remove_demo
from svc.commands.demo_story import (
    SERVICE,
    Attributes,
    StoryTrace,
    as_json,
    pairs,
    probe,
    request_of,
    traces_of,
)
from svc.commands.own_service import asking, other_folder, own_url
from svc.commands.target import name_project, named_project
from svc.config.table import Settings
from svc.domain.exporters.counters import DEMO_SCOPE
from svc.domain.quantities import duration
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.keys import PostgresKeyStore
from svc.wiring.open_store import open_store

TRACES: Final = 24
#: The services that its spans come from.
SERVICES: Final = ("parcel-desk", "doc-search", SERVICE)
TIMEOUT_S: Final = 15.0
ARRIVAL_TIMEOUT_S: Final = 30.0
#: The longest story; and how long sending it and its arrival may take.
WEEKS: Final = 4
STORY_TIMEOUT_S: Final = 600.0
#: Spans of one request of the story.
REQUEST_SPANS: Final = 400

_QUESTIONS: Final = (
    "Which of my orders is late?",
    "Cancel the blue jacket, please.",
    "Where can I pick up my parcel?",
    "Why was I charged twice in October?",
)
_ANSWERS: Final = (
    "Order 7731 left the warehouse two days late and arrives on Friday.",
    "Done: the blue jacket is cancelled and refunded to your card.",
    "Your parcel waits at the corner shop until Saturday, 18:00.",
    "The second charge was a deposit; it went back on the 28th.",
)
_MODELS: Final = (("openai", "gpt-4o"), ("openai", "gpt-4o-mini"), ("anthropic", "claude-sonnet-4-5"))
_PRIVATE_MODEL: Final = ("in-house", "house-llm-13b")


class _Story:
    """One trace in the making: spans one after the other under a root."""

    def __init__(self, dice: random.Random, started_at: datetime) -> None:
        self.trace_id = dice.randbytes(16)
        self._dice, self._at = dice, started_at
        self.spans: list[Span] = []

    def span(
        self, name: str, attributes: Attributes, *, parent: Span | None = None, error: str | None = None
    ) -> Span:
        took = timedelta(milliseconds=self._dice.randint(80, 2500))
        start = int(self._at.timestamp() * 1e9)
        span = Span(
            trace_id=self.trace_id,
            span_id=self._dice.randbytes(8),
            parent_span_id=parent.span_id if parent is not None else b"",
            name=name,
            kind=Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=start,
            end_time_unix_nano=start + int(took.total_seconds() * 1e9),
            attributes=pairs(attributes),
        )
        if error is not None:
            span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=error))
        self.spans.append(span)
        if parent is not None:
            self._at += took
            parent.end_time_unix_nano = max(parent.end_time_unix_nano, span.end_time_unix_nano)
        return span


def _parcel_agent(dice: random.Random, started_at: datetime, session: str, turn: int) -> _Story:
    """An agent that asks a model, calls a tool and answers; told in OTel GenAI conventions."""
    story = _Story(dice, started_at)
    provider, model = _PRIVATE_MODEL if dice.random() < 0.1 else dice.choice(_MODELS)
    question, answer = _QUESTIONS[turn % 4], _ANSWERS[turn % 4]
    failed = dice.random() < 0.2
    identity: Attributes = {"gen_ai.conversation.id": session, "user.id": f"visitor-{turn % 5}"}
    root = story.span(
        "invoke_agent parcel-desk",
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "parcel-desk", **identity},
    )
    conversation = [{"role": "user", "parts": [{"type": "text", "content": question}]}]
    call = {"type": "tool_call", "id": f"call-{turn}", "name": "find_parcel", "arguments": {"order": 7731}}
    chat: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        **identity,
    }
    story.span(
        f"chat {model}",
        {
            **chat,
            "gen_ai.input.messages": as_json(conversation),
            "gen_ai.output.messages": as_json([{"role": "assistant", "parts": [call]}]),
            "gen_ai.usage.input_tokens": 420 + 13 * turn,
            "gen_ai.usage.cache_read.input_tokens": 256,
            "gen_ai.usage.output_tokens": 31,
        },
        parent=root,
    )
    story.span(
        "execute_tool find_parcel",
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "find_parcel",
            "gen_ai.tool.call.id": f"call-{turn}",
            "gen_ai.tool.call.arguments": as_json(call["arguments"]),
            **({"error.type": "TimeoutError"} if failed else {"gen_ai.tool.call.result": '{"late": true}'}),
            **identity,
        },
        parent=root,
        error="the order service did not answer" if failed else None,
    )
    story.span(
        f"chat {model}",
        {
            **chat,
            "gen_ai.input.messages": as_json([*conversation, {"role": "assistant", "parts": [call]}]),
            "gen_ai.output.messages": as_json(
                [
                    {
                        "role": "assistant",
                        "parts": [{"type": "text", "content": answer}],
                        "finish_reason": "stop",
                    }
                ]
            ),
            "gen_ai.usage.input_tokens": 510 + 13 * turn,
            "gen_ai.usage.cache_read.input_tokens": 420,
            "gen_ai.usage.output_tokens": 64,
        },
        parent=root,
    )
    return story


def _document_search(dice: random.Random, started_at: datetime, session: str, turn: int) -> _Story:
    """Retrieval and an answer, told in OpenInference."""
    story = _Story(dice, started_at)
    question, answer = _QUESTIONS[turn % 4], _ANSWERS[turn % 4]
    identity: Attributes = {"session.id": session, "user.id": f"visitor-{turn % 5}"}
    root = story.span(
        "answer_from_docs",
        {"openinference.span.kind": "CHAIN", "input.value": question, "output.value": answer, **identity},
    )
    story.span(
        "retrieve",
        {
            "openinference.span.kind": "RETRIEVER",
            "input.value": question,
            "retrieval.documents.0.document.id": "faq-12",
            "retrieval.documents.0.document.score": 0.82,
            **identity,
        },
        parent=root,
    )
    story.span(
        "ChatCompletion",
        {
            "openinference.span.kind": "LLM",
            "llm.provider": "openai",
            "llm.model_name": "gpt-4o-mini",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": question,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": answer,
            "llm.token_count.prompt": 900 + turn,
            "llm.token_count.completion": 48,
            **identity,
        },
        parent=root,
    )
    return story


def traces(dice: random.Random, now: datetime) -> Iterator[tuple[str, list[Span]]]:
    """The sample traces: a service name and its spans."""
    for number in range(TRACES):
        session = f"demo-{now:%H%M%S}-{number // 4}"
        started_at = now - timedelta(minutes=55) + timedelta(minutes=2 * number)
        if number % 3:
            yield "parcel-desk", _parcel_agent(dice, started_at, session, number).spans
        else:
            yield "doc-search", _document_search(dice, started_at, session, number).spans


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--url", help="address of the service (default: the configured one)")
    parser.add_argument(
        "--weeks",
        type=int,
        choices=range(1, WEEKS + 1),
        help="send this many weeks of traces of a small application, up to last midnight, with faults to "
        "find",
    )
    parser.add_argument("--remove", action="store_true", help="remove what the demo sent, and send nothing")
    name_project(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Send the traces and print what the query API says. Raises `Outage` when the service is not there."""
    base = arguments.url or own_url(settings)
    elsewhere = None if arguments.url else other_folder(settings)
    if elsewhere is not None:
        raise OperatorError(f"{elsewhere}. Run this command with the same SVC_DATA_DIR")
    async with open_store(settings) as store:
        project = await named_project(store, arguments)
        if arguments.remove:
            await remove_demo(store.database, project, SERVICES)
            return
        keys = PostgresKeyStore(store.database)
        write = await keys.create(project.id, "demo (write)", "write", actor=OPERATOR)
        query = await keys.create(project.id, "demo (query)", "query", actor=OPERATOR)
        try:
            async with asking(base, settings, timeout_s=TIMEOUT_S) as client:
                if arguments.weeks is None:
                    await _send_and_ask(client, write.plaintext, query.plaintext)
                else:
                    await _send_weeks(client, write.plaintext, query.plaintext, arguments.weeks)
        except httpx2.TransportError as error:
            raise Outage(f"no service answers at {base}; start it with `make run`") from error
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + TIMEOUT_S):
                for minted in (write, query):
                    await keys.revoke(project.id, minted.key.id, actor=OPERATOR)


async def _send_and_ask(client: httpx2.AsyncClient, write: str, query: str) -> None:
    now = datetime.now(UTC)
    ask = _Asker(client, query, now)
    count_before = await ask.count()
    span_count = 0
    for service, spans in traces(random.Random(), now):  # noqa: S311 - sample data
        response = await client.post(
            "/v1/traces",
            content=request_of({"service.name": service}, DEMO_SCOPE, spans).SerializeToString(),
            headers={"Authorization": f"Bearer {write}", "Content-Type": "application/x-protobuf"},
        )
        if response.status_code != 200:
            raise _unaccepted("OTLP endpoint", response)
        span_count += len(spans)
    print(f"sent {TRACES} traces with {span_count} spans to {client.base_url}")
    with trio.fail_after(ARRIVAL_TIMEOUT_S):
        while await ask.count() < count_before + span_count:  # noqa: ASYNC110 - it happens in another process
            await trio.sleep(0.1)
    took_s = (datetime.now(UTC) - now).total_seconds()
    print(f"stored and queryable: {span_count} spans after {duration(took_s * 1000)}\n")
    await ask.show()


def _unaccepted(door: str, response: httpx2.Response) -> Exception:
    """What a refused request of the demo means. A key that was just made is known to its own database."""
    if response.status_code == 401:
        return OperatorError(
            f"the service at {response.url.scheme}://{response.url.netloc.decode()} rejects a key that this"
            " command just created: it uses another data folder or database. Run this command with the"
            " settings of that service"
        )
    return Outage(f"the {door} answered {response.status_code}: {response.text[:200]}")


def midnight(moment: datetime) -> datetime:
    """The beginning of its UTC day."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


async def _send_weeks(client: httpx2.AsyncClient, write: str, query: str, weeks: int) -> None:
    ask = _Asker(client, query, datetime.now(UTC))
    ends_at = await ask.story_end(probe(7 * weeks)) or midnight(datetime.now(UTC))
    count_before, span_count, traces_sent = await ask.count(), 0, 0
    last_trace_id = b""
    with trio.fail_after(STORY_TIMEOUT_S):
        for day in range(7 * weeks):
            story = list(traces_of(day, 7 * weeks, ends_at))
            for body, spans in requests_of(story):
                await _post_patiently(client, write, body)
                span_count += spans
            traces_sent += len(story)
            last_trace_id = story[-1].spans[0].trace_id if story else last_trace_id
            print(
                f"\rday {day + 1} of {7 * weeks}: {span_count:,} spans", end="", file=sys.stderr, flush=True
            )
        print(file=sys.stderr)
        print(f"sent {traces_sent} traces with {span_count} spans to {client.base_url}")
        # The last one is there, and nothing comes any more.
        now = -1
        while not await ask.count(trace_id=last_trace_id.hex()) or now != await ask.count():
            now = await ask.count()
            await trio.sleep(0.5)
    print(f"stored and queryable: {now - count_before} new spans\n")
    await ask.show()


def requests_of(story: Sequence[StoryTrace]) -> Iterator[tuple[bytes, int]]:
    """Bodies with their number of spans, each of one resource."""
    for version in sorted({str(trace.resource["service.version"]) for trace in story}):
        mine = [trace for trace in story if trace.resource["service.version"] == version]
        spans = [span for trace in mine for span in trace.spans]
        for n in range(0, len(spans), REQUEST_SPANS):
            batch = spans[n : n + REQUEST_SPANS]
            yield request_of(mine[0].resource, DEMO_SCOPE, batch).SerializeToString(), len(batch)


async def _post_patiently(client: httpx2.AsyncClient, write: str, body: bytes) -> None:
    """Send a body, waiting as long as a full service asks for."""
    while True:
        response = await client.post(
            "/v1/traces",
            content=body,
            headers={"Authorization": f"Bearer {write}", "Content-Type": "application/x-protobuf"},
        )
        if response.status_code == 200:
            return
        if response.status_code != 503:
            raise _unaccepted("OTLP endpoint", response)
        await trio.sleep(float(response.headers.get("Retry-After", "1")))


class _Asker:
    """Asks the query API about the spans of the demo."""

    def __init__(self, client: httpx2.AsyncClient, key: str, since: datetime) -> None:
        self._client, self._key = client, key
        self._range = {"from": timestamp(since - timedelta(seconds=5))}

    async def count(self, **filters: str) -> int:
        answer: int = (await self._post("count", {"dataset": "spans", "filters": filters}))["count"]
        return answer

    async def story_end(self, trace_id: bytes) -> datetime | None:
        """The end of the story that was sent before, None when none was."""
        request = {"dataset": "spans", "filters": {"trace_id": trace_id.hex()}, "limit": 1}
        rows = (await self._post("search", request))["rows"]
        if not rows:
            return None
        return midnight(datetime.fromisoformat(rows[0]["fields"]["started_at"])) + timedelta(days=1)

    async def show(self) -> None:
        """Facets by kind and model, and the failing tool calls."""
        for field in ("kind", "model_id", "status"):
            answer = await self._post("facets", {"dataset": "spans", "field": field, "range": self._range})
            shares = ", ".join(f"{facet['value']} {facet['count']}" for facet in answer["facets"])
            print(f"spans by {field}: {shares}")
        answer = await self._post(
            "search", {"dataset": "tool_calls", "filters": {"status": "error"}, "range": self._range}
        )
        print(f"failed tool calls: {len(answer['rows'])}")
        for row in answer["rows"][:3]:
            fields = row["fields"]
            print(f"  {fields['name']}: {fields['error_type']} — {fields['error_message']}")

    async def _post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        response = await self._client.post(
            f"/v1/query/{route}", json=body, headers={"Authorization": f"Bearer {self._key}"}
        )
        if response.status_code != 200:
            raise _unaccepted("query API", response)
        data: dict[str, Any] = response.json()["data"]
        return data
