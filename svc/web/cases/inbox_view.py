"""The rows of the inbox: each case with its small line and how far its analysis is.

Two questions to the store, whatever the number of rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs

from svc.store.detection.cases.inbox import CaseAround, InboxReads
from svc.store.detection.counting.charts import ChartReads, LineAsked
from svc.web.cases import case_text
from svc.web.shell import words
from svc.web.shell.charts import ChartFrame, SmallLine, line_frame, small_line
from svc.web.shell.page import Visit
from svc.web.shell.render import query


@attrs.frozen
class InboxRow:
    """One case of the list."""

    case: dict[str, Any]
    around: CaseAround
    title: case_text.Title
    severity: tuple[str, str, str]
    line: SmallLine | None
    address: str

    @property
    def analysis(self) -> str:
        """How far its analysis is."""
        if self.around.verdict is not None:
            return case_text.verdict(self.around.verdict).lower()
        if self.around.rca == "running":
            return "being looked into"
        return "analysis failed" if self.around.rca == "failed" else "not analysed yet"


async def rows_of(visit: Visit, cases: list[dict[str, Any]], tab: str, now: datetime) -> list[InboxRow]:
    """The rows of a page of cases, with what stands beside them."""
    around = await InboxReads(visit.means.questions).around(visit.project.id, [case["id"] for case in cases])
    requests: list[tuple[str, ChartFrame, LineAsked]] = []
    for case in cases:
        if (bucket := around[case["id"]].bucket) is not None:
            until = now if case["resolved_at"] is None else words.parsed(case["resolved_at"])
            frame = line_frame(until)
            requests.append((case["id"], frame, LineAsked(*bucket, frame.first, frame.steps, frame.width)))
    reads = ChartReads(visit.means.questions)
    drawn = await reads.lines(visit.project.id, [line for _, _, line in requests])
    onsets = {case["id"]: words.parsed(case["onset_at"]) for case in cases}
    lines = {
        case_id: small_line(frame, values, onsets[case_id])
        for (case_id, frame, _), values in zip(requests, drawn, strict=True)
    }
    return [
        InboxRow(
            case,
            around[case["id"]],
            case_text.Title.of(case["title"]),
            case_text.SEVERITIES[case["severity"]],
            lines.get(case["id"]),
            query(f"{visit.base}/cases/{case['reference']}", in_=tab, cursor=visit.query.get("cursor")),
        )
        for case in cases
    ]
