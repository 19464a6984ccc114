"""A trace of many thousand spans is added up, and read, within the bounds of every other trace."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from svc.store.reads.one_trace.trace_payloads import MOST_EXPORTED
from tests import wire
from tests.e2e.hostile import MIB, trace_id
from tests.e2e.mcp import asked, call
from tests.e2e.watch import memory_bytes
from tests.service import PLAIN, Service, running, until

BODY_SPANS: Final = 5_000
TOKENS: Final = 5
#: What a step of the loop may take of the processor (`tests.e2e.test_loop_held`).
HELD_S: Final = 0.1
#: What the main process may take of memory, beside the bodies that wait in the spool.
GROWN_BYTES: Final = 50 * MIB
OWNER: Final = {"email": "owner@example.org", "password": "correct horse battery"}
ROOT: Final = (1).to_bytes(8, "big")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as service:
        yield service


def bodies(trace: bytes, count: int) -> Iterator[bytes]:
    """A run of agents, each of which asks a model and calls a tool.

    The agent reports the tokens of the call again, and the answer names the call of the tool.
    """
    for first in range(1, count + 1, BODY_SPANS):
        numbers = range(first, min(first + BODY_SPANS, count + 1))
        yield wire.request(*(_span(trace, number) for number in numbers)).SerializeToString()


def _span(trace: bytes, number: int) -> Any:
    own, place = number.to_bytes(8, "big"), number % 3
    agent = (number - place).to_bytes(8, "big") if place and number > place else ROOT
    attributes: dict[str, Any] = {"session.id": "huge"}
    if number == 1:
        return wire.span("run", attributes, trace_id=trace, span_id=own)
    if place == 0:
        attributes |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": TOKENS}
        return wire.span(f"agent {number % 7}", attributes, trace_id=trace, span_id=own, parent=agent)
    if place == 1:
        answer = f'[{{"role":"assistant","parts":[{{"type":"tool_call","id":"{number}","name":"look"}}]}}]'
        attributes |= {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
        attributes |= {"gen_ai.usage.input_tokens": TOKENS, "gen_ai.output.messages": answer}
        return wire.span("chat", attributes, trace_id=trace, span_id=own, parent=agent)
    attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    attributes |= {"gen_ai.tool.call.id": str(number - 1)}
    return wire.span("execute_tool look", attributes, trace_id=trace, span_id=own, parent=agent)


def settled(service: Service, trace: bytes, count: int) -> bool:
    answer = call(service, "get_trace", trace_id=trace.hex())
    # Nothing of it may be stored yet.
    found = answer.get("structuredContent", {"is_settled": False})
    return bool(found["is_settled"]) and found["span_count"] == count


# Of a release, since a step took 108 ms of CPU time beside other work: two threads share a core.
# What ordinary traces cost a step is held by tests/e2e/test_loop_held.py on every run.
@pytest.mark.release
@pytest.mark.parametrize("spans", [MOST_EXPORTED, 100_000])
def test_a_trace_of_many_spans_costs_what_any_other_does(service: Service, spans: int) -> None:
    with httpx2.Client(base_url=service.url, headers={"Origin": service.url}, timeout=60, **PLAIN) as reader:
        assert any(reader.post(f"/auth/{way}", json=OWNER).is_success for way in ("signup", "login"))
        pages = "/orgs/default/projects/default/traces/"
        small, huge = trace_id(), trace_id()
        reads = (
            "",
            "/skeleton",
            "/conversation",
            "/find?q=look",
            "/top",
            "/explain?number=tokens",
        )
        # What is made once and kept is made.
        for body in bodies(small, 100):
            assert service.send(body).status_code == 200
        until(lambda: settled(service, small, 100))
        for path in reads:
            assert reader.get(f"{pages}{small.hex()}{path}").status_code == 200, path
        for body in bodies(huge, spans):
            packed = gzip.compress(body, 1)
            until(lambda packed=packed: service.send(packed, Content_Encoding="gzip").status_code == 200)
        until(lambda: service.metric("svc_spool_depth_batches") == 0, 300)
        before = memory_bytes(service, "VmRSS")
        Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")
        until(lambda: settled(service, huge, spans), 300, 0.5)
        trace = asked(service, "get_trace", trace_id=huge.hex())
        assert (trace["name"], trace["status"], trace["session_id"]) == ("run", "ok", "huge")
        # The call before the first agent counts as well; the last agent made none yet.
        calls = sum(number % 3 == 1 for number in range(2, spans + 1))
        tools = sum(number % 3 == 2 for number in range(2, spans + 1))
        assert trace["total_tokens"] == TOKENS * (calls + (spans % 3 == 0))
        told = service.ask("count", {"dataset": "tool_calls", "filters": {"trace_id": huge.hex()}})
        assert told["count"] == tools + (spans % 3 == 1)
        assert (len(trace["spans"]), trace["spans_truncated"]) == (200, True)
        whole = asked(service, "get_trace", trace_id=huge.hex(), fields=["payload"])
        assert whole["spans"][0]["attributes"]
        for path in reads:
            assert reader.get(f"{pages}{huge.hex()}{path}").status_code == 200, path
        grown = memory_bytes(service, "VmHWM") - before
        assert grown < GROWN_BYTES, f"{grown / MIB:.0f} MiB"
        assert reader.get(f"{pages}{huge.hex()}?against={small.hex()}").status_code == 200
        # What is exported stands in memory once, 21 MB of it at the most.
        exported = reader.get(f"{pages}{huge.hex()}/export")
        assert exported.status_code == (413 if spans > MOST_EXPORTED else 200)
    details = service.health()["components"]["loop"]["details"]
    assert service.metric("svc_loop_longest_step_cpu_seconds") < HELD_S, str(details)
