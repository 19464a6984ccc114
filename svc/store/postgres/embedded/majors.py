"""A cluster of an older major of PostgreSQL, brought over into one of this release's.

Called by `svc.store.postgres.embedded.server` before the cluster is made or started, with every lock on it
held, and by `trace-svc upgrade --finish`. `pg_upgrade` copies into `18/init`, which is renamed when it is
complete and on disk; the older folder stays as it was until it is finished with. Killed midway, the next
start begins anew. Never touches the older cluster but for the recovery that a kill left it in need of.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import trio

from svc.domain import quantities
from svc.store.postgres.embedded.cluster import (
    MAJOR,
    USER,
    Cluster,
    EmbeddedServerError,
    claim_folder,
    command,
    copy_install,
    discard,
    majors_in,
    make_empty,
    passfile,
    passwd_entry,
    password_of,
    readable,
    sync_folder,
    wheel_install,
)

#: For the copy of a large database.
UPGRADE_TIMEOUT_S: Final = 6 * 3600.0
#: What the copy takes beside the size of the old cluster.
_ROOM: Final = 1.1
#: Each day is some tables with their indexes, and a dump locks all of them.
_LOCKS: Final = "-c max_locks_per_transaction=512"

log = structlog.get_logger(__name__)


def older_data(home: Path) -> Path | None:
    """The data of an older major that is to be brought over. Raises `EmbeddedServerError` for a newer one."""
    majors = majors_in(home)
    if majors and int(majors[0]) > int(MAJOR):
        raise EmbeddedServerError(
            f"{home / majors[0]} is of PostgreSQL {majors[0]}, and this release brings {MAJOR}: start"
            " the newer release; to go back to what was before it, move that folder away"
        )
    if not majors or majors[0] == MAJOR:
        return None
    return home / majors[0] / "data"


def refuse_older(data_dir: Path) -> None:
    """Raise `EmbeddedServerError` where a start would bring data over. Changes nothing."""
    if (old := older_data(data_dir.resolve() / "postgres")) is not None:
        raise EmbeddedServerError(
            f"the database in {old} is for PostgreSQL {old.parent.name}. This release upgrades it to {MAJOR}"
            " when it starts; until then, use the earlier release. Nothing was changed"
        )


async def bring_over(cluster: Cluster, old: Path, start_lock: int, alive: int) -> None:
    """Make this major's cluster of the older one. Raises `EmbeddedServerError`; the older one stays as it is.

    The caller holds the locks: no server runs on either. The programs and the servers that they start inherit
    `start_lock`, and `alive`, a pipe that nobody writes to. Killed, we leave programs that end by themselves.
    """
    major = old.parent.name
    install = await trio.to_thread.run_sync(_programs, cluster, major)
    size = await trio.to_thread.run_sync(folder_bytes, old)
    free = shutil.disk_usage(cluster.home).free
    if free < size * _ROOM:
        raise EmbeddedServerError(
            f"bringing the database from PostgreSQL {major} to {MAJOR} takes {quantities.size(size * _ROOM)},"
            f" and {cluster.home} has {quantities.size(free)} free: make room; nothing is changed"
        )
    log.warning("upgrading the database to a new PostgreSQL", major=major, to=MAJOR, mib=round(size / 2**20))
    run = partial(
        command,
        cluster.account,
        pass_fds=(start_lock, alive),
        more=passwd_entry(cluster),
        timeout_s=UPGRADE_TIMEOUT_S,
    )
    control = await run([str(install / "bin" / "pg_controldata"), "-D", str(old)])
    if not re.search(r"^Database cluster state: +shut down$", control, re.M):
        # It was killed: the programs of its own major replay its log and stop in good order.
        single = [str(install / "bin" / "postgres"), "--single", "-D", str(old), "-c", "exit_on_error=on"]
        await run([*single, "template1"])
    password = password_of(cluster)
    discard(cluster.draft)
    claim_folder(cluster.draft, 0o700, cluster.account)
    data = cluster.draft / "data"
    sums = re.search(r"^Data page checksum version: +0$", control, re.M) is None
    await make_empty(cluster, data, password, start_lock, checksums=sums)
    words = [cluster.program("pg_upgrade"), f"--old-bindir={install / 'bin'}", f"--old-datadir={old}"]
    words += [f"--new-bindir={cluster.install / 'bin'}", f"--new-datadir={data}", f"--username={USER}"]
    words += [f"--socketdir={cluster.socket_dir}", f"--old-options={_LOCKS}", f"--new-options={_LOCKS}"]
    with passfile(cluster, password) as password_env:
        env, output = {**passwd_entry(cluster), **password_env}, cluster.log.with_name("upgrade.log")
        run = partial(run, more=env, cwd=cluster.draft, output=output)
        try:
            await run([*words, "--check"])
        except EmbeddedServerError as error:
            raise EmbeddedServerError(f"{_elsewhere(old)}; {error}") from error
        await run([*words, "--copy", "--no-sync"])
    await run([cluster.program("initdb"), "--sync-only", f"--pgdata={data}"])
    data.rename(cluster.pgdata)
    sync_folder(cluster.version_dir)
    discard(cluster.draft)
    log.warning("upgraded the database to a new PostgreSQL", major=major, to=MAJOR, kept=str(old.parent))


def discard_older(home: Path) -> list[tuple[str, int]]:
    """Remove the clusters of older majors. Returns each with its bytes. The present one must have started."""
    discarded = []
    for major in majors_in(home):
        if int(major) < int(MAJOR):
            discarded.append((major, folder_bytes(home / major)))
            shutil.rmtree(home / major)
    if discarded:
        sync_folder(home)
    return discarded


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take."""
    total = 0
    for path, _folders, files in os.walk(folder):
        for name in files:
            total += (Path(path) / name).lstat().st_blocks * 512
    return total


def _programs(cluster: Cluster, major: str) -> Path:
    """The programs of an older major, where the account can run them. Raises `EmbeddedServerError`."""
    wheel = wheel_install()
    for install in wheel.parent.glob("pginstall*"):
        if install != wheel and _major_of(install) == major:
            if cluster.account.switch and not readable(install, cluster.account):
                return copy_install(install, cluster.home)
            return install
    raise EmbeddedServerError(_elsewhere(cluster.home / major / "data"))


def _major_of(install: Path) -> str | None:
    """Of which major programs are, by the first line of what `initdb` reads; not run, for whoever we are."""
    try:
        with (install / "share" / "postgresql" / "postgres.bki").open() as file:
            match = re.match(r"# PostgreSQL (\d+)", file.readline())
    except OSError:
        return None
    return match[1] if match and (install / "bin" / "pg_upgrade").exists() else None


def _elsewhere(old: Path) -> str:
    major, data_dir = old.parent.name, shlex.quote(str(old.parents[2]))
    return (
        f"the database in {shlex.quote(str(old))} is of PostgreSQL {major}, and this installation cannot"
        f" bring it to {MAJOR} by itself: back it up with the release that made it (`trace-svc backup DIR`),"
        f" move {data_dir} away, and restore with this one (`trace-svc restore DIR`); nothing"
        " is changed"
    )
