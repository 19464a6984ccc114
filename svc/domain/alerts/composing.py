"""Events to messages: a storm of one rule is one message, and everything has its bound.

What goes to a channel that keeps incidents (`keeps_incidents` of `table`) stays one message a subject, so
that each can be closed; beyond `INCIDENTS_MOST` the rest is one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.alerts import (
    ITEMS_NAMED,
    TEXT_CHARS,
    TITLE_CHARS,
    TOLD_KINDS,
    AlertEvent,
    AlertItem,
    AlertMessage,
    AlertPlace,
    AlertRule,
    AlertSeverity,
    EventState,
)
from protocol.rest.query import timestamp
from svc.domain.quantities import count

#: Messages of one gathering to one channel that keeps incidents.
INCIDENTS_MOST: Final = 25
_RANK: Final[dict[AlertSeverity, int]] = {"info": 0, "low": 1, "medium": 2, "high": 3}
_MANY: Final = {
    "case.opened": "{n} cases opened",
    "case.reopened": "{n} cases opened again",
    "case.resolved": "{n} cases were resolved",
    "digest": "{n} digests",
    "ingest.down": "Ingest is down on {n} copies of the service",
    "ingest.dead_letters": "{n} kinds of dead letters",
    "ingest.silent": "{n} services have fallen silent",
    "disk.budget": "{n} warnings about the disk",
    "backup.old": "{n} warnings about backups",
    "certificate.expiring": "{n} warnings about certificates",
    "metric": "{n} metrics crossed their thresholds",
}
_BEGINS: Final = {
    "case.opened": "Opened",
    "case.reopened": "Opened again",
    "case.resolved": "Resolved",
}


def composed(
    rule: AlertRule, events: Sequence[AlertEvent], location: AlertPlace, *, incidents: bool
) -> list[AlertMessage]:
    """The messages for one channel. `incidents`: whether it closes what it was told before."""
    # That a case is over is told by a rule of its own; here it only closes incidents.
    closing = rule.kind in TOLD_KINDS
    relevant = [event for event in events if incidents or not (closing and event.state == "over")]
    if incidents:
        singles, overflow = relevant[:INCIDENTS_MOST], relevant[INCIDENTS_MOST:]
        parts = [[event] for event in singles] + [overflow]
    else:
        parts = [[event for event in relevant if event.state != "over"]]
        parts.append([event for event in relevant if event.state == "over"])
    return [_message(rule, part, location) for part in parts if part]


def _message(rule: AlertRule, events: Sequence[AlertEvent], location: AlertPlace) -> AlertMessage:
    newest = events[-1]
    single = len(events) == 1
    worst = max((event.facts.severity for event in events), key=_RANK.__getitem__)
    all_over = all(event.state == "over" for event in events)
    title = _title(rule, newest) if single else _MANY[rule.kind].format(n=count(len(events)))
    if all_over and not single:
        title = f"Over: {title[0].lower()}{title[1:]}"
    # All rules share the incident of a case; what a rule of another kind sees is its own.
    key = f"{location.org}/{location.project}/" + ("" if rule.kind in TOLD_KINDS else f"{rule.id} ")
    return AlertMessage(
        kind=rule.kind,
        rule=rule.name,
        org=location.org,
        project=location.project,
        state=newest.state if single else "over" if all_over else _state(events),
        title=title[:TITLE_CHARS],
        severity=worst,
        dedup_key=(key + (newest.subject if single else f"{rule.id} {newest.id}"))[:255],
        path=newest.facts.path if single else _path(events),
        occurred_at=timestamp(newest.occurred_at),
        items=tuple(_item(event) for event in events[:ITEMS_NAMED]),
        more=max(len(events) - ITEMS_NAMED, 0),
    )


def _state(events: Sequence[AlertEvent]) -> EventState:
    return "firing" if any(event.state == "firing" for event in events) else "told"


def _title(rule: AlertRule, event: AlertEvent) -> str:
    begins = _BEGINS.get(rule.kind)
    if begins is not None:
        return f"{'Resolved' if event.state == 'over' else begins}: {event.subject} {event.facts.title}"
    return f"Over: {event.facts.title}" if event.state == "over" else event.facts.title


def _path(events: Sequence[AlertEvent]) -> str:
    """Where all of it is seen: the page that they share, triage where there are several."""
    paths = {event.facts.path for event in events}
    return paths.pop() if len(paths) == 1 else "/triage"


def _item(event: AlertEvent) -> AlertItem:
    return AlertItem(
        subject=event.subject[:TITLE_CHARS],
        title=event.facts.title[:TITLE_CHARS],
        text=event.facts.text[:TEXT_CHARS],
        severity=event.facts.severity,
        path=event.facts.path,
        occurred_at=timestamp(event.occurred_at),
    )


def trial_message(place: AlertPlace, channel: str, now: str, mark: str) -> AlertMessage:
    """What the button sends."""
    return AlertMessage(
        kind="test",
        rule="test",
        org=place.org,
        project=place.project,
        state="told",
        title=f"A test of the channel {channel}"[:TITLE_CHARS],
        severity="info",
        dedup_key=f"{place.org}/{place.project}/test {mark}"[:255],
        path="/settings/notifications",
        occurred_at=now,
        items=(),
    )
