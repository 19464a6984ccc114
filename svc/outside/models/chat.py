"""The chat completions dialect, as OpenAI and whoever follows them speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.agents import Spent
from svc.outside.models.conversation import (
    ModelAnswer,
    ModelQuestion,
    SaidText,
    ToolAnswer,
    ToolUse,
    UnreadableAnswer,
    Utterance,
)


def chat_body(question: ModelQuestion, model: str, *, bound: str) -> dict[str, Any]:
    """The body. `bound` is what this provider calls the longest answer."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": question.system}]
    for one in question.utterances:
        messages += _messages(one)
    body: dict[str, Any] = {
        "model": model,
        bound: question.output_tokens,
        "messages": messages,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.schema),
                },
            }
            for tool in question.tools
        ],
    }
    if question.forced is not None:
        body["tool_choice"] = {"type": "function", "function": {"name": question.forced}}
    return body


def _messages(one: Utterance) -> list[dict[str, Any]]:
    told = "\n".join(block.text for block in one.blocks if isinstance(block, SaidText))
    if one.role == "assistant":
        calls = [
            {
                "id": block.id,
                "type": "function",
                "function": {
                    "name": block.name,
                    "arguments": msgspec.json.encode(block.arguments or {}).decode(),
                },
            }
            for block in one.blocks
            if isinstance(block, ToolUse)
        ]
        return [{"role": "assistant", "content": told or None, **({"tool_calls": calls} if calls else {})}]
    answers = [
        {"role": "tool", "tool_call_id": block.id, "content": block.text}
        for block in one.blocks
        if isinstance(block, ToolAnswer)
    ]
    return answers + ([{"role": "user", "content": told}] if told else [])


def chat_answer(said: Any) -> ModelAnswer:
    """The answer read. Raises `UnreadableAnswer`."""
    try:
        choice = said["choices"][0]
        message = choice["message"]
        blocks: list[SaidText | ToolUse] = []
        if message.get("content"):
            blocks.append(SaidText(str(message["content"])))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            blocks.append(ToolUse(str(call["id"]), str(function["name"]), _object(function["arguments"])))
        return ModelAnswer(blocks, _used(said["usage"]), choice.get("finish_reason") == "length")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise UnreadableAnswer("the provider's answer cannot be read") from None


def _object(text: Any) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(text or "{}") if isinstance(text, str) else text
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _used(usage: Mapping[str, Any]) -> Spent:
    # Its input counts what was read from the cache, too.
    read = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    return Spent(
        turns=1,
        input=max(0, int(usage["prompt_tokens"]) - read),
        output=int(usage["completion_tokens"]),
        cache_read=read,
    )
