"""What pages write values with: quantities as the domain writes them, times, and texts made visible. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

from svc.domain.quantities import NOT_KNOWN as NOT_KNOWN
from svc.domain.quantities import compact as compact
from svc.domain.quantities import count as count
from svc.domain.quantities import counted as counted
from svc.domain.quantities import duration as duration
from svc.domain.quantities import money as money
from svc.domain.quantities import percent as percent
from svc.domain.quantities import setting as setting
from svc.domain.quantities import size as size
from svc.domain.quantities import times as times
from svc.domain.quantities import typed as typed

#: What nobody sees although it changes how a text reads: bidirectional marks, zero widths, controls, tags.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)
_PICTURE: Final = "[\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
#: Letters of scripts that are written with joiners: Arabic with Persian and Syriac, those of India, Burmese,
#: Khmer, Mongolian.
_LETTER: Final = (
    "[\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff"
    "\u1820-\u18af\ufb50-\ufdff\ufe70-\ufefc]"
)
#: A joiner where it belongs: between two pictures of one emoji, or behind such a letter.
_JOINED: Final = re.compile(
    f"\u200d(?:(?<={_PICTURE}\u200d)|(?<={_PICTURE}\ufe0f\u200d))(?={_PICTURE})"
    f"|[\u200c\u200d](?<={_LETTER}[\u200c\u200d])"
)
#: The tags behind a black flag that make it England's, Scotland's or Wales'; any other tags hide text.
_BLACK_FLAG: Final = "\U0001f3f4"
_FLAG_TAGS: Final = frozenset(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)


def field(name: str) -> str:
    """The name of a field in a sentence, "call site" for `call_site_id`; an attribute's as it was sent."""
    if name.startswith("attr."):
        return name.removeprefix("attr.")
    return name.removesuffix("_id").replace("_", " ")


def visible(text: str) -> str:
    """A text with its unseen characters shown as marks, ⟨U+202E⟩; joiners are left where they belong."""
    # Most of a page; the search took 4 % of Overview (November 2026).
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_marks, text)


def _marks(match: re.Match[str]) -> str:
    text, first = match.string, match.start()
    if match[0] in _FLAG_TAGS and text[first - 1 : first] == _BLACK_FLAG:
        return match[0]
    return "".join(
        char if _JOINED.match(text, first + offset) else f"⟨U+{ord(char):04X}⟩"
        for offset, char in enumerate(match[0])
    )


def parsed(moment: datetime | str) -> datetime:
    """An instant as the store prints it, or as it is."""
    return moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)


def clock(moment: datetime | str, zone: tzinfo, now: datetime | None = None) -> str:
    """11:52:07 of today, Sat 11:52:07 of the last days, 14 Nov 11:52:07, with the year when it is another."""
    local_time = parsed(moment).astimezone(zone)
    text = local_time.strftime("%H:%M:%S")
    return text if now is None else _day(local_time, now.astimezone(zone)) + text


def minute(moment: datetime | str, zone: tzinfo, now: datetime) -> str:
    """Like `clock`, without seconds."""
    local_time = parsed(moment).astimezone(zone)
    return _day(local_time, now.astimezone(zone)) + local_time.strftime("%H:%M")


def dated_minute(moment: datetime | str, zone: tzinfo, now: datetime) -> str:
    """14 Nov 11:52, with the year when it is another: today and the last days too have their date."""
    local_time, today = parsed(moment).astimezone(zone), now.astimezone(zone)
    year = "" if local_time.year == today.year else f" {local_time.year}"
    return f"{local_time.day} {local_time:%b}{year} {local_time:%H:%M}"


def cost(usd: Any, unpriced_spans: int | None) -> str:
    """Money, with + where some spans have no price; nothing is added to what is not known at all."""
    return money(usd) + ("+" if unpriced_spans and usd is not None else "")


def _day(local_time: datetime, today: datetime) -> str:
    days = (today.date() - local_time.date()).days
    if days == 0:
        return ""
    if 0 < days < 6:
        return local_time.strftime("%a ")
    if local_time.year == today.year:
        return f"{local_time.day} {local_time.strftime('%b')} "
    return f"{local_time.day} {local_time.strftime('%b %Y')} "


def day(moment: datetime | str, zone: tzinfo) -> str:
    """Tue 24 Nov: when about something will be."""
    local_time = parsed(moment).astimezone(zone)
    return f"{local_time:%a} {local_time.day} {local_time:%b}"


def moment(instant: datetime | str, zone: tzinfo) -> str:
    """2026-11-21 11:52:07.130 UTC: everything, for a title."""
    local_time = parsed(instant).astimezone(zone)
    return f"{local_time:%Y-%m-%d %H:%M:%S}.{local_time.microsecond // 1000:03d} {local_time.tzname()}"


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
    for size_s, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size_s == 0 and seconds >= size_s:
            number = int(seconds // size_s)
            return unit if number == 1 else f"{number} {unit}s"
    return counted(round(seconds), "second")


def sentence(text: str) -> str:
    """A text with a capital at its start and a stop at its end."""
    text = text.strip()
    if not text:
        return text
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")
