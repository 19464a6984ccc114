"""`trace-svc restart`: have the running service begin anew, with the code that is installed now.

It asks by SIGUSR2. The service keeps its process id and its listening sockets, answers what is inside, and
who connects meanwhile waits in the kernel: nothing is refused. Never starts a service that does not run.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import trio

from protocol.operator import OperatorError
from protocol.release import release
from svc.commands.neighbour import environment_of, serving_process, words_of
from svc.commands.own_service import asking, other_folder, own_url
from svc.config.table import Settings
from svc.domain.quantities import duration
from svc.runtime.handover import rehearse

#: A drain of 25 s, then the start, which may wait for its database.
TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.2
#: While nobody accepts, a question waits in the kernel.
_ANSWER_S: Final = 30.0


def add(parser: argparse.ArgumentParser) -> None:
    """How long to wait."""
    parser.description = (
        "Restart the running service with the code that is installed now, for example after an "
        "upgrade. Its listening sockets stay open: requests wait for the new process and none is "
        "refused. Settings from the service's environment stay as they are."
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help=f"how long to wait until it is ready [{round(TIMEOUT_S)}]",
    )


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Ask, wait until the new process answers, and say how long that took. Raises `OperatorError`."""
    elsewhere = other_folder(settings)
    if elsewhere is not None:
        raise OperatorError(elsewhere)
    process = _process(settings)
    await _rehearse(process)
    process_id = int(process.name)
    began_s = trio.current_time()
    async with asking(own_url(settings), settings, timeout_s=_ANSWER_S) as client:
        earlier_start = await _started_at(client, settings)
        if earlier_start is None:
            raise OperatorError(f"the service at {own_url(settings)} does not answer; it was not restarted")
        try:
            os.kill(process_id, signal.SIGUSR2)
        except PermissionError:
            raise OperatorError(
                f"process {process_id} belongs to another account; run this command as that account"
            ) from None
        print(f"process {process_id} loads the code of {release()}, finishes open requests and restarts")
        with trio.move_on_after(arguments.timeout):
            await _begun_after(earlier_start, process, client, settings)
            print(f"ready again after {duration((trio.current_time() - began_s) * 1000)}")
            return
    waited = duration(arguments.timeout * 1000)
    raise OperatorError(
        f"it did not begin anew within {waited}; its log says why it stays, or waits for what"
    )


async def _begun_after(
    earlier_start: Any, process: Path, client: httpx2.AsyncClient, settings: Settings
) -> None:
    while True:
        await trio.sleep(_POLL_S)
        if _has_ended(process):
            raise OperatorError(
                f"process {process.name} ended and did not restart; its log says why. Start it with"
                " `trace-svc serve`"
            )
        if await _started_at(client, settings) not in (earlier_start, None):
            return


def _has_ended(process: Path) -> bool:
    """Whether a process is gone, or lies there until whoever started it looks."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def _process(settings: Settings) -> Path:
    url = own_url(settings)
    port = urlsplit(url).port
    process = None if port is None else serving_process(port)
    if process is None:
        raise OperatorError(
            f"no service at {url} is to be seen from here: `trace-svc serve` starts one; another account's"
            " process is hidden from this account"
        )
    return process


async def _rehearse(process: Path) -> None:
    """Raise `OperatorError` where the command of the service would not start now."""
    cwd = os.readlink(process / "cwd")
    fault = await rehearse(words_of(process), env=environment_of(process), cwd=cwd)
    if fault is not None:
        raise OperatorError(f"the service was not restarted, because it would not start: {fault}")


async def _started_at(client: httpx2.AsyncClient, settings: Settings) -> Any:
    """When the loop of the service began, as its health says; None while nobody answers."""
    try:
        report = await client.get(f"{settings.base_path}/actuator/health")
        return report.json()["components"]["loop"]["details"]["started_at"]
    except (httpx2.HTTPError, ValueError, KeyError):
        return None
