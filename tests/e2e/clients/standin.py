"""A local stand-in for the model APIs: OpenAI's chat, responses and embeddings, Anthropic's messages, Gemini.

Streams too. Every call of a model uses the same tokens, so that a test knows what must come out. A request
that offers tools and holds no result of one is answered with a call of the first; every other with `ANSWER`.
Calls are counted by the first part of the path, which a client gets as part of its base URL.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.answering import answering

ANSWER = "It is sunny in Paris."
ARGUMENTS = {"city": "Paris"}
TOOL = "get_weather"
#: What stands in a request that holds the result of a tool.
_RESULTS = ('"tool"', '"text": "Observation:', "function_call_output", "tool_result", "functionResponse")
#: A tool with which an agent ends, in the place of an answer in words.
_LAST_TOOL = "final_answer"
#: The model that answers, where it is not the one that was asked.
DATED = {"gpt-4o": "gpt-4o-2024-08-06", "gpt-4o-mini": "gpt-4o-mini-2024-07-18"}

Event = tuple[str, dict[str, Any]]


class StandIn:
    """The running server. `calls` counts model calls by client and API, `tools` names the tools asked for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: Counter[tuple[str, str]] = Counter()
        self.tools: defaultdict[str, list[str]] = defaultdict(list)
        self.numbers = itertools.count(1)


def _chat_usage() -> dict[str, Any]:
    return {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 100, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 12, "audio_tokens": 0},
    }


def _tool(request: dict[str, Any]) -> str | None:
    """The name of the tool to call, if any."""
    tools = request.get("tools") or []
    names = [name for tool in tools if (name := tool.get("name") or tool.get("function", {}).get("name"))]
    said = json.dumps(request.get("messages") or request.get("input") or request.get("contents") or "")
    if any(word in said for word in _RESULTS):
        return _LAST_TOOL if _LAST_TOOL in names else None
    if tools and (declared := tools[0].get("functionDeclarations")):
        # A coding agent of Google's declares tools of its own, which would act on this machine.
        return TOOL if declared[0]["name"] == TOOL else None
    return names[0] if names else None


def arguments(tool: str) -> dict[str, str]:
    """What a tool is called with."""
    return {"answer": ANSWER} if tool == _LAST_TOOL else ARGUMENTS


def chat(request: dict[str, Any], number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A chat completion, whole and as chunks."""
    head = {"id": f"chatcmpl-{number}", "created": 1_795_000_000, "model": DATED[request["model"]]}
    tool = _tool(request)
    message: dict[str, Any] = {"role": "assistant", "content": None if tool else ANSWER}
    if tool:
        function = {"name": tool, "arguments": json.dumps(arguments(tool))}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    finish = "tool_calls" if tool else "stop"
    whole = {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": _chat_usage(),
    }
    if tool:
        deltas = [{"role": "assistant", "tool_calls": [{"index": 0, **message["tool_calls"][0]}]}]
    else:
        deltas = [{"role": "assistant", "content": ANSWER[:9]}, {"content": ANSWER[9:]}]
    part = {**head, "object": "chat.completion.chunk"}
    chunks = [{**part, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**part, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if (request.get("stream_options") or {}).get("include_usage"):
        chunks.append({**part, "choices": [], "usage": _chat_usage()})
    return whole, chunks


def responses(request: dict[str, Any], number: int) -> tuple[dict[str, Any], list[Event]]:
    """A response, whole and as events."""
    tool = _tool(request)
    if tool:
        item: dict[str, Any] = {
            "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": tool,
            "arguments": json.dumps(ARGUMENTS), "status": "completed",
        }  # fmt: skip
    else:
        text = {"type": "output_text", "text": ANSWER, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
                "content": [text]}  # fmt: skip
    whole = {
        "id": f"resp_{number}", "object": "response", "created_at": 1_795_000_000, "status": "completed",
        "model": DATED[request["model"]], "output": [item], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": request.get("tools") or [], "error": None, "incomplete_details": None,
        "instructions": request.get("instructions"), "metadata": {}, "temperature": 1.0, "top_p": 1.0,
        "usage": {
            "input_tokens": 120, "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0},
            "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 12}, "total_tokens": 150,
        },
    }  # fmt: skip
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Event] = [
        ("response.created", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": whole}),
    ]
    return whole, [
        (name, {"type": name, "sequence_number": n, **data}) for n, (name, data) in enumerate(events)
    ]


def messages(request: dict[str, Any], number: int) -> tuple[dict[str, Any], list[Event]]:
    """Anthropic's message, whole and as events."""
    tool = _tool(request)
    usage = {"input_tokens": 20, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 40}
    block: dict[str, Any] = (
        {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": ARGUMENTS}
        if tool
        else {"type": "text", "text": ANSWER}
    )
    reason = "tool_use" if tool else "end_turn"
    whole = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": request["model"],
        "content": [block], "stop_reason": reason, "stop_sequence": None,
        "usage": {**usage, "output_tokens": 30},
    }  # fmt: skip
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    empty = {**block, "input": {}} if tool else {**block, "text": ""}
    delta = (
        {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)}
        if tool
        else {"type": "text_delta", "text": ANSWER}
    )
    events: list[Event] = [
        ("message_start", {"message": begun}),
        ("content_block_start", {"index": 0, "content_block": empty}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 30}},
        ),
        ("message_stop", {}),
    ]
    return whole, [(name, {"type": name, **data}) for name, data in events]


def gemini(request: dict[str, Any], model: str) -> dict[str, Any]:
    """An answer of Google's."""
    tool = _tool(request)
    part = {"functionCall": {"name": tool, "args": ARGUMENTS}} if tool else {"text": ANSWER}
    content = {"role": "model", "parts": [part]}
    usage = {
        "promptTokenCount": 120, "cachedContentTokenCount": 100, "candidatesTokenCount": 18,
        "thoughtsTokenCount": 12, "totalTokenCount": 150,
    }  # fmt: skip
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}


def embeddings(request: dict[str, Any]) -> dict[str, Any]:
    """One small vector."""
    return {
        "object": "list", "model": request["model"], "usage": {"prompt_tokens": 5, "total_tokens": 5},
        "data": [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}],
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    standin: StandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _, client, *_, api = self.path.partition("?")[0].split("/")
        number = next(self.standin.numbers)
        self.standin.calls[client, "generateContent" if ":" in api else api] += 1
        if tool := _tool(body):
            self.standin.tools[client].append(tool)
        streamed = bool(body.get("stream"))
        match api:
            case "completions":
                whole, chunks = chat(body, number)
                stream = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
            case "responses":
                whole, events = responses(body, number)
                stream = _named(events)
            case "messages":
                whole, events = messages(body, number)
                stream = _named(events)
            case "embeddings":
                whole, stream = embeddings(body), []
            case _ if ":" in api:
                model, _, verb = api.partition(":")
                whole = gemini(body, model)
                stream, streamed = [f"data: {json.dumps(whole)}\n\n"], verb.startswith("stream")
            case _:
                self.send_error(404)
                return
        if streamed:
            self._send("text/event-stream", "".join(stream).encode())
        else:
            self._send("application/json", json.dumps(whole).encode())

    def _send(self, content_type: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _named(events: list[Event]) -> list[str]:
    return [f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events]


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """The server on a free port, in a thread."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    standin = handler.standin = StandIn(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    with answering(server):
        yield standin
