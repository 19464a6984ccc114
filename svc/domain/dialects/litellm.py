"""LiteLLM, SDK and proxy, beside the GenAI conventions and OpenLLMetry's older ones.

Owns: the keys under `litellm.*` and `gen_ai.cost.*`, the cost inside `hidden_params`, and the parts of
usage inside `metadata.usage_object`. Called by the table of dialects. Its cost of input leaves out what
cached tokens cost, or holds it, by version and provider: its total tells which. The proxy's own span
repeats the request below it; the roll-up sees that by the response's id.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from svc.domain.dialects.dialect import Attributes, Dialect, Field, Found
from svc.domain.dialects.usage_objects import DETAILS, details_in, opened
from svc.domain.spans.span import Kind
from svc.domain.spans.values import decoded, money, present, text

_COST: Final = "litellm.cost."
_HIDDEN: Final = "hidden_params"
_USAGE: Final = "metadata.usage_object"
#: What a call costs in all, before discounts and margins where it says so.
_WHOLE: Final = (
    "litellm.cost.original",
    "gen_ai.cost.original_cost",
    "litellm.cost.total",
    "gen_ai.cost.total_cost",
)

_ZERO: Final = Decimal(0)


def _guardrail(value: Any) -> Kind | None:
    return "guardrail" if present(value) is not None else None


def _first(attributes: Attributes, *keys: str) -> Decimal | None:
    return next((amount for key in keys if (amount := money(attributes.get(key))) is not None), None)


def _left_out(attributes: Attributes, input_cost: Decimal) -> Decimal:
    """The cost of cached tokens, where the cost of input does not hold it yet.

    Together the parts are the whole before any discount or margin, so that what exceeds it is there twice.
    """
    cache_read = _first(attributes, "litellm.cost.cache_read", "gen_ai.cost.cache_read_cost") or _ZERO
    cache_write = (
        _first(attributes, "litellm.cost.cache_creation", "gen_ai.cost.cache_creation_cost") or _ZERO
    )
    cached = cache_read + cache_write
    if not cached or cached > input_cost:
        return cached
    if (total := _first(attributes, *_WHOLE)) is None:
        return cached
    other_costs = _first(attributes, "litellm.cost.output", "gen_ai.cost.output_cost") or _ZERO
    other_costs += _first(attributes, "litellm.cost.tool_usage", "gen_ai.cost.tool_usage_cost") or _ZERO
    # Closer to the whole with the cached part than without it: doubles are not exact.
    return cached if input_cost + other_costs + cached / 2 <= total else _ZERO


def derive(attributes: Attributes, fields: Found) -> Iterable[tuple[Field, Any]]:
    """The cost of all input, the total that only the hidden parameters hold, usage's parts, the provider."""
    input_cost = _first(attributes, "litellm.cost.input", "gen_ai.cost.input_cost")
    if input_cost is not None:
        yield "input_cost", input_cost + _left_out(attributes, input_cost)
    if usage := opened(attributes.get(_USAGE)):
        yield from details_in(usage)
    if "provider" not in fields and (model := text(attributes.get("litellm.provider.model"))) is not None:
        maker, slash, _ = model.partition("/")
        yield "provider", maker if slash else None
    if "total_cost" not in fields and type(hidden := decoded(attributes.get(_HIDDEN))) is dict:
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
    derives=("input_cost", "total_cost", "provider", *DETAILS),
    counting="inclusive",
    beside_genai=True,
    marks=("litellm.cost.input", "gen_ai.cost.input_cost", "litellm.provider.model", _HIDDEN, _USAGE),
    usage_prefixes=(_COST, "gen_ai.cost.", _USAGE),
    reads=("litellm.*",),
)
