"""One finding: what moved, with the proof; and what people say of it.

The statistic against its bar over time, values with their intervals, distributions, kinds of failure, what
was new about then, and the evidence by role, paged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args
from uuid import UUID

import msgspec

from protocol.detection import EvidenceRole
from protocol.refusals import BAD_REQUEST, NO_SUCH_FINDING, Refusal
from protocol.rest.cases import FindingResolution
from svc.front.api.cases import findings as api
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.detection.cases.findings import FindingStore
from svc.store.detection.cases.inbox import InboxReads
from svc.web.cases import case_text
from svc.web.cases.agent_view import agent_of
from svc.web.cases.finding_view import climb_of, drawn_of, marks_of
from svc.web.detectors.detector_text import WATCHES, caller_facts
from svc.web.shell import words
from svc.web.shell.forms import NoFields, asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query

REFS: Final = 50
_NO_REF: Final = dict.fromkeys(("trace_id", "span_id", "session_id"))
ROLES: Final[Mapping[EvidenceRole, str]] = {
    "exemplar": "Examples",
    "witness": "Supporting",
    "member": "All traces since",
    "baseline": "Baseline",
    "changepoint": "Change point",
}


#: What was just said, by the word in the address.
SAID: Final = {
    "expected": "This is the new normal now",
    "not_expected": "This is confirmed and has a case",
    "rejected": "This is not an issue",
    "reopened": "This is live again",
}


class Saying(msgspec.Struct):
    """What somebody says of a finding, and why."""

    action: str = ""
    reason: str = ""


async def finding(visit: Visit) -> Html | Refusal:
    """The page."""
    return await _page(visit)


async def statistic(visit: Visit) -> Html | Refusal:
    """The statistic against its bar, which takes a moment to work out: a part of the page."""
    finding_id = visit.call.id_of("id", NO_SUCH_FINDING)
    finding_row = await FindingStore(visit.means.questions).one(visit.project.id, finding_id)
    if finding_row is None:
        return NO_SUCH_FINDING
    context = {"climb": await climb_of(visit, finding_row), "proof": _proof(finding_row["evidence"])}
    return Html("cases/finding_statistic", context, part=True)


def _proof(evidence: Mapping[str, Any]) -> dict[str, Any]:
    return {name: evidence.get(name) for name in ("statistic", "bar", "phi", "detected_at")}


async def _evidence(visit: Visit, finding_id: UUID, role: EvidenceRole | None) -> dict[str, Any]:
    """The references of a role, one page of them, and how many of each role survive."""
    reads, project_id = visit.means.questions, visit.project.id
    counted = await EvidenceStore(reads).page(
        project_id, finding_id, role=None, count_only=True, limit=1, cursor=None
    )
    assert counted is not None, "there is such a finding"
    chosen = role or _first_role(counted["recorded_counts"])
    page = await EvidenceStore(reads).page(
        project_id, finding_id, role=chosen, count_only=False, limit=REFS, cursor=visit.query.get("cursor")
    )
    assert page is not None, "there is such a finding"
    cited = await InboxReads(reads).cited(
        project_id, [ref["trace_id"] for ref in page["refs"] if ref.get("trace_id")]
    )
    address, behind = f"{visit.base}/findings/{finding_id}", page["next_cursor"]
    return {
        "roles": ROLES,
        "chosen": chosen,
        "counts": counted["counts"],
        "recorded": counted["recorded_counts"],
        "refs": [({**_NO_REF, **ref}, cited.get(ref.get("trace_id") or "")) for ref in page["refs"]],
        "more": query(address, role=chosen, cursor=behind) if behind else None,
    }


async def _page(visit: Visit, refusal: Refusal | None = None) -> Html | Refusal:
    finding_id = visit.call.id_of("id", NO_SUCH_FINDING)
    role = visit.query.get("role")
    if role is not None and role not in get_args(EvidenceRole):
        return BAD_REQUEST.saying(f"role is one of {', '.join(get_args(EvidenceRole))}")
    reads, project_id = visit.means.questions, visit.project.id
    finding_row = await FindingStore(reads).one(project_id, finding_id)
    if finding_row is None:
        return NO_SUCH_FINDING
    proof = await _evidence(visit, finding_id, cast(EvidenceRole | None, role))
    address = f"{visit.base}/findings/{finding_id}"
    evidence = finding_row["evidence"]
    case, resolved = await InboxReads(reads).case_of(project_id, finding_id) or (None, False)
    context = {
        "finding": finding_row,
        "title": case_text.Title.of(finding_row["title"]),
        "mark": case_text.SEVERITIES[finding_row["severity"]],
        "size_say": words.money if evidence.get("unit") == "usd" else words.duration,
        "caller": caller_facts(visit.base, evidence.get("subject"), words.parsed(finding_row["onset_at"])),
        "figures": case_text.figures(finding_row, evidence, finding_row["trace_count"]),
        "drawn": await drawn_of(visit, finding_row),
        "marks": await marks_of(visit, finding_row),
        "case": case,
        **proof,
        "signatures": [
            {"signature": "", "traces": None, "since": None, **signature}
            for signature in evidence.get("signatures") or ()
            if isinstance(signature, dict)
        ],
        "judged": isinstance(evidence.get("statistic"), int | float),
        "here": address,
        "live": finding_row["closed_at"] is None,
        # One that closed with its case is live again when that is reopened.
        "undoable": finding_row["closed_as"] in ("rejected", "absorbed") and not resolved,
        "done": SAID.get(visit.query.get("did", "")),
        "manages": visit.manages,
        "refusal": refusal,
        "agent": await agent_of(visit, "triage", finding_id, f"{address}/agent"),
        "detector": WATCHES.get(finding_row["detector"], finding_row["detector"]),
    }
    return Html(
        "cases/finding",
        context,
        status=refusal.status if refusal else 200,
    )


def _first_role(recorded: Mapping[str, int]) -> EvidenceRole:
    return next((role for role in ROLES if recorded.get(role)), "exemplar")


async def say(visit: Visit) -> Html | Go | Refusal:
    """Real, expected, or no issue."""
    fields = {"action": visit.form.action, "reason": visit.form.reason}
    answer = await asked(
        visit,
        api.post_resolution,
        FindingResolution,
        fields,
        path={"findingId": visit.call.path["id"]},
    )
    if isinstance(answer, Refusal):
        return answer if answer.status == 404 else await _page(visit, answer)
    return Go(query(f"{visit.base}/findings/{visit.call.path['id']}", did=visit.form.action))


async def reopen(visit: Visit) -> Html | Go | Refusal:
    """Take back what was said."""
    answer = await asked(visit, api.post_reopen, path={"findingId": visit.call.path["id"]})
    if isinstance(answer, Refusal):
        return answer if answer.status == 404 else await _page(visit, answer)
    return Go(query(f"{visit.base}/findings/{visit.call.path['id']}", did="reopened"))


PAGES: Final = (
    PageRoute("GET", PROJECT + "/findings/{id}", "ORG_VIEW", finding),
    PageRoute("GET", PROJECT + "/findings/{id}/statistic", "ORG_VIEW", statistic),
    PageRoute("POST", PROJECT + "/findings/{id}/say", "ORG_MANAGE", say, form=Saying),
    PageRoute("POST", PROJECT + "/findings/{id}/reopen", "ORG_MANAGE", reopen, form=NoFields),
)
