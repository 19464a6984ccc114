"""Traces for the tests of the page of one: small and failing, hostile, strange, and of thousands of spans."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.wire import event, link, request, span

#: Within the kept days, whenever the tests run.
BEGAN = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=20)

#: What is hostile in a text: markup, bidirectional marks, template braces, ends of JSON.
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe {{7*191}} \u200b\"],'--"

#: One message of 10 MiB, in one line.
LONGEST = 10 * 1024 * 1024


def trace_id(name: str) -> bytes:
    """The id of a story."""
    return name.encode().ljust(16, b"-")[:16]


def said(role: str, text: str) -> dict[str, Any]:
    """A message."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _at(ms: float) -> int:
    return int(BEGAN.timestamp() * 1000 + ms) * 1_000_000


def timed(
    of: str, number: int, parent: int, name: str, from_ms: float, took_ms: float, **fields: Any
) -> Span:
    """A span of a story: its number is its id."""
    return span(
        name,
        trace_id=trace_id(of),
        span_id=number.to_bytes(8, "big"),
        parent=parent.to_bytes(8, "big") if parent else b"",
        start_ns=_at(from_ms),
        end_ns=_at(from_ms + took_ms),
        **fields,
    )


def chat(given: list[Any], answered: list[Any], tokens: tuple[int, int], **more: Any) -> dict[str, Any]:
    """The attributes of a call of a model."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o",
        "gen_ai.input.messages": json.dumps(given),
        "gen_ai.output.messages": json.dumps(answered),
        "gen_ai.usage.input_tokens": tokens[0],
        "gen_ai.usage.output_tokens": tokens[1],
        "gen_ai.conversation.id": "s-8841",
        "user.id": "u-17",
        **more,
    }


def tool(name: str, call_id: str, arguments: Any, result: Any, **more: Any) -> dict[str, Any]:
    """The attributes of a tool's call."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": json.dumps(result),
        **more,
    }


def failing(of: str = "failing", *, broken: bool = True) -> list[Span]:
    """An agent that plans a trip; the orders' service answers 502 twice where it is broken."""
    system = said("system", "You plan trips for customers of a shop. Be short.")
    question = said("user", "When does my order **88-1203** arrive, and can I still change the address?")
    call = {"type": "tool_call", "id": "c1", "name": "search_orders", "arguments": {"order": "88-1203"}}
    again = {**call, "id": "c2"}
    error = {"isError": True, "error": "upstream connect error: HTTP 502 from orders.internal"}
    found = {"order": "88-1203", "eta": "Friday", "carrier": "DHL", "address_open": True}
    result = error if broken else found
    asks = {"role": "assistant", "parts": [{"type": "reasoning", "content": "I need the order."}, call]}
    hears = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": result}]}
    asks_again = {"role": "assistant", "parts": [again]}
    answer = said(
        "assistant",
        "Your order arrives on **Friday**.\n\n- carrier: `DHL`\n- the address can be changed until "
        "Thursday\n\nSee [your order](https://shop.example/orders/88-1203).",
    )
    site = {"svc.call_site.id": "support.plan_trip"}
    bad: dict[str, Any] = {"status_code": 2, "status_message": "HTTP 502 from orders.internal"}
    bad = bad if broken else {}
    kind = {"error.type": "HTTP 502"} if broken else {}
    tried = 2000 if broken else 310
    second = 1640 + tried
    spans = [
        timed(
            of, 1, 0, "plan_trip", 0, 9840,
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "plan_trip",
                        "gen_ai.conversation.id": "s-8841", "user.id": "u-17", **site},
        ),
        timed(of, 2, 1, "chat gpt-4o", 20, 1610,
              attributes=chat([system, question], [asks], (1100, 104), **site)),
        timed(of, 3, 1, "search_orders", 1640, tried, events=[
            event("exception", {"exception.type": "HTTP 502", "exception.message": "no healthy upstream"})
        ] if broken else [], links=[link(trace_id("healthy"), (1).to_bytes(8, "big"))],
            attributes=tool("search_orders", "c1", call["arguments"], result, **kind, **site), **bad),
        *(
            timed(of, 100 + n, 1, "kb.fetch", 1650 + n * 56, 60,
                  attributes={"gen_ai.operation.name": "retrieval", "db.query.text": f"page {n}", **site})
            for n in range(37)
        ),
        timed(of, 4, 1, "chat gpt-4o", second + 20, 1320,
              attributes=chat([system, question, asks, hears], [asks_again], (1400, 60), **site)),
        timed(of, 5, 1, "search_orders", second + 1360, tried,
              attributes=tool("search_orders", "c2", call["arguments"], result, **kind, **site), **bad),
        timed(of, 6, 1, "chat gpt-4o", 7100, 2700,
              attributes=chat([system, question, asks, hears, asks_again], [answer], (3500, 248), **site)),
        timed(of, 7, 6, "render_answer", 9600, 200, attributes=site),
    ]  # fmt: skip
    return spans


