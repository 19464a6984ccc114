"""`trace-svc serve`: run the service until it is told to stop; print where it is.

Secrets: on a first start two plaintext keys are shown, once, on purpose: on a terminal, else in a file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final

import trio

from protocol.operator import OperatorError
from protocol.paths import path_refusal
from svc.commands.own_service import other_folder
from svc.config.table import DEFAULT_BIND, Settings
from svc.config.text import settings_help

#: Where the keys of a first start lie, in `SVC_DATA_DIR`, when no terminal could show them.
FIRST_KEYS: Final = "first-keys"
#: Where the link of the owner's sign-up lies, likewise.
OWNER_LINK: Final = "owner-link"


def add(parser: argparse.ArgumentParser) -> None:
    """Three settings as arguments; the environment says everything else, and help lists it."""
    parser.description = "Run the service. Without any configuration it uses its embedded PostgreSQL."
    parser.add_argument("--host", help="address to listen on; overrides SVC_HTTP_BIND")
    parser.add_argument("--port", type=int, help="port to listen on; overrides SVC_HTTP_BIND")
    parser.add_argument("--data-dir", metavar="DIR", help="folder for all data; overrides SVC_DATA_DIR")
    parser.add_argument(
        "--check", action="store_true", help="check code and settings, report problems, and exit"
    )
    parser.epilog = "settings from the environment [default]:\n" + settings_help()


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings that the arguments stand for."""
    env: dict[str, str] = {}
    if arguments.host is not None or arguments.port is not None:
        host, _, port = os.environ.get("SVC_HTTP_BIND", DEFAULT_BIND).rpartition(":")
        env["SVC_HTTP_BIND"] = (
            f"{arguments.host or host}:{port if arguments.port is None else arguments.port}"
        )
    if arguments.data_dir is not None:
        env["SVC_DATA_DIR"] = arguments.data_dir
    return env


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; on SIGUSR2 begin anew under the same process id."""
    if arguments.check:
        from svc.serve import check

        check(settings)
        print("the settings are valid")
        return
    elsewhere = other_folder(settings)
    if elsewhere is not None:
        raise OperatorError(f"{elsewhere}. Stop it first, or choose another --port")
    # Where nobody listens for them they would end the process, and a successor first reads code for a second:
    # what is ignored stays ignored across `exec`. Without anything to read anew, a hang-up is the terminal's.
    reads_anew = settings.prices_file is not None or settings.does_tls
    for number in (signal.SIGUSR2, *([signal.SIGHUP] if reads_anew else [])):
        signal.signal(number, signal.SIG_IGN)
    # What is imported here takes time, and help need not wait for it.
    from svc.application.ingest_sizes import sizes_for
    from svc.ingest.launching import DecoderLauncher
    from svc.runtime.handover import Successor
    from svc.runtime.memory import give_back_soon

    if settings.small:
        give_back_soon()
    successor, launcher = Successor(), DecoderLauncher()
    # The first decoder loads its code while this process loads its own.
    async with launcher.ahead(min(1, sizes_for(settings).decoders)), trio.open_nursery() as nursery:
        from svc.serve import Ready, serve

        ready: Ready | None = await nursery.start(partial(serve, settings, launcher, successor=successor))
        if ready is None:
            return
        print(f"trace-svc is ready at {ready.http_url}", flush=True)
        if ready.grpc_port is not None:
            print(f"gRPC is ready on port {ready.grpc_port}", flush=True)
        if ready.owner_url is not None:
            print(_invited(settings.data_dir / OWNER_LINK, ready.owner_url), flush=True)
        if ready.first_keys is not None:
            keys = greeting(ready.http_url, *ready.first_keys)
            is_terminal = sys.stdout.isatty()
            print(keys if is_terminal else _key_file(settings.data_dir / FIRST_KEYS, keys), flush=True)
    if successor.awaited:
        successor.begin()


def _invited(path: Path, url: str) -> str:
    """The line that leads the operator to the owner's sign-up; without a terminal, to the file that does."""
    if sys.stdout.isatty():
        return f"nobody has signed up yet; this link makes you the owner (valid once, for an hour):\n  {url}"
    try:
        key_file = keep(path, url + "\n")
    except OSError as error:
        # A served database wants no folder, and the service is up.
        fault = path_refusal(path, error, "SVC_DATA_DIR")
        return f"nobody has signed up yet, and the link that makes you the owner cannot be written. {fault}"
    return f"nobody has signed up yet; the link in {key_file} makes you the owner (valid once, for an hour)"


def _key_file(path: Path, keys: str) -> str:
    try:
        key_file = keep(path, keys)
    except OSError as error:
        fault = path_refusal(path, error, "SVC_DATA_DIR")
        return (
            f"first start: two keys were created but cannot be written. {fault}."
            " Create others with `trace-svc keys`"
        )
    return f"first start: two new keys are in {key_file}; show them with `cat {key_file}`"


def keep(path: Path, text: str) -> Path:
    """Write what a terminal would have shown where only we can read it.

    Without a terminal it would be logged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def greeting(url: str, write: str, query: str) -> str:
    """The keys of a first start, and the lines that send and count a first trace."""
    return (
        "\nThis is the first start. Two new keys, shown only once:\n"
        f"  write  {write}\n"
        f"  query  {query}\n"
        "\nPaste these three lines into a shell to send a trace and count its spans:\n\n"
        f"  export SVC={url} WRITE_KEY={write} QUERY_KEY={query}\n"
        '  curl -sS "$SVC/v1/traces" -H "Authorization: Bearer $WRITE_KEY"'
        f" -H 'Content-Type: application/json' -d '{_FIRST_TRACE}'\n"
        '  sleep 1; curl -sS "$SVC/v1/query/count" -H "Authorization: Bearer $QUERY_KEY"'
        """ -d '{"dataset": "spans"}'\n"""
    )


#: One chat span, with the shell filling in a random id and the time.
_FIRST_TRACE: Final = (
    '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"hello"}}]},'
    '"scopeSpans":[{"spans":[{"traceId":"\'$(od -An -N16 -tx1 /dev/urandom | tr -d " \\n")\'",'
    '"spanId":"00f067aa0ba902b7","name":"chat gpt-4o","kind":3,'
    '"startTimeUnixNano":"\'$(date +%s)\'000000000","endTimeUnixNano":"\'$(date +%s)\'900000000",'
    '"attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},'
    '{"key":"gen_ai.request.model","value":{"stringValue":"gpt-4o"}},'
    '{"key":"gen_ai.usage.input_tokens","value":{"intValue":"120"}},'
    '{"key":"gen_ai.usage.output_tokens","value":{"intValue":"30"}}]}]}]}]}'
)
