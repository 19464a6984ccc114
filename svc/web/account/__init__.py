"""Signing in, one's own account, and who else may come in: people, keys, applications, invitations."""

from __future__ import annotations

from typing import Final

from svc.web.account import (
    account,
    authorize,
    integrations,
    invitation,
    keys,
    mcp,
    member,
    people,
    sign_in,
    start,
)
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *account.PAGES,
    *authorize.PAGES,
    *integrations.PAGES,
    *invitation.PAGES,
    *keys.PAGES,
    *mcp.PAGES,
    *member.PAGES,
    *people.PAGES,
    *sign_in.PAGES,
    *start.PAGES,
)
