"""Where alerts go, and the rules that send them."""

from __future__ import annotations

from typing import Final

from svc.web.alerts import channels, notifications, rules
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *channels.PAGES,
    *notifications.PAGES,
    *rules.PAGES,
)
