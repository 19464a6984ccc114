"""What pages of settings say beside their fields: what holds while one is blank, why one is refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.prices import PRICES_MAX, ModelPriceShown
from svc.domain.quantities import Number
from svc.web.shell import words

#: The amounts of a price in the order of the table, and what each is called.
AMOUNTS: Final = {
    "input": "Input",
    "cache_read": "Cache read",
    "cache_write": "Cache write",
    "cache_write_1h": "Cache write, 1 hour",
    "output": "Output",
}
#: Beside amounts that may be blank.
WHEN_BLANK: Final = {
    "cache_read": "Blank: as input.",
    "cache_write": "Blank: as input.",
    "cache_write_1h": "Blank: twice the input if a cache write has a price, otherwise as input.",
}
FULL: Final = f"A project has at most {words.count(PRICES_MAX)} prices of its own."

_WRONG_AMOUNT: Final = "Type US dollars from 0 to 1,000,000, such as 2.50."
_SOME_PRICE: Final = {"model": "any", "input": "0", "output": "0"}


def blank_term(days: int) -> str:
    """Beside a term of retention; 0 days are for ever."""
    return (
        f"Blank: {words.counted(days, 'day') if days else 'for ever'}, as the deployment says. 0: for ever."
    )


def blank_amount(amount: Number) -> str:
    """Beside an amount in US dollars."""
    return f"Blank: {words.money(amount)}."


def blank_tokens(tokens: int) -> str:
    """Beside a number of tokens."""
    return f"Blank: {words.count(tokens)}."


def price_faults(refusal: Refusal, fields: Mapping[str, Any]) -> dict[str, str]:
    """Why a price is refused: each wrong amount by its name; under a blank one what is about none."""
    wrong = {name: _WRONG_AMOUNT for name in AMOUNTS if not _is_amount(name, fields[name])}
    return wrong or {"": FULL if "prices`" in refusal.message else words.sentence(refusal.message)}


def _is_amount(name: str, typed: str | None) -> bool:
    try:
        # As the body of the REST API has it.
        msgspec.convert({**_SOME_PRICE, name: typed}, ModelPriceShown, strict=False)
    except msgspec.ValidationError:
        return False
    return True
