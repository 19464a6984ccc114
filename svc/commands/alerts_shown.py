"""How `trace-svc alerts` prints: rules, channels, messages, and what a rule would have told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from protocol.alerts import AlertChannel, AlertRule, WouldHaveFired
from protocol.rest.query import timestamp
from svc.commands.columns import print_columns, printable
from svc.commands.printing import minute, print_json
from svc.domain.alerts.channels.table import CHANNELS, read_fields
from svc.domain.alerts.params import read_params
from svc.domain.alerts.words import sentence_of

#: Instants that are printed where a rule would have fired.
_INSTANTS = 20


def print_rules(rules: Sequence[AlertRule], names: Mapping[UUID, str], *, as_json: bool) -> None:
    """Each with what it waits for and whom it tells."""
    told: list[dict[str, Any]] = [
        {
            "name": one.name,
            "kind": one.kind,
            "says": sentence_of(one.kind, read_params(one.kind, one.params)),
            "params": dict(one.params),
            "channels": [names[channel] for channel in one.channels if channel in names],
            "muted_until": None if one.muted_until is None else timestamp(one.muted_until),
            "told_at": None if one.told_at is None else timestamp(one.told_at),
            "trouble": one.trouble,
        }
        for one in rules
    ]
    if as_json:
        print_json({"rules": told})
        return
    rows: list[tuple[str, ...]] = [("NAME", "TELLS", "WHEN", "TOLD", "MUTED UNTIL")]
    for rule in told:
        channels = ", ".join(rule["channels"]) or "nobody"
        rows.append(
            (rule["name"], channels, rule["says"], minute(rule["told_at"]), minute(rule["muted_until"]))
        )
    print_columns(rows)
    if not told:
        print("nobody is told anything yet: `trace-svc alerts add-channel`, then `trace-svc alerts add`")


def print_channels(channels: Sequence[AlertChannel], *, as_json: bool) -> None:
    """Each with where it leads and how it does; never a secret."""
    told: list[dict[str, Any]] = [
        {
            "name": one.name,
            "kind": one.kind,
            "leads_to": CHANNELS[one.kind].leads_to(read_fields(one.kind, one.params)),
            "state": "off" if one.off_at is not None else "failing" if one.failures else "ready",
            "last_error": one.last_error,
            "last_sent_at": None if one.last_sent_at is None else timestamp(one.last_sent_at),
        }
        for one in channels
    ]
    if as_json:
        print_json({"channels": told})
        return
    rows = [("NAME", "KIND", "TO", "STATE", "LAST MESSAGE", "LAST ERROR")]
    for one in told:
        sent, error = minute(one["last_sent_at"]), (one["last_error"] or "")[:60]
        rows.append((one["name"], one["kind"], one["leads_to"], one["state"], sent, error))
    print_columns(rows)


def print_deliveries(deliveries: Sequence[Mapping[str, Any]]) -> None:
    """Each with its id, by which it is replayed."""
    rows = [("ID", "MADE", "CHANNEL", "STATE", "TRIES", "WHAT", "FAILURE")]
    for one in deliveries:
        rows.append(
            (
                one["id"],
                minute(one["made_at"]),
                one["channel"] or "removed",
                one["state"],
                str(one["tries"]),
                one["title"][:60],
                (one["failure"] or "")[:60],
            )
        )
    print_columns(rows)


def print_fired(found: WouldHaveFired, *, as_json: bool) -> None:
    """How often, when, and by what that is known."""
    if as_json:
        print_json(
            {
                "judged": found.judged,
                "fired": found.fired,
                "instants": [timestamp(one) for one in found.instants],
                "since": timestamp(found.since),
                "note": found.note,
            }
        )
        return
    if not found.judged:
        print(printable(f"not known: {found.note}"))
        return
    times = "time" if found.fired == 1 else "times"
    print(f"would have fired {found.fired} {times} since {minute(timestamp(found.since))} UTC")
    for at in found.instants[:_INSTANTS]:
        print(f"  {minute(timestamp(at))} UTC")
    if found.fired > _INSTANTS:
        print("  and earlier")
    print(printable(f"judged {found.note}"))
