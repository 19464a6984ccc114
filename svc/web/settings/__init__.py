"""What a project is set to: attributes, taxonomy, masking, retention, prices, agents, health."""

from __future__ import annotations

from typing import Final

from svc.web.settings import (
    agents,
    attributes,
    dead_letters,
    erasing,
    health,
    index,
    masking,
    prices,
    project,
    reconcile,
    retention_rules,
    taxonomy,
)
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *agents.PAGES,
    *attributes.PAGES,
    *dead_letters.PAGES,
    *erasing.PAGES,
    *health.PAGES,
    *index.PAGES,
    *masking.PAGES,
    *prices.PAGES,
    *project.PAGES,
    *reconcile.PAGES,
    *retention_rules.PAGES,
    *taxonomy.PAGES,
)
