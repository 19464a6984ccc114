"""How `trace-svc alerts` prints: rules, channels, messages, and what a rule would have told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from protocol.alerts import AlertChannel, AlertRule, WouldHaveFired
from protocol.rest.query import timestamp, timestamp_or_none
from svc.commands.terminal import minute, print_columns, print_json, printable
from svc.domain.alerts.channels.table import CHANNELS, read_fields
from svc.domain.alerts.params import read_params
from svc.domain.alerts.words import NOBODY, sentence_of

#: Instants that are printed where a rule would have fired.
_INSTANTS = 20


def print_rules(rules: Sequence[AlertRule], names: Mapping[UUID, str], *, as_json: bool) -> None:
    """Each with what it waits for and whom it tells."""
    entries: list[dict[str, Any]] = [
        {
            "name": rule.name,
            "kind": rule.kind,
            "says": sentence_of(rule.kind, read_params(rule.kind, rule.params)),
            "params": dict(rule.params),
            "channels": [names[channel] for channel in rule.channels if channel in names],
            "muted_until": timestamp_or_none(rule.muted_until),
            "told_at": timestamp_or_none(rule.told_at),
            "trouble": rule.trouble,
            "warning": None if rule.channels else NOBODY,
        }
        for rule in rules
    ]
    if as_json:
        print_json({"rules": entries})
        return
    rows: list[tuple[str, ...]] = [("NAME", "TELLS", "WHEN", "TOLD", "MUTED UNTIL")]
    for rule in entries:
        channels = ", ".join(rule["channels"]) or "nobody"
        rows.append(
            (rule["name"], channels, rule["says"], minute(rule["told_at"]), minute(rule["muted_until"]))
        )
    print_columns(rows)
    if not entries:
        print("no rules yet: start with `trace-svc alerts add-channel`, then `trace-svc alerts add`")


def print_channels(channels: Sequence[AlertChannel], *, as_json: bool) -> None:
    """Each with where it leads and how it does; never a secret."""
    entries: list[dict[str, Any]] = [
        {
            "name": channel.name,
            "kind": channel.kind,
            "leads_to": CHANNELS[channel.kind].leads_to(read_fields(channel.kind, channel.params)),
            "state": "off" if channel.off_at is not None else "failing" if channel.failures else "ready",
            "last_error": channel.last_error,
            "last_sent_at": timestamp_or_none(channel.last_sent_at),
        }
        for channel in channels
    ]
    if as_json:
        print_json({"channels": entries})
        return
    rows = [("NAME", "KIND", "TO", "STATE", "LAST MESSAGE", "LAST ERROR")]
    for entry in entries:
        sent_at, error = minute(entry["last_sent_at"]), (entry["last_error"] or "")[:60]
        rows.append((entry["name"], entry["kind"], entry["leads_to"], entry["state"], sent_at, error))
    print_columns(rows)


def print_deliveries(deliveries: Sequence[Mapping[str, Any]]) -> None:
    """Each with its id, by which it is replayed."""
    rows = [("ID", "MADE", "CHANNEL", "STATE", "TRIES", "WHAT", "FAILURE")]
    for delivery in deliveries:
        rows.append(
            (
                delivery["id"],
                minute(delivery["made_at"]),
                delivery["channel"] or "removed",
                delivery["state"],
                str(delivery["tries"]),
                delivery["title"][:60],
                (delivery["failure"] or "")[:60],
            )
        )
    print_columns(rows)


def print_fired(firings: WouldHaveFired, *, as_json: bool) -> None:
    """How often, when, and by what that is known."""
    if as_json:
        print_json(
            {
                "judged": firings.judged,
                "fired": firings.fired,
                "instants": [timestamp(instant) for instant in firings.instants],
                "since": timestamp(firings.since),
                "note": firings.note,
            }
        )
        return
    if not firings.judged:
        print(printable(f"unknown: {firings.note}"))
        return
    times = "time" if firings.fired == 1 else "times"
    print(f"would have fired {firings.fired} {times} since {minute(timestamp(firings.since))} UTC")
    for instant in firings.instants[:_INSTANTS]:
        print(f"  {minute(timestamp(instant))} UTC")
    if firings.fired > _INSTANTS:
        print("  and earlier")
    print(printable(f"judged {firings.note}"))
