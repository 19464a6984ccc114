"""A stand-in of the model providers: Messages, the cloud's invoke calls and chat completions, all from one
script.

A script is a function of what it was asked, in one form for all dialects, to what it answers. It runs in
threads of its own, for tests in this process and for runners in others.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

from tests.answering import answering


@attrs.frozen
class Asked:
    """One call: which dialect, what the model was told last, whether it must answer, which turn it is."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    turn: int
    forced: str | None
    #: The texts of all tool results so far.
    results: list[str]
    prompt: str
    tools: list[str]


@attrs.frozen
class Reply:
    """What the model does: text, calls of tools, or another status."""

    text: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    status: int = 200
    headers: dict[str, str] = attrs.field(factory=dict)
    input_tokens: int | None = None
    output_tokens: int = 50
    wait: threading.Event | None = None
    raw: bytes | None = None
    drop: bool = False
    #: It ended at the bound of its length.
    cut: bool = False


Script = Callable[[Asked], Reply]
#: The vendor's list of models.
VENDOR_LIST: dict[str, Any] = {
    "data": [
        {"type": "model", "id": "claude-opus-9", "created_at": "2026-11-01T00:00:00Z"},
        {"type": "model", "id": "claude-sonnet-4-5-20250929", "created_at": "2025-09-29T00:00:00Z"},
        {"type": "model", "id": "claude-sonnet-4-6", "created_at": "2026-02-17T00:00:00Z"},
        {"type": "model", "id": "claude-3-5-sonnet-20241022", "created_at": "2024-10-22T00:00:00Z"},
    ],
    "has_more": False,
}


@attrs.define(eq=False)
class StandIn:
    """A running stand-in; `asked` is what it was asked."""

    url: str
    script: Script
    asked: list[Asked] = attrs.field(factory=list)
    #: What it answers who asks for its models, and who did: path and headers.
    models: Reply = attrs.field(default=Reply(raw=json.dumps(VENDOR_LIST).encode()))
    lists: list[tuple[str, dict[str, str]]] = attrs.field(factory=list)


def calls(*made: tuple[str, Any], **more: Any) -> Reply:
    return Reply(calls=made, **more)


def _read(path: str, headers: dict[str, str], body: dict[str, Any], turn: int) -> Asked:
    results: list[str] = []
    if path.endswith("/chat/completions"):
        choice = body.get("tool_choice")
        forced = choice["function"]["name"] if choice else None
        results = [one["content"] for one in body["messages"] if one["role"] == "tool"]
        prompt = next(one["content"] for one in body["messages"] if one["role"] == "user")
        tools = [one["function"]["name"] for one in body["tools"]]
    else:
        choice = body.get("tool_choice")
        forced = choice["name"] if choice else None
        for message in body["messages"]:
            results += [b["content"] for b in message["content"] if b["type"] == "tool_result"]
        prompt = body["messages"][0]["content"][0]["text"]
        tools = [one["name"] for one in body["tools"]]
    return Asked(path, headers, body, turn, forced, results, prompt, tools)


def _written(asked: Asked, reply: Reply) -> dict[str, Any]:
    read = reply.input_tokens if reply.input_tokens is not None else len(json.dumps(asked.body)) // 4
    ids = [f"call_{asked.turn}_{n}" for n in range(len(reply.calls))]
    if asked.path.endswith("/chat/completions"):
        made = [
            {
                "id": id_,
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for id_, (name, given) in zip(ids, reply.calls, strict=True)
        ]
        message = {"role": "assistant", "content": reply.text or None, "tool_calls": made}
        usage = {"prompt_tokens": read, "completion_tokens": reply.output_tokens}
        return {
            "choices": [{"message": message, "finish_reason": "length" if reply.cut else "stop"}],
            "usage": usage,
        }
    content: list[Any] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": id_, "name": name, "input": given}
        for id_, (name, given) in zip(ids, reply.calls, strict=True)
    ]
    usage = {"input_tokens": read, "output_tokens": reply.output_tokens}
    return {"content": content, "stop_reason": "max_tokens" if reply.cut else "tool_use", "usage": usage}


@contextmanager
def standin(script: Script) -> Iterator[StandIn]:
    """A stand-in that answers by a script, which may be exchanged while it runs."""
    made: StandIn

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): text for name, text in self.headers.items()}
            asked = _read(self.path, headers, body, len(made.asked) + 1)
            made.asked.append(asked)
            reply = made.script(asked)
            if reply.wait is not None:
                reply.wait.wait(240)
            if reply.drop:
                self.close_connection = True
                return
            data = reply.raw
            if data is None:
                data = json.dumps(_written(asked, reply) if reply.status == 200 else {"error": "no"}).encode()
            try:
                self.send_response(reply.status)
                for name, text in reply.headers.items():
                    self.send_header(name, text)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                pass

        def do_GET(self) -> None:
            made.lists.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
            data = made.models.raw or b""
            self.send_response(made.models.status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = StandIn(f"http://127.0.0.1:{server.server_port}", script)
    with answering(server):
        yield made
