"""The parser of the command line: commands in groups, help where nothing is given, the word that was meant.

Called by `svc.__main__`. Imports no command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from svc.commands.table import COMMANDS, GROUPS, Command

#: How a missing verb or command is reported by argparse, whose text it is.
_MISSING: Final = (
    "the following arguments are required: command",
    "the following arguments are required: verb",
)
EXIT_WRONG: Final = 2
_TITLE: Final = (
    "Collects traces of LLM applications over OTLP, answers questions about them and tells you what broke."
)


class CommandParser(argparse.ArgumentParser):
    """Names what was meant, and shows its help where nothing was said."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        nearest = get_close_matches(str(value), choices, n=1)
        text = f"is unknown; did you mean {nearest[0]}?" if nearest else f"is not one of {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"{value!r} {text}")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and stop; without a command or a verb, what there is."""
        if message.startswith(_MISSING):
            self.print_help(sys.stderr)
            self.exit(EXIT_WRONG)
        super().error(message)


class _Version(argparse.Action):
    """Says which release this is, and whether it runs compiled; found out when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from protocol.compiled import state
        from protocol.release import release

        print(f"trace-svc {release()}, {state()[1]}")
        parser.exit()


def grouped() -> str:
    """The commands by their groups, a line each."""
    width = max(len(command.name) for command in COMMANDS)
    lines: list[str] = []
    for group in GROUPS:
        lines += ["", f"{group}:"]
        lines += [
            f"  {command.name.ljust(width)}  {command.sentence}"
            for command in COMMANDS
            if command.group == group
        ]
    return "\n".join([*lines, "", "Run `trace-svc COMMAND --help` for the options of a command."]).lstrip()


def command_parser(words: Sequence[str]) -> CommandParser:
    """Every command by its sentence; arguments only for the one that is given, whose file is imported."""
    parser = CommandParser(
        prog="trace-svc",
        usage="trace-svc [--version] COMMAND …",
        description=f"{_TITLE}\n\n{grouped()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    # Without a help of their own they are not listed once more below.
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="command", help=argparse.SUPPRESS, prog="trace-svc"
    )
    chosen = next((word for word in words if not word.startswith("-")), None)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            description=command.sentence[0].upper() + command.sentence[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.name == chosen:
            command.entry().add(sub)
    return parser


def environment(command: Command, arguments: argparse.Namespace) -> dict[str, str]:
    """The settings that the arguments of a command stand for."""
    stated = getattr(command.entry(), "environment", None)
    return {} if stated is None else stated(arguments)
