"""What pages of settings say beside their fields: what holds while one is blank, why one is refused. Pure."""

from __future__ import annotations

import re
from typing import Final

from protocol.refusals import Refusal
from protocol.rest.prices import PRICES_MAX
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

_FAULT: Final = re.compile(r"the form cannot be read: .* - at `\$\.(?:prices\[\d+\]\.)?(\w+)`", re.DOTALL)


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


def at_amount(refusal: Refusal) -> tuple[str, str]:
    """Which amount a refusal is about, blank where it is about none, and the refusal for people."""
    matched = _FAULT.fullmatch(refusal.message)
    if matched and matched[1] in AMOUNTS:
        return matched[1], "Type US dollars from 0 to 1,000,000, such as 2.50."
    return "", FULL if "prices`" in refusal.message else words.sentence(refusal.message)
