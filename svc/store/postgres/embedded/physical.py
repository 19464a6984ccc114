"""Copies of the whole cluster, file by file: `pg_basebackup` beside the running server, and the way back.

Called by `svc.backup.physical`, which owns where the bytes lie. A copy is one tar with the log that it needs;
one of what has changed since an earlier copy is put over it by `pg_combinebackup`. The way back goes through
`18/init`, which is renamed when it is complete and on disk; until then a file says that a restore is under
way, over which no service starts.

Secrets: the password passes by a file of the account's own, and over the standard input of a server without
clients; never as an argument.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Protocol, TypeVar

import attrs
import msgspec
import trio

from svc.domain.quantities import size
from svc.store.postgres.embedded import cluster as disk
from svc.store.postgres.embedded.cluster import Cluster, EmbeddedServerError
from svc.store.postgres.embedded.locks import opened, try_lock, wait_lock
from svc.store.postgres.embedded.server import EmbeddedServer
from svc.store.postgres.embedded.wal_feed import Segments, fed, segment_of

T = TypeVar("T")

#: A copy that takes longer is given up.
COPY_TIMEOUT_S: Final = 6 * 3600.0
#: What laying a copy takes beside the files of all its parts.
ROOM: Final = 1.3
#: What a copy says of its own files: the next one is of what differs.
LISTING: Final = "backup_manifest"
_LISTING_BYTES: Final = 1024 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_START_TIMEOUT_S: Final = 30.0
_END_TIMEOUT_S: Final = 30.0
_MISSING_SUMMARIES: Final = "WAL summaries are required"


class NoSummaries(EmbeddedServerError):
    """The server cannot tell any more what has changed since that copy."""


class CopyTarget(Protocol):
    """What takes the bytes of a copy."""

    def write(self, data: bytes) -> None: ...


class _Copied:
    """Standard output of the program, read by who looks for the listing and written down on the way."""

    def __init__(self, stream: IO[bytes], target: CopyTarget) -> None:
        self._stream, self._target = stream, target

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._target.write(data)
        return data


class _Parts:
    """A file of the parts that an iterator gives."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._left = parts, b""

    def read(self, size: int) -> bytes:
        while len(self._left) < size and (part := next(self._parts, b"")):
            self._left += part
        data, self._left = self._left[:size], self._left[size:]
        return data


async def copy_cluster(server: EmbeddedServer, target: CopyTarget, earlier: bytes | None) -> bytes:
    """Write the cluster to `target` as a tar; with the listing of an `earlier` copy what has changed since.

    Returns the listing of this one. Raises `EmbeddedServerError`, `NoSummaries`, and what the target raises.
    """
    cluster, served = server.cluster, server.served
    words = [cluster.program("pg_basebackup"), "--pgdata=-", "--format=tar", "--wal-method=fetch"]
    words += ["--checkpoint=fast", "--no-password", f"--host={served.socket_dir}", f"--port={served.port}"]
    words += [f"--username={served.user}"]
    listing = cluster.home / "earlier-copy"
    with disk.passfile(cluster, served.password) as password_env, tempfile.TemporaryFile() as complaints:
        if earlier is not None:
            disk.write_file(listing, earlier.decode(), 0o600, cluster.account)
            words.append(f"--incremental={listing}")
        try:
            return await _copied(cluster, words, password_env, complaints, target)
        finally:
            listing.unlink(missing_ok=True)


async def _copied(
    cluster: Cluster,
    words: list[str],
    password_env: dict[str, str],
    complaints: IO[bytes],
    target: CopyTarget,
) -> bytes:
    options = cluster.account.popen_options()
    options["env"] = {**options["env"], **disk.passwd_entry(cluster), **password_env}
    process = await trio.to_thread.run_sync(_started, words, options, complaints)
    try:
        with trio.fail_after(COPY_TIMEOUT_S):
            assert process.stdout is not None
            reader = partial(_listing, _Copied(process.stdout, target))
            manifest = await trio.to_thread.run_sync(reader, abandon_on_cancel=True)
            code = await trio.to_thread.run_sync(
                partial(process.wait, _END_TIMEOUT_S), abandon_on_cancel=True
            )
    except trio.TooSlowError as error:
        raise EmbeddedServerError(
            f"the cluster was not copied within {COPY_TIMEOUT_S / 3600:.0f} hours"
        ) from error
    finally:
        process.kill()
        with process:
            pass
    if code != 0 or manifest is None:
        complaints.seek(0)
        errors = complaints.read(64 * 1024).decode(errors="replace")
        complaint = " / ".join(line for line in errors.splitlines()[-4:] if line) or f"exit status {code}"
        fault = NoSummaries if _MISSING_SUMMARIES in errors else EmbeddedServerError
        raise fault(f"the cluster could not be copied: {complaint}")
    return manifest


def _started(words: list[str], options: dict[str, Any], complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=complaints, **options)  # noqa: S603


def _listing(copied: _Copied) -> bytes | None:
    """Read a copy to its end. Returns its listing, None of one that was cut off."""
    manifest = None
    with suppress(tarfile.TarError, EOFError):
        stream: Any = copied
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK_BYTES) as tar:
            for member in tar:
                if member.name == LISTING and member.size <= _LISTING_BYTES:
                    file = tar.extractfile(member)
                    manifest = None if file is None else file.read()
    while copied.read(_CHUNK_BYTES):
        pass
    return manifest


def wal_start(listing: bytes) -> str:
    """The first segment of the WAL that is replayed over a copy with this listing."""
    fields = msgspec.json.decode(listing, type=_Listing)
    return min(segment_of(extent.start, extent.timeline) for extent in fields.ranges)


