"""What people and programs said of answers, and sets of traces that are kept and reviewed."""

from __future__ import annotations

from typing import Final

from svc.web.feedback import feedback, feedback_names, set_changes, set_export, sets
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *feedback.PAGES,
    *feedback_names.PAGES,
    *set_changes.PAGES,
    *set_export.PAGES,
    *sets.PAGES,
)
