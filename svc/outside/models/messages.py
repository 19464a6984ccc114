"""The Messages dialect: of the vendor's own API and, less the model's name, of the cloud's invoke calls.

Cache marks stand on the system text and on the last user message, so that what is sent again with each turn
costs a tenth. Of an answer only its texts, its calls and its usage are read; all its blocks go back as they
came, the thinking ones with their signatures.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.agents import Spent
from svc.outside.models.conversation import (
    NOTHING,
    Block,
    ModelAnswer,
    ModelQuestion,
    SaidText,
    ToolAnswer,
    ToolUse,
    UnreadableAnswer,
    counted,
)

_CACHED: Final = {"type": "ephemeral"}
#: Why an answer ends before it is complete.
_CUT: Final = ("max_tokens", "model_context_window_exceeded")


def messages_body(question: ModelQuestion) -> dict[str, Any]:
    """The body, but for the name of the model."""
    messages = [
        {
            "role": utterance.role,
            "content": utterance.verbatim or [_block(block) for block in utterance.blocks],
        }
        for utterance in question.utterances
    ]
    last_message = next((m for m in reversed(messages) if m["role"] == "user"), None)
    if last_message is not None and last_message["content"]:
        content: Any = last_message["content"]
        content[-1] = {**content[-1], "cache_control": _CACHED}
    body: dict[str, Any] = {
        "max_tokens": question.output_tokens,
        "system": [{"type": "text", "text": question.system, "cache_control": _CACHED}],
        "messages": messages,
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
            for tool in question.tools
        ],
    }
    if question.forced is not None:
        body["tool_choice"] = {"type": "tool", "name": question.forced}
    return body


def _block(block: Block) -> dict[str, Any]:
    match block:
        case SaidText(text):
            return {"type": "text", "text": text or NOTHING}
        case ToolUse(id_, name, arguments):
            return {"type": "tool_use", "id": id_, "name": name, "input": dict(arguments or {})}
        case ToolAnswer(id_, text, is_error):
            return {"type": "tool_result", "tool_use_id": id_, "content": text, "is_error": is_error}


def messages_answer(body: Any) -> ModelAnswer:
    """The answer read. Raises `UnreadableAnswer`."""
    try:
        blocks: list[SaidText | ToolUse] = []
        verbatim: list[dict[str, Any]] = []
        for block in body["content"]:
            if block["type"] == "text":
                if not str(block["text"]).strip():
                    # Models send empty texts, and providers refuse them in a request.
                    continue
                blocks.append(SaidText(str(block["text"])))
            elif block["type"] == "tool_use":
                tool_input = block["input"]
                arguments = tool_input if isinstance(tool_input, dict) else None
                blocks.append(ToolUse(str(block["id"]), str(block["name"]), arguments))
                block = {**block, "input": arguments or {}}
            verbatim.append(block)
        cut = body.get("stop_reason") in _CUT
        return ModelAnswer(
            blocks, _used(body.get("usage")), cut, verbatim or [{"type": "text", "text": NOTHING}]
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UnreadableAnswer("the provider's answer cannot be read") from None


def _used(usage: Any) -> Spent | None:
    if not isinstance(usage, dict) or "input_tokens" not in usage:
        return None
    return Spent(
        turns=1,
        input=counted(usage["input_tokens"]),
        output=counted(usage.get("output_tokens")),
        cache_read=counted(usage.get("cache_read_input_tokens")),
        cache_write=counted(usage.get("cache_creation_input_tokens")),
    )
