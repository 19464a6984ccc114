"""No step holds the one event loop: every door and page at once, over large traces, by processor time."""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from svc.front.api.table import ROUTES
from svc.front.mcp.tools import TOOLS
from svc.web.table import PAGES
from tests import wire
from tests.amplifiers import json_amplifiers, protobuf_amplifiers
from tests.e2e.hostile import MIB, trace_id
from tests.e2e.mcp import envelope, every_call, filled_ids, mcp, ruled_ids
from tests.service import PLAIN, Service, running, until

#: What a step may take of the processor. A busy machine adds to the clock and hardly to this.
HELD_S = 0.1
#: Spans of the widest trace, and of the one that is mostly text.
WIDE, HEAVY = 5_000, 16
OWNER = {"email": "owner@example.org", "password": "correct horse battery"}


@pytest.fixture(scope="module")
def flooded() -> Iterator[Service]:
    with running() as service:
        yield service


def wide_trace(trace: bytes) -> Iterator[bytes]:
    """Bodies of one trace: a root, agents below it, and tools and answers below those."""
    spans = [wire.span("run", {"session.id": "wide"}, trace_id=trace, span_id=b"\x01" * 8)]
    for number in range(2, WIDE + 1):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "note": "n" * 200}
        attributes |= {"gen_ai.usage.input_tokens": number, "session.id": "wide"}
        parent = b"\x01" * 8 if number < 50 else (number % 48 + 2).to_bytes(8, "big")
        own = number.to_bytes(8, "big")
        spans.append(wire.span(f"chat {number % 7}", attributes, trace_id=trace, span_id=own, parent=parent))
    for start in range(0, WIDE, 500):
        yield wire.request(*spans[start : start + 500]).SerializeToString()


def heavy_trace(trace: bytes) -> Iterator[bytes]:
    """Bodies of one trace whose spans are megabytes of conversation."""
    for number in range(1, HEAVY + 1):
        text = f"{number} " + "what a long story this is " * (MIB // 26)
        said = f'[{{"role":"user","parts":[{{"type":"text","content":"{text}"}}]}}]'
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": said}
        own = number.to_bytes(8, "big")
        parent = b"" if number == 1 else (1).to_bytes(8, "big")
        yield wire.request(
            wire.span("chat", attributes, trace_id=trace, span_id=own, parent=parent)
        ).SerializeToString()


def paths(service: Service, traces: list[bytes]) -> list[str]:
    """Every page and every route that is read, with names of what is there."""
    ids, ruled = filled_ids(service), ruled_ids(service)
    known = {
        "orgSlug": "default",
        "projectSlug": "default",
        "ref": ruled["case"],
        "caseId": ruled["case_id"],
        "findingId": ruled["finding_id"],
        "spanId": "01".zfill(16),
        "span_id": "01".zfill(16),
        "classifierId": "tool_error",
        "name": "tool_error",
        "what": "models",
        "id": ruled["finding_id"],
        "session": ids["session_id"],
    }
    templates = sorted({route.path for route in (*PAGES, *ROUTES) if route.method == "GET"})

    def filled(template: str, trace: bytes) -> str:
        names = known | {"traceId": trace.hex(), "trace_id": trace.hex()}
        return re.sub(r"\{(\w+)\}", lambda field: names.get(field[1], "1"), template)

    return [
        filled(template, trace)
        for template in templates
        for trace in (traces if "race" in template else traces[:1])
    ]


def test_no_step_holds_the_loop_while_every_door_and_page_is_asked(flooded: Service) -> None:
    wide, heavy = trace_id(), trace_id()
    admin = flooded.command("keys", "create", "--scope", "admin", "--name", "held").strip()
    with httpx2.Client(base_url=flooded.url, headers={"Origin": flooded.url}, timeout=120, **PLAIN) as people:
        assert people.post("/auth/signup", json=OWNER).status_code == 201
        cookie = dict(people.cookies)
    for body in itertools.chain(wide_trace(wide), heavy_trace(heavy)):
        assert flooded.send(gzip.compress(body, 1), Content_Encoding="gzip").status_code == 200
    flooded.wait_for_spans(WIDE, trace_id=wide.hex())
    flooded.wait_for_spans(HEAVY, trace_id=heavy.hex())
    pages = paths(flooded, [wide, heavy])
    assert len(pages) > 100

    def open_page(path: str) -> int:
        with httpx2.Client(base_url=flooded.url, cookies=cookie, timeout=120, **PLAIN) as reader:
            return reader.get(path).status_code

    def attack(body: bytes, kind: str) -> int:
        return flooded.send(gzip.compress(body, 1), Content_Type=kind, Content_Encoding="gzip").status_code

    def use_tools() -> int:
        calls = every_call(flooded)
        for trace in (wide, heavy):
            calls |= {"get_trace": {"trace_id": trace.hex(), "fields": ["payload"]}}
            batch = [
                envelope("tools/call", {"name": tool.name, "arguments": calls.get(tool.name, {})}, number)
                for number, tool in enumerate(TOOLS, 1)
            ]
            answer = mcp(flooded, batch, key=admin)
            assert answer.status_code == 200
        return 200

    bodies = [(body, "application/x-protobuf") for body in protobuf_amplifiers(2 * MIB).values()]
    bodies += [(body, "application/json") for body in json_amplifiers(MIB).values()]
    with ThreadPoolExecutor(4) as crowd:
        opened = [crowd.submit(open_page, path) for path in pages]
        refused = [crowd.submit(attack, *body) for body in bodies]
        tools = [crowd.submit(use_tools) for _ in range(2)]
        statuses = {path: future.result() for path, future in zip(pages, opened, strict=True)}
        assert {future.result() for future in refused} <= {200, 400, 413}
        assert [future.result() for future in tools] == [200, 200]
    assert {path: status for path, status in statuses.items() if status >= 500} == {}
    assert sum(status == 200 for status in statuses.values()) > len(statuses) * 2 / 3, statuses
    until(lambda: flooded.metric("svc_spool_depth_batches") == 0)
    details = flooded.health()["components"]["loop"]["details"]
    assert flooded.metric("svc_loop_longest_step_cpu_seconds") < HELD_S, str(details)
