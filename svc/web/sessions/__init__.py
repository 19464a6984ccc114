"""Conversations and the people who had them."""

from __future__ import annotations

from typing import Final

from svc.web.sessions import sessions, user, users
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *sessions.PAGES,
    *user.PAGES,
    *users.PAGES,
)
