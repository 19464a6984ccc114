"""The load generator: blocking sockets in a process of its own, bodies made once and patched per request.

A span has 20 attributes and about 4 KB; ten spans make a trace (agent, models, tools). Each request carries
fresh trace and span ids and the present time.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import attrs
import msgspec

from tests.wire import request, span

WORDS = re.findall(
    r"\w+",
    "order parcel refund customer agent answer invoice delivery question model street number window yellow"
    " system please because nothing together morning library station garden market useful quickly remember",
)

SPANS_PER_TRACE = 10


@attrs.frozen
class Result:
    """What the generator saw: acknowledged spans, seconds, latencies in seconds, answers other than 200.

    `ended_s` is the wall clock at its last answer.
    """

    acknowledged: int
    elapsed_s: float
    ended_s: float
    latencies_s: list[float]
    refused: int


def text(dice: random.Random, size: int, vocabulary: Sequence[str] = WORDS) -> str:
    """About `size` characters of words."""
    words: list[str] = []
    length = 0
    while length < size:
        words.append(dice.choice(vocabulary))
        length += len(words[-1]) + 1
    return " ".join(words)


def _chat(dice: random.Random, words: Sequence[str]) -> dict[str, object]:
    said = [
        {"role": "system", "parts": [{"type": "text", "content": text(dice, 900, words)}]},
        {"role": "user", "parts": [{"type": "text", "content": text(dice, 1200, words)}]},
    ]
    answered = [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": text(dice, 900, words)}],
            "finish_reason": "stop",
        }
    ]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": f"chatcmpl-{dice.getrandbits(64):x}",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.max_tokens": 1024,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": dice.randint(200, 4000),
        "gen_ai.usage.output_tokens": dice.randint(20, 800),
        "gen_ai.usage.cache_read.input_tokens": 128,
        "gen_ai.conversation.id": f"conversation-{dice.randint(0, 500)}",
        "user.id": f"user-{dice.randint(0, 50)}",
        "server.address": "api.openai.com",
        "server.port": 443,
        "gen_ai.input.messages": msgspec.json.encode(said).decode(),
        "gen_ai.output.messages": msgspec.json.encode(answered).decode(),
        "app.tenant": "acme",
        "app.release": text(dice, 400, words),
    }


@attrs.define
class Template:
    """A serialised request and the places of its ids and times."""

    body: bytes
    traces: list[list[int]]
    span_ids: list[tuple[int, int]]
    starts: list[tuple[int, int]]


def make_template(seed: int, spans: int, words: Sequence[str] = WORDS) -> Template:
    """One request of `spans` spans with ids that can be found again, made of these words."""
    dice = random.Random(seed)
    made = []
    ids = []
    for number in range(spans):
        trace, place = divmod(number, SPANS_PER_TRACE)
        trace_id = b"TRACE" + struct.pack(">II", seed, trace) + b"\xaa\xaa\xaa"
        span_id = b"S" + struct.pack(">IHB", seed, trace, place)
        root = b"S" + struct.pack(">IHB", seed, trace, 0)
        ids.append((trace_id, span_id))
        made.append(
            span(
                "invoke_agent support" if place == 0 else "chat gpt-4o",
                trace_id=trace_id,
                span_id=span_id,
                parent=root if place else b"",
                attributes=_chat(dice, words)
                if place
                else {
                    **_chat(dice, words),
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "support",
                },
                start_ns=0x1111_1111_1111_1111,
                end_ns=0x2222_2222_2222_2222,
            )
        )
    body = request(*made, resource={"service.name": "bench", "service.version": "1"}).SerializeToString()
    traces: dict[bytes, list[int]] = {}
    span_ids = []
    starts = []
    at = 0
    for trace_id, _span_id in ids:
        at = body.index(trace_id, at)
        traces.setdefault(trace_id, []).append(at)
        # trace_id is field 1 (2 bytes of head), span_id field 2 (2 bytes of head) right behind it.
        parent = body.find(b"\x22\x08S", at, at + 60)
        span_ids.append((at + 18, parent + 2 if parent >= 0 else -1))
        start = body.index(struct.pack("<Q", 0x1111_1111_1111_1111), at)
        starts.append((start, body.index(struct.pack("<Q", 0x2222_2222_2222_2222), start)))
        at += 16
    return Template(body, list(traces.values()), span_ids, starts)


def fresh(template: Template, now_ns: int | None = None) -> bytearray:
    """The template with new ids and the present time, or another one."""
    body = bytearray(template.body)
    noise = os.urandom(16 * len(template.traces) + 4)
    for number, places in enumerate(template.traces):
        trace_id = noise[16 * number : 16 * number + 16]
        for place in places:
            body[place : place + 16] = trace_id
    salt = noise[-4:]
    for place, parent in template.span_ids:
        body[place + 1 : place + 5] = salt
        if parent >= 0:
            body[parent + 1 : parent + 5] = salt
    now_ns = time.time_ns() if now_ns is None else now_ns
    begin, end = struct.pack("<Q", now_ns - 900_000_000), struct.pack("<Q", now_ns)
    for start, stop in template.starts:
        body[start : start + 8] = begin
        body[stop : stop + 8] = end
    return body


def generate(
    port: int, token: str, *, spans: int, connections: int, seconds: float, per_second: float | None = None
) -> Result:
    """Send requests from a process of its own and wait for its result."""
    result: Result = _apart(_generate, port, token, spans, connections, seconds, per_second)
    return result


def send_each(port: int, token: str, bodies: list[bytes], *, connections: int) -> tuple[float, float]:
    """Send these bodies, each until it is acknowledged, from a process of its own.

    Returns the wall clock at the first request and at the last answer.
    """
    times: tuple[float, float] = _apart(_send_each, port, token, bodies, connections)
    return times


def ask(
    port: int, token: str, path: str, bodies: list[bytes], *, clients: int, seconds: float
) -> tuple[list[float], int]:
    """Clients that each ask as fast as they are answered, in a process of their own.

    Returns the latencies in seconds, and how many answers were an error of HTTP, JSON-RPC or a tool.
    """
    found: tuple[list[float], int] = _apart(_ask, port, token, path, bodies, clients, seconds)
    return found


def _apart(target: Callable[..., None], *arguments: object) -> Any:
    """What the target sends, from a process of its own."""
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=target, args=(send, *arguments))
    process.start()
    result = receive.recv()
    process.join()
    return result


def _side_by_side(client: Callable[[int, socket.socket], None], port: int, clients: int) -> None:
    """So many clients, each with its number and a connection, until all have ended."""

    def connected(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client(number, sock)

    threads = [threading.Thread(target=connected, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _head(port: int, token: str, path: str, content_type: str) -> str:
    """The head of a request, but for the length of its body."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {content_type}\r\n"
    )


