"""`{p}/ingest/doctor`: who sends spans into a project, and what to change."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from protocol.rest.ingest_report import IngestReport
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.spans.exporters import KEPT_DAYS, ExporterStore


class DoctorQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many days back to look, today included."""

    days: Annotated[int, msgspec.Meta(ge=1, le=KEPT_DAYS)] = 7


async def get_doctor(call: Call[None]) -> IngestReport:
    """Who sends spans into the project, what is understood of them, what was refused, and what to change."""
    query: DoctorQuery = call.query
    place = f"--org {call.project.org_slug} --project {call.project.slug}"
    reports = ExporterStore(call.means.questions)
    return await reports.report(call.project.id, call.means.now(), query.days, place)


ROUTES: Final = (
    Route("GET", PROJECT + "/ingest/doctor", "ORG_VIEW", get_doctor, IngestReport, query=DoctorQuery),
)
