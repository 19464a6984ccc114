"""What pages of settings say beside a field that is left blank: the value that holds now. Pure texts."""

from __future__ import annotations

from svc.domain.quantities import Number
from svc.web.shell import words


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
