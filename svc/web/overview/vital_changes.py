"""How the figures of vitals moved from one window to the next, in words, and which moved worst. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final

import attrs

from svc.store.reads.usage.vitals import Vital, Window
from svc.web.shell import words

#: Fewer than these in either window are compared with nothing.
ENOUGH: Final = 30
#: A change below this factor is none worth a word.
_WORTH: Final = 1.2


@attrs.frozen
class VitalChange:
    """How a figure moved: the factor, or None where it cannot be said; worse when it grew."""

    factor: float | None
    #: Whether it says anything that it grew; more traffic is neither good nor bad.
    judged: bool = True

    @property
    def text(self) -> str:
        """×1.9, -40 %, or nothing."""
        if self.factor is None:
            return ""
        if self.factor >= 1.995:
            return words.times(self.factor) if self.factor < 100 else "×100 or more"
        change = self.factor - 1
        return ("+" if change > 0 else "") + words.percent(change) if abs(change) >= 0.005 else "±0"

    @property
    def tone(self) -> str:
        """bad, ok or soft."""
        if self.factor is None or not self.judged or 1 / _WORTH < self.factor < _WORTH:
            return "soft"
        return "bad" if self.factor > 1 else "ok"


def moved(now: float | None, past: float | None) -> VitalChange:
    """How a figure changed."""
    return VitalChange(now / past if now is not None and past else None)


def moved_errors(now: Window, past: Window) -> VitalChange:
    """Rates of few failures jump about: half a failure more on either side tames the factor."""
    if not now.failed and not past.failed:
        return VitalChange(None)
    return VitalChange(((now.failed + 0.5) / (now.n + 1)) / ((past.failed + 0.5) / (past.n + 1)))


def enough(vital: Vital) -> bool:
    """Whether both windows have enough to compare."""
    return min(vital.now.n, vital.before.n) >= ENOUGH


def worst(vitals: Sequence[Vital]) -> str | None:
    """The worst mover in a sentence; None when nothing got much worse."""
    most, sentence = log(_WORTH), None
    for vital in vitals:
        now, past = vital.now, vital.before
        if not enough(vital):
            continue
        name = vital.subject or "not known"
        for change, weight, text in (
            (
                moved_errors(now, past) if now.failed >= 5 else VitalChange(None),
                1.5,
                f"fails in {words.percent(now.error_rate)} of traces,"
                f" {words.percent(past.error_rate)} before",
            ),
            (
                moved(now.p95_ms, past.p95_ms),
                0.8,
                f"has its slowest twentieth from {words.duration(now.p95_ms)} up,"
                f" {words.duration(past.p95_ms)} before",
            ),
            (
                moved(now.p50_ms, past.p50_ms),
                1.0,
                f"takes {words.duration(now.p50_ms)} at the median, {words.duration(past.p50_ms)} before",
            ),
            (
                moved(now.cost_each, past.cost_each),
                1.0,
                f"costs {words.money(now.cost_each)} a trace, {words.money(past.cost_each)} before",
            ),
        ):
            if change.factor is not None and log(change.factor) * weight > most:
                most, sentence = log(change.factor) * weight, f"{name} {text}"
    return sentence
