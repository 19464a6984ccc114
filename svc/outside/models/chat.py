"""The chat completions dialect, as OpenAI and whoever follows them speak it.

Of an answer only its text, its calls and its usage are read; the message itself goes back whole (Gemini
signs its calls, DeepSeek wants its reasoning again).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.agents import Spent
from svc.outside.models.conversation import (
    NOTHING,
    ModelAnswer,
    ModelQuestion,
    SaidText,
    ToolAnswer,
    ToolUse,
    UnreadableAnswer,
    Utterance,
    counted,
)


def chat_body(question: ModelQuestion, model: str, *, bound: str) -> dict[str, Any]:
    """The body. `bound` is what this provider calls the longest answer."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": question.system}]
    for utterance in question.utterances:
        messages += _messages(utterance)
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


def _messages(utterance: Utterance) -> list[dict[str, Any]]:
    if utterance.role == "assistant":
        return [utterance.verbatim]
    text = "\n".join(block.text for block in utterance.blocks if isinstance(block, SaidText))
    answers = [
        {"role": "tool", "tool_call_id": block.id, "content": block.text}
        for block in utterance.blocks
        if isinstance(block, ToolAnswer)
    ]
    return answers + ([{"role": "user", "content": text}] if text else [])


def chat_answer(body: Any) -> ModelAnswer:
    """The answer read. Raises `UnreadableAnswer`."""
    try:
        choice = body["choices"][0]
        message = {**choice["message"], "role": "assistant"}
        text = _text(message.get("content"))
        blocks: list[SaidText | ToolUse] = [SaidText(text)] if text else []
        calls = []
        for number, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            arguments = _object(function.get("arguments"))
            if arguments is None:
                # It has to be JSON when it is read again.
                function = {**function, "arguments": "{}"}
            # Some servers name no call.
            calls.append({**call, "id": str(call.get("id") or f"call_{number}"), "function": function})
            blocks.append(ToolUse(calls[-1]["id"], str(function["name"]), arguments))
        if calls:
            message["tool_calls"] = calls
        elif not text:
            message["content"] = NOTHING
        return ModelAnswer(blocks, _used(body.get("usage")), choice.get("finish_reason") == "length", message)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise UnreadableAnswer("the provider's answer cannot be read") from None


def _text(content: Any) -> str:
    """A text, or the texts of its parts; parts of other kinds are the provider's own."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")
    return str(content or "")


def _object(text: Any) -> Mapping[str, Any] | None:
    try:
        document = msgspec.json.decode(text or "{}") if isinstance(text, str) else text
    except (msgspec.DecodeError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _used(usage: Any) -> Spent | None:
    if not isinstance(usage, dict) or "prompt_tokens" not in usage:
        return None
    # Its input counts what was read from the cache, too.
    details = usage.get("prompt_tokens_details")
    cached_tokens = counted(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return Spent(
        turns=1,
        input=counted(usage["prompt_tokens"]) - cached_tokens,
        output=counted(usage.get("completion_tokens")),
        cache_read=cached_tokens,
    )
