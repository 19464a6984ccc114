"""How often a rule would have fired over the last 28 days, by what history knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs

from protocol.alerts import RuleKind, WouldHaveFired
from protocol.storage import Slow
from svc.domain.alerts.calendar import digests_since
from svc.domain.alerts.metric import DAYS_BEFORE, firings, too_small
from svc.domain.alerts.params import (
    BackupParams,
    CaseParams,
    CertificateParams,
    DigestParams,
    DiskParams,
    LettersParams,
    MetricParams,
    RuleParams,
    SilentParams,
)
from svc.domain.alerts.sampled import SampledParams, sampled_firings
from svc.domain.alerts.silence import silences
from svc.domain.calendar import hour_of
from svc.domain.quantities import count, counted
from svc.store.postgres.database import Database
from svc.store.reads.alerts.alert_figures import AlertFigures
from svc.store.reads.alerts.alert_history import AlertHistory

BACKTESTED: Final = timedelta(days=28)
#: Instants that an answer lists, the newest.
INSTANTS_SHOWN: Final = 200

_CASES: Final = "by the trails of cases that are still kept, with the severity that each has now"
_FIGURES: Final = "by what arrived, in whole hours; the rule itself looks every five minutes"
_PAYLOADS: Final = "by what arrived, in whole hours; the rule itself looks every quarter of an hour"
_TOO_SMALL: Final = "; {small} of {windows} held fewer than {least} rows, so nothing is sent for them"
_SILENCES: Final = "by the days on which each service was heard, of the last 30"
_LETTERS: Final = "by the dead letters that still wait; those replayed or discarded are not known any more"
_DIGESTS: Final = "by the calendar"
_SAMPLES: Final = "by one sample an hour; what began and ended in between is not known"
_NO_SAMPLE: Final = "nothing is known yet; from now on a sample is kept each hour"
_NOTHING: Final = "nothing is kept that this could be judged by"


@attrs.define(eq=False)
class AlertBacktest:
    """Reads one project at a time. Raises `Outage`, and `Refused` for an unknown field."""

    database: Database

    async def run(self, project_id: int, kind: RuleKind, params: RuleParams, now: datetime) -> WouldHaveFired:
        """How often, when and by what."""
        since = now - BACKTESTED
        history = AlertHistory(self.database)
        match params:
            case CaseParams():
                return _would_have_fired(
                    await history.case_steps(project_id, kind, params, since), since, _CASES
                )
            case DigestParams():
                return _would_have_fired(digests_since(params, since, now), since, _DIGESTS)
            case SilentParams():
                arrivals = await history.heard(project_id)
                return _would_have_fired(silences(params, arrivals, since, now), since, _SILENCES)
            case LettersParams():
                buried = await history.buried(project_id, since)
                return _would_have_fired(_reached(buried, params.spans), since, _LETTERS)
            case MetricParams():
                return await self._metric(project_id, params, since, now)
            case DiskParams() | BackupParams() | CertificateParams():
                return await self._sampled(kind, params, since)
            case _:
                return WouldHaveFired(judged=False, fired=0, instants=[], since=since, note=_NOTHING)

    async def _sampled(self, kind: RuleKind, params: SampledParams, since: datetime) -> WouldHaveFired:
        """Since the first sample that there is, where that is later."""
        samples = await AlertHistory(self.database).samples(kind, since)
        if not samples:
            return WouldHaveFired(judged=False, fired=0, instants=[], since=since, note=_NO_SAMPLE)
        first = samples[0][0]
        known_since = since if first - since < timedelta(hours=2) else first
        return _would_have_fired(sampled_firings(params, samples), known_since, _SAMPLES)

    async def _metric(
        self, project_id: int, params: MetricParams, since: datetime, now: datetime
    ) -> WouldHaveFired:
        reach = timedelta(hours=params.window_hours)
        if params.bound in ("rises", "falls"):
            reach += timedelta(days=DAYS_BEFORE)
        asked_first = hour_of(since - reach)
        try:
            hours = await AlertFigures(self.database).hours(project_id, params, asked_first, hour_of(now))
        except Slow as slow:
            return WouldHaveFired(judged=False, fired=0, instants=[], since=since, note=str(slow))
        note = f"{_PAYLOADS}; {hours.note}" if hours.note else _FIGURES
        known_since = since if hours.first == asked_first else hours.first + reach
        if known_since >= now:
            return WouldHaveFired(judged=False, fired=0, instants=[], since=since, note=hours.note)
        instants = firings(params, hours.figures, hours.first, known_since)
        small, filled_windows = too_small(params, hours.figures, hours.first, known_since)
        if small:
            windows = counted(filled_windows, "window")
            note += _TOO_SMALL.format(small=count(small), windows=windows, least=count(params.least))
        return _would_have_fired(instants, known_since, note)


def _would_have_fired(instants: Sequence[datetime], since: datetime, note: str) -> WouldHaveFired:
    newest = list(reversed(instants[-INSTANTS_SHOWN:]))
    return WouldHaveFired(judged=True, fired=len(instants), instants=newest, since=since, note=note)


def _reached(buried: Sequence[tuple[datetime, int]], bound: int) -> list[datetime]:
    """When so many waited for the first time."""
    waiting = 0
    for buried_at, spans in buried:
        waiting += spans
        if waiting >= bound:
            return [buried_at]
    return []
