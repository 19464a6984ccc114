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
    "ingest.dead_letters": "{n} kinds of dead letters wait",
    "ingest.silent": "{n} services have fallen silent",
    "disk.budget": "{n} warnings about the disk",
    "backup.old": "{n} warnings about backups",
    "certificate.expiring": "{n} warnings about certificates",
    "metric": "{n} figures are beyond their bounds",
}
_BEGINS: Final = {
    "case.opened": "Opened",
    "case.reopened": "Opened again",
    "case.resolved": "Resolved",
}


def composed(
    rule: AlertRule, events: Sequence[AlertEvent], place: AlertPlace, *, incidents: bool
) -> list[AlertMessage]:
    """The messages for one channel. `incidents`: whether it closes what it was told before."""
    # That a case is over is told by a rule of its own; here it only closes incidents.
    closing = rule.kind in TOLD_KINDS
    wanted = [event for event in events if incidents or not (closing and event.state == "over")]
    if incidents:
        alone, rest = wanted[:INCIDENTS_MOST], wanted[INCIDENTS_MOST:]
        parts = [[event] for event in alone] + [rest]
    else:
        parts = [[event for event in wanted if event.state != "over"]]
        parts.append([event for event in wanted if event.state == "over"])
    return [_message(rule, part, place) for part in parts if part]


def _message(rule: AlertRule, events: Sequence[AlertEvent], place: AlertPlace) -> AlertMessage:
    newest = events[-1]
    one = len(events) == 1
    worst = max((event.facts.severity for event in events), key=_RANK.__getitem__)
    over = all(event.state == "over" for event in events)
    title = _title(rule, newest) if one else _MANY[rule.kind].format(n=count(len(events)))
    if over and not one:
        title = f"Over: {title[0].lower()}{title[1:]}"
    # A case is one thing whichever rule tells of it; what a rule sees is its own.
    key = f"{place.org}/{place.project}/" + ("" if rule.kind in TOLD_KINDS else f"{rule.id} ")
    return AlertMessage(
        kind=rule.kind,
        rule=rule.name,
        org=place.org,
        project=place.project,
        state=newest.state if one else "over" if over else _state(events),
        title=title[:TITLE_CHARS],
        severity=worst,
        dedup_key=(key + (newest.subject if one else f"{rule.id} {newest.id}"))[:255],
        path=newest.facts.path if one else _path(events),
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
