"""The table of dialects: which there are, and who wins which field.

Owns: `DIALECTS`, `PRECEDENCE` and how the values of a field are read. The reading in this package calls it.
A new dialect is one more file beside this one, its name in `DIALECTS`, and a row in `PRECEDENCE` where its
word should weigh otherwise. Never reads a span.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from svc.domain.dialects import (
    anthropic_sdk,
    any_key,
    claude_code,
    codex,
    gemini_cli,
    genai,
    general,
    genkit,
    google_adk,
    laminar,
    langfuse,
    langsmith,
    litellm,
    livekit,
    logfire,
    mastra,
    mlflow,
    openinference,
    openlit,
    openllmetry,
    pipecat,
    pydantic_ai,
    spring_ai,
    vercel,
)
from svc.domain.dialects.dialect import Dialect, Field, Reader
from svc.domain.spans.values import count, money, present

LANGFUSE: Final = langfuse.DIALECT
OPENINFERENCE: Final = openinference.DIALECT
CLAUDE_CODE: Final = claude_code.DIALECT
GOOGLE_ADK: Final = google_adk.DIALECT
GENAI: Final = genai.DIALECT
OPENLLMETRY: Final = openllmetry.DIALECT
VERCEL: Final = vercel.DIALECT
PYDANTIC_AI: Final = pydantic_ai.DIALECT
OPENLIT: Final = openlit.DIALECT
ANTHROPIC_SDK: Final = anthropic_sdk.DIALECT
ANY_KEY: Final = any_key.DIALECT
GENERAL: Final = general.DIALECT

#: Every dialect, in the order that holds for each field, and for messages, unless `PRECEDENCE` says
#: otherwise: first those whose own word for the kind of a span is explicit.
DIALECTS: Final[tuple[Dialect, ...]] = (
    LANGFUSE,
    OPENINFERENCE,
    langsmith.DIALECT,
    mlflow.DIALECT,
    CLAUDE_CODE,
    GOOGLE_ADK,
    GENAI,
    OPENLLMETRY,
    VERCEL,
    logfire.DIALECT,
    PYDANTIC_AI,
    litellm.DIALECT,
    codex.DIALECT,
    gemini_cli.DIALECT,
    spring_ai.DIALECT,
    pipecat.DIALECT,
    livekit.DIALECT,
    mastra.DIALECT,
    genkit.DIALECT,
    OPENLIT,
    laminar.DIALECT,
    ANTHROPIC_SDK,
    ANY_KEY,
    GENERAL,
)

#: Who is heard first, field by field; dialects not named follow in the order of `DIALECTS`.
PRECEDENCE: Final[Mapping[Field, tuple[Dialect, ...]]] = {
    # `session.id` before `gen_ai.conversation.id` (contract §3).
    "session_id": (GENERAL, GENAI),
    "user_id": (GENERAL,),
    # An agent's own name says more than the node of a graph, and both more than a function.
    "named": (GENAI, OPENINFERENCE, PYDANTIC_AI, VERCEL, OPENLLMETRY),
    # Some of those that speak GenAI mean something else by its keys and correct them; a provider's own object
    # corrects totals that agree with it in all but their parts.
    "input_tokens": (ANY_KEY, LANGFUSE, OPENINFERENCE, CLAUDE_CODE, OPENLIT, ANTHROPIC_SDK),
    "output_tokens": (ANY_KEY, LANGFUSE, OPENINFERENCE, CLAUDE_CODE, GOOGLE_ADK, ANTHROPIC_SDK),
    "tool_arguments": (GENAI,),
    "tool_result": (GENAI,),
    # pydantic-ai's answer is what the run returned; `output.value` beside it is a wrapper's.
    "output_value": (PYDANTIC_AI, OPENINFERENCE, GENAI),
}

#: How a value is read that its dialect has no reader of its own for; `text` where nothing is said.
READERS: Final[Mapping[Field, Reader]] = {
    "input_tokens": count,
    "output_tokens": count,
    "cache_read_tokens": count,
    "cache_write_tokens": count,
    "cache_write_1h_tokens": count,
    "reasoning_tokens": count,
    "input_audio_tokens": count,
    "cached_audio_tokens": count,
    "output_audio_tokens": count,
    "input_cost": money,
    "output_cost": money,
    "cache_read_cost": money,
    "cache_write_cost": money,
    "total_cost": money,
    "mcp": present,
    "failed": present,
    "tool_arguments": present,
    "tool_result": present,
    "input_value": present,
    "output_value": present,
}
