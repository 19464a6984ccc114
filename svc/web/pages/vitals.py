"""Vitals: which call site got worse, in a sentence; then each one's figures against the window before.

Models and tools are fragments of the same table, read when they are seen. Windows of a day and more begin at
a full hour, where the hourly cubes do; the page says since when it counts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import log
from typing import Any, Final

import attrs

from protocol.refusals import BAD_REQUEST, NOT_FOUND, Refusal
from protocol.rest.query import timestamp
from protocol.storage import Slow
from svc.domain.calendar import hour_of
from svc.store.aggregates.cubes import DAY
from svc.store.aggregates.vitals import SOURCES, What
from svc.store.reads.vitals import Vital, VitalsReads, Window
from svc.web import words
from svc.web.filters import Token
from svc.web.page import PROJECT, Html, PageRoute, Visit
from svc.web.render import query

#: Fewer than these in either window are compared with nothing.
ENOUGH: Final = 30
TIMEOUT_S: Final = 8.0
WINDOWS: Final = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
#: A change below this factor is none worth a word.
_WORTH: Final = 1.2


@attrs.frozen
class Mover:
    """How a figure moved: the factor, or None where it cannot be said; worse when it grew."""

    factor: float | None

    @property
    def text(self) -> str:
        """×1.9, -40 %, or nothing."""
        if self.factor is None:
            return ""
        if self.factor >= 1.995:
            return f"×{self.factor:.1f}" if self.factor < 100 else "×100 or more"
        percent = round((self.factor - 1) * 100)
        return f"{percent:+d} %" if percent else "±0"

    @property
    def tone(self) -> str:
        """bad, ok or soft."""
        if self.factor is None or 1 / _WORTH < self.factor < _WORTH:
            return "soft"
        return "bad" if self.factor > 1 else "ok"


@attrs.frozen
class VitalRow:
    """One subject as its row shows it."""

    name: str
    address: str
    now: Window
    errors: Mover
    p50: Mover
    p95: Mover
    each: Mover
    #: Why nothing is compared; empty when it is.
    short: str


async def vitals(visit: Visit) -> Html | Refusal:
    """The page."""
    name = visit.query.get("range", "24h")
    if name not in WINDOWS:
        return BAD_REQUEST.saying(f"range is one of {', '.join(WINDOWS)}")
    found = await _read(visit, "sites", name)
    context = {**_table(visit, "sites", name, found), "windows": WINDOWS, "name": name, "worst": None}
    context["comparable"] = bool(found) and any(_enough(vital) for vital in found or ())
    if found is not None:
        context["worst"] = _worst(found)
    return Html("pages/vitals", context, modules=("lazy", "part"))


async def part(visit: Visit) -> Html | Refusal:
    """Models or tools."""
    what, name = visit.call.path["what"], visit.query.get("range", "24h")
    if what not in SOURCES or name not in WINDOWS:
        return NOT_FOUND
    return Html("parts/vitals_table", _table(visit, what, name, await _read(visit, what, name)), part=True)


def _since(name: str, now: datetime) -> datetime:
    """When the present window began."""
    since = now - WINDOWS[name]
    return since if WINDOWS[name] < DAY else hour_of(since)


async def _read(visit: Visit, what: What, name: str) -> list[Vital] | None:
    now = visit.means.now()
    since = _since(name, now)
    try:
        reads = VitalsReads(visit.means.questions)
        return list(await reads.of(visit.project.id, what, since - WINDOWS[name], since, now, TIMEOUT_S))
    except Slow:
        return None


def _table(visit: Visit, what: What, name: str, found: list[Vital] | None) -> dict[str, Any]:
    return {
        "what": what,
        "unit": {"sites": "traces", "models": "calls", "tools": "calls"}[what],
        "length": words.length(WINDOWS[name]),
        "since": _since(name, visit.means.now()),
        "rows": None if found is None else [_row(visit, what, name, vital) for vital in found],
    }


def _row(visit: Visit, what: What, name: str, vital: Vital) -> VitalRow:
    subject = vital.subject
    bar = {"sites": Token("site", subject), "models": Token("model", subject)}.get(what)
    few = min(vital.now.n, vital.before.n)
    short = ""
    if few < ENOUGH:
        when = "before" if vital.before.n <= vital.now.n else "now"
        short = f"needs {ENOUGH} {when}, has {few}"
    now, before = vital.now, vital.before
    return VitalRow(
        subject or "not known",
        query(
            f"{visit.base}/traces", q=_said(what, bar), **{"from": timestamp(_since(name, visit.means.now()))}
        ),
        now,
        Mover(None) if short else _errors(now, before),
        Mover(None) if short else _factor(now.p50_ms, before.p50_ms),
        Mover(None) if short else _factor(now.p95_ms, before.p95_ms),
        Mover(None) if short else _factor(now.cost_each, before.cost_each),
        short,
    )


def _said(what: What, bar: Token | None) -> str:
    return (
        str(bar)
        if bar is not None and bar.value
        else {"sites": "", "models": "kind:llm"}.get(what, "kind:tool")
    )


def _factor(now: float | None, before: float | None) -> Mover:
    return Mover(now / before if now is not None and before else None)


def _errors(now: Window, before: Window) -> Mover:
    """Rates of few failures jump about: half a failure more on either side tames the factor."""
    if not now.failed and not before.failed:
        return Mover(None)
    return Mover(((now.failed + 0.5) / (now.n + 1)) / ((before.failed + 0.5) / (before.n + 1)))


def _enough(vital: Vital) -> bool:
    return min(vital.now.n, vital.before.n) >= ENOUGH


def _worst(found: list[Vital]) -> str | None:
    """The worst mover in a sentence; None when nothing got much worse."""
    worst, said = log(_WORTH), None
    for vital in found:
        now, before = vital.now, vital.before
        if not _enough(vital):
            continue
        name = vital.subject or "not known"
        for change, weight, text in (
            (
                _errors(now, before) if now.failed >= 5 else Mover(None),
                1.5,
                f"fails in {words.percent(now.error_rate)} of traces,"
                f" {words.percent(before.error_rate)} before",
            ),
            (
                _factor(now.p95_ms, before.p95_ms),
                0.8,
                f"has its slowest twentieth from {words.duration(now.p95_ms)} up,"
                f" {words.duration(before.p95_ms)} before",
            ),
            (
                _factor(now.p50_ms, before.p50_ms),
                1.0,
                f"takes {words.duration(now.p50_ms)} at the median, {words.duration(before.p50_ms)} before",
            ),
            (
                _factor(now.cost_each, before.cost_each),
                1.0,
                f"costs {words.money(now.cost_each)} a trace, {words.money(before.cost_each)} before",
            ),
        ):
            if change.factor is not None and log(change.factor) * weight > worst:
                worst, said = log(change.factor) * weight, f"{name} {text}"
    return said


PAGES: Final = (
    PageRoute("GET", PROJECT + "/vitals", "ORG_VIEW", vitals),
    PageRoute("GET", PROJECT + "/vitals/{what}", "ORG_VIEW", part),
)
