"""Filling a set: with ticked traces, a span of one, the newest traces of a list, or the witnesses of a case.

A form over the handler of the REST API.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec

from protocol.refusals import NO_SUCH_CASE, Refusal
from protocol.rest.sets import SetEntriesBody
from svc.front.api.traces import sets as api
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.cases.evidence import EvidenceStore
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.traces import TraceReads
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, PageRoute, Visit
from svc.web.shell.render import query
from svc.web.traces.saved_views import ViewForm

#: Traces of a list, or witnesses of a case, that are added at once.
MOST_ADDED: Final = 200


class AddForm(ViewForm):
    """Where to: `name` of a set; what: ticked traces, one span of one, the witnesses of a case, or the newest
    traces of a list.
    """

    trace_id: list[str] = msgspec.field(default_factory=list)
    span_id: str = ""
    case: str = ""


async def add(visit: Visit) -> Go | Refusal:
    """Add traces, a span, the witnesses of a case, or the newest traces of a list, to the set of a name."""
    form: AddForm = visit.form
    name = api.set_name(form.name)
    if isinstance(name, Refusal):
        return name
    subjects = await _subjects(visit, form)
    if isinstance(subjects, Refusal):
        return subjects
    answer = await asked(visit, api.post_entries, SetEntriesBody, {"entries": subjects}, path={"set": name})
    if isinstance(answer, Refusal):
        return answer
    return Go(query(f"{visit.base}/sets/{answer.set.id}", added=str(answer.added)))


async def _subjects(visit: Visit, form: AddForm) -> list[dict[str, Any]] | Refusal:
    if form.case:
        return await _witnesses(visit, form.case)
    if form.trace_id:
        return [{"trace_id": trace_id, "span_id": form.span_id or None} for trace_id in form.trace_id]
    reads = TraceReads(visit.means.history, SpanReads(visit.means.history))
    asking = form.asking(visit)
    page = await reads.page(
        visit.project.id, asking.filters.over(asking.range), limit=MOST_ADDED, cursor=None
    )
    return [{"trace_id": trace["trace_id"]} for trace in page["traces"]]


async def _witnesses(visit: Visit, reference: str) -> list[dict[str, Any]] | Refusal:
    """The traces to open of a case, then the others that its finding cites."""
    case = await CaseStore(visit.means.questions).one(visit.project.id, reference, visit.means.now())
    if case is None:
        return NO_SUCH_CASE
    cited = [exemplar["trace_id"] for exemplar in case["exemplars"]]
    if case["finding_id"]:
        page = await EvidenceStore(visit.means.questions).page(
            visit.project.id,
            UUID(str(case["finding_id"])),
            role="witness",
            count_only=False,
            limit=MOST_ADDED,
            cursor=None,
        )
        cited += [ref["trace_id"] for ref in (page or {"refs": ()})["refs"] if "trace_id" in ref]
    return [{"trace_id": trace_id} for trace_id in list(dict.fromkeys(cited))[:MOST_ADDED]]


PAGES: Final = (PageRoute("POST", PROJECT + "/sets/add", "ORG_MANAGE", add, form=AddForm),)
