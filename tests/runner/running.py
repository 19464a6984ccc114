"""A runner in this process, asked by the launcher's own client, over a stand-in model and a real service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from protocol.agents import RUN_TOOLS, RunLimits
from protocol.running import OVER, Credential, McpPlace, RunEvents, RunRequest, RunResult, RunStands
from svc.domain.agents.schemas import SCHEMAS
from svc.domain.pricing.prices import PriceBook
from svc.outside.addresses import LOCAL_NETWORKS, AddressRule
from svc.outside.models.provider import Surrounding
from svc.outside.runner import RunnerClient
from svc.runner.sandbox import NoSandboxBackend, SandboxBackend
from svc.runner.starting import serve_runner
from tests.runner.standin_model import Asked, Reply, StandIn, calls

KEY = "a key of both"
MODEL = "claude-sonnet-4-5"


@asynccontextmanager
async def runner(
    around: Surrounding | None = None, backend: SandboxBackend | None = None
) -> AsyncIterator[RunnerClient]:
    """A runner, and a client that has its key."""
    stop, urls = trio.Event(), list[str]()
    ready = trio.Event()

    def told(url: str) -> None:
        urls.append(url)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: serve_runner(
                "127.0.0.1:0",
                key=KEY,
                version="0",
                around=around or Surrounding(rule=AddressRule(LOCAL_NETWORKS)),
                backend=backend or NoSandboxBackend("container"),
                prices=PriceBook(),
                stop=stop,
                ready=told,
            )
        )
        with trio.fail_after(30):
            await ready.wait()
        yield RunnerClient(urls[0], KEY)
        stop.set()


def request(standing: StandIn, mcp_url: str, token: str, /, **fields: Any) -> RunRequest:
    """A triage over the vendor's dialect; the fields say what is else."""
    limits = RunLimits(60.0, 12, 200_000, 2.0, 2_000)
    plain: dict[str, Any] = {
        "kind": "triage",
        "files": {"claim.json": "{}"},
        "system_prompt": "Judge.",
        "prompt": "Is it true?",
        "json_schema": dict(SCHEMAS[fields.get("kind", "triage")]),
        "model": MODEL,
        "credential": Credential("anthropic", standing.url, secret="sk-standin-credential"),
        "mcp": McpPlace(mcp_url, token, RUN_TOOLS),
        "limits": limits,
    }
    return RunRequest(**{**plain, **fields})


async def ended(
    client: RunnerClient, name: str, wanted: RunRequest
) -> tuple[RunResult, list[dict[str, Any]]]:
    """The end of a run that is begun now, and all its events."""
    begun = await client.begin(name, wanted)
    assert isinstance(begun, RunStands), begun
    return await followed(client, name)


async def followed(client: RunnerClient, name: str) -> tuple[RunResult, list[dict[str, Any]]]:
    """The end of a run, and all its events."""
    events: list[dict[str, Any]] = []
    after = 0
    while True:
        run_events = await client.events(name, after)
        assert isinstance(run_events, RunEvents), run_events
        events += run_events.events
        after = run_events.next
        if run_events.state in OVER:
            break
    result = await client.result(name)
    assert isinstance(result, RunResult), result
    return result, events


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["kind"] for event in events]


def answer(verdict: str = "positive", summary: str = "it is so", ref: str = "q1") -> dict[str, Any]:
    """A triage that cites one result."""
    return {
        "verdict": verdict,
        "summary": summary,
        "citations": [{"kind": "query", "id": ref, "note": "looked"}],
    }


def looks_then(submits: Callable[[Asked], Any]) -> Callable[[Asked], Reply]:
    """A model that counts spans and then submits what the test says."""

    def script(asked: Asked) -> Reply:
        if not asked.results:
            return calls(("query_count", {"dataset": "spans"}))
        return calls(("submit_answer", submits(asked)))

    return script


@attrs.frozen
class Place:
    """Where the project is read in a test."""

    url: str
    token: str
