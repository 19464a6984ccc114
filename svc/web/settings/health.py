"""Settings: health. What `/actuator/health` says in words, and what lies on disk by table and day."""

from __future__ import annotations

from typing import Final

from svc.store.retention.disk import DiskReads
from svc.web.settings.health_text import told
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.process_view import UntilVisible

#: Days of disk that are listed.
DAYS_SHOWN: Final = 14


async def page(visit: Visit) -> Html:
    """The page."""
    process = visit.process_view.process
    report = told(await process.health(), UntilVisible(*process.until_queryable()), process.disk_free())
    disk = await DiskReads(visit.means.questions).now()
    days = disk.days
    context = {
        "tab": "health",
        "report": report,
        "disk": disk,
        "days": days[:DAYS_SHOWN],
        "days_all": len(days),
        "most": max((disk.on(day) for day in days[:DAYS_SHOWN]), default=0),
    }
    return Html("settings/health", context)


PAGES: Final = (PageRoute("GET", PROJECT + "/settings/health", "ORG_VIEW", page, of_org=True),)
