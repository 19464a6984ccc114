"""The spans that Anthropic's own SDK makes, beside the GenAI conventions.

Owns: the keys under `anthropic.*`. Called by the table of dialects. It counts inclusively, but leaves out the
tokens with which a long conversation was compacted: they were used and are added. A call that an
instrumentation tells too has the same response id; the roll-up counts it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.spans.values import count, present

_GIVEN: Final = "anthropic.usage.compaction.input_tokens"
_ANSWERED: Final = "anthropic.usage.compaction.output_tokens"


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """Usage with what compaction used."""
    for field, usage_key, compaction_key in (
        ("input_tokens", "gen_ai.usage.input_tokens", _GIVEN),
        ("output_tokens", "gen_ai.usage.output_tokens", _ANSWERED),
    ):
        if (tokens := count(attributes.get(compaction_key))) is not None:
            yield field, (count(attributes.get(usage_key)) or 0) + tokens  # type: ignore[misc]  # literals


DIALECT: Final = Dialect(
    name="anthropic_sdk",
    title="Anthropic SDK",
    keys={
        "cache_write_1h_tokens": ("anthropic.usage.cache_creation.ephemeral_1h_input_tokens",),
        "session_id": ("anthropic.session.id",),
        "tool_result": ("anthropic.tool_result.content",),
    },
    readers={"anthropic.tool_result.content": present},
    derive=derive,
    derives=("input_tokens", "output_tokens"),
    counting="inclusive",
    beside_genai=True,
    marks=(_GIVEN, _ANSWERED),
    usage_prefixes=("anthropic.usage.",),
    reads=("anthropic.*",),
)
