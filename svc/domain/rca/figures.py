"""Moments, values and chances as a report writes them; quantities are those of the whole product. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from svc.domain.calendar import EPOCH
from svc.domain.detect.engine.slots import slot_start_s
from svc.domain.quantities import percent

VALUE_CHARS: Final = 80


def moment(slot: int) -> str:
    """The beginning of a slot, in UTC."""
    return f"{EPOCH + timedelta(seconds=slot_start_s(slot)):%-d %b %H:%M} UTC"


def iso(slot: int) -> str:
    """The beginning of a slot as the interfaces show it."""
    return f"{EPOCH + timedelta(seconds=slot_start_s(slot)):%Y-%m-%dT%H:%M:%S.000000Z}"


def value(text: str) -> str:
    """A client's value inside a sentence: on one line, short, in backticks that it cannot leave."""
    text = " ".join(text.replace("`", "'").split())
    return f"`{text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + '…'}`"


def whole(share: float) -> str:
    """A share that is estimated: nothing and all of it are its bounds."""
    return percent(min(max(share, 0.0), 1.0))
