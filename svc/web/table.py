"""The table of pages, put together from the files of `pages/`."""

from __future__ import annotations

from typing import Final

from svc.web.page import PageRoute
from svc.web.pages import (
    account,
    agents,
    case_verbs,
    cases,
    connect,
    detectors,
    explore,
    findings,
    prices,
    rca,
    sessions,
    settings_keys,
    settings_people,
    settings_project,
    sign_in,
    start,
    trace,
    trace_documents,
    trace_export,
    trace_span,
    traces,
    triage,
    vitals,
)

PAGES: Final[tuple[PageRoute, ...]] = (
    *start.PAGES,
    *sign_in.PAGES,
    *account.PAGES,
    *connect.PAGES,
    *triage.PAGES,
    *cases.PAGES,
    *case_verbs.PAGES,
    *findings.PAGES,
    *detectors.PAGES,
    *rca.PAGES,
    *agents.PAGES,
    *traces.PAGES,
    *trace.PAGES,
    *trace_documents.PAGES,
    *trace_span.PAGES,
    *trace_export.PAGES,
    *sessions.PAGES,
    *vitals.PAGES,
    *explore.PAGES,
    *prices.PAGES,
    *settings_keys.PAGES,
    *settings_people.PAGES,
    *settings_project.PAGES,
)
