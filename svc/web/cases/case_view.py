"""One case as a page shows it: the reading pane of the inbox and the page of its own are made of this.

Reads what the store tells of a case, draws its chart, writes its ticket. Never moves a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import attrs

from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.inbox import CaseAround, InboxReads
from svc.store.detection.counting.charts import ChartReads
from svc.web.cases import case_text
from svc.web.cases.agent_view import AgentView, agent_of
from svc.web.detectors.detector_text import caller_facts
from svc.web.shell import words
from svc.web.shell.charts import Chart, ChartFrame, chart
from svc.web.shell.page import Visit

#: How long after it was seen last a case that is not resolved is still drawn on.
_DRAWN_ON: Final = timedelta(days=3)
#: Traces that a pane lists, and that a page lists.
PANE_TRACES: Final = 5
#: Who made a report.
ENGINES: Final[Mapping[str, str]] = {"rule": "Automatic analysis", "agent": "Agent"}
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
    title: case_text.Title
    severity: tuple[str, str, str]
    figures: list[tuple[str, str]]
    chart: Chart | None
    #: By engine, the one that stands on top first, with its row: `id`, `finished_at`.
    reports: list[tuple[Mapping[str, Any], case_text.ToldReport]]
    exemplars: list[dict[str, Any]]
    steps: list[tuple[Mapping[str, Any], str]]
    ticket: str
    agent: AgentView
    #: Of a case about one agent: its call site and the agent, each with the address of its traces.
    caller: Sequence[tuple[str, str, str]]

    @property
    def report(self) -> case_text.ToldReport | None:
        """The one that stands on top."""
        return self.reports[0][1] if self.reports else None

    @property
    def new_kinds(self) -> Sequence[str]:
        """Failures of new kinds that came with it."""
        return case_text.new_kinds(self.case)

    @property
    def engines(self) -> Mapping[str, str]:
        """Who made a report, in words."""
        return ENGINES

    @property
    def onset(self) -> datetime:
        """When it began."""
        return words.parsed(self.case["onset_at"])

    @property
    def interval_s(self) -> float:
        """How long the stretch is in which it may have begun."""
        low, high = self.around.onset_low_at, self.around.onset_high_at
        return 0.0 if low is None or high is None else (high - low).total_seconds()


async def view_of(visit: Visit, reference: str) -> CaseView | None:
    """A case by its reference or id; None when there is none."""
    now, project_id = visit.means.now(), visit.project.id
    case = await CaseStore(visit.means.questions).one(project_id, reference, now)
    if case is None:
        return None
    reads = InboxReads(visit.means.questions)
    around = (await reads.around(project_id, [case["id"]]))[case["id"]]
    cited = await reads.cited(project_id, [exemplar["trace_id"] for exemplar in case["exemplars"]])
    severity = case_text.SEVERITIES[case["severity"]]
    tone = severity[1] if case["state"] != "resolved" else "soft"
    exemplars = [
        {**exemplar, "asked": cited_trace.asked if (cited_trace := cited.get(exemplar["trace_id"])) else None}
        for exemplar in case["exemplars"]
    ]
    agent = await agent_of(visit, "rca", UUID(case["id"]), f"{visit.base}/cases/{case['reference']}/agent")
    reports = [
        (row, report)
        for row in agent.reports.values()
        if (report := case_text.ToldReport.of(row["report"])) is not None
    ]
    view = CaseView(
        case,
        around,
        case_text.Title.of(case["title"]),
        severity,
        case_text.figures(case, around.evidence, around.trace_count),
        await _chart(visit, case, around, tone),
        reports,
        exemplars,
        [(event, case_text.step(event)) for event in case["events"]],
        "",
        agent,
        caller_facts(visit.base, around.bucket[1] if around.bucket else None, words.parsed(case["onset_at"])),
    )
    return attrs.evolve(view, ticket=_ticket(visit, view))


async def _chart(visit: Visit, case: Mapping[str, Any], around: CaseAround, tone: str) -> Chart | None:
    if around.bucket is None:
        return None
    measure, subject = around.bucket
    onset, last_seen = words.parsed(case["onset_at"]), words.parsed(case["last_seen_at"])
    until = min(visit.means.now(), last_seen + _DRAWN_ON)
    if case["resolved_at"] is not None:
        until = max(words.parsed(case["resolved_at"]), onset)
    frame = ChartFrame.around(onset, until)
    steps = await ChartReads(visit.means.questions).steps(
        visit.project.id, measure, subject, frame.first, frame.width, frame.steps
    )
    if not any(step.value for step in steps):
        return None
    band = (around.onset_low_at, around.onset_high_at)
    return chart(frame, steps, onset, band, tone, measure, case["metric"], case["baseline_value"])


def _ticket(visit: Visit, view: CaseView) -> str:
    """The case in Markdown, for somebody else's tracker. Times are UTC."""
    base_url = visit.origin + visit.base
    case = view.case
    lines = [f"## {case['reference']}: {case['title']}", "", case["basis"], ""]
    lines += [f"- {title}" for title in view.new_kinds]
    lines += [f"- {name}: {text}" for name, text in view.figures]
    lines += [f"- {heading}: {name}" for heading, name, _ in view.caller]
    lines.append(f"- since: {view.onset:%Y-%m-%d %H:%M} UTC")
    lines.append(f"- severity: {view.severity[2]}")
    for row, report in view.reports:
        lines += ["", f"{ENGINES[row['engine']]}: **{report.verdict}.** {report.summary}"]
    if view.exemplars:
        lines += ["", "Traces:"]
        lines += [f"- {base_url}/traces/{exemplar['trace_id']}" for exemplar in view.exemplars[:PANE_TRACES]]
    lines += ["", f"{base_url}/cases/{case['reference']}"]
    return "\n".join(lines)
