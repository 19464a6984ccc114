"""The table of routes of `/api/**` and `/auth/*`, put together from the files of this package."""

from __future__ import annotations

from typing import Final

from svc.front.api.accounts import auth, invitations, keys, members, orgs, projects, sso
from svc.front.api.alerts import alert_channels, alert_rules
from svc.front.api.cases import agents, buckets, cases, classifier_reads, classifiers, findings, marks
from svc.front.api.routes import Route
from svc.front.api.settings import (
    bills,
    dead_letters,
    erasures,
    ingest,
    integrations,
    masking,
    prices,
    project_settings,
    retention_rules,
)
from svc.front.api.traces import feedback, kept_charts, set_export, sets, spans

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
    *erasures.ROUTES,
    *spans.ROUTES,
    *classifiers.ROUTES,
    *classifier_reads.ROUTES,
    *buckets.ROUTES,
    *marks.ROUTES,
    *masking.ROUTES,
    *prices.ROUTES,
    *kept_charts.ROUTES,
    *feedback.ROUTES,
    *sets.ROUTES,
    *set_export.ROUTES,
    *findings.ROUTES,
    *cases.ROUTES,
    *agents.ROUTES,
    *alert_channels.ROUTES,
    *alert_rules.ROUTES,
)
