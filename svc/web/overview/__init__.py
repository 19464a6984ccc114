"""A project as a whole: its charts, the vitals of its call sites and tools, Explore, and comparisons."""

from __future__ import annotations

from typing import Final

from svc.web.overview import explore, overview, populations, vitals
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *explore.PAGES,
    *overview.PAGES,
    *populations.PAGES,
    *vitals.PAGES,
)
