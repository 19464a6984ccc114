"""What is drawn of a finding: values before and since, the statistic against its bar, distributions, marks.

The page of findings is made of this. Reads tallies; never moves anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.detect.engine.slots import SLOTS_PER_HOUR, slot_at
from svc.domain.detect.findings.finding_text import instant
from svc.store.detection.counting.charts import ChartReads, is_size, unit_of
from svc.store.detection.judging.statistic_path import StatisticReads
from svc.web.cases import case_text
from svc.web.shell import words
from svc.web.shell.charts import Chart, ChartFrame, ClimbLine, LogAxis, chart, climb, log_axis
from svc.web.shell.page import Visit

#: How long before an onset something new may belong to it.
_MARK_SLOTS: Final = 12 * SLOTS_PER_HOUR
_DRAWN_ON: Final = timedelta(days=3)


@attrs.frozen
class Drawn:
    """The drawings of a finding; each None where there is nothing to draw."""

    chart: Chart | None = None
    axis: LogAxis | None = None


async def drawn_of(visit: Visit, finding: Mapping[str, Any]) -> Drawn:
    """The drawings of a finding, as the store shows it."""
    evidence = finding["evidence"]
    measure, subject = evidence.get("measure"), evidence.get("subject")
    if not isinstance(measure, str) or not isinstance(subject, str):
        return Drawn()
    onset, until = words.parsed(finding["onset_at"]), _until(visit, finding)
    frame = ChartFrame.around(onset, until)
    charts = ChartReads(visit.means.questions)
    steps = await charts.steps(visit.project.id, measure, subject, frame.first, frame.width, frame.steps)
    drawing = chart(
        frame,
        steps,
        onset,
        (_moment(finding["onset_low_at"]), _moment(finding["onset_high_at"])),
        case_text.SEVERITIES[finding["severity"]][1] if finding["closed_at"] is None else "soft",
        measure,
        finding["metric"],
        finding["baseline_value"],
    )
    return Drawn(
        drawing if any(step.value for step in steps) else None,
        await _axis(visit, measure, subject, finding, until),
    )


def _until(visit: Visit, finding: Mapping[str, Any]) -> datetime:
    """Until when a finding is drawn: some days after it was seen last, or until it was closed."""
    until = min(visit.means.now(), words.parsed(finding["last_seen_at"]) + _DRAWN_ON)
    if finding["closed_at"] is not None:
        until = min(until, words.parsed(finding["closed_at"]))
    return max(until, words.parsed(finding["onset_at"]))


async def climb_of(visit: Visit, finding: Mapping[str, Any]) -> ClimbLine | None:
    """The statistic against its bar, judged again; None of what no engine judges slot by slot."""
    evidence = finding["evidence"]
    measure, subject = evidence.get("measure"), evidence.get("subject")
    if not isinstance(measure, str) or not isinstance(subject, str):
        return None
    onset, until = words.parsed(finding["onset_at"]), _until(visit, finding)
    path = await StatisticReads(visit.means.questions).path(
        visit.project.id,
        measure,
        subject,
        slot_at(until.timestamp()),
        false_alarms_per_month=visit.means.false_alarms_per_month,
    )
    if not path:
        return None
    return climb(ChartFrame.around(onset, until), path, onset, _moment(evidence.get("detected_at")))


async def _axis(
    visit: Visit, measure: str, subject: str, finding: Mapping[str, Any], until: datetime
) -> LogAxis | None:
    """Distributions of before and since; None of what has no size or no past."""
    usual = finding["evidence"].get("reference")
    if not is_size(measure) or not isinstance(usual, list) or len(usual) != 2:
        return None
    first, end = (slot_at(words.parsed(text).timestamp()) for text in usual)
    spans = {
        "before": (first, end),
        "since": (slot_at(words.parsed(finding["onset_at"]).timestamp()), slot_at(until.timestamp())),
    }
    sizes = await ChartReads(visit.means.questions).sizes(visit.project.id, measure, subject, spans)
    return log_axis(list(sizes.items()), unit_of(measure))


async def marks_of(visit: Visit, finding: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was new at call sites about when it began."""
    onset = slot_at(words.parsed(finding["onset_at"]).timestamp())
    low, high = (_moment(finding[name]) for name in ("onset_low_at", "onset_high_at"))
    first = min(onset if low is None else slot_at(low.timestamp()), onset) - _MARK_SLOTS
    end = max(onset if high is None else slot_at(high.timestamp()), onset) + 1
    marks = await StatisticReads(visit.means.questions).marks(visit.project.id, first, end)
    return [
        {
            "what": case_text.MARKS.get(mark.measure, mark.measure),
            "where": mark.subject.partition(":")[2],
            "value": case_text.detail(mark.detail),
            "at": instant(mark.slot),
        }
        for mark in marks
    ]


def _moment(value: str | datetime | None) -> datetime | None:
    return None if value is None else words.parsed(value)
