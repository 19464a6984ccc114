"""LiteLLM, SDK and proxy, beside the GenAI conventions and OpenLLMetry's older ones.

Owns: the keys under `litellm.*` and `gen_ai.cost.*`, and the cost inside `hidden_params`. Called by the table
of dialects. Its cost of input leaves out what cached tokens cost. The proxy's own span repeats the request
below it; the roll-up sees that by the response's id.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.span import Kind
from svc.domain.values import decoded, money, present

_COST: Final = "litellm.cost."
_HIDDEN: Final = "hidden_params"


def _guardrail(value: Any) -> Kind | None:
    return "guardrail" if present(value) is not None else None


def _first(attributes: Attributes, *keys: str) -> Decimal | None:
    return next((amount for key in keys if (amount := money(attributes.get(key))) is not None), None)


def derive(attributes: Attributes, found: Found) -> Iterable[tuple[Field, Any]]:
    """The cost of all input, and the total that only the hidden parameters hold."""
    given = _first(attributes, "litellm.cost.input", "gen_ai.cost.input_cost")
    if given is not None:
        read = _first(attributes, "litellm.cost.cache_read", "gen_ai.cost.cache_read_cost")
        written = _first(attributes, "litellm.cost.cache_creation", "gen_ai.cost.cache_creation_cost")
        yield "input_cost", given + (read or 0) + (written or 0)
    if "total_cost" not in found and type(hidden := decoded(attributes.get(_HIDDEN))) is dict:
        yield "total_cost", money(hidden.get("response_cost"))


DIALECT: Final = Dialect(
    name="litellm",
    title="LiteLLM",
    keys={
        "kind": ("litellm.guardrail.name",),
        "session_id": ("litellm.session_id", "metadata.session_id"),
        "user_id": ("litellm.end_user.id", "metadata.user_api_key_end_user_id"),
        "total_cost": ("litellm.cost.total", "gen_ai.cost.total_cost", "gen_ai.usage.cost"),
        "output_cost": ("litellm.cost.output", "gen_ai.cost.output_cost"),
        "cache_read_cost": ("litellm.cost.cache_read", "gen_ai.cost.cache_read_cost"),
        "cache_write_cost": ("litellm.cost.cache_creation", "gen_ai.cost.cache_creation_cost"),
    },
    readers={"litellm.guardrail.name": _guardrail},
    derive=derive,
    derives=("input_cost", "total_cost"),
    counting="inclusive",
    beside_genai=True,
    marks=("litellm.cost.input", "gen_ai.cost.input_cost", _HIDDEN),
    usage_prefixes=(_COST, "gen_ai.cost."),
    reads=("litellm.*",),
)
