"""How rules look whose matter stands in the database: figures, silence, dead letters, digests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import cast

import attrs

from protocol.alerts import AlertRule, CheckResult, RuleKind
from protocol.refusals import Refused
from protocol.storage import Slow
from svc.domain.alerts.calendar import period_of
from svc.domain.alerts.checking import OFTEN, SELDOM, saw_digest, saw_letters, saw_metric, saw_silent
from svc.domain.alerts.metric import DAYS_BEFORE, judge
from svc.domain.alerts.params import (
    DigestParams,
    LettersParams,
    MetricParams,
    SilentParams,
    read_params,
)
from svc.domain.alerts.silence import silent
from svc.store.postgres.database import Database
from svc.store.reads.alerts.alert_figures import AlertFigures, WindowTooLarge, looks_into_payloads
from svc.store.reads.alerts.alert_history import AlertHistory


@attrs.frozen
class StoredChecks:
    """Looks at what is stored. Each raises `Outage`."""

    database: Database

    def table(self) -> Mapping[RuleKind, Callable[[AlertRule, datetime], Awaitable[CheckResult]]]:
        """One function a kind."""
        return {
            "metric": self.metric,
            "digest": self.digest,
            "ingest.silent": self.silence,
            "ingest.dead_letters": self.letters,
        }

    async def metric(self, rule: AlertRule, now: datetime) -> CheckResult:
        """The window up to now, and where a change is asked for the same one of the days before."""
        params = cast(MetricParams, read_params(rule.kind, rule.params))
        figures = AlertFigures(self.database)
        try:
            window = await figures.window(rule.project_id, params, now)
            earlier = []
            if params.bound in ("rises", "falls"):
                for day in range(1, DAYS_BEFORE + 1):
                    earlier.append(await figures.window(rule.project_id, params, now - timedelta(days=day)))
        except Refused as refused:
            return CheckResult(now + OFTEN, trouble=refused.refusal.message)
        except (WindowTooLarge, Slow) as error:
            # What takes so long is asked less often.
            return CheckResult(now + SELDOM, trouble=str(error))
        [looks] = await looks_into_payloads(self.database, rule.project_id, params)
        return saw_metric(params, judge(params, window, earlier), now, again=SELDOM if looks else OFTEN)

    async def digest(self, rule: AlertRule, now: datetime) -> CheckResult:
        """What happened in the period that ended when it was due."""
        params = cast(DigestParams, read_params(rule.kind, rule.params))
        due_at = rule.due_at or now
        facts = await AlertHistory(self.database).digest(rule.project_id, due_at - period_of(params), due_at)
        return saw_digest(params, facts, due_at, now)

    async def silence(self, rule: AlertRule, now: datetime) -> CheckResult:
        """Services by the days on which they were heard."""
        params = cast(SilentParams, read_params(rule.kind, rule.params))
        arrivals = await AlertHistory(self.database).heard(rule.project_id)
        return saw_silent(params, silent(params, arrivals, now), now)

    async def letters(self, rule: AlertRule, now: datetime) -> CheckResult:
        """The dead letters that wait."""
        params = cast(LettersParams, read_params(rule.kind, rule.params))
        letters = await AlertHistory(self.database).letters(rule.project_id)
        return saw_letters(params, letters.spans, letters.oldest_at, letters.reason, now)
