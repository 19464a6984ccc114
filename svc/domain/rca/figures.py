"""Numbers as people read them: shares, durations, money, moments, values.

Owns the formats of a report. Pure; never invents a digit that was not measured.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final

from svc.domain.detect.slots import slot_start_s
from svc.domain.span import EPOCH

VALUE_CHARS: Final = 80


def percent(share: float) -> str:
    """0.094 is `9.4 %`; small ones keep two digits, large ones none behind the point."""
    value = 100 * share
    if not value or abs(value) >= 10:
        return f"{value:.0f} %"
    if abs(value) < 0.01:
        return "under 0.01 %"
    return f"{value:.2g} %" if abs(value) < 1 else f"{value:.1f} %"


def whole(share: float) -> str:
    """A share between nothing and all of it, to a hundredth."""
    return f"{100 * min(max(share, 0.0), 1.0):.0f} %"


def duration(ms: float) -> str:
    """Milliseconds in the unit that people would use."""
    if abs(ms) < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if abs(ms) < 120_000 else f"{ms / 60_000:.1f} min"


def dollars(usd: float) -> str:
    """US dollars, small ones with two digits that say something."""
    sign = "-" if usd < 0 else ""
    usd = abs(usd)
    if usd >= 1 or not usd:
        return f"{sign}${usd:,.2f}"
    places = min(max(1 - math.floor(math.log10(usd)), 2), 9)
    return f"{sign}${usd:.{places}f}"


def count(n: float) -> str:
    """A number with thousands apart; a small one that is not whole with two digits."""
    return f"{n:,.0f}" if n >= 100 or n == round(n) else f"{n:.2g}"


def moment(slot: int) -> str:
    """The beginning of a slot, in UTC."""
    return f"{EPOCH + timedelta(seconds=slot_start_s(slot)):%-d %b %H:%M} UTC"


def iso(slot: int) -> str:
    """The beginning of a slot as the interfaces show it."""
    return f"{EPOCH + timedelta(seconds=slot_start_s(slot)):%Y-%m-%dT%H:%M:%S.000000Z}"


def value(said: str) -> str:
    """A client's value inside a sentence: on one line, short, in backticks that it cannot leave."""
    said = " ".join(said.replace("`", "'").split())
    return f"`{said if len(said) <= VALUE_CHARS else said[: VALUE_CHARS - 1] + '…'}`"


def chance(p: float) -> str:
    """How often chance alone does what was seen."""
    often = "less than one case in a million" if p < 1e-6 else f"{percent(p)} of cases"
    return f"chance alone does so in {often}"


def times(ratio: float) -> str:
    """How many times something is something else."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"
