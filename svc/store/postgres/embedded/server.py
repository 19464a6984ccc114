"""The embedded PostgreSQL server: starts it, adopts it, watches it, stops it with its last user.

Called by the wiring (`serve`, `keys`, `doctor`) when no server of the operator's own is configured. Never
speaks SQL, never listens on the network, never uses the launcher of the wheel it takes the programs from.

Three lock files in `data_dir/postgres` carry the truth; the kernel frees each when its holder dies, kill -9
included, and none of them depends on process numbers:

- `server.lock`: everyone who uses the server holds it shared. Who can take it alone while leaving was the
  last, and stops the server.
- `start.lock`: held alone while the cluster is made or the server is started or adopted.
- `postmaster.lock`: opened and locked by the starter and inherited by the postmaster and all its children.
  It is free exactly when no process of the server is left, orphaned backends included, even when the server
  lives in another container on the same folder.

Ordering: `server.lock` before `start.lock`; a leaver takes no other lock.
Cancellation: leaving while cancelled still stops the server, shielded for at most `STOP_TIMEOUT_S`.
Secrets: the password is in `Served` and its file alone: in no argument, environment, log line or error.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import attrs
import structlog
import trio

from protocol.paths import path_refusal
from svc.store.postgres.embedded import cluster as disk
from svc.store.postgres.embedded import majors
from svc.store.postgres.embedded.cluster import Cluster, EmbeddedServerError
from svc.store.postgres.embedded.liveness import (
    LONGEST_STANDSTILL_S,
    LOOK_S,
    STANDSTILL_S,
    Standstill,
    end_by_force,
    refusal,
)
from svc.store.postgres.embedded.locks import opened, try_lock, wait_lock
from svc.store.postgres.embedded.postmaster import (
    Postmaster,
    clear_stale_pid_file,
    end_left,
    read_postmaster,
)
from svc.store.postgres.embedded.server_log import cap_log, log_tail

START_TIMEOUT_S = 300.0  # replaying `max_wal_size` after a crash, with room
UNSEEN_TIMEOUT_S = 15.0
FAST_STOP_S = 20.0
IMMEDIATE_STOP_S = 10.0
STOP_TIMEOUT_S = FAST_STOP_S + IMMEDIATE_STOP_S + 5.0
REAP_TIMEOUT_S = 5.0
POLL_S = 0.02
WATCH_S = 0.25
STEADY_S = 60.0
CAP_S = 5.0  # a server that cannot start a process writes thousands of lines a second
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.5, 30.0

log = structlog.get_logger(__name__)


@attrs.frozen
class Served:
    """How to reach the server: a Unix socket in `socket_dir`, one role, one database."""

    socket_dir: Path
    port: int
    user: str
    password: str = attrs.field(repr=False)
    database: str


@asynccontextmanager
async def open_embedded(
    data_dir: Path, *, memory_bytes: int | None = None, budget_bytes: int = 0, as_it_is: bool = False
) -> AsyncIterator[EmbeddedServer]:
    """Make, start or adopt the server of `data_dir`; hold it; stop it on leaving if nobody else holds it.

    `memory_bytes` is what the settings are cut to, by default all that the process may use, and
    `budget_bytes` the disk budget, 0 for none. `as_it_is` is for who only looks, perhaps with another release
    and from another container: it joins a server that it cannot see, and leaves data of an older major alone.
    Raises `EmbeddedServerError`, after at most `START_TIMEOUT_S`.
    """
    if as_it_is:
        majors.refuse_older(data_dir)
    home = disk.open_home(data_dir)
    with opened(home / "server.lock") as use:
        await wait_lock(use, fcntl.LOCK_SH, "another process that is stopping the server", STOP_TIMEOUT_S * 2)
        server = EmbeddedServer(home, memory_bytes, budget_bytes, as_it_is=as_it_is)
        try:
            await server.bring_up()
            if server.elsewhere:
                # Its own users stop it, whoever looks at it meanwhile.
                fcntl.flock(use, fcntl.LOCK_UN)
            yield server
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_TIMEOUT_S):
                if not server.elsewhere and try_lock(use, fcntl.LOCK_EX):
                    await server.stop()
                else:
                    server.leave()


class EmbeddedServer:
    """One process's hold on the server. Made by `open_embedded`; `run` is to be started in a nursery.

    `version` is that of our programs; a server that was `adopted` may be of another minor version.
    """

    served: Served
    version: str
    adopted: bool
    cluster: Cluster

    def __init__(
        self, home: Path, memory_bytes: int | None, budget_bytes: int, *, as_it_is: bool = False
    ) -> None:
        self._home, self._as_it_is = home, as_it_is
        self._memory_bytes, self._budget_bytes = memory_bytes, budget_bytes
        self._password: str | None = None
        self._child: trio.Process | None = None
        self._pid: int | None = None
        self._restarts = 0
        self._standstill_s = STANDSTILL_S
        self._state: Literal["running", "starting", "waiting"] = "starting"
        self._since = datetime.now(UTC)

    @property
    def elsewhere(self) -> bool:
        """Whether it runs out of sight, as in another container."""
        return self._pid == 0

    def snapshot(self) -> dict[str, object]:
        """For health: `state` (`waiting` is between two attempts), `pid`, `restarts`, `since` (UTC)."""
        return {"state": self._state, "pid": self._pid, "restarts": self._restarts, "since": self._since}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the server for ever and start it again when it died. An outage is a state, never raised.

        The wait before an attempt doubles from half a second to half a minute, and starts over once the
        server has stood for a minute.
        """
        task_status.started()
        backoff_s = BACKOFF_MIN_S
        while True:
            stood_from = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_at_standstill)
                await self._gone()
                nursery.cancel_scope.cancel()
            if trio.current_time() - stood_from > STEADY_S:
                backoff_s = BACKOFF_MIN_S
            log.warning("embedded server died", pid=self._pid, next_attempt_s=backoff_s)
            self._restarts += 1
            self._pid = None
            while True:
                self._enter("waiting")
                await trio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
                try:
                    await self.bring_up()
                    break
                except EmbeddedServerError as error:
                    log.error(
                        "the embedded server does not start", error=str(error), next_attempt_s=backoff_s
                    )

    async def bring_up(self) -> None:
        """Make the cluster when missing, then adopt its living server or start one.

        Raises `EmbeddedServerError`; the server may then still be starting, and the next call finds it.
        """
        self._enter("starting")
        try:
            with opened(self._home / "start.lock") as start:
                starter = "another process that is starting the server"
                await wait_lock(start, fcntl.LOCK_EX, starter, START_TIMEOUT_S)
                cluster = await disk.prepare(self._home)
                # Only on opening: a cluster that vanishes later is an outage, not a reason for an empty one.
                if self._password is None:
                    await self._bring_over(cluster, start)
                with trio.fail_after(START_TIMEOUT_S):
                    if self._password is None:
                        self._password = await disk.initialise(cluster, start)
                    adopted, postmaster = await self._adopt_or_launch(cluster)
        except trio.TooSlowError as error:
            text = f"the database server was not up within {START_TIMEOUT_S:.0f} s; see {self._home / 'log'}"
            raise EmbeddedServerError(text) from error
        except OSError as error:  # a full disk, a folder taken away
            path = Path(os.fsdecode(error.filename or self._home))
            raise EmbeddedServerError(path_refusal(path, error, "SVC_DATA_DIR")) from error
        self.served = Served(postmaster.socket_dir, postmaster.port, disk.USER, self._password, disk.DATABASE)
        self.cluster = cluster
        self.version, self.adopted, self._pid = cluster.version, adopted, postmaster.pid
        self._enter("running")
        log.info("embedded server up", pid=postmaster.pid, version=cluster.version, adopted=adopted)

    async def _bring_over(self, cluster: Cluster, start: int) -> None:
        """Take up what an older release left of an older PostgreSQL."""
        old = majors.older_data(cluster.home)
        if old is None:
            return
        with opened(self._postmaster_lock) as lock:
            if not try_lock(lock, fcntl.LOCK_EX):
                raise EmbeddedServerError(
                    f"the release before is running on {old.parent}: stop it, and this one takes over"
                )
            clear_stale_pid_file(old)
            pipe_end, alive = os.pipe()
            try:
                await majors.bring_over(cluster, old, start, alive)
            finally:
                os.close(alive)
                try:
                    await end_left(pipe_end, (old, cluster.draft / "data"))
                finally:
                    os.close(pipe_end)

    async def _adopt_or_launch(self, cluster: Cluster) -> tuple[bool, Postmaster]:
        unseen_until = trio.current_time() + UNSEEN_TIMEOUT_S
        still = Standstill(cluster.pgdata)
        while True:
            with opened(self._postmaster_lock) as lock:
                if try_lock(lock, fcntl.LOCK_EX):
                    return False, await self._launch(cluster, lock)
            postmaster = read_postmaster(cluster.pgdata)
            if postmaster:
                if (reason := await refusal(postmaster.socket)) is None:
                    return True, postmaster
                if still.refused(reason) >= self._standstill_s:
                    await self._end_still(cluster.pgdata, self._alive)
            if self._as_it_is and postmaster is None:
                # Its process lives elsewhere, as the lock says; a socket on a shared folder leads to it.
                elsewhere = Postmaster(0, disk.PORT, cluster.socket_dir)
                if await refusal(elsewhere.socket) is None:
                    return True, elsewhere
            if postmaster:
                unseen_until = trio.current_time() + UNSEEN_TIMEOUT_S
            elif trio.current_time() > unseen_until:
                raise EmbeddedServerError(
                    f"a database server that this process cannot see, perhaps in another container, uses"
                    f" {cluster.pgdata}: run the command there, or stop it"
                )
            await still.rest()

    async def _launch(self, cluster: Cluster, lock: int) -> Postmaster:
        """Start a postmaster that inherits `lock`, and wait until it accepts. Nothing of it is running."""
        clear_stale_pid_file(cluster.pgdata)
        # Named by the number of a process that is over, or by now somebody else's.
        (cluster.socket_dir / f".s.PGSQL.{disk.PORT}.lock").unlink(missing_ok=True)
        await trio.to_thread.run_sync(disk.write_settings, cluster, self._memory_bytes, self._budget_bytes)
        await trio.to_thread.run_sync(cap_log, cluster.log)
        with opened(cluster.log, os.O_WRONLY | os.O_APPEND) as output:
            log_size = os.fstat(output).st_size
            self._child = await trio.lowlevel.open_process(
                [cluster.program("postgres"), "-D", str(cluster.pgdata), "-c", f"config_file={cluster.conf}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(lock,),
                **cluster.account.popen_options(),
            )
        still = Standstill(cluster.pgdata)
        while True:
            postmaster = read_postmaster(cluster.pgdata)
            if postmaster and postmaster.pid == self._child.pid:
                if (reason := await refusal(postmaster.socket)) is None:
                    await trio.to_thread.run_sync(disk.discard_old_installs, cluster)
                    return postmaster
                if still.refused(reason) >= self._standstill_s:
                    await self._end_still(cluster.pgdata, self._child_lives)
            if (code := self._child.poll()) is not None:
                raise EmbeddedServerError(
                    f"the database server ended with exit code {code} while starting:"
                    f" {log_tail(cluster.log, log_size)}"
                )
            await still.rest()

    async def _end_at_standstill(self) -> None:
        """End the server when it lives and accepts nobody, so that it is started anew."""
        pgdata = self.cluster.pgdata
        still = Standstill(pgdata)
        while True:
            await trio.sleep(LOOK_S)
            postmaster = read_postmaster(pgdata)
            reason = "nobody listens" if postmaster is None else await refusal(postmaster.socket)
            if reason is None:
                self._standstill_s = STANDSTILL_S
                still.accepted()
            elif still.refused(reason) >= self._standstill_s:
                await self._end_still(pgdata, self._alive)
                still.accepted()

    async def _end_still(self, pgdata: Path, alive: Callable[[], bool]) -> None:
        self._standstill_s = min(2 * self._standstill_s, LONGEST_STANDSTILL_S)
        await end_by_force(pgdata, alive)

    async def _gone(self) -> None:
        """Return when no process of the server is left; meanwhile keep its log within bounds.

        The lock is polled: the server is often not our child, and a process number is no proof.
        """
        capped_at = trio.current_time()
        while self._alive():
            if trio.current_time() - capped_at > CAP_S:
                capped_at = trio.current_time()
                await trio.to_thread.run_sync(cap_log, self._home / "log" / "server.log")
            await trio.sleep(WATCH_S)
        await self._reap()

    async def stop(self) -> None:
        """Stop the server: fast (open transactions roll back), then immediate (the next start recovers)."""
        if not self._alive():
            await self._reap()
            return
        pgdata = self._home / disk.MAJOR / "data"
        for sign, wait_s in ((signal.SIGINT, FAST_STOP_S), (signal.SIGQUIT, IMMEDIATE_STOP_S)):
            postmaster = read_postmaster(pgdata)
            if self._child is not None and self._child.poll() is None:
                self._child.send_signal(sign)
            elif postmaster is not None:
                with suppress(ProcessLookupError):
                    os.kill(postmaster.pid, sign)
            with trio.move_on_after(wait_s):
                while self._alive():  # noqa: ASYNC110 - another program's state, nobody sets an event
                    await trio.sleep(POLL_S)
                await self._reap()
                disk.discard_socket_folder(self._home)
                log.info("embedded server stopped", signal=sign.name)
                return
        log.error("the embedded server does not stop", pid=self._pid)

    def leave(self) -> None:
        """Leave the server to its other users; a child of ours is kept in mind, so that it is reaped."""
        _left[:] = [child for child in _left if child.poll() is None]
        if self._child is not None and self._child.poll() is None:
            _left.append(self._child)

    async def _reap(self) -> None:
        if self._child is not None:
            with trio.move_on_after(REAP_TIMEOUT_S):
                await self._child.wait()

    def _alive(self) -> bool:
        try:
            with opened(self._postmaster_lock) as lock:
                return not try_lock(lock, fcntl.LOCK_SH)
        except EmbeddedServerError:  # the folder was taken away: what is left to ask is our own child
            return self._child_lives()

    def _child_lives(self) -> bool:
        """While we start it: its lock is ours as well then."""
        return self._child is not None and self._child.poll() is None

    @property
    def _postmaster_lock(self) -> Path:
        return self._home / "postmaster.lock"

    def _enter(self, state: Literal["running", "starting", "waiting"]) -> None:
        self._state, self._since = state, datetime.now(UTC)


_left: list[trio.Process] = []  # postmasters of this process that others still used when it let go