class _WalRange(msgspec.Struct, rename={"timeline": "Timeline", "start": "Start-LSN"}):
    timeline: int
    start: str


class _Listing(msgspec.Struct, rename={"ranges": "WAL-Ranges"}):
    ranges: list[_WalRange]


@asynccontextmanager
async def emptied_home(data_dir: Path) -> AsyncIterator[tuple[Cluster, int]]:
    """The place for a cluster in a data folder that has none, held against everybody else.

    Raises `EmbeddedServerError`.
    """
    home = disk.open_home(data_dir)
    with opened(home / "server.lock") as use, opened(home / "start.lock") as start:
        if not try_lock(use, fcntl.LOCK_EX):
            raise EmbeddedServerError(f"a service is running on {data_dir}: stop it first")
        await wait_lock(start, fcntl.LOCK_EX, "another process that is starting the server", _START_TIMEOUT_S)
        cluster = await disk.prepare(home)
        majors = disk.majors_in(home)
        if majors:
            raise EmbeddedServerError(
                f"{home / majors[0]} holds a database already: a restore wants an empty data folder; move it"
                " away, or set SVC_DATA_DIR to another"
            )
        yield cluster, start


@attrs.frozen
class Replay:
    """What is replayed over a copy: the WAL that was written since, up to a moment, or to its end."""

    segments: Segments
    until: datetime | None
    told: Callable[[str], None]


async def lay_cluster(
    cluster: Cluster,
    start_lock: int,
    parts: Sequence[Callable[[], Iterator[bytes]]],
    size_bytes: int,
    replay: Replay | None = None,
) -> None:
    """Make the cluster of a copy: a whole one, then what changed since, one after the other, then its WAL.

    Its password becomes that of this folder. Raises `EmbeddedServerError`, and what the parts raise.
    """
    free = shutil.disk_usage(cluster.home).free
    if free < size_bytes * ROOM:
        raise EmbeddedServerError(
            f"{cluster.home} has {size(free)} free, and the restore wants"
            f" {size(size_bytes * ROOM)}: make room, or set SVC_DATA_DIR to a folder of another disk"
        )
    disk.write_file(disk.restoring(cluster), "", 0o600)
    disk.discard(cluster.draft)
    disk.claim_folder(cluster.draft, 0o700, cluster.account)
    places = [cluster.draft / str(number) for number in range(len(parts))]
    for part, folder in zip(parts, places, strict=True):
        await trio.to_thread.run_sync(_unpack, part(), folder, cluster)
    run = partial(
        disk.command,
        cluster.account,
        pass_fds=(start_lock,),
        more=disk.passwd_entry(cluster),
        timeout_s=COPY_TIMEOUT_S,
    )
    data = cluster.draft / "data"
    if len(places) == 1:
        places[0].rename(data)
    else:
        # The parts are thrown away after: what is equal need not be copied.
        combine = [cluster.program("pg_combinebackup"), "--link", "--no-sync", f"--output={data}"]
        await run([*combine, *map(str, places)])
    (data / LISTING).unlink(missing_ok=True)
    await _recovered(cluster, data, run, replay)
    await run([cluster.program("initdb"), "--sync-only", f"--pgdata={data}"])
    # From here on it is another line of history than the one that was copied.
    disk.write_file(_branch(cluster), secrets.token_hex(16), 0o600)
    data.rename(cluster.pgdata)
    disk.sync_folder(cluster.version_dir)
    disk.restoring(cluster).unlink()
    disk.sync_folder(cluster.home)
    disk.discard(cluster.draft)


async def _recovered(
    cluster: Cluster, data: Path, run: Callable[..., Awaitable[str]], replay: Replay | None
) -> None:
    """Have the server replay the log of the copy, then what was written since, and change the password."""
    password = disk.password_of(cluster)
    # It quotes no statement whatever happens.
    single = [cluster.program("postgres"), "--single", "-F", "-D", str(data), "-c", "exit_on_error=on"]
    single += ["-c", "log_min_error_statement=panic"]

    async def recover(*words: str) -> None:
        await run([*single, *words, "postgres"], text=f"ALTER ROLE {disk.USER} PASSWORD '{password}'\n")

    if replay is None:
        await recover()
        return
    disk.write_file(data / "recovery.signal", "", 0o600, cluster.account)
    # Nobody asks meanwhile, so it needs no room for as many locks as the server had.
    words = ["-c", "hot_standby=off", "-c", "recovery_target_action=promote"]
    if replay.until is not None:
        words += ["-c", f"recovery_target_time={replay.until.isoformat(' ')}"]
    await fed(
        cluster,
        replay.segments,
        replay.told,
        lambda restore_command: recover(*words, "-c", f"restore_command={restore_command}"),
    )


def branch_of(cluster: Cluster) -> str:
    """What tells a restored cluster from the one that it was, and from others restored from the same copy.

    All of them have the same identity, and places in their logs that look alike.
    """
    try:
        return _branch(cluster).read_text()
    except FileNotFoundError:
        return ""


def _branch(cluster: Cluster) -> Path:
    return cluster.home / "branch"


def _unpack(parts: Iterator[bytes], folder: Path, cluster: Cluster) -> None:
    folder.mkdir(mode=0o700)
    stream: Any = _Parts(parts)
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK_BYTES) as tar:
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise EmbeddedServerError(f"the copy of the cluster cannot be unpacked: {error}") from error
    while stream.read(_CHUNK_BYTES):
        pass
    for path, _folders, files in os.walk(folder):
        for name in (path, *(os.path.join(path, file) for file in files)):
            os.chmod(name, 0o700 if name == path else 0o600, follow_symlinks=True)
            if cluster.account.switch:
                os.chown(name, cluster.account.uid, cluster.account.gid, follow_symlinks=False)
