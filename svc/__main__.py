"""The command line: `trace-svc serve | keys | doctor | …`.

Owns reading the arguments and the environment, the order of what is checked before a command runs, and how it
ends. The commands are rows of `svc.commands.table`; only the one that is given is imported.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from protocol.operator import OperatorError
from protocol.paths import CURRENT_FOLDER_GONE, path_refusal
from svc.commands.command_line import command_parser, environment
from svc.commands.table import COMMANDS, Command
from svc.config.checks import boot_refusals, boot_warnings, name_warnings
from svc.config.table import Settings, absolute_paths, naming_variable, read_settings
from svc.runtime.files import open_standard_streams
from svc.runtime.garbage import collect_less

log = logging.getLogger("trace-svc")

EXIT_FAILED: Final = 1
#: What shells say of a command that wrote to a pipe which nobody reads any more.
EXIT_UNREAD: Final = 128 + signal.SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    open_standard_streams()
    collect_less()
    try:
        status = _main(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as ended:
        # The parser's way to end: help, or a word that it does not know.
        status = ended.code if isinstance(ended.code, int) else EXIT_FAILED
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = EXIT_UNREAD
    if status == EXIT_UNREAD:
        # What is still to be written goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _is_unread() -> bool:
    """Whether nobody reads what is printed any more, as behind `| head`."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _main(words: Sequence[str]) -> int:
    parser = command_parser(words)
    if not words:
        parser.print_help()
        return 0
    arguments = parser.parse_args(words)
    command = next(command for command in COMMANDS if command.name == arguments.command)
    settings = None
    try:
        os.environ.update(environment(command, arguments))
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
            # A runner has neither the secrets of the service nor anything else that these are about.
            is_service = command.own_secrets
            warnings = boot_warnings(settings, os.environ) if is_service else name_warnings(os.environ)
            for warning in warnings:
                log.warning(warning)
    except (OperatorError, OSError) as error:
        return _fail(_sentence(error, settings))
    return _run(command, arguments, settings)


def _set_up(command: Command, settings: Settings) -> None:
    from svc.runtime.logging import set_up

    set_up(settings.log_level if command.serves else "warning", settings.log_format)


def _with_own_secrets(settings: Settings) -> Settings:
    from svc.secrets.own import with_own_secrets
    from svc.store.postgres.embedded.cluster import claim_private_folder

    return with_own_secrets(settings, os.environ, claim=claim_private_folder)


def _run(command: Command, arguments: argparse.Namespace, settings: Settings) -> int:
    import trio

    from protocol.storage import Outage

    code: int | None = None
    try:
        code = trio.run(partial(_awaited, command, arguments, settings))
    except* (OperatorError, Outage, OSError) as group:
        errors = _leaves(group)
        unread = any(isinstance(error, BrokenPipeError) for error in errors) and _is_unread()
        code = EXIT_UNREAD if unread else _fail(*(_sentence(error, settings) for error in errors))
    except* KeyboardInterrupt:
        code = _fail("interrupted")
    return code or 0


async def _awaited(command: Command, arguments: argparse.Namespace, settings: Settings) -> int | None:
    """Run it. One that does not serve is ended by a signal as by Ctrl-C: it clears away what it has made."""
    import trio

    if command.serves:
        return await command.entry().run(arguments, settings)
    # The demo refuses then.
    if settings.embedded and not command.looks_only and command.name != "demo":
        from svc.commands.own_service import other_folder

        elsewhere = other_folder(settings)
        if elsewhere is not None:
            print(f"note: {elsewhere}, and this command uses that", file=sys.stderr)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_interrupted)
        code = await command.entry().run(arguments, settings)
        nursery.cancel_scope.cancel()
    return code


async def _interrupted() -> None:
    """Wait for a signal to end, but for one that whoever started us wants ignored, as `nohup` does."""
    import trio

    ends = (signal.SIGTERM, signal.SIGHUP)
    signals_ = [signal_ for signal_ in ends if signal.getsignal(signal_) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*signals_) as signals:
        async for _ in signals:
            raise KeyboardInterrupt


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def _sentence(error: BaseException, settings: Settings | None) -> str:
    """What is wrong; of a path also the setting that names it, or the folder above it."""
    if not isinstance(error, OSError):
        return str(error)
    if not isinstance(error.filename, (str, bytes)):
        return CURRENT_FOLDER_GONE if isinstance(error, FileNotFoundError) else str(error)
    path = Path(os.fsdecode(error.filename))
    return path_refusal(path, error, None if settings is None else naming_variable(path, settings))


def _fail(*sentences: str) -> int:
    from svc.commands.terminal import printable

    for sentence in sentences:
        # What is wrong may quote a name; a sentence of several lines stays one.
        lines = f"trace-svc: {sentence}".split("\n")
        print("\n".join(map(printable, lines)), file=sys.stderr)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
