"""The command line: `trace-svc serve | keys | doctor | …`.

Owns reading the arguments and the environment, the order of what is checked before a command runs, and how it
ends. The commands are rows of `svc.commands.table`; only the one that is given is imported.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from protocol.operator import OperatorError
from svc.commands.table import COMMANDS, Command
from svc.config.checks import boot_refusals, boot_warnings
from svc.config.table import Settings, absolute_paths, read_settings
from svc.runtime.garbage import collect_less

log = logging.getLogger("trace-svc")

EXIT_FAILED: Final = 1

_TITLE: Final = "Takes traces of LLM applications over OTLP and answers questions about them."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    collect_less()
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser(given).parse_args(given)
    command = next(command for command in COMMANDS if command.name == arguments.command)
    try:
        settings = read_settings(os.environ)
        # Processes of ours are started in another folder and read the same variables.
        os.environ.update(absolute_paths(settings, os.environ))
        _set_up(command, settings)
        refusals = [] if command.looks_only else boot_refusals(settings)
        if refusals:
            return _fail(*refusals)
        if command.own_secrets:
            settings = _with_own_secrets(settings)
        if command.serves:
            for warning in boot_warnings(settings, os.environ):
                log.warning(warning)
    except (OperatorError, OSError) as error:
        return _fail(_sentence(error))
    return _run(command, arguments, settings)


class _Version(argparse.Action):
    """Says which release this is, and whether it runs compiled; found out when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        from protocol.compiled import state

        print(f"trace-svc {version('trace-svc')}, {state()[1]}")
        parser.exit()


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Every command by its sentence; arguments only for the one that is given, whose file is imported."""
    parser = argparse.ArgumentParser(prog="trace-svc", description=_TITLE)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    chosen = next((word for word in given if not word.startswith("-")), None)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.sentence,
            description=command.sentence[0].upper() + command.sentence[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.name == chosen:
            command.entry().add(sub)
    return parser


def _set_up(command: Command, settings: Settings) -> None:
    from svc.runtime.logging import set_up

    set_up(settings.log_level if command.serves else "warning")


def _with_own_secrets(settings: Settings) -> Settings:
    from svc.secrets.own import with_own_secrets
    from svc.wiring.open_store import claim_private_folder

    return with_own_secrets(settings, os.environ, claim=claim_private_folder)


def _run(command: Command, arguments: argparse.Namespace, settings: Settings) -> int:
    import trio

    from protocol.storage import Outage

    ended: int | None = None
    try:
        ended = trio.run(partial(_awaited, command, arguments, settings))
    except* (OperatorError, Outage, OSError) as group:
        ended = _fail(*(_sentence(error) for error in _leaves(group)))
    except* KeyboardInterrupt:
        ended = _fail("interrupted")
    return ended or 0


async def _awaited(command: Command, arguments: argparse.Namespace, settings: Settings) -> int | None:
    """Run it. One that does not serve is ended by a signal as by Ctrl-C: it clears away what it has made."""
    import trio

    if command.serves:
        return await command.entry().run(arguments, settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_interrupted)
        ended = await command.entry().run(arguments, settings)
        nursery.cancel_scope.cancel()
    return ended


async def _interrupted() -> None:
    """Wait for a signal to end, but for one that whoever started us wants ignored, as `nohup` does."""
    import trio

    ends = (signal.SIGTERM, signal.SIGHUP)
    heard = [one for one in ends if signal.getsignal(one) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*heard) as signals:
        async for _ in signals:
            raise KeyboardInterrupt


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror or error} ({error.filename})"
    return str(error)


def _fail(*sentences: str) -> int:
    for sentence in sentences:
        print(f"trace-svc: {sentence}", file=sys.stderr)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
