"""What `/actuator/health` says, in words: each part of the service with its mark, a sentence and its figures.

Pure: a report goes in, texts come out. Called by the page of health.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from svc.web.shell import words
from svc.web.shell.process_view import UntilVisible

Tone = Literal["ok", "warn", "bad"]

#: What an acknowledgement means, by the mode of the spool.
MODES: Final = {
    "memory": "A 200 means that the batch is queued in this process: a crash loses what is queued.",
    "disk": "A 200 means that the batch is synced to the local disk: a crash loses nothing.",
    "kafka": "A 200 means that the broker has the batch: a crash loses nothing.",
}
_FULL: Final = 0.8
#: What the actors of the board do, as far as their names do not say it.
WORK: Final = {
    "key-cache": "checks keys",
    "key-news": "learns which keys other replicas revoked",
    "trace-roller": "totals settled traces",
    "large-trace-roller": "totals very large traces",
    "partitioner": "creates partitions for the coming days",
    "exporter-writer": "records who sends what, for the ingest doctor",
    "purger": "removes deleted projects",
    "cube-builder": "counts closed hours",
    "rollup-writer": "writes metric roll-ups",
    "detecting": "runs the detectors in a process of their own",
    "retention-sweeper": "deletes what has expired",
    "invitation-mailer": "mails invitations",
    "heartbeat": "sends the anonymous daily heartbeat",
    "embedded-postgres": "runs the database",
    "trace-folder": "counts settled traces for the detectors",
    "case-keeper": "opens, joins and closes cases",
    "case-analyst": "writes automatic analyses",
    "encoder-asker": "asks the encoder about new traces",
    "spool-writer": "syncs accepted batches to disk",
    "spool-broker": "talks to the broker",
}


@attrs.frozen
class HealthPart:
    """One part of the service."""

    name: str
    tone: Tone
    text: str
    facts: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class ActorRow:
    """One actor of the board."""

    name: str
    tone: Tone
    state: str
    does: str
    crashes: int
    said: str


@attrs.frozen
class ToldHealth:
    """The whole report."""

    well: bool
    headline: str
    parts: tuple[HealthPart, ...]
    actors: tuple[ActorRow, ...]

    @property
    def troubled(self) -> tuple[ActorRow, ...]:
        """Those that have something to tell."""
        return tuple(actor for actor in self.actors if actor.tone != "ok" or actor.crashes)


def told(report: Mapping[str, Any], visible: UntilVisible, free_bytes: int | None) -> ToldHealth:
    """A report in words."""
    components = report["components"]
    ingest = components["ingest"]["details"]
    parts = (
        _ledger(ingest["ledger"]),
        _spool(ingest, components["ingest"]["status"]),
        _drainers(ingest),
        _visible(visible),
        _database(components["db"], free_bytes),
        _retention(components["retention"]["details"]),
        *([_agents(components["agents"])] if "agents" in components else []),
    )
    actors = tuple(
        sorted(
            (_actor(name, actor) for name, actor in components["actors"]["details"].items()),
            key=lambda row: ({"bad": 0, "warn": 1, "ok": 2}[row.tone], -row.crashes),
        )
    )
    bad = [part.name.lower() for part in parts if part.tone == "bad"]
    bad += [row.name for row in actors if row.tone == "bad"]
    warned = [part.name.lower() for part in parts if part.tone == "warn"]
    warned += [row.name for row in actors if row.tone == "warn"]
    well = report["status"] == "UP"
    if not well:
        headline = "Something is down: " + (_short_list(bad) or "see below")
    elif bad or warned:
        headline = "Working, but check " + _short_list([*bad, *warned])
    else:
        headline = "Everything works"
    return ToldHealth(well, headline, parts, actors)


def _short_list(names: list[str]) -> str:
    text = ", ".join(names[:3])
    return f"{text} and {len(names) - 3} more" if len(names) > 3 else text


def _ledger(ledger: Mapping[str, int]) -> HealthPart:
    span_count = ledger["received"] + ledger["recovered"]
    names = ("stored", "duplicates", "waiting", "rejected", "dead_lettered")
    facts = tuple((name.replace("_", " "), words.count(ledger[name])) for name in names if ledger[name])
    if not span_count:
        return HealthPart("Ledger", "ok", "No spans since the start.")
    sentence = f"{words.counted(span_count, 'span has', 'spans have')} come since the start"
    if not ledger["balance"]:
        return HealthPart("Ledger", "ok", sentence + ", all accounted for.", facts)
    between = words.counted(abs(ledger["balance"]), "span is", "spans are")
    return HealthPart(
        "Ledger",
        "warn",
        f"{sentence}; {between} between two counters. There are none when it is idle.",
        facts,
    )


def _spool(ingest: Mapping[str, Any], status: str) -> HealthPart:
    text = MODES.get(ingest["mode"], "")
    share = ingest["bytes"] / ingest["max_bytes"] if ingest["max_bytes"] else 0.0
    facts = (
        ("mode", str(ingest["mode"])),
        ("batches waiting", words.count(ingest["depth"])),
        ("of its budget", f"{words.percent(share)} of {words.size(ingest['max_bytes'])}"),
        ("oldest", words.duration(ingest["oldest_age_ms"]) if ingest["depth"] else "none"),
    )
    late = status != "UP" and ingest["drainer_alive"]
    if late:
        return HealthPart("Spool", "bad", "The oldest batch has been waiting too long.", facts)
    if share > _FULL:
        return HealthPart(
            "Spool", "warn", f"Nearly full. When it is full, exporters are asked to wait. {text}", facts
        )
    return HealthPart("Spool", "ok", text, facts)


def _drainers(ingest: Mapping[str, Any]) -> HealthPart:
    alive, all_ = ingest["drainers_alive"], ingest["drainers"]
    facts = (("dead letters", words.count(ingest["dead_lettered"])),)
    if not ingest["drainer_alive"]:
        return HealthPart("Drainers", "bad", f"{alive} of {all_} are running; queued batches wait.", facts)
    if ingest.get("waiting_for"):
        return HealthPart("Drainers", "warn", f"They wait: {ingest['waiting_for']}.", facts)
    return HealthPart(
        "Drainers", "ok", f"{words.counted(all_, 'drainer is', 'drainers are')} storing batches.", facts
    )


def _visible(visible: UntilVisible) -> HealthPart:
    name = "Time until visible"
    if not visible.batches:
        return HealthPart(name, "ok", "Nothing stored since the start.")
    half, most = (_within(bound) for bound in (visible.half_s, visible.most_s))
    text = f"Half of the batches were visible {half} of their acknowledgement, 95 % {most}."
    slow = visible.most_s is None or visible.most_s > 10
    return HealthPart(name, "warn" if slow else "ok", text, (("batches", words.count(visible.batches)),))


def _within(bound_s: float | None) -> str:
    return "after more than a minute" if bound_s is None else f"within {words.duration(bound_s * 1000)}"


def _database(database: Mapping[str, Any], free_bytes: int | None) -> HealthPart:
    details = database["details"]
    pools = details.get("pools", {})
    used = sum(pool["size"] - pool["idle"] for pool in pools.values())
    facts = [("connections in use", f"{used} of {sum(pool['max'] for pool in pools.values())}")]
    embedded = details.get("embedded")
    facts.append(("server", "its own" if embedded else "yours"))
    if embedded and embedded.get("restarts"):
        facts.append(("restarts", words.count(embedded["restarts"])))
    if free_bytes is not None:
        facts.append(("free on its disk", words.size(free_bytes)))
    told_facts = tuple(facts)
    if database["status"] != "UP":
        why = details.get("error") or (embedded or {}).get("state") or "it does not answer"
        return HealthPart("Database", "bad", words.sentence(str(why)), told_facts)
    if details.get("busy"):
        return HealthPart("Database", "warn", "Busy: it did not answer in time.", told_facts)
    return HealthPart("Database", "ok", "It answers.", told_facts)


def _retention(details: Mapping[str, Any]) -> HealthPart:
    if not details["enabled"]:
        return HealthPart("Retention", "warn", "Switched off (SVC_RETENTION_ENABLED): nothing is deleted.")
    if not details.get("last_ended_at"):
        return HealthPart("Retention", "ok", "The first sweep is not finished yet.")
    facts = (
        ("sweeps", words.count(details["sweeps"])),
        ("rows deleted", words.count(details["rows"])),
        ("disk freed", words.size(details["bytes"])),
    )
    return HealthPart(
        "Retention", "ok", f"The last sweep took {words.duration(details['last_took_s'] * 1000)}.", facts
    )


def _agents(agents: Mapping[str, Any]) -> HealthPart:
    details = agents["details"]
    facts = (("runs in progress", words.count(details["in_hand"])), ("runner", str(details["runner"])))
    if agents["status"] != "UP":
        return HealthPart("Agents", "warn", f"Runs cannot start: {details['fault']}.", facts)
    if details.get("note"):
        return HealthPart("Agents", "ok", words.sentence(str(details["note"])), facts)
    return HealthPart("Agents", "ok", "Runs start when somebody asks for one.", facts)


def _actor(name: str, details: Mapping[str, Any]) -> ActorRow:
    state = str(details["state"])
    tone: Tone = "ok" if state == "running" else "warn" if state in ("waiting", "starting") else "bad"
    notes = [str(details[key]) for key in ("waiting_for", "last_error", "note") if details.get(key)]
    if details.get("rests_s"):
        notes.append(f"tried again after {words.duration(float(details['rests_s']) * 1000)}")
    does = WORK.get(name, "")
    if not does and name.startswith("judge-"):
        does = f"looks for {name.removeprefix('judge-').replace('-', ' ')}"
    elif not does and name.startswith(("drainer-", "decoder-")):
        does = "stores batches" if name.startswith("drainer-") else "reads and maps spans"
    return ActorRow(name, tone, state, does, int(details["crashes"]), "; ".join(notes))
