"""The table of pages, put together from the files of `pages/`."""

from __future__ import annotations

from typing import Final

from svc.web.page import PageRoute
from svc.web.pages import start

PAGES: Final[tuple[PageRoute, ...]] = (*start.PAGES,)
