"""What stands under keys that no dialect owns: usage objects as a provider wrote them, and bare words.

Owns: keys that end in `usage_metadata` or `.usage` and that no other dialect knows. Called by the table of
dialects, after all others: it adds what they left out, and corrects a total that leaves out its parts. A bare
`model` is one only of a span that is known to call one and names none; `conversation.id` is the word of
pipecat and Codex for a session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import DETAILS, agreeing, opened
from svc.domain.spans.values import text_unquoted

_CALLS: Final = ("llm", "embedding", "reranker")
#: A span that says any of these has usage of its own.
_SAID: Final = frozenset({"request_model", "response_model", "input_tokens", "output_tokens"})
_ENDINGS: Final = ("usage_metadata", ".usage")


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """The usage of the first object that agrees with what the span says, and the model; of a call alone."""
    if "request_model" not in fields and "response_model" not in fields and fields.get("kind") in _CALLS:
        yield "request_model", text_unquoted(attributes.get("model"))
    # What LiteLLM writes down of a request below the call is no call once more.
    if fields.get("kind") not in _CALLS and _SAID.isdisjoint(fields):
        return
    for key, value in attributes.items():
        if key.endswith(_ENDINGS) and (usage := opened(value)):
            counts = tuple(agreeing(usage, fields))
            if counts:
                yield from counts
                return


DIALECT: Final = Dialect(
    name="any_key",
    title="Any exporter: usage objects, `model`, `conversation.id`",
    keys={"session_id": ("conversation.id",)},
    derive=derive,
    derives=("request_model", "input_tokens", "output_tokens", *DETAILS),
    marks=("model",),
    endings=_ENDINGS,
)
