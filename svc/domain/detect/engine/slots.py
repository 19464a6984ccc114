"""Slots of event time: five minutes each, counted from 1970, in UTC.

Owns: the arithmetic of slots, hours, six-hour windows, days and blocks of the week, and the watermark past
which nothing is judged. The engines and whoever tallies traces call it. Never reads a clock. A range of slots
is half open, `[first, end)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    # The process that serves people counts in slots, too, and does without numpy.
    from svc.domain.detect.engine.arrays import Ints

    _SlotOrSlots = TypeVar("_SlotOrSlots", int, Ints)

SLOT_S: Final = 300
SLOTS_PER_HOUR: Final = 12
SLOTS_PER_WINDOW: Final = 72
SLOTS_PER_DAY: Final = 288
#: How long a span may be under way before its slot is judged without it.
LATENESS_S: Final = 600
#: Six-hour blocks of the day, on weekdays and at weekends.
STRATA: Final = 8
#: Six-hour blocks of the week.
BLOCKS: Final = 28


def slot_at(epoch_s: float) -> int:
    """The slot that holds this moment, in seconds since 1970."""
    return int(epoch_s // SLOT_S)


def slot_start_s(slot: int) -> int:
    """When the slot begins, in seconds since 1970."""
    return slot * SLOT_S


def watermark(newest_s: float) -> int:
    """The end of what may be judged when the newest event is of this moment: the first slot still open."""
    return slot_at(newest_s - LATENESS_S)


def day_start(slot: int) -> int:
    """The first slot of the UTC day that holds the slot."""
    return slot - slot % SLOTS_PER_DAY


def stratum(slot: _SlotOrSlots) -> _SlotOrSlots:
    """The six-hour block of the day, 0 to 3, and 4 more at a weekend."""
    # 1970 began on a Thursday, the fourth day of a week that begins on Monday.
    weekend = (slot // SLOTS_PER_DAY + 3) % 7 // 5
    return slot % SLOTS_PER_DAY // SLOTS_PER_WINDOW + 4 * weekend


def block_of_week(slot: _SlotOrSlots) -> _SlotOrSlots:
    """The six-hour block of the week, 0 to 27, from Monday 00:00."""
    return (slot + 3 * SLOTS_PER_DAY) // SLOTS_PER_WINDOW % BLOCKS