def hostile() -> list[Span]:
    """Hostile texts in every field that a client can fill."""
    of = "hostile"
    links = "[x](javascript:alert(3)) ![y](https://evil.example/p.png)"
    spoken = [said("user", HOSTILE), said(HOSTILE, f"{links} {HOSTILE}")]
    who = {"session.id": HOSTILE, "user.id": HOSTILE, "svc.call_site.id": HOSTILE}
    fails: dict[str, Any] = {"status_code": 2, "status_message": HOSTILE}
    media = {"role": "user", "parts": [
        {"type": "blob", "mime_type": "image/png", "content": "iVBORw0KGgo" * 4000},
        {"type": "uri", "uri": "javascript:alert(4)"},
        {"type": HOSTILE, "anything": {"deep": [HOSTILE]}},
    ]}  # fmt: skip
    long = [said("user", "x" * 300_000), media]
    names = {HOSTILE: HOSTILE, "long": "y" * 1_000_000}
    return [
        timed(of, 1, 0, "n" * 10_000, 0, 900, attributes=who),
        timed(of, 2, 1, HOSTILE, 10, 100,
              attributes=chat(spoken, [said("assistant", HOSTILE)], (10, 10), **names)),
        timed(of, 3, 1, HOSTILE, 200, 100, attributes={"error.type": HOSTILE}, **fails,
              events=[event(HOSTILE, {HOSTILE: HOSTILE})],
              links=[link(b"x" * 16, b"y" * 8, {HOSTILE: HOSTILE})]),
        timed(of, 4, 1, "long", 400, 100, attributes=chat(long, [said("assistant", "short")], (10, 10))),
        timed(of, 5, 1, "no such kind", 500, 100, attributes=tool(HOSTILE, HOSTILE, HOSTILE, HOSTILE)),
        timed(of, 6, 1, HOSTILE, 600, 100,
              attributes=chat([said("user", "z" * LONGEST)], [said("assistant", "short")], (10, 10),
                              **{"gen_ai.request.model": HOSTILE, "gen_ai.response.model": HOSTILE})),
    ]  # fmt: skip


def noise_png(side: int) -> bytes:
    """A picture that hardly gets smaller, three bytes a pixel."""
    pixels = random.Random(side).randbytes(side * (side * 3 + 1))
    rows = b"".join(b"\0" + pixels[at : at + side * 3] for at in range(0, side * side * 3, side * 3))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


#: Half a second of silence.
WAV = b"RIFF$\x1f\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0@\x1f\0\0@\x1f\0\0\x01\0\x08\0data\0\x1f\0\0".ljust(
    7980, b"\x80"
)


def pictured() -> list[Span]:
    """A picture of 60 KB, one of more than a megabyte, a recording, and two files that nobody may open."""
    blobs = {
        "image/png": noise_png(140),
        "image/jpeg": noise_png(620),
        "audio/wav": WAV,
        "text/html": b"<script>alert(5)</script>",
        "image/svg+xml": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(6)'/>",
    }
    parts = [
        {"type": "blob", "modality": name.partition("/")[0], "mime_type": name, "content": text}
        for name, content in blobs.items()
        for text in [base64.b64encode(content).decode()]
    ]
    shown = [{"role": "user", "parts": [*parts, {"type": "text", "content": "What is this?"}]}]
    return [
        timed("pictured", 1, 0, "chat", 0, 900, attributes=chat(shown, [said("assistant", "Noise.")], (9, 9)))
    ]


def strange() -> list[Span]:
    """Orphans, circles, a child before its parent, no root, twenty levels, hours of nothing."""
    of = "strange"
    deep = [timed(of, 200 + n, 199 + n if n else 1, f"level {n}", 100 + n, 500 - n) for n in range(20)]
    return [
        timed(of, 1, 99, "under nobody", 100, 800),
        timed(of, 2, 3, "circle a", 120, 10),
        timed(of, 3, 2, "circle b", 130, 10),
        timed(of, 4, 4, "its own parent", 140, 10),
        timed(of, 5, 6, "before its parent", 150, 10),
        timed(of, 6, 1, "late parent", 160, 30),
        timed(of, 7, 98, "hours later", 7_200_000, 900),
        *deep,
    ]


def many(count: int, of: str = "many") -> Iterator[Span]:
    """A trace of so many spans: steps of agents, each with calls of models and tools, some of them failed."""
    dice = random.Random(7)
    yield timed(of, 1, 0, "batch", 0, count * 2.0, attributes={"gen_ai.operation.name": "invoke_workflow"})
    step = 1
    for n in range(2, count + 1):
        if n % 30 == 2:
            step = n
            yield timed(of, n, 1, f"step {n % 40}", n * 2, 58)
            continue
        kind, took = n % 5, dice.random() * 40
        failed = n % 997 == 0
        attributes: dict[str, Any]
        if kind < 2:
            usage = {"gen_ai.usage.input_tokens": 100 + n % 900, "gen_ai.usage.output_tokens": 20}
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini", **usage}
        elif kind < 4:
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": f"tool_{n % 12}"}
        else:
            attributes = {"n": n}
        parent = n - 1 if n % 7 == 0 and n - 1 != step else step
        yield timed(
            of, n, parent, f"work {n % 60}", n * 2, took, attributes=attributes,
            status_code=2 if failed else 0, status_message="timeout" if failed else "",
        )  # fmt: skip


def bodies(spans: Any, size: int = 500) -> Iterator[bytes]:
    """The spans as requests."""
    batch = []
    for one in spans:
        batch.append(one)
        if len(batch) == size:
            yield request(*batch, resource={"service.name": "shop"}).SerializeToString()
            batch = []
    if batch:
        yield request(*batch, resource={"service.name": "shop"}).SerializeToString()


STORIES: dict[str, Callable[[], Any]] = {
    "failing": failing,
    "healthy": lambda: failing("healthy", broken=False),
    "hostile": hostile,
    "strange": strange,
    "pictured": pictured,
    "many": lambda: many(30_000),
}
