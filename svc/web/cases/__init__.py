"""What went wrong: triage, cases with their findings and causes, and the agents that look into them."""

from __future__ import annotations

from typing import Final

from svc.web.cases import agents, case_verbs, cases, findings, rca, triage
from svc.web.shell.page import PageRoute

PAGES: Final[tuple[PageRoute, ...]] = (
    *agents.PAGES,
    *case_verbs.PAGES,
    *cases.PAGES,
    *findings.PAGES,
    *rca.PAGES,
    *triage.PAGES,
)
