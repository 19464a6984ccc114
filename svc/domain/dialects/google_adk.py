"""Google's Agent Development Kit, beside the GenAI conventions.

Owns: the keys under `gcp.vertex.agent.*`. Called by the table of dialects. Before 2.0 its output leaves out
what was thought, which another key (`gen_ai.usage.experimental.reasoning_tokens`) or the response alone
holds, as it does what was cached; since then it counts as others do. The span "(merged tools)" repeats the
calls beside it and is a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import DETAILS, agreeing, usage_of_answer
from svc.domain.spans.messages import conversation
from svc.domain.spans.values import count, decoded, present

_REQUEST: Final = "gcp.vertex.agent.llm_request"
_RESPONSE: Final = "gcp.vertex.agent.llm_response"
_THOUGHT: Final = "gen_ai.usage.experimental.reasoning_tokens"
_SYSTEM: Final = "gcp.vertex.agent"
_GOOGLE: Final = "gcp.vertex_ai"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """The provider behind the kit, output with what was thought, and merged tools told from calls."""
    if fields.get("tool_name") == "(merged tools)":
        yield "kind", "step"
    if attributes.get("gen_ai.provider.name", attributes.get("gen_ai.system")) == _SYSTEM:
        model = fields.get("response_model") or fields.get("request_model") or ""
        maker, slash, _ = model.partition("/")
        # Models that LiteLLM reaches are named with their maker first, Google's own with a path.
        foreign = slash and maker not in ("projects", "publishers", "models")
        yield "provider", maker if foreign else _GOOGLE
    if (reasoning := count(attributes.get(_THOUGHT))) is not None:
        yield "reasoning_tokens", reasoning
        if (output_tokens := count(attributes.get("gen_ai.usage.output_tokens"))) is not None:
            yield "output_tokens", output_tokens + reasoning
    elif usage := usage_of_answer(attributes.get(_RESPONSE)):
        yield from agreeing(usage, fields)


def input_messages(span: WireSpan) -> list[Any] | None:
    """The contents of the request, after the system's instructions."""
    request = decoded(span.attributes.get(_REQUEST))
    if type(request) is not dict:
        return None
    messages = conversation(request.get("contents"))
    config = request.get("config")
    instruction = present(config.get("system_instruction")) if type(config) is dict else None
    if instruction is None or messages is None:
        return messages
    if type(instruction) is dict:
        instruction = instruction.get("parts", instruction)
    return [{"role": "system", "content": instruction}, *messages]


def output_messages(span: WireSpan) -> list[Any] | None:
    """The content of the response."""
    response = decoded(span.attributes.get(_RESPONSE))
    content = response.get("content") if type(response) is dict else None
    if type(response) is not dict or type(content) is not dict:
        return None
    return [{"role": "model", "finish_reason": response.get("finish_reason"), **content}]


DIALECT: Final = Dialect(
    name="google_adk",
    title="Google ADK",
    keys={
        "session_id": ("gcp.vertex.agent.session_id",),
        "tool_arguments": ("gcp.vertex.agent.tool_call_args",),
        "tool_result": ("gcp.vertex.agent.tool_response",),
        "input_value": ("gcp.vertex.agent.data",),
    },
    derive=derive,
    derives=("kind", "provider", "input_tokens", "output_tokens", *DETAILS),
    input_messages=input_messages,
    output_messages=output_messages,
    input_keys=(_REQUEST,),
    output_keys=(_RESPONSE,),
    counting="inclusive",
    beside_genai=True,
    marks=(
        _REQUEST,
        _RESPONSE,
        _THOUGHT,
        "gcp.vertex.agent.invocation_id",
        "gcp.vertex.agent.event_id",
    ),
    reads=("gcp.vertex.agent.*",),
)
