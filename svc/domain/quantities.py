"""Quantities as text, for people: counts, shares, factors, durations, money, sizes. Pure.

Pages, commands, findings, reports and alerts all write their numbers here, so that one value reads the same
in a headline, on the axis of its chart, in a table and in a message. `svc/web/static/format.js` is its equal
for the modules of the pages; `tests/quantities.json` holds both to the letter. What is not known is a dash,
never a zero; no number has an exponent. A tie is rounded away from zero, as browsers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from math import floor, isfinite
from typing import Final

NOT_KNOWN: Final = "–"

Number = float | Decimal
#: Enough digits for any float.
_EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP)


def count(number: Number | None) -> str:
    """18,204; of what is not whole 12.5 and 0.72."""
    if number is None or not isfinite(number):
        return NOT_KNOWN
    if isinstance(number, int):
        return f"{number:,d}"
    value = float(number)
    size, sign = abs(value), "-" if value < 0 else ""
    if size >= 99.95 or size.is_integer():
        return sign + _fixed(size, 0)
    if size >= 0.995:
        return sign + _short(_fixed(size, 1))
    return f"{sign}{_short(_significant(size, 2))}" if size >= 0.01 else f"{sign}<0.01"


def counted(number: int, one: str, many: str | None = None) -> str:
    """1 trace, 2 traces."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def compact(number: Number | None) -> str:
    """950, 18.2 k, 3.1 M: where there is no room for all digits."""
    if number is None or not isfinite(number):
        return NOT_KNOWN
    value = float(number)
    size, sign = abs(value), "-" if value < 0 else ""
    for unit_size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit_size * 0.9995:
            scaled = size / unit_size
            return f"{sign}{_fixed(scaled, 0 if scaled >= 99.95 else 1)} {unit}"
    return count(value)


def percent(share: Number | None) -> str:
    """A share of 1 in percent, with two digits: 30 %, 1.7 %, 0.34 %. Only none is 0 %, only all is 100 %."""
    if share is None or not isfinite(share):
        return NOT_KNOWN
    value = float(share) * 100
    size, sign = abs(value), "-" if value < 0 else ""
    if size == 0:
        return "0 %"
    if size < 0.01:
        return f"{sign}<0.01 %"
    if size < 9.95:
        return f"{sign}{_significant(size, 2)} %"
    if 99.95 <= size < 100:
        return f"{sign}>99.9 %"
    return f"{sign}{_fixed(size, 1 if 99.5 <= size < 100 else 0)} %"


def times(factor: Number | None) -> str:
    """×14, ×1.9, ×1.15, ×0.42."""
    if factor is None or not isfinite(factor):
        return NOT_KNOWN
    value = float(factor)
    if value >= 9.95:
        return f"×{_fixed(value, 0)}"
    if value >= 1.995:
        return f"×{_short(_fixed(value, 1))}"
    if value >= 0.995:
        return f"×{_short(_fixed(value, 2))}"
    return f"×{_short(_significant(value, 2))}" if value >= 0.001 else "<×0.001"


def duration(ms: Number | None) -> str:
    """Three digits up to a minute: 0.42 ms, 312 ms, 9.23 s; then 2 m 03 s, 3 h 20 m, 4 d 2 h."""
    if ms is None or not isfinite(ms):
        return NOT_KNOWN
    value = float(ms)
    if value < 0:
        return "-" + duration(-value)
    if value == 0:
        return "0 ms"
    if value < 0.001:
        return "<0.001 ms"
    if value < 0.9995:
        return f"{_short(_significant(value, 3))} ms"
    if value < 999.5:
        return f"{_significant(value, 3)} ms"
    seconds = value / 1000
    if seconds < 59.95:
        return f"{_significant(seconds, 3)} s"
    minutes, odd_s = divmod(floor(seconds + 0.5), 60)
    if minutes < 60:
        return f"{minutes} m {odd_s:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} m"
    return f"{_fixed(hours // 24, 0)} d {hours % 24} h"


def money(usd: Number | None) -> str:
    """$1,234.50 to the cent; below a dollar four digits, $0.0190, or as many as show two: $0.00042."""
    if usd is None or not isfinite(usd):
        return NOT_KNOWN
    value = float(usd)
    size, sign = abs(value), "-" if value < 0 else ""
    if size == 0:
        return "$0"
    if size >= 0.99995:
        return f"{sign}${_fixed(size, 2)}"
    if size < 0.000_000_1:
        return f"{sign}<$0.0000001"
    leading = Decimal(_significant(size, 2)).adjusted()
    return f"{sign}${_fixed(size, max(4, 1 - leading))}"


def size(number_bytes: Number | None) -> str:
    """812 B, 4.1 KiB, 2.3 MiB."""
    if number_bytes is None or not isfinite(number_bytes):
        return NOT_KNOWN
    scaled, sign = abs(float(number_bytes)), "-" if number_bytes < 0 else ""
    if scaled < 1023.5:
        return f"{sign}{_fixed(scaled, 0)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        scaled /= 1024
        if scaled < 1023.5 or unit == "TiB":
            break
    return f"{sign}{_fixed(scaled, 0 if scaled >= 99.95 else 1)} {unit}"


def setting(number: Number) -> str:
    """A number that somebody set, with all its digits: 1,500, 0.015."""
    return _short(f"{Decimal(str(number)):,f}")


def typed(number: Number) -> str:
    """A number as somebody types it into a field: 1500, 0.015."""
    return _short(f"{Decimal(str(number)):f}")


def score(number: Number | None) -> str:
    """A number that somebody gave an answer: 1, 0.85, -3.5, 1.2e+15; six digits of it."""
    if number is None or not isfinite(number):
        return NOT_KNOWN
    rounded = float(f"{float(number):.6g}")
    return typed(rounded) if rounded == 0 or 1e-6 <= abs(rounded) < 1e12 else f"{rounded:g}"


def p_value(chance: float) -> str:
    """How likely chance alone is, as statistics write it: p = 0.18, p < 0.000001."""
    return "p < 0.000001" if chance < 1e-6 else f"p = {typed(float(_significant(chance, 2)))}"


#: How a value is written, by its unit.
WRITERS: Final[Mapping[str, Callable[[Number | None], str]]] = {
    "share": percent,
    "ms": duration,
    "usd": money,
    "count": count,
    "factor": times,
    "score": score,
}


def unit_of(metric: str | None) -> str:
    """The unit of a finding's metric."""
    if metric in ("rate", "share"):
        return "share"
    if metric == "ratio":
        return "factor"
    kind = (metric or "").rpartition("_")[2]
    return {"ms": "ms", "cost": "usd", "score": "score"}.get(kind, "count")


def writer(metric: str | None) -> Callable[[Number | None], str]:
    """How values of a finding's metric are written."""
    return WRITERS[unit_of(metric)]


def _fixed(number: float, places: int) -> str:
    rounded = Decimal(number).quantize(Decimal(1).scaleb(-places), context=_EXACT)
    return f"{rounded:,f}"


def _significant(number: float, digits: int) -> str:
    """So many digits of a number from a millionth to below ten to the power of `digits`."""
    places = digits - 1 - Decimal(number).adjusted()
    rounded = Decimal(number).quantize(Decimal(1).scaleb(-places), context=_EXACT)
    if rounded.adjusted() > Decimal(number).adjusted():
        rounded = rounded.quantize(Decimal(1).scaleb(1 - places), context=_EXACT)
    return f"{rounded:f}"


def _short(text: str) -> str:
    """Without the zeros that end a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text
