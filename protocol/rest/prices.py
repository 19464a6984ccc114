"""Bodies and answers of prices: what a project says that its models cost."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

#: What one project may have.
PRICES_MAX: Final = 500
#: US dollars for a million tokens; more is a slip of the pen.
UsdPerMillion = Annotated[float, Meta(ge=0, le=1_000_000)]


class ModelPriceShown(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """US dollars for a million tokens of a model. `provider` null: of any; from the cache null: as input.

    `cache_write_1h` is for what is kept for an hour; null: twice the input where `cache_write` is given.
    """

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    provider: Annotated[str, Meta(max_length=200)] | None = None
    input: UsdPerMillion
    output: UsdPerMillion
    cache_read: UsdPerMillion | None = None
    cache_write: UsdPerMillion | None = None
    cache_write_1h: UsdPerMillion | None = None


class PricesChange(msgspec.Struct, forbid_unknown_fields=True):
    """All prices of the project from now on; what calls cost so far stays as it is."""

    prices: Annotated[list[ModelPriceShown], Meta(max_length=PRICES_MAX)]


class PricesShown(msgspec.Struct):
    """The prices of the project, asked before those of the service."""

    prices: list[ModelPriceShown]
