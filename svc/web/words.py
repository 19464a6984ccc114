"""Values as text, for people: counts, times, durations, money, sizes. Pure; every page says them alike.

What is not known is a dash, never a zero.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from math import floor, log10
from typing import Final

NOT_KNOWN: Final = "–"

#: What nobody sees although it changes how a text reads: bidirectional marks, zero widths, controls, tags.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """A text with its unseen characters shown as marks: ⟨U+202E⟩."""
    return _UNSEEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def count(number: float | None) -> str:
    """18,204."""
    return NOT_KNOWN if number is None else f"{number:,.0f}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """1 trace, 2 traces."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def compact(number: float | None) -> str:
    """950, 18.2 k, 3.1 M: where there is no room for all digits."""
    if number is None:
        return NOT_KNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            scaled = number / size
            return f"{scaled:.0f} {unit}" if abs(scaled) >= 100 else f"{scaled:.1f} {unit}"
    return f"{number:.0f}" if number == int(number) else f"{number:.2g}"


def duration(ms: float | None) -> str:
    """0.4 ms, 312 ms, 9.2 s, 2 m 03 s, 3 h 20 m, 4 d 2 h."""
    if ms is None:
        return NOT_KNOWN
    if ms < 0:
        return "-" + duration(-ms)
    if ms < 1:
        return f"{ms:.2g} ms" if ms else "0 ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} m"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def money(usd: Decimal | float | None) -> str:
    """$12.40, $0.019, $0.00042: to the cent, below it two digits; $0 for nothing."""
    if usd is None:
        return NOT_KNOWN
    value = float(usd)
    if value == 0:
        return "$0"
    size = abs(value)
    sign = "-" if value < 0 else ""
    if size >= 1000:
        return f"{sign}${size:,.0f}"
    if size >= 0.995:
        return f"{sign}${size:.2f}"
    if size < 0.000_000_1:
        return f"{sign}<$0.0000001"
    digits = max(2, 1 - floor(log10(size)))
    return f"{sign}${size:.{digits}f}"


def share(part: float, whole: float) -> str:
    """18.4 %; a dash of nothing."""
    return NOT_KNOWN if not whole else percent(part / whole)


def percent(fraction: float | None) -> str:
    """18.4 %, 0.3 %, 100 %."""
    if fraction is None:
        return NOT_KNOWN
    value = fraction * 100
    if 0 < value < 0.05:
        return "<0.1 %"
    if 99.95 <= value < 100:
        return ">99.9 %"
    return f"{value:.0f} %" if value in (0, 100) or value >= 99.95 else f"{value:.1f} %"


def size(number: int | None) -> str:
    """812 B, 4.1 KiB, 2.3 MiB."""
    if number is None:
        return NOT_KNOWN
    if number < 1024:
        return f"{number} B"
    scaled = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        scaled /= 1024
        if scaled < 1024 or unit == "TiB":
            break
    return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.1f} {unit}"


def parsed(moment: datetime | str) -> datetime:
    """An instant as the store prints it, or as it is."""
    return moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)


def clock(moment: datetime | str, zone: tzinfo, now: datetime | None = None) -> str:
    """11:52:07 of today, Sat 11:52:07 of the last days, 14 Nov 11:52:07, with the year when it is another."""
    then = parsed(moment).astimezone(zone)
    at = then.strftime("%H:%M:%S")
    return at if now is None else _day(then, now.astimezone(zone)) + at


def minute(moment: datetime | str, zone: tzinfo, now: datetime) -> str:
    """Like `clock`, without seconds."""
    then = parsed(moment).astimezone(zone)
    return _day(then, now.astimezone(zone)) + then.strftime("%H:%M")


def _day(then: datetime, today: datetime) -> str:
    days = (today.date() - then.date()).days
    if days == 0:
        return ""
    if 0 < days < 6:
        return then.strftime("%a ")
    if then.year == today.year:
        return f"{then.day} {then.strftime('%b')} "
    return f"{then.day} {then.strftime('%b %Y')} "


def day(moment: datetime | str, zone: tzinfo) -> str:
    """Tue 24 Nov: when about something will be."""
    then = parsed(moment).astimezone(zone)
    return f"{then:%a} {then.day} {then:%b}"


def moment(instant: datetime | str, zone: tzinfo) -> str:
    """2026-11-21 11:52:07.130 UTC: everything, for a title."""
    then = parsed(instant).astimezone(zone)
    return f"{then:%Y-%m-%d %H:%M:%S}.{then.microsecond // 1000:03d} {then.tzname()}"


def ago(instant: datetime | str, now: datetime) -> str:
    """just now, 40 s ago, 3 min ago, 2 h ago, 5 d ago."""
    seconds = (now - parsed(instant)).total_seconds()
    if seconds < 2:
        return "just now"
    return f"{span_of(seconds)} ago"


def span_of(seconds: float) -> str:
    """40 s, 3 min, 2 h, 5 d: one unit, for how long something has been so."""
    for size_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size_s * (2 if unit == "d" else 1):
            return f"{int(seconds // size_s)} {unit}"
    return f"{int(seconds)} s"


def unbroken(text: str) -> str:
    """A text that no line breaks: 2 h."""
    return text.replace(" ", "\u00a0")


def length(range_: timedelta) -> str:
    """the last 24 hours: how a range is called."""
    seconds = range_.total_seconds()
    for size_s, one in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size_s == 0 and seconds >= size_s:
            number = int(seconds // size_s)
            return one if number == 1 else f"{number} {one}s"
    return f"{seconds:.0f} seconds"


def sentence(text: str) -> str:
    """A text with a capital at its start and a stop at its end."""
    text = text.strip()
    if not text:
        return text
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")
