"""Hands a server that recovers the segments of its WAL, one at a time and as it asks for them.

Called by `svc.store.postgres.embedded.physical`. The segments lie compressed where the server's account may
not look, so the server leaves a request in a folder of its own, and finds the segment there, or a file that
says there is none. So no more of the WAL is unpacked at once than the server is reading.

Cancellation: who is cancelled leaves the server without answers; its command gives up by itself.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import trio

from protocol.operator import OperatorError
from svc.store.postgres.embedded import cluster as disk
from svc.store.postgres.embedded.cluster import Cluster, SystemAccount

#: As every cluster of ours is made.
SEGMENT_BYTES: Final = 16 * 1024 * 1024
_SEGMENT: Final = re.compile(r"[0-9A-F]{24}")
_REQUEST: Final = re.compile(r"want-([0-9A-F]{24})")
_POLL_S: Final = 0.01
#: The server's side looks every fiftieth of a second, and gives up after five minutes without an answer. A
#: status above 125 ends the recovery: without it, the rest of the WAL would be taken for missing.
_TRIES: Final = 15_000
_GIVEN_UP: Final = 200

#: A segment by its name, unpacked; None where there is none.
Segments = Callable[[str], Iterator[bytes] | None]


def segment_of(lsn: str, timeline: int) -> str:
    """The name of the segment that holds a place in the WAL, such as `0/2000028`."""
    high, low = (int(part, 16) for part in lsn.split("/"))
    return f"{timeline:08X}{high:08X}{low // SEGMENT_BYTES:08X}"


def segment_after(name: str) -> str:
    """The name of the next segment on the same timeline."""
    number = (int(name[8:16], 16) << 8 | int(name[16:], 16)) + 1
    return f"{name[:8]}{number >> 8:08X}{number & 0xFF:08X}"


def end_of(name: str) -> str:
    """The place in the WAL at which a segment ends."""
    number = (int(name[8:16], 16) << 8 | int(name[16:], 16)) + 1
    return f"{number >> 8:X}/{(number & 0xFF) * SEGMENT_BYTES:X}"


def is_segment(name: str) -> bool:
    """Whether a file of the WAL is a segment, and no history or label of a backup."""
    return _SEGMENT.fullmatch(name) is not None


async def fed(
    cluster: Cluster,
    segments: Segments,
    told: Callable[[str], None],
    recover: Callable[[str], Awaitable[object]],
) -> None:
    """Run `recover` with the `restore_command` of the server, whose requests are answered meanwhile.

    Raises what either raises, and `OSError`. A fault of the feed cancels the recovery.
    """
    folder = cluster.draft / "wal"
    disk.claim_folder(folder, 0o700, cluster.account)
    faults: list[Exception] = []

    async def guarded(work: Awaitable[object]) -> None:
        try:
            await work
        except (OperatorError, OSError) as fault:
            faults.append(fault)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(guarded, _feed(folder, cluster.account, segments, told))
        nursery.start_soon(guarded, recover(_command(folder)))
    if faults:
        raise faults[0]
    disk.discard(folder)


def _command(folder: Path) -> str:
    """What the server runs for each file that it wants: only segments are asked for."""
    quoted = shlex.quote(str(folder)).replace("%", "%%")
    return (
        f"case %f in *.*) exit 1;; esac; cd_=$PWD; cd {quoted} && : > want-%f && tries=0 &&"
        " until [ -e have-%f ]; do"
        " if [ -e none-%f ]; then rm none-%f; exit 1; fi;"
        f" tries=$((tries+1)); if [ $tries -gt {_TRIES} ]; then exit {_GIVEN_UP}; fi;"
        ' sleep 0.02; done; mv have-%f "$cd_/%p"'
    )


async def _feed(
    folder: Path, account: SystemAccount, segments: Segments, told: Callable[[str], None]
) -> None:
    fed_bytes = 0
    while True:
        for path in await trio.to_thread.run_sync(_requests, folder):
            fed_bytes += await trio.to_thread.run_sync(_answer, path, account, segments)
            if fed_bytes and fed_bytes % (16 * SEGMENT_BYTES) == 0:
                told(f"replayed: {fed_bytes / 2**20:,.0f} MiB of the WAL")
        await trio.sleep(_POLL_S)


def _requests(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _REQUEST.fullmatch(path.name)]


def _answer(request: Path, account: SystemAccount, segments: Segments) -> int:
    """Put the segment there, or that there is none. Returns its bytes."""
    name = request.name.removeprefix("want-")
    request.unlink()
    parts = segments(name)
    draft = request.parent / f"draft-{name}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    size = 0
    with open(fd, "wb") as file:
        for part in parts or ():
            size += file.write(part)
        if account.switch:
            os.fchown(fd, account.uid, account.gid)
    draft.rename(request.parent / f"{'none' if parts is None else 'have'}-{name}")
    return size
