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
    "ask questions",
    "find out what broke",
    "manage access",
    "keep, move and restore data",
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
        "restart the service without refusing a request",
        "restart",
        looks_only=True,
        group=_RUN,
    ),
    Command("init", "write a Docker Compose setup", "init", looks_only=True, group=_RUN),
    Command("keys", "create, list, rotate and revoke API keys", "keys", group=_ADMIT),
    Command("retention", "show how long data is kept, or delete expired data now", "retention", group=_KEEP),
    Command(
        "secrets",
        "list encrypted values, or encrypt them with a new key",
        "secrets",
        own_secrets=True,
        group=_ADMIT,
    ),
    Command(
        "dead-letters",
        "list, show, replay and drop batches that could not be stored",
        "dead_letters",
        group=_KEEP,
    ),
    Command("taxonomy", "import failure modes, chains, packs and intents", "taxonomy", group=_DETECT),
    Command("detectors", "list detectors, or show what they would have found", "detectors", group=_DETECT),
    Command(
        "ask",
        "ask about spans and traces: counts, costs, durations by any field",
        "ask",
        group=_ASK,
    ),
    Command(
        "first-look", "show what is broken or missing, from the first traces on", "first_look", group=_ASK
    ),
    Command("findings", "list and show findings of detectors", "findings", group=_DETECT),
    Command("cases", "list, show, resolve, mute and absorb cases", "cases", group=_DETECT),
    Command("reconcile", "compare a provider's bill with what was traced", "reconcile", group=_ASK),
    Command("reprice", "recompute stored costs with the current prices", "rework", group=_KEEP),
    Command("remap", "reprocess stored spans with the current mapping and prices", "rework", group=_KEEP),
    Command("users", "list accounts, or reset a password", "users", group=_ADMIT),
    Command("backup", "back up the running service; verify, list and prune backups", "backup", group=_KEEP),
    Command(
        "export", "export spans, traces or sessions as JSON lines, OTLP or Parquet", "export", group=_KEEP
    ),
    Command(
        "import",
        "import from Phoenix, MLflow, Langfuse, coding agents or another instance",
        "importing",
        group=_KEEP,
    ),
    Command("erase", "erase a trace, a session or all data of a user", "erase", group=_KEEP),
    Command("disk", "show what uses the disk, and when the budget is reached", "disk", group=_KEEP),
    Command("size", "estimate the machine you need for your traffic", "size", looks_only=True, group=_RUN),
    Command("upgrade", "rehearse the database upgrade of this release", "upgrade", group=_RUN),
    Command("restore", "restore a backup into an empty database", "restore", group=_KEEP),
    Command("demo", "send sample traces of agents, and query them", "demo", group=_ASK),
    Command(
        "alerts",
        "manage alert rules and channels, and test rules on past data",
        "alerts",
        own_secrets=True,
        group=_DETECT,
    ),
    Command("agent-runs", "list, show, start and cancel agent runs", "agent_runs", group=_DETECT),
    Command(
        "sandbox-runner",
        "run agents for the service, possibly on another machine",
        "sandbox_runner",
        serves=True,
        looks_only=True,
        group=_RUN,
    ),
    Command(
        "support-bundle",
        "collect diagnostics in one archive, without payloads",
        "support_bundle",
        looks_only=True,
        group=_RUN,
    ),
    Command(
        "completion",
        "print a completion script for bash, zsh or fish",
        "completion",
        looks_only=True,
        group=_RUN,
    ),
    Command(
        "doctor",
        "check the configuration and everything the service needs",
        "doctor",
        looks_only=True,
        group=_RUN,
    ),
)
