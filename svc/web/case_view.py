"""One case as a page shows it: the reading pane of the inbox and the page of its own are made of this.

Reads what the store tells of a case, draws its chart, writes its ticket. Never moves a case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs

from svc.store.detection.cases import CaseStore
from svc.store.detection.charts import ChartReads, is_counted
from svc.store.detection.inbox import CaseAround, InboxReads
from svc.web import case_words, words
from svc.web.agent_view import AgentView, agent_of
from svc.web.charts import Chart, ChartFrame, chart
from svc.web.page import Visit

#: How long after it was seen last a case that is not resolved is still drawn on.
_DRAWN_ON: Final = timedelta(days=3)
#: Traces that a pane lists, and that a page lists.
PANE_TRACES: Final = 5
#: Who made a report.
ENGINES: Final[Mapping[str, str]] = {"rule": "By rule", "agent": "By an agent"}
#: Presets of a mute: their name in the form, what they say, and how long.
MUTES: Final[Mapping[str, tuple[str, timedelta | None]]] = {
    "4h": ("for 4 hours", timedelta(hours=4)),
    "24h": ("for a day", timedelta(days=1)),
    "7d": ("for a week", timedelta(days=7)),
    "ever": ("until somebody unmutes it", None),
}


@attrs.frozen
class CaseView:
    """What the template of a case is given. `title` is in two halves; `ticket` is Markdown."""

    case: Mapping[str, Any]
    around: CaseAround
    title: case_words.Title
    severity: tuple[str, str, str]
    figures: list[tuple[str, str]]
    chart: Chart | None
    #: By engine, the one that stands on top first, with its row: `id`, `finished_at`.
    reports: list[tuple[Mapping[str, Any], case_words.ToldReport]]
    exemplars: list[dict[str, Any]]
    steps: list[tuple[Mapping[str, Any], str]]
    ticket: str
    agent: AgentView

    @property
    def report(self) -> case_words.ToldReport | None:
        """The one that stands on top."""
        return self.reports[0][1] if self.reports else None

    @property
    def engines(self) -> Mapping[str, str]:
        """Who made a report, in words."""
        return ENGINES

    @property
    def onset(self) -> datetime:
        """When it began."""
        return words.parsed(self.case["onset_at"])

    @property
    def say(self) -> Callable[[float | None], str]:
        """How its values are written."""
        return case_words.sayer(self.case["metric"])

    @property
    def interval_s(self) -> float:
        """How long the stretch is in which it may have begun."""
        low, high = self.around.onset_low_at, self.around.onset_high_at
        return 0.0 if low is None or high is None else (high - low).total_seconds()


async def view_of(visit: Visit, reference: str) -> CaseView | None:
    """A case by its reference or id; None when there is none."""
    now, project_id = visit.means.now(), visit.project.id
    found = await CaseStore(visit.means.questions).one(project_id, reference, now)
    if found is None:
        return None
    reads = InboxReads(visit.means.questions)
    around = (await reads.around(project_id, [found["id"]]))[found["id"]]
    cited = await reads.cited(project_id, [one["trace_id"] for one in found["exemplars"]])
    severity = case_words.SEVERITIES[found["severity"]]
    tone = severity[1] if found["state"] != "resolved" else "soft"
    exemplars = [
        {**one, "asked": seen.asked if (seen := cited.get(one["trace_id"])) else None}
        for one in found["exemplars"]
    ]
    agent = await agent_of(visit, "rca", UUID(found["id"]), f"{visit.base}/cases/{found['reference']}/agent")
    reports = [
        (row, told)
        for row in agent.reports.values()
        if (told := case_words.ToldReport.of(row["report"])) is not None
    ]
    view = CaseView(
        found,
        around,
        case_words.Title.of(found["title"]),
        severity,
        case_words.figures(found, around.evidence, around.trace_count),
        await _chart(visit, found, around, tone),
        reports,
        exemplars,
        [(event, case_words.step(event)) for event in found["events"]],
        "",
        agent,
    )
    return attrs.evolve(view, ticket=_ticket(visit, view))


async def _chart(visit: Visit, found: Mapping[str, Any], around: CaseAround, tone: str) -> Chart | None:
    if around.bucket is None:
        return None
    measure, subject = around.bucket
    onset, seen = words.parsed(found["onset_at"]), words.parsed(found["last_seen_at"])
    until = min(visit.means.now(), seen + _DRAWN_ON)
    if found["resolved_at"] is not None:
        until = max(words.parsed(found["resolved_at"]), onset)
    frame = ChartFrame.around(onset, until)
    steps = await ChartReads(visit.means.questions).steps(
        visit.project.id, measure, subject, frame.first, frame.width, frame.steps
    )
    metric = found["metric"]
    if metric is not None and metric.startswith("p95"):
        steps = [attrs.evolve(step, value=step.upper) for step in steps]
    if not any(step.value for step in steps):
        return None
    counted = is_counted(measure)
    usual = None if counted else found["baseline_value"]
    band = (around.onset_low_at, around.onset_high_at)
    return chart(frame, steps, onset, band, usual, tone, case_words.sayer(metric), counted=counted)


def _ticket(visit: Visit, view: CaseView) -> str:
    """The case in Markdown, for somebody else's tracker. Times are UTC."""
    host = visit.call.headers.get("host", "localhost")
    scheme = "https" if visit.call.client.secure else visit.call.client.scheme
    here = (visit.means.landing or f"{scheme}://{host}").rstrip("/") + visit.base
    case = view.case
    lines = [f"## {case['reference']}: {case['title']}", "", case["basis"], ""]
    lines += [f"- {name}: {text}" for name, text in view.figures]
    lines.append(f"- since: {view.onset:%Y-%m-%d %H:%M} UTC")
    lines.append(f"- severity: {view.severity[2]}")
    for row, report in view.reports:
        lines += ["", f"{ENGINES[row['engine']]}: **{report.verdict}.** {report.summary}"]
    if view.exemplars:
        lines += ["", "Traces:"]
        lines += [f"- {here}/traces/{one['trace_id']}" for one in view.exemplars[:PANE_TRACES]]
    lines += ["", f"{here}/cases/{case['reference']}"]
    return "\n".join(lines)
