"""Connecting a program: the lines to paste, and what has arrived so far."""

from __future__ import annotations

from typing import Final

from svc.web.connect import connect
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (*connect.PAGES,)
