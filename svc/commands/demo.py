"""`trace-svc demo`: a small, realistic set of agent traces, sent through the real OTLP door.

Makes two keys for the default project, sends, asks the query API what it now says, prints the answers and
revokes the keys. The small set of `demo_sample` begins within the last hour.

With `--weeks` it sends the story of `demo_story` instead, with past event times up to now, and what people
thought of the answers: enough for detectors to learn what is usual and to find what was planted. Story and
small set share no service, agent, tool or user, so that no detector takes one for a change of the other. Sent
again the story adds nothing: it goes where it was, and ends where it ended.

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
import msgspec
import trio

from protocol.operator import OperatorError
from protocol.rest.query import timestamp
from protocol.storage import Outage
from svc.application.open_store import open_store
from svc.commands import demo_reports, demo_sample, demo_shop
from svc.commands.demo_recorder import StoryTrace, request_of
from svc.commands.demo_removal import remove_demo
from svc.commands.demo_sample import TRACES, traces
from svc.commands.demo_story import probe, traces_of
from svc.commands.own_service import asking, other_folder, own_url
from svc.commands.target import name_project, named_project
from svc.commands.terminal import printable
from svc.config.table import Settings
from svc.domain.exporters.counters import DEMO_SCOPE
from svc.domain.quantities import duration
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.keys import PostgresKeyStore

#: The services that spans of the demo come from.
SERVICES: Final = (*demo_sample.SERVICES, demo_shop.SERVICE, demo_reports.SERVICE)
TIMEOUT_S: Final = 15.0
ARRIVAL_TIMEOUT_S: Final = 30.0
#: The longest story; and how long sending it and its arrival may take.
WEEKS: Final = 4
STORY_TIMEOUT_S: Final = 600.0
#: How often the arrival is asked for, and after how many times without news it is over.
POLL_S: Final = 0.5
QUIET_POLLS: Final = 6
#: The door for what people think of an answer.
FEEDBACK_PATH: Final = "/v1/feedback"
#: Spans of one request of the story.
REQUEST_SPANS: Final = 400


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--url", help="address of the service (default: the configured one)")
    parser.add_argument(
        "--weeks",
        type=int,
        choices=range(1, WEEKS + 1),
        help="send this many weeks of traces of two applications, up to now, with three faults to find",
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
    now, days = datetime.now(UTC), 7 * weeks
    ask = _Asker(client, query, now)
    known_end = await ask.story_end(probe(days))
    ends_at = known_end or midnight(now)
    count_before, span_count, trace_count, opinion_count = await ask.count(), 0, 0, 0
    last_trace_id = b""
    with trio.fail_after(STORY_TIMEOUT_S):
        for day in range(days + 1):
            story = list(traces_of(day, days, ends_at))
            if day == days:
                # A story that was sent before ends where it ended, or each sending would make it longer.
                story = [] if known_end else until_now(story, now)
            for body, spans in requests_of(story):
                await _post_patiently(client, write, "/v1/traces", body)
                span_count += spans
            if opinions := [opinion for trace in story for opinion in trace.feedback]:
                entries = msgspec.json.encode({"feedback": opinions})
                await _post_patiently(client, write, FEEDBACK_PATH, entries)
                opinion_count += len(opinions)
            trace_count += len(story)
            last_trace_id = story[-1].spans[0].trace_id if story else last_trace_id
            print(f"\rday {day + 1} of {days + 1}: {span_count:,} spans", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        print(
            f"sent {trace_count} traces with {span_count} spans and {opinion_count} entries of feedback"
            f" to {client.base_url}"
        )
        stored = await _stored(ask, last_trace_id, count_before + span_count)
    print(f"stored and queryable: {stored - count_before} new spans\n")
    await ask.show()


async def _stored(ask: _Asker, last_trace_id: bytes, expected: int) -> int:
    """The number of spans once all of the story are there: as many as expected, or, since what was sent
    before adds nothing, the last one and then no more of them for a while.
    """
    count, quiet_polls = await ask.count(), 0
    while count < expected and quiet_polls < QUIET_POLLS:
        await trio.sleep(POLL_S)
        previous, count = count, await ask.count()
        is_quiet = count == previous and await ask.count(trace_id=last_trace_id.hex()) > 0
        quiet_polls = quiet_polls + 1 if is_quiet else 0
    return count


def until_now(story: Sequence[StoryTrace], now: datetime) -> list[StoryTrace]:
    """The traces of a day that are over."""
    return [trace for trace in story if trace.ended_at_ns <= now.timestamp() * 1e9]


def requests_of(story: Sequence[StoryTrace]) -> Iterator[tuple[bytes, int]]:
    """Bodies with their number of spans, each of one resource."""
    by_resource: dict[tuple[str, ...], list[StoryTrace]] = {}
    for trace in story:
        by_resource.setdefault(tuple(map(str, trace.resource.values())), []).append(trace)
    for _, group in sorted(by_resource.items()):
        spans = [span for trace in group for span in trace.spans]
        for n in range(0, len(spans), REQUEST_SPANS):
            batch = spans[n : n + REQUEST_SPANS]
            yield request_of(group[0].resource, DEMO_SCOPE, batch).SerializeToString(), len(batch)


async def _post_patiently(client: httpx2.AsyncClient, write: str, path: str, body: bytes) -> None:
    """Send a body, waiting as long as a full service asks for."""
    content_type = "application/json" if path == FEEDBACK_PATH else "application/x-protobuf"
    while True:
        response = await client.post(
            path, content=body, headers={"Authorization": f"Bearer {write}", "Content-Type": content_type}
        )
        if response.status_code == 200:
            return
        if response.status_code != 503:
            raise _unaccepted("OTLP endpoint" if path != FEEDBACK_PATH else "feedback endpoint", response)
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
            shares = ", ".join(
                f"{facet['value'] or '(none)'} {facet['count']:,}" for facet in answer["facets"]
            )
            print(printable(f"spans by {field}: {shares}"))
        failed = {"dataset": "tool_calls", "filters": {"status": "error"}, "range": self._range}
        print(f"failed tool calls: {(await self._post('count', failed))['count']:,}")
        answer = await self._post("search", failed)
        for row in answer["rows"][:3]:
            fields = row["fields"]
            print(printable(f"  {fields['name']}: {fields['error_type']} — {fields['error_message']}"))

    async def _post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        response = await self._client.post(
            f"/v1/query/{route}", json=body, headers={"Authorization": f"Bearer {self._key}"}
        )
        if response.status_code != 200:
            raise _unaccepted("query API", response)
        data: dict[str, Any] = response.json()["data"]
        return data
