"""Vitals: which call site got worse, in a sentence; then each one's figures against the window before.

Agents, models and tools are fragments of the same table, read when they are seen. Windows of a day and more
begin at a full hour, where the hourly cubes do; the page says since when it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from protocol.refusals import BAD_REQUEST, NOT_FOUND, Refusal
from protocol.rest.query import timestamp
from protocol.storage import Slow
from svc.domain.calendar import hour_of
from svc.domain.traces.agent_path import AGENT_PATH
from svc.store.aggregates.cubes import DAY
from svc.store.aggregates.vitals import SOURCES, What
from svc.store.reads.usage.vitals import Vital, VitalsReads, Window
from svc.web.overview.vital_changes import ENOUGH, VitalChange, enough, moved, moved_errors, worst
from svc.web.shell import words
from svc.web.shell.filters import Token
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.render import query

TIMEOUT_S: Final = 8.0
WINDOWS: Final = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
#: Which table comes below which, and its title.
_NEXT: Final[Mapping[str, tuple[str, str]]] = {"agents": ("models", "Models"), "models": ("tools", "Tools")}


@attrs.frozen
class VitalRow:
    """One subject as its row shows it."""

    name: str
    address: str
    now: Window
    runs: VitalChange
    spend: VitalChange
    errors: VitalChange
    p50: VitalChange
    p95: VitalChange
    each: VitalChange
    #: Why nothing is compared; empty when it is.
    short: str


async def vitals(visit: Visit) -> Html | Refusal:
    """The page."""
    name = visit.query.get("range", "24h")
    if name not in WINDOWS:
        return BAD_REQUEST.saying(f"range is one of {', '.join(WINDOWS)}")
    site_vitals = await _vitals(visit, "sites", name)
    context = {**_table(visit, "sites", name, site_vitals), "windows": WINDOWS, "name": name, "worst": None}
    context["comparable"] = bool(site_vitals) and any(enough(vital) for vital in site_vitals or ())
    if site_vitals is not None:
        context["worst"] = worst(site_vitals)
    return Html("overview/vitals", context)


async def part(visit: Visit) -> Html | Refusal:
    """Agents, models or tools, each with the place of the next below it."""
    source, name = visit.call.path["what"], visit.query.get("range", "24h")
    if source not in SOURCES or name not in WINDOWS:
        return NOT_FOUND
    table = _table(visit, source, name, await _vitals(visit, source, name))
    heading = _NEXT.get(source)
    return Html("overview/vitals_later", {**table, "name": name, "next": heading}, part=True)


def _since(name: str, now: datetime) -> datetime:
    """When the present window began."""
    since = now - WINDOWS[name]
    return since if WINDOWS[name] < DAY else hour_of(since)


async def _vitals(visit: Visit, what: What, name: str) -> list[Vital] | None:
    now = visit.means.now()
    since = _since(name, now)
    try:
        reads = VitalsReads(visit.means.history)
        return list(await reads.of(visit.project.id, what, since - WINDOWS[name], since, now, TIMEOUT_S))
    except Slow:
        return None


def _table(visit: Visit, what: What, name: str, vitals: list[Vital] | None) -> dict[str, Any]:
    return {
        "what": what,
        "unit": "traces" if what == "sites" else "calls",
        "length": words.length(WINDOWS[name]),
        "since": _since(name, visit.means.now()),
        "rows": None if vitals is None else [_row(visit, what, name, vital) for vital in vitals],
    }


def _row(visit: Visit, what: What, name: str, vital: Vital) -> VitalRow:
    subject = vital.subject
    bars = {"sites": "site", "agents": AGENT_PATH, "models": "model"}
    bar = Token(bars[what], subject) if what in bars else None
    few = min(vital.now.n, vital.before.n)
    short = ""
    if few < ENOUGH:
        short = f"{few} of {ENOUGH} {'traces' if what == 'sites' else 'calls'} needed for comparison"
    now, past = vital.now, vital.before
    return VitalRow(
        subject or "not known",
        query(
            f"{visit.base}/traces",
            q=_filter_text(what, bar),
            **{"from": timestamp(_since(name, visit.means.now()))},
        ),
        now,
        VitalChange(None) if short else _growth(visit, name, now.n, past.n),
        VitalChange(None) if short else _growth(visit, name, now.cost, past.cost),
        VitalChange(None) if short else moved_errors(now, past),
        VitalChange(None) if short else moved(now.p50_ms, past.p50_ms),
        VitalChange(None) if short else moved(now.p95_ms, past.p95_ms),
        VitalChange(None) if short else moved(now.cost_each, past.cost_each),
        short,
    )


def _filter_text(what: What, bar: Token | None) -> str:
    return (
        str(bar)
        if bar is not None and bar.value
        else {"sites": "", "models": "kind:llm"}.get(what, "kind:tool")
    )


def _growth(visit: Visit, name: str, now: float | None, past: float | None) -> VitalChange:
    """How a sum grew, for the time: the present window may be up to an hour longer."""
    moment = visit.means.now()
    longer = (moment - _since(name, moment)) / WINDOWS[name]
    return VitalChange(now / past / longer if now is not None and past else None, judged=False)


PAGES: Final = (
    PageRoute("GET", PROJECT + "/vitals", "ORG_VIEW", vitals),
    PageRoute("GET", PROJECT + "/vitals/{what}", "ORG_VIEW", part),
)
