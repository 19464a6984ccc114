"""What rules that look make of what they see: which subjects fire, in which words, when to look again.

Pure: figures and states are arguments. A subject keeps its name while it fires, so that it is told once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from protocol.alerts import AlertFacts, CheckResult
from svc.domain.alerts.calendar import next_digest
from svc.domain.alerts.metric import JudgedFigure
from svc.domain.alerts.params import (
    BackupParams,
    CertificateParams,
    DigestParams,
    DiskParams,
    DownParams,
    LettersParams,
    MetricParams,
    SilentParams,
    is_vital,
)
from svc.domain.alerts.words import amount, metric_sentence
from svc.domain.quantities import count, percent, size
from svc.domain.queries.filter_line import as_line, can_be_typed

#: How often each kind looks.
SOON: Final = timedelta(minutes=1)
OFTEN: Final = timedelta(minutes=5)
SELDOM: Final = timedelta(minutes=15)

_HEALTH: Final = "/settings/health"
_DEAD_LETTERS: Final = "/settings/dead-letters"


def subject_of_ingest(copy: str) -> str:
    """What ingest of a copy is called."""
    return f"ingest of {copy}"


def saw_down(
    params: DownParams, copy: str, down_since: datetime | None, why: str, now: datetime
) -> CheckResult:
    """Ingest of this copy, as its health has it."""
    firing = {}
    if down_since is not None and now - down_since >= timedelta(minutes=params.minutes):
        facts = AlertFacts(
            title=f"Ingest is down on {copy}",
            text=f"Since {down_since:%Y-%m-%d %H:%M} UTC. {why}".strip(),
            severity="high",
            path=_HEALTH,
        )
        firing[subject_of_ingest(copy)] = facts
    return CheckResult(now + SOON, firing, covers=subject_of_ingest(copy))


def saw_letters(
    params: LettersParams, spans: int, oldest_at: datetime | None, reason: str | None, now: datetime
) -> CheckResult:
    """Spans that wait as dead letters. Secrets: a reason may quote a payload, so nobody sees it."""
    firing = {}
    if spans >= params.spans and oldest_at is not None and reason is not None:
        waits = "span is a dead letter" if spans == 1 else "spans are dead letters"
        firing["dead letters"] = AlertFacts(
            title=f"{count(spans)} {waits}",
            text=f"The first since {oldest_at:%Y-%m-%d %H:%M} UTC. They can be replayed or discarded.",
            severity="medium",
            path=_DEAD_LETTERS,
        )
    return CheckResult(now + SOON, firing)


def saw_silent(params: SilentParams, silences: Mapping[str, datetime], now: datetime) -> CheckResult:
    """Services that spoke daily and are silent."""
    firing = {
        f"service {name}": AlertFacts(
            title=f"{name[:100]} has fallen silent",
            text=f"It sent something every day; nothing has come since {last_at:%Y-%m-%d %H:%M} UTC.",
            severity="medium",
            path="/settings/sources",
        )
        for name, last_at in silences.items()
    }
    return CheckResult(now + SELDOM, firing)


def saw_disk(
    params: DiskParams, level: str, used: int, budget: int, reached_on: date | None, now: datetime
) -> CheckResult:
    """The disk against its budget."""
    share = f"{percent(used / budget)} of {size(budget)} used" if budget else "nothing measured yet"
    when = "" if reached_on is None else f", reached on {reached_on} at the current growth"
    firing = {}
    if level in ("tell", "drop", "full"):
        firing["disk"] = AlertFacts(
            title="The disk budget is nearly used up",
            text=f"{share}{when}. Close to the budget, the oldest days are deleted before they expire.",
            severity="medium",
            path="/settings/project",
        )
    if level == "full":
        firing["disk full"] = AlertFacts(
            title="The disk budget is used up: ingest is refused",
            text=f"{share}, and nothing is left to drop.",
            severity="high",
            path=_HEALTH,
        )
    if reached_on is not None and level == "ok":
        days = (reached_on - now.date()).days
        if days <= params.forecast_days:
            firing["disk forecast"] = AlertFacts(
                title=f"The disk budget will be used up on {reached_on}",
                text=f"{share}.",
                severity="low",
                path="/settings/project",
            )
    return CheckResult(now + SOON, firing)


def saw_backup(
    params: BackupParams,
    last_good_at: datetime | None,
    last_error: str | None,
    began_at: datetime,
    now: datetime,
) -> CheckResult:
    """The nightly backup; one that was never made is as old as the process."""
    firing = {}
    if last_error is not None:
        firing["backup failed"] = AlertFacts(
            title="The nightly backup failed", text=last_error[:300], severity="high", path=_HEALTH
        )
    good = last_good_at or began_at
    if now - good > timedelta(hours=params.hours):
        age = (
            "There is no backup yet."
            if last_good_at is None
            else f"It is of {last_good_at:%Y-%m-%d %H:%M} UTC."
        )
        firing["backup"] = AlertFacts(
            title=f"The last good backup is older than {params.hours} hours",
            text=age,
            severity="high",
            path=_HEALTH,
        )
    return CheckResult(now + OFTEN, firing)


def saw_certificate(params: CertificateParams, left_s: float | None, now: datetime) -> CheckResult:
    """The certificate that is served."""
    if left_s is None:
        return CheckResult(now + OFTEN, trouble="no certificate is served yet")
    firing = {}
    if left_s <= params.days * 86_400:
        ends = now + timedelta(seconds=left_s)
        has_ended = left_s <= 0
        firing["certificate"] = AlertFacts(
            title="The certificate has expired"
            if has_ended
            else f"The certificate expires on {ends:%Y-%m-%d}",
            text=f"{ends:%Y-%m-%d %H:%M} UTC.",
            severity="high" if left_s <= 3 * 86_400 else "medium",
            path=_HEALTH,
        )
    return CheckResult(now + SELDOM, firing)


def saw_metric(
    params: MetricParams, judged: JudgedFigure, now: datetime, *, again: timedelta = OFTEN
) -> CheckResult:
    """A figure against its bound; `again` is after how long it is looked at anew."""
    firing = {}
    if judged.holds:
        usual = ""
        if params.bound in ("rises", "falls"):
            usual = f"; usually {amount(params.figure, judged.against)}"
        sentence = metric_sentence(params)
        firing["metric"] = AlertFacts(
            title=sentence[0].upper() + sentence[1:],
            text=f"It is {amount(params.figure, judged.value)} now{usual}.",
            severity="medium",
            path=metric_path(params),
        )
    return CheckResult(now + again, firing)


#: The pages of vitals, and what Explore counts where these do not know a filter.
_VITALS: Final = {"traces": "/vitals", "model_calls": "/vitals/models", "tools": "/vitals/tools"}
_EXPLORED: Final = {"model_calls": ("spans", {"kind": "llm"}), "tools": ("spans", {"kind": "tool"})}
_MEASURES: Final = {"p95_ms": "duration_p95"}


def metric_path(params: MetricParams) -> str:
    """The page that shows the figure of a rule: vitals where they tell it, else Explore with its filters."""
    if is_vital(params):
        return _VITALS[params.dataset]
    dataset, kind_filters = _EXPLORED.get(params.dataset, (params.dataset, {}))
    filters = {**kind_filters, **params.filters}
    line = as_line({name: filters[name] for name in filters if can_be_typed(name)})
    # Explore knows no traces: their spans have what they are narrowed to.
    parameters = {
        "dataset": "spans" if dataset == "traces" else dataset,
        "measure": _MEASURES.get(params.figure, params.figure),
        **({"q": line} if line else {}),
        "range": "24h",
    }
    return f"/explore?{urlencode(parameters)}"


def saw_digest(params: DigestParams, facts: AlertFacts, due_at: datetime, now: datetime) -> CheckResult:
    """The digest that was due then; one that was missed is made once, late."""
    return CheckResult(next_digest(params, now), told={f"digest {due_at:%Y-%m-%d %H:%M}": facts})
