"""A PostgreSQL that fails over: a cluster of three by Debian's Patroni, with one etcd, on ports of its own.

`Cluster` starts it, kills, freezes and switches its primary, and ends every process that it started.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import httpx2

from tests.debian_postgres import DEBIAN
from tests.service import PLAIN, free_port, until

#: The least that Patroni takes: how long a dead primary holds its lock, and how often members look.
TTL_S = 20
LOOP_S = 2
RETRY_S = 5

PASSWORD = "secret of the test"

#: A cluster of three on two cores starts slowly beside other tests.
START_TIMEOUT_S = 180.0
FAILOVER_TIMEOUT_S = 180.0


@attrs.define(eq=False)
class Member:
    """One PostgreSQL with its Patroni."""

    name: str
    folder: Path
    port: int
    rest: int
    process: subprocess.Popen[bytes] | None = None

    def is_primary(self) -> bool:
        """Whether a client can commit there. While the member that is to confirm it is away, this waits."""
        login = f"host=127.0.0.1 port={self.port} user=owner dbname=postgres connect_timeout=2"
        try:
            done = subprocess.run(
                [DEBIAN[-1] / "psql", "-qAt", "-c", "select pg_logical_emit_message(true, 'tests', '')",
                 f"{login} target_session_attrs=read-write"],
                env={**os.environ, "PGPASSWORD": PASSWORD},
                capture_output=True,
                timeout=30,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def processes(self) -> list[int]:
        """Patroni, the server and all of its processes."""
        pids = [] if self.process is None or self.process.poll() is not None else [self.process.pid]
        with suppress(OSError, IndexError, ValueError):
            postmaster = int((self.folder / "data/postmaster.pid").read_text().split()[0])
            # The file outlives who was killed, and somebody else may have its number.
            if str(self.folder).encode() in Path(f"/proc/{postmaster}/cmdline").read_bytes():
                pids.append(postmaster)
        return [*pids, *(child for pid in pids for child in _below(pid) if child not in pids)]

    def signal(self, number: signal.Signals) -> None:
        """To Patroni first, so that it repairs nothing."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)


class Cluster:
    """Etcd, and three members of which one is the primary and one confirms each commit."""

    def __init__(self, folder: Path) -> None:
        if not DEBIAN or shutil.which("patroni") is None or shutil.which("etcd") is None:
            from tests.conftest import missing

            missing("Debian's Patroni, etcd or PostgreSQL")
        self.folder = folder
        folder.mkdir()
        self._as = (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        )
        if self._as:
            shutil.chown(folder, "postgres", "postgres")
        self._etcd_port = free_port()
        self._etcd: subprocess.Popen[bytes] | None = None
        self.members = [Member(name, folder / name, free_port(), free_port()) for name in ("a", "b", "c")]

    @property
    def url(self) -> str:
        """All members, as JDBC spells them."""
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        login = "user=owner&password=secret%20of%20the%20test"
        return f"jdbc:postgresql://{hosts}/postgres?{login}&targetServerType=primary"

    def start(self) -> None:
        """Start all of it, and wait until commits are confirmed by a second member."""
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, free_port()))
        self._etcd = self._run(
            *("etcd", "--name", "one", "--data-dir", str(self.folder / "etcd")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"one={peer}", "--enable-v2=true"),
            log="etcd.log",
        )
        for member in self.members:
            member.folder.mkdir()
            if self._as:
                shutil.chown(member.folder, "postgres", "postgres")
            # YAML reads JSON.
            member.folder.with_suffix(".yaml").write_text(json.dumps(self._settings(member)))
            self.start_member(member)
        until(self.whole, START_TIMEOUT_S, every_s=0.5)

    def start_member(self, member: Member) -> None:
        """Start its Patroni, which starts its server."""
        path = str(member.folder.with_suffix(".yaml"))
        member.process = self._run("patroni", path, log=f"{member.name}.log")

    def whole(self) -> bool:
        """Whether there is a primary, and both others follow it, one of them synchronously."""
        for member in self.members:
            with suppress(httpx2.TransportError):
                answer = httpx2.get(f"http://127.0.0.1:{member.rest}/cluster", timeout=5, **PLAIN)
                rows = answer.json()["members"]
                roles = sorted(row["role"] for row in rows if row["state"] in ("running", "streaming"))
                return roles == ["leader", "replica", "sync_standby"] and self.primary() is not None
        return False

    def primary(self) -> Member | None:
        """Who can be written to now."""
        return next((member for member in self.members if member.is_primary()), None)

    def wait_for_successor(self, of: Member) -> Member:
        """Until another member can be written to."""
        successors: list[Member] = []

        def there() -> bool:
            successors.extend(one for one in self.members if one is not of and one.is_primary())
            return bool(successors)

        until(there, FAILOVER_TIMEOUT_S)
        return successors[0]

    def kill(self, member: Member) -> None:
        """As if its machine lost power."""
        member.signal(signal.SIGKILL)
        assert member.process is not None
        member.process.wait(20)

    def switch_over(self, member: Member) -> None:
        """Have Patroni make another one the primary, in good order."""
        words = ["patronictl", "-c", str(member.folder.with_suffix(".yaml")), "switchover", "--force"]
        subprocess.run(
            [*self._as, *words, "--leader", member.name],
            check=True, timeout=120, capture_output=True, cwd="/",
        )  # fmt: skip

    def end(self) -> None:
        """End every process, frozen or not."""
        for member in self.members:
            member.signal(signal.SIGKILL)
            if member.process is not None:
                member.process.wait(20)
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait(20)

    def _run(self, *words: str, log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as sink:
            return subprocess.Popen(
                [*self._as, *words], stdout=sink, stderr=sink, cwd="/", start_new_session=True
            )

    def _settings(self, member: Member) -> dict[str, object]:
        address = f"127.0.0.1:{member.port}"
        return {
            "scope": "trace-svc",
            "name": member.name,
            "restapi": {
                "listen": f"127.0.0.1:{member.rest}",
                "connect_address": f"127.0.0.1:{member.rest}",
            },
            # By the third version of its interface, Patroni before 3.0.3 (Debian 12 has 3.0.2) writes its
            # lock without a condition: a primary that was frozen takes it back from its successor, and what
            # was committed there is lost (seen November 2026).
            "etcd": {"host": f"127.0.0.1:{self._etcd_port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": LOOP_S,
                    "retry_timeout": RETRY_S,
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 100}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": address,
                "connect_address": address,
                "data_dir": str(member.folder / "data"),
                "bin_dir": str(DEBIAN[-1]),
                "pgpass": str(member.folder / "pgpass"),
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 scram-sha-256",
                           "host replication all 127.0.0.1/32 scram-sha-256"],
                "authentication": {
                    "superuser": {"username": "owner", "password": PASSWORD},
                    "replication": {"username": "replicator", "password": PASSWORD},
                },
                "parameters": {
                    "unix_socket_directories": str(member.folder),
                    # What is killed clears nothing away: in its own folder that goes with it.
                    "dynamic_shared_memory_type": "mmap",
                },
            },
        }  # fmt: skip


def _below(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    children: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += [int(child) for child in file.read_text().split()]
    return [*children, *(grandchild for child in children for grandchild in _below(child))]


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster of its own; nothing of it is left afterwards."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()
