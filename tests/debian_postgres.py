"""Debian's own PostgreSQL, served: a cluster of the test's own, or a replica that follows one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.service import free_port

DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class DebianPostgres:
    """Debian's own PostgreSQL on a port of its own."""

    def __init__(self, folder: Path, follows: DebianPostgres | None = None, network: str = "") -> None:
        """A new cluster, or a streaming replica of another one. It can be reached from this network too."""
        if not DEBIAN:
            from tests.conftest import missing

            missing("Debian's PostgreSQL")
        folder.mkdir()
        self.folder, self.port = folder, free_port()
        self._listens = "*" if network else "127.0.0.1"
        self._as = (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        )
        if self._as:
            shutil.chown(folder, "postgres", "postgres")
        (folder / "pw").write_text("secret of the test")
        (folder / "pw").chmod(0o644)
        if follows is not None:
            source = f"postgresql://owner:secret%20of%20the%20test@127.0.0.1:{follows.port}/postgres"
            self._run("pg_basebackup", "-R", "-c", "fast", "-d", source, "-D", str(folder / "data"))
            self.start()
            return
        self._run("initdb", "-D", str(folder / "data"), "-U", "owner", "--pwfile", str(folder / "pw"),
                  "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8")  # fmt: skip
        if network:
            with (folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {network} scram-sha-256\n")
        self.start()

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses='{self._listens}' -c unix_socket_directories={self.folder}"
        )
        self._run(
            "pg_ctl",
            "-D",
            str(self.folder / "data"),
            "-o",
            options,
            "-l",
            str(self.folder / "log"),
            "-w",
            "start",
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def promote(self) -> None:
        """Of a replica: follow nobody any more, and be written to."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(DEBIAN[-1] / program), *arguments]
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL, cwd="/")

    @property
    def url(self) -> str:
        return (
            f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=owner&password=secret%20of%20the%20test"
        )
