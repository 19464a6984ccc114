"""What the detectors watch, how far each has learned, and what can be said before they have."""

from __future__ import annotations

from typing import Final

from svc.web.detectors import detector_switches, detectors, first_look
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *detector_switches.PAGES,
    *detectors.PAGES,
    *first_look.PAGES,
)
