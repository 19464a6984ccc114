"""A project as a whole: its charts, the vitals of its call sites and tools, Explore, the board of
charts kept from it, and comparisons.
"""

from __future__ import annotations

from typing import Final

from svc.web.overview import board, explore, overview, populations, vitals
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *board.PAGES,
    *explore.PAGES,
    *overview.PAGES,
    *populations.PAGES,
    *vitals.PAGES,
)
