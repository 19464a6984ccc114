"""What the laws of alerts do to a store under test, in a line each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from protocol.alerts import AlertChannel, AlertRule, ChannelKind, DeliveryLease, RuleKind
from svc.domain.alerts.params import kept_params, read_params
from svc.store.accounts.projects import ProjectStore
from svc.store.alerts.channels import AlertChannelStore
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.gathering import GatheringStore
from svc.store.alerts.rules import AlertRuleStore
from svc.store.postgres.database import Database
from tests.store.spans.test_writing import NOW

#: Their fields, where the channel needs some.
PARAMS: dict[str, dict[str, Any]] = {
    "webhook": {"url": "https://hooks.example.org/in"},
    "slack": {},
    "pagerduty": {"base_url": "https://events.pagerduty.com"},
    "ntfy": {"url": "https://ntfy.sh/topic"},
    "email": {"to": ["ann@example.org"]},
}


async def project_of(store: Database) -> int:
    found = await ProjectStore(store).make_default()
    assert found is not None
    return found.id


async def channel(
    store: Database, project_id: int, name: str = "hook", kind: ChannelKind = "webhook", **more: Any
) -> AlertChannel:
    made = AlertChannel(project_id, uuid4(), kind, name, PARAMS[kind] | more, None, NOW, NOW)
    assert await AlertChannelStore(store).put(made, "tests") is None
    return made


async def rule(
    store: Database,
    project_id: int,
    channels: Iterable[AlertChannel],
    kind: RuleKind = "case.opened",
    name: str | None = None,
    due_at: datetime | None = None,
    **params: Any,
) -> AlertRule:
    kept = kept_params(read_params(kind, params))
    ids = tuple(one.id for one in channels)
    made = AlertRule(project_id, uuid4(), kind, name or kind, kept, ids, NOW, NOW, due_at=due_at)
    assert await AlertRuleStore(store).put(made, "tests") is None
    return made


async def gathered(store: Database) -> int:
    """All that waits, at once and without a rest."""
    return await GatheringStore(store, gather_s=0.0, rest_s=0.0).gather(NOW)


async def claimed(store: Database) -> DeliveryLease:
    found = await PostgresDeliveryStore(store).claim()
    assert found is not None
    return found


async def deliveries(store: Database, project_id: int, **more: Any) -> list[dict[str, Any]]:
    """All of them, newest first."""
    asked: dict[str, Any] = {"state": None, "channel_id": None, "limit": 100, "cursor": None, **more}
    found: list[dict[str, Any]] = (await PostgresDeliveryStore(store).page(project_id, **asked))["deliveries"]
    return found


async def events(store: Database, rule_id: UUID | None = None) -> list[tuple[str, str]]:
    """Subject and state of what was told, in order."""
    rows = await store.fetch(
        "select subject, state from alert_event where $1::uuid is null or rule_id = $1 order by id", rule_id
    )
    return [(row["subject"], row["state"]) for row in rows]