def _post(
    sock: socket.socket, head: str, body: bytes | bytearray
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Send one request and read its response."""
    sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return read_response(sock)


def _generate(
    send: Connection,
    port: int,
    token: str,
    spans: int,
    connections: int,
    seconds: float,
    per_second: float | None,
) -> None:
    templates = [make_template(seed, spans) for seed in range(8)]
    latencies: list[float] = []
    refused = [0]
    started_s = time.perf_counter()
    end_s = started_s + seconds
    head = _head(port, token, "/v1/traces", "application/x-protobuf")

    def client(number: int, sock: socket.socket) -> None:
        turn = number
        due_s = started_s + (number / per_second if per_second else 0)
        while time.perf_counter() < end_s:
            if per_second:
                time.sleep(max(0.0, due_s - time.perf_counter()))
                due_s += connections / per_second
            body = fresh(templates[turn % len(templates)])
            turn += 1
            asked_s = time.perf_counter()
            status, headers, _ = _post(sock, head, body)
            if status == 200:
                latencies.append(time.perf_counter() - asked_s)
            else:
                refused[0] += 1
                # As OTLP tells exporters to, and no longer than the run.
                wait_s = next((float(value) for name, value in headers if name == b"retry-after"), 0.05)
                time.sleep(max(0.0, min(wait_s, end_s - time.perf_counter())))

    _side_by_side(client, port, connections)
    elapsed_s = time.perf_counter() - started_s
    send.send(Result(len(latencies) * spans, elapsed_s, time.time(), latencies, refused[0]))


def _send_each(send: Connection, port: int, token: str, bodies: list[bytes], connections: int) -> None:
    head = _head(port, token, "/v1/traces", "application/x-protobuf")

    def client(number: int, sock: socket.socket) -> None:
        for body in bodies[number::connections]:
            while _post(sock, head, body)[0] != 200:
                time.sleep(0.05)

    started_s = time.time()
    _side_by_side(client, port, connections)
    send.send((started_s, time.time()))


def _ask(
    send: Connection, port: int, token: str, path: str, bodies: list[bytes], clients: int, seconds: float
) -> None:
    latencies: list[float] = []
    errors = [0]
    head = _head(port, token, path, "application/json")
    end_s = time.perf_counter() + seconds

    def client(number: int, sock: socket.socket) -> None:
        turn = number
        while time.perf_counter() < end_s:
            body = bodies[turn % len(bodies)]
            turn += 1
            asked_s = time.perf_counter()
            status, _, answer = _post(sock, head, body)
            latencies.append(time.perf_counter() - asked_s)
            errors[0] += status != 200 or b'"error":' in answer[:200] or b'"isError":true' in answer

    _side_by_side(client, port, clients)
    send.send((latencies, errors[0]))


def read_response(sock: socket.socket) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Read one response with a Content-Length: its status, its headers in lower case, its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            raise ConnectionError("the service closed the connection")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    status, *lines = head.lower().split(b"\r\n")
    headers = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    length = next((int(value) for name, value in headers if name == b"content-length"), 0)
    while len(rest) < length:
        rest += sock.recv(65536)
    return int(status.split()[1]), headers, rest
