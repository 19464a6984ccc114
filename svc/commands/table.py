"""The one table of commands. `svc/__main__.py` offers what stands here; nothing else knows all commands."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from importlib import import_module
from typing import Final, Protocol, cast

import attrs

from svc.config.table import Settings


class CommandFile(Protocol):
    """What the file of a command holds."""

    def add(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, settings: Settings) -> Awaitable[int | None]: ...


#: What commands are for, in the order of `--help`.
GROUPS: Final = (
    "run the service",
    "ask and look",
    "detect and tell",
    "let people and programs in",
    "keep, move and restore",
)
#: In a variable each, for the rows below.
_RUN, _ASK, _DETECT, _ADMIT, _KEEP = GROUPS


@attrs.frozen
class Command:
    """A row: the word, its sentence in `--help`, its file, the group that it stands in.

    `serves`: it logs what happens as the settings say; others print their result, and what the store logs
    beside them is of no interest. `own_secrets`: it works with the secrets of a local start. `looks_only`: it
    runs even under settings with which the service refuses to start.
    """

    name: str
    sentence: str
    file: str
    group: str = attrs.field(kw_only=True, validator=attrs.validators.in_(GROUPS))
    serves: bool = False
    own_secrets: bool = False
    looks_only: bool = False

    def entry(self) -> CommandFile:
        """The file, imported now."""
        return cast(CommandFile, import_module(f"svc.commands.{self.file}"))


COMMANDS: Final = (
    Command("serve", "run the service", "serve", serves=True, own_secrets=True, group=_RUN),
    Command(
        "restart",
        "have the service begin anew, without a refused request",
        "restart",
        looks_only=True,
        group=_RUN,
    ),
    Command("init", "write a folder to start from with Docker Compose", "init", looks_only=True, group=_RUN),
    Command("keys", "make, list, rotate and revoke API keys", "keys", group=_ADMIT),
    Command("retention", "show what is kept how long, or sweep now", "retention", group=_KEEP),
    Command(
        "secrets",
        "list what is sealed, or seal it anew with the present key",
        "secrets",
        own_secrets=True,
        group=_ADMIT,
    ),
    Command(
        "dead-letters", "list, show, replay and drop what could not be stored", "dead_letters", group=_KEEP
    ),
    Command("taxonomy", "import failure modes, chains, packs and intents", "taxonomy", group=_DETECT),
    Command(
        "detectors", "list what watches a project, or say what would have fired", "detectors", group=_DETECT
    ),
    Command(
        "ask",
        "ask about stored spans: counts, costs, durations, by any field, and what differs",
        "ask",
        group=_ASK,
    ),
    Command(
        "first-look", "say what is broken or missing before there is a baseline", "first_look", group=_ASK
    ),
    Command("findings", "list and show the causes behind firings", "findings", group=_DETECT),
    Command("cases", "list, show, resolve, mute and absorb cases", "cases", group=_DETECT),
    Command("reconcile", "compare a provider's bill with what was traced", "reconcile", group=_ASK),
    Command("reprice", "work stored costs out anew from the present prices", "rework", group=_KEEP),
    Command("remap", "read stored spans anew with the present mapping and prices", "rework", group=_KEEP),
    Command("users", "list accounts, give one a new password", "users", group=_ADMIT),
    Command(
        "backup", "back up beside the running service, verify, list and prune backups", "backup", group=_KEEP
    ),
    Command(
        "export", "stream spans, traces or sessions as JSON lines, OTLP or Parquet", "export", group=_KEEP
    ),
    Command(
        "import", "move in what Phoenix, MLflow, Langfuse or another instance has", "importing", group=_KEEP
    ),
    Command("erase", "erase a trace, a session or all data of a user", "erase", group=_KEEP),
    Command("disk", "show what takes the disk, and when the budget is reached", "disk", group=_KEEP),
    Command("size", "say how large a machine must be for your traffic", "size", looks_only=True, group=_RUN),
    Command("upgrade", "rehearse what this release will do to the database", "upgrade", group=_RUN),
    Command("restore", "bring a backup back into an empty database", "restore", group=_KEEP),
    Command("demo", "send sample agent traces and ask about them", "demo", group=_ASK),
    Command(
        "alerts",
        "list, add, test, mute and replay alerts, and say what rules would have told",
        "alerts",
        own_secrets=True,
        group=_DETECT,
    ),
    Command("agent-runs", "list, show, begin and cancel runs of agents", "agent_runs", group=_DETECT),
    Command(
        "sandbox-runner",
        "run agents for a service, perhaps on another machine",
        "sandbox_runner",
        serves=True,
        looks_only=True,
        group=_RUN,
    ),
    Command(
        "support-bundle",
        "write settings, health, sizes and plans into one archive, without payloads",
        "support_bundle",
        looks_only=True,
        group=_RUN,
    ),
    Command(
        "completion",
        "print a script by which bash, zsh or fish complete these commands",
        "completion",
        looks_only=True,
        group=_RUN,
    ),
    Command(
        "doctor",
        "say what is configured, what is reachable and what is wrong",
        "doctor",
        looks_only=True,
        group=_RUN,
    ),
)
