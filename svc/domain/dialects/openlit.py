"""OpenLIT, beside the GenAI conventions.

Owns: the keys that only its SDK uses, some of its older versions. Called by the table of dialects. For models
of Anthropic, there and on Bedrock, it passes on an input that leaves out what was cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.messages import messages_in
from svc.domain.spans.values import count, text

_EXCLUSIVE: Final = frozenset({"anthropic", "aws.bedrock"})
_SEARCHES: Final = frozenset({"QUERY", "SEARCH", "SELECT", "GET", "FETCH", "PEEK"})
_VERSION: Final = "gen_ai.sdk.version"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """Inclusive input where the provider counts without its cache, and the searches of vector databases."""
    operation = attributes.get("gen_ai.operation.name")
    if operation == "vectordb":
        searched = str(attributes.get("db.operation.name") or attributes.get("db.operation")).upper()
        yield "kind", "retrieval" if searched in _SEARCHES else "step"
        yield "input_text", text(attributes.get("db.query.text"))
    elif operation == "agent":
        yield "kind", "agent"
    provider = attributes.get("gen_ai.provider.name", attributes.get("gen_ai.system"))
    input_tokens = count(attributes.get("gen_ai.usage.input_tokens"))
    if _VERSION in attributes and input_tokens is not None and provider in _EXCLUSIVE:
        cache_read, cache_write = fields.get("cache_read_tokens"), fields.get("cache_write_tokens")
        yield "input_tokens", input_tokens + (cache_read or 0) + (cache_write or 0)


def input_messages(span: WireSpan) -> list[Any] | None:
    """The prompt that older versions put on an attribute."""
    return messages_in(span.attributes.get("gen_ai.content.prompt"), "user")


def output_messages(span: WireSpan) -> list[Any] | None:
    """The answer that older versions put on an attribute."""
    return messages_in(span.attributes.get("gen_ai.content.completion"), "assistant")


DIALECT: Final = Dialect(
    name="openlit",
    title="OpenLIT",
    keys={
        "user_id": ("gen_ai.request.user",),
        "named": ("gen_ai.framework.component.name",),
        "cache_read_tokens": ("gen_ai.usage.prompt_tokens_details.cached_tokens",),
        "cache_write_tokens": ("gen_ai.usage.prompt_tokens_details.cache_creation_tokens",),
        "reasoning_tokens": ("gen_ai.usage.completion_tokens_details.reasoning_tokens",),
        "input_audio_tokens": ("gen_ai.usage.prompt_tokens_details.audio_tokens",),
        "output_audio_tokens": ("gen_ai.usage.completion_tokens_details.audio_tokens",),
        "total_cost": ("gen_ai.usage.cost",),
        "tool_arguments": ("gen_ai.tool.args", "gen_ai.tool.input"),
        "tool_result": ("gen_ai.tool.output",),
        "input_text": ("gen_ai.retrieval.query",),
        "input_value": ("gen_ai.workflow.input",),
        "output_value": ("gen_ai.workflow.output",),
    },
    derive=derive,
    derives=("kind", "input_text", "input_tokens"),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=("gen_ai.content.prompt",),
    output_keys=("gen_ai.content.completion",),
    counting="inclusive",
    beside_genai=True,
    marks=(_VERSION, "db.sdk.version", "gen_ai.content.prompt", "gen_ai.content.completion"),
)
