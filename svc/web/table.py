"""The table of pages, put together from the rooms."""

from __future__ import annotations

from typing import Final

from svc.web import account, alerts, cases, connect, detectors, feedback, overview, sessions, settings, traces
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *account.PAGES,
    *alerts.PAGES,
    *cases.PAGES,
    *connect.PAGES,
    *detectors.PAGES,
    *feedback.PAGES,
    *overview.PAGES,
    *sessions.PAGES,
    *settings.PAGES,
    *traces.PAGES,
)
