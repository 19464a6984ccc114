"""Claude Code, and the Claude Agent SDK that runs it.

Owns: what `span.type` means when it is one of theirs, and the bare keys beside it. Called by the table of
dialects. Bare keys are too common to be claimed, so everything is derived, and only after `span.type` was
recognised. Input leaves out what was cached, as in Anthropic's own API. Waiting for a permission, running a
tool and hooks are parts of a tool's call and steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.span import Kind
from svc.domain.spans.values import count, milliseconds, present, text, unquoted

#: With or without `claude_code.` before, as the version may be.
TYPES: Final[Mapping[str, Kind]] = {
    "interaction": "agent",
    "llm_request": "llm",
    "tool": "tool",
    "tool.blocked_on_user": "step",
    "tool.execution": "step",
    "hook": "step",
}

_TYPE: Final = "span.type"
_REDACTED: Final = "<REDACTED>"
_OUTPUT_EVENT: Final = "tool.output"
_INPUT_DETAILS: Final = ("full_command", "file_path", "skill_name", "subagent_type")


def _kind(attributes: Attributes) -> Kind | None:
    value = unquoted(attributes.get(_TYPE))
    return TYPES.get(value.removeprefix("claude_code.")) if type(value) is str else None


def _content(attributes: Attributes, key: str) -> Any:
    value = present(attributes.get(key))
    return None if value == _REDACTED else value


def _usage(attributes: Attributes) -> Iterable[tuple[Field, Any]]:
    def first(*keys: str) -> int | None:
        return next((value for key in keys if (value := count(attributes.get(key))) is not None), None)

    input_tokens = first("input_tokens", "gen_ai.usage.input_tokens")
    cache_read = first("cache_read_tokens", "gen_ai.usage.cache_read.input_tokens")
    cache_write = first(
        "cache_creation_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation.input_tokens",
    )
    yield (
        "input_tokens",
        None if input_tokens is None else input_tokens + (cache_read or 0) + (cache_write or 0),
    )
    yield "output_tokens", first("output_tokens", "gen_ai.usage.output_tokens")
    yield "cache_read_tokens", cache_read
    yield "cache_write_tokens", cache_write


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """All that a span of Claude Code says."""
    kind = _kind(attributes)
    if kind is None:
        return
    yield "kind", kind
    if str(attributes.get("success")).lower() == "false":
        yield "failed", True
        yield "error_message", text(attributes.get("error"))
    if kind == "llm":
        yield "request_model", text(attributes.get("model"))
        if "provider" not in fields:
            yield "provider", "anthropic"
        yield from _usage(attributes)
    elif kind == "agent":
        yield "input_value", _content(attributes, "user_prompt") or _content(attributes, "new_context")
    elif kind == "tool":
        name = text(attributes.get("tool_name"))
        yield "tool_name", name
        yield "tool_call_id", text(attributes.get("tool_use_id"))
        if name is not None and name.startswith("mcp__"):
            yield "mcp", name
        details = {
            key: content for key in _INPUT_DETAILS if (content := _content(attributes, key)) is not None
        }
        yield "tool_arguments", _content(attributes, "tool_input") or details or None
        yield "tool_result", _content(attributes, "new_context")


def input_messages(span: WireSpan) -> list[Any] | None:
    """What is new in the context of a request."""
    if _kind(span.attributes) != "llm":
        return None
    context = _content(span.attributes, "new_context")
    return [{"role": "user", "content": context}] if type(context) is str else None


def output_messages(span: WireSpan) -> list[Any] | None:
    """The model's answer, or what the event of a tool's output holds."""
    kind = _kind(span.attributes)
    if kind == "llm":
        answer = _content(span.attributes, "response.model_output")
        return [{"role": "assistant", "content": answer}] if type(answer) is str else None
    if kind == "tool":
        for event in span.events:
            if event.name == _OUTPUT_EVENT:
                for key in ("output", "content", "diff"):
                    if (output := _content(event.attributes, key)) is not None:
                        return [{"role": "tool", "content": output}]
    return None


def _said_here(value: Any, span: WireSpan) -> str | None:
    return text(value) if _kind(span.attributes) is not None else None


def _reasons(value: Any, span: WireSpan) -> list[str] | None:
    reason = _said_here(value, span)
    return None if reason is None else [reason]


def _first_token_ms(value: Any, span: WireSpan) -> float | None:
    return milliseconds(value, 1) if _kind(span.attributes) is not None else None


DIALECT: Final = Dialect(
    name="claude_code",
    title="Claude Code, Claude Agent SDK",
    keys={},
    derive=derive,
    derives=(
        "kind",
        "failed",
        "error_message",
        "request_model",
        "provider",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "input_value",
        "tool_name",
        "tool_call_id",
        "mcp",
        "tool_arguments",
        "tool_result",
    ),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("new_context",),
    output_keys=("response.model_output",),
    details={
        "agent": ("agent_id",),
        "workflow": ("workflow.name",),
        "finish_reasons": ("stop_reason",),
        "time_to_first_token_ms": ("ttft_ms",),
    },
    detail_readers={
        "agent_id": _said_here,
        "workflow.name": _said_here,
        "stop_reason": _reasons,
        "ttft_ms": _first_token_ms,
    },
    counting="exclusive",
    beside_genai=True,
    marks=(_TYPE,),
    usage_prefixes=("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens"),
    reads=(
        "success",
        "error",
        "model",
        "tool_name",
        "tool_use_id",
        "duration_ms",
    ),
)
