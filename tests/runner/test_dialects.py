"""Laws of the dialects: what a provider said goes back to it as it came, and only what is needed is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.agents import Spent
from protocol.running import Credential
from svc.outside.models.chat import chat_answer
from svc.outside.models.conversation import SaidText, ToolUse, UnreadableAnswer
from svc.outside.models.messages import messages_answer
from tests.runner.running import Place, answer, ended, request, runner
from tests.runner.standin_model import Asked, Reply, calls, standin
from tests.service import Service

ASKS = json.dumps({"dataset": "spans"})
GEMINI = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_gemini",
            "type": "function",
            "function": {"name": "query_count", "arguments": ASKS},
            "extra_content": {"google": {"thought_signature": "c2lnbmF0dXJl"}},
        }
    ],
}
DEEPSEEK = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "Count first, then judge.",
    "tool_calls": [
        {
            "index": 0,
            "id": "call_00_x",
            "type": "function",
            "function": {"name": "query_count", "arguments": ASKS},
        }
    ],
}
THINKING = [
    {"type": "thinking", "thinking": "Count first.", "signature": "EqQBCg=="},
    {"type": "redacted_thinking", "data": "EmwKAhgB"},
    {"type": "text", "text": "I count."},
    {"type": "tool_use", "id": "toolu_1", "name": "query_count", "input": {"dataset": "spans"}},
]


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "dialects").strip()
    return Place(f"{service.url}/mcp", token)


def in_chat(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 900, "completion_tokens": 40}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage, **more}


def in_messages(content: list[Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 900, "output_tokens": 40}
    return {"content": content, "stop_reason": "tool_use", "usage": usage, **more}


@pytest.mark.parametrize(
    ("provider", "said", "goes_back"),
    [
        ("google", in_chat(GEMINI), GEMINI),
        ("openai_compatible", in_chat(DEEPSEEK), DEEPSEEK),
        ("anthropic", in_messages(THINKING), {"role": "assistant", "content": THINKING}),
    ],
)
async def test_a_providers_message_goes_back_to_it_as_it_came(
    provider: Any, said: dict[str, Any], goes_back: dict[str, Any], place: Place
) -> None:
    def script(asked: Asked) -> Reply:
        return (
            Reply(raw=json.dumps(said).encode()) if not asked.results else calls(("submit_answer", answer()))
        )

    with standin(script) as model:
        async with runner() as client:
            credential = Credential(provider, model.url, secret="sk-standin-credential")
            result, _ = await ended(
                client, "run.1", request(model, place.url, place.token, credential=credential)
            )
        second = model.asked[1].body["messages"]
    assert result.state == "done", result
    assert [one for one in second if one["role"] == "assistant"] == [goes_back]


def test_what_its_own_provider_would_refuse_to_read_again_is_mended() -> None:
    broken = {"id": None, "function": {"name": "get_span", "arguments": '{"trace_id": "a'}, "extra": 1}
    read = chat_answer(in_chat({"content": None, "tool_calls": [broken]}))
    assert read.blocks == [ToolUse("call_0", "get_span", None)]
    mended = {"id": "call_0", "function": {"name": "get_span", "arguments": "{}"}, "extra": 1}
    assert read.verbatim == {"role": "assistant", "content": None, "tool_calls": [mended]}
    assert chat_answer(in_chat({"content": None})).verbatim == {"role": "assistant", "content": "(nothing)"}
    empty = [
        {"type": "text", "text": " "},
        {"type": "tool_use", "id": "t", "name": "get_span", "input": "no object"},
    ]
    read = messages_answer(in_messages(empty))
    assert read.blocks == [ToolUse("t", "get_span", None)]
    assert read.verbatim == [{"type": "tool_use", "id": "t", "name": "get_span", "input": {}}]
    assert messages_answer(in_messages([])).verbatim == [{"type": "text", "text": "(nothing)"}]


def test_only_what_is_needed_is_read() -> None:
    parts = [{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": "so"}]
    assert chat_answer(in_chat({"content": parts})).blocks == [SaidText("so")]
    # A server that counts no tokens is asked all the same: its calls are booked at their worst.
    assert chat_answer({"choices": [{"message": {"content": "so"}}]}).used is None
    assert messages_answer({"content": [], "usage": None}).used is None
    odd = {"prompt_tokens": "many", "completion_tokens": 1e400, "prompt_tokens_details": 7}
    assert chat_answer(in_chat({"content": "so"}, usage=odd)).used == Spent(1)


@pytest.mark.parametrize(
    "said", [None, [], {}, {"choices": []}, {"choices": [{"message": 7}]}, {"content": 7}]
)
def test_what_is_no_answer_is_unreadable(said: Any) -> None:
    for read in (chat_answer, messages_answer):
        with pytest.raises(UnreadableAnswer):
            read(said)


async def test_a_server_that_counts_no_tokens_is_booked_at_the_worst(place: Place) -> None:
    def script(_asked: Asked) -> Reply:
        call = {"id": "c", "type": "function", "function": {"name": "submit_answer", "arguments": "[]"}}
        return Reply(raw=json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode())

    with standin(script) as model:
        async with runner() as client:
            credential = Credential("openai_compatible", model.url)
            wanted = request(model, place.url, place.token, credential=credential)
            result, _ = await ended(client, "run.1", wanted)
    # Three answers that were none.
    assert (result.spent.turns, result.spent.output) == (3, 3 * 2_000)
