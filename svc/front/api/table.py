"""The table of routes of `/api/**` and `/auth/*`, put together from the files of this package."""

from __future__ import annotations

from typing import Final

from svc.front.api import (
    agents,
    alert_channels,
    alert_rules,
    auth,
    bills,
    buckets,
    cases,
    classifier_reads,
    classifiers,
    dead_letters,
    feedback,
    findings,
    ingest,
    integrations,
    invitations,
    keys,
    marks,
    members,
    orgs,
    project_settings,
    projects,
    retention_rules,
    set_export,
    sets,
    spans,
    sso,
)
from svc.front.api.routes import Route

ROUTES: Final[tuple[Route, ...]] = (
    *auth.ROUTES,
    *sso.ROUTES,
    *invitations.ROUTES,
    *orgs.ROUTES,
    *members.ROUTES,
    *projects.ROUTES,
    *keys.ROUTES,
    *project_settings.ROUTES,
    *retention_rules.ROUTES,
    *integrations.ROUTES,
    *ingest.ROUTES,
    *bills.ROUTES,
    *dead_letters.ROUTES,
    *spans.ROUTES,
    *classifiers.ROUTES,
    *classifier_reads.ROUTES,
    *buckets.ROUTES,
    *marks.ROUTES,
    *feedback.ROUTES,
    *sets.ROUTES,
    *set_export.ROUTES,
    *findings.ROUTES,
    *cases.ROUTES,
    *agents.ROUTES,
    *alert_channels.ROUTES,
    *alert_rules.ROUTES,
)
