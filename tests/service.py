"""The real service in a process of its own, for end-to-end tests and benches.

Benches and first starts start it as a user does, tests by `tests.forked`, which loads its code once.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import httpx2

from tests.forked import Forked, loads_alike, ran

#: How long a test waits for what does not come. Long, for only a fault waits so long: beside a load of 13 on
#: two cores, detectors at their low priority took 200 s for what takes them 8 alone (December 2026).
WAIT_S = 300.0
#: How to ask over plain HTTP: without it, each request reads the bundle of certificates for 50 ms, and
#: whoever polls takes half a core from what it watches.
PLAIN: Any = {"verify": False}
TRACE_SVC = str(Path(sys.executable).with_name("trace-svc"))


def apart() -> list[str]:
    """How to run a program that sees no other process, as in a container. Skips where nobody may."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which(words[0]) is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        import pytest

        pytest.skip("this account may not make a namespace of processes")
    return words


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


#: What must stay free where files are held in memory, and of memory itself.
_FREE_BYTES = 6 << 30


def in_memory() -> str | None:
    """Where the data folders of tests lie: in memory where there is plenty of it, else in the usual place.

    A service took 4.9 s of processor time from its start to its stop, 1.4 of them for files on a disk that
    nobody reads again (November 2026).
    """
    memory = "/dev/shm"
    try:
        of, has = os.statvfs(memory), Path("/proc/meminfo").read_text()
    except OSError:
        return None
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", has, re.MULTILINE)
    free = min(of.f_bavail * of.f_frsize, int(available[1]) << 10 if available else 0)
    return memory if free >= _FREE_BYTES and os.access(memory, os.W_OK) else None


def environment(data_dir: Path | str, **settings: str) -> dict[str, str]:
    """The environment of a service: nothing of ours but what the test names."""
    ours = re.compile(
        r"(SVC|DB|SSO|SITE|TLS|ACME|HTTP|HTTPS|AGENT|SANDBOX|AWS|ANTHROPIC)_|TRUSTED_PROXIES|CLOUD_REGION"
    )
    clean = {name: value for name, value in os.environ.items() if not ours.match(name)}
    return {**clean, "SVC_DATA_DIR": str(data_dir), "SVC_TELEMETRY_ENABLED": "false", **settings}


def _of_proc(file: Path) -> bytes:
    """What a file under /proc says; nothing when its process or thread ended meanwhile."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@attrs.define(eq=False)
class Service:
    """A running service. `write_key` and `query_key` are those of its first start, else empty."""

    process: subprocess.Popen[str]
    url: str
    data_dir: Path
    env: Mapping[str, str]
    write_key: str
    query_key: str
    grpc_port: int
    log: Path

    @property
    def port(self) -> int:
        """The HTTP port."""
        return int(re.split("[:/]", self.url)[4])

    def ask(self, route: str, body: dict[str, Any], key: str | None = None) -> Any:
        """The data of a query; fails on any refusal."""
        response = httpx2.post(
            f"{self.url}/v1/query/{route}",
            json=body,
            headers={"Authorization": f"Bearer {key or self.query_key}"},
            timeout=30,
            **PLAIN,
        )
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def send(self, body: bytes, **headers: str) -> httpx2.Response:
        """POST /v1/traces with the write key."""
        sent = {"Authorization": f"Bearer {self.write_key}", "Content-Type": "application/x-protobuf"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.post(f"{self.url}/v1/traces", content=body, headers=sent, timeout=60, **PLAIN)

    def decoders(self) -> list[int]:
        """The process ids of the decoder processes."""
        return self.children("svc.ingest.decoder")

    def children(self, module: str) -> list[int]:
        """The ids of child processes that run a module of ours."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [int(child) for thread in threads for child in _of_proc(thread).split()]
        return [pid for pid in children if module.encode() in _of_proc(Path(f"/proc/{pid}/cmdline"))]

    def health(self) -> dict[str, Any]:
        """The whole health report, UP or DOWN."""
        report: dict[str, Any] = httpx2.get(f"{self.url}/actuator/health", timeout=30, **PLAIN).json()
        return report

    def metric(self, name: str) -> float:
        """One sample without labels."""
        text = httpx2.get(f"{self.url}/actuator/prometheus", timeout=30, **PLAIN).text
        match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert match is not None, f"no metric {name}"
        return float(match[1])

    def wait_for_spans(self, count: int, timeout_s: float = WAIT_S, **filters: Any) -> None:
        """Until this many spans are queryable."""
        until(
            lambda: self.ask("count", {"dataset": "spans", "filters": filters})["count"] == count, timeout_s
        )

    def command(self, *arguments: str, timeout_s: float = WAIT_S) -> str:
        """Run another command of ours beside the service; its standard output."""
        done = ran([TRACE_SVC, *arguments], env=self.env, timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self, timeout_s: float = 40.0) -> int:
        """SIGTERM and wait. Returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def until(condition: Any, timeout_s: float = WAIT_S, every_s: float = 0.05) -> None:
    """Ask again and again until it holds; what is waited for happens in another process."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {timeout_s} s"
        time.sleep(every_s)


@contextmanager
def running(
    data_dir: Path | None = None,
    *,
    errors_expected: bool = False,
    first: bool = False,
    upgrades: bool = False,
    as_users_do: bool = False,
    code: Path | None = None,
    cwd: Path | None = None,
    program: Path | str = TRACE_SVC,
    **settings: str,
) -> Iterator[Service]:
    """A service on a data folder, started in `cwd`. Fails when it logged an ERROR unannounced.

    A folder that is not there becomes a copy of one that was made once in this run, with the keys of its
    first start; `first` leaves it to the service. It has one decoder process unless told otherwise. `code` is
    a folder with the code of another release, `program` another installation's, and who `upgrades` finds the
    data of another one. Started `as_users_do`, it has its own words and settings under /proc.
    """
    # What a bench measures lies on the disk, as an installation does.
    with tempfile.TemporaryDirectory(prefix="trace-svc-", dir=None if first else in_memory()) as fresh:
        os.chmod(fresh, 0o755)
        folder = data_dir or Path(fresh) / "data"
        if not folder.exists() and not first:
            copy_made(folder)
        with _started(
            folder,
            Path(fresh),
            settings,
            errors_expected=errors_expected,
            upgrades=upgrades,
            code=code,
            cwd=cwd,
            program=str(program),
            forks=not (first or as_users_do) and code is None and cwd is None and program == TRACE_SVC,
        ) as service:
            yield service


def measured(
    data_dir: Path | None = None, *, upgrades: bool = False, **settings: str
) -> AbstractContextManager[Service]:
    """A service for a bench: an empty folder, and as many decoders as it has by itself."""
    return running(data_dir, first=True, upgrades=upgrades, **{"SVC_INGEST_DECODERS": "", **settings})


def copy_made(folder: Path, made: Path | None = None) -> None:
    """Put a folder there that a service made and left, or another one of `once_in_a_run`."""
    subprocess.run(["cp", "-a", made or once_in_a_run("made", _make), folder], check=True)


#: Names the folder of what the processes of one test run make for each other; benches have none.
SHARED = "TESTS_SHARED_FOLDER"


@cache
def once_in_a_run(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` makes once in a run, in whichever of its processes wants it first."""
    if (shared := os.environ.get(SHARED)) is None:
        shared = tempfile.mkdtemp(prefix="trace-svc-made-", dir=in_memory())
        atexit.register(shutil.rmtree, shared, ignore_errors=True)
        os.chmod(shared, 0o755)
    made = Path(shared) / name
    with (Path(shared) / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(prefix="trace-svc-", dir=shared) as fresh:
                os.chmod(fresh, 0o755)
                make(Path(fresh) / "data")
                (Path(fresh) / "data").rename(made)
    return made


@contextmanager
def copy_filled(name: str, fill: Callable[[Path], None]) -> Iterator[Path]:
    """A copy of a data folder that is filled once in a run."""
    with tempfile.TemporaryDirectory(prefix="trace-svc-", dir=in_memory()) as made:
        # The database's account passes through it.
        os.chmod(made, 0o755)
        copy_made(Path(made) / "data", once_in_a_run(name, fill))
        yield Path(made) / "data"


def _make(folder: Path) -> None:
    """The data folder of a service that was started and stopped once."""
    with _started(folder, folder.parent, {}, errors_expected=False):
        pass
    # Processes are killed here and no machine is: what the kernel has is safe.
    with (folder / "postgres" / "18" / "data" / "postgresql.auto.conf").open("a") as settings:
        settings.write("fsync = off\n")


@contextmanager
def _started(
    folder: Path,
    beside: Path,
    settings: Mapping[str, str],
    *,
    errors_expected: bool,
    upgrades: bool = False,
    code: Path | None = None,
    cwd: Path | None = None,
    program: str = TRACE_SVC,
    forks: bool = False,
) -> Iterator[Service]:
    log = beside / "service.log"
    grpc_port = free_port()
    env = environment(
        folder,
        **{
            "SVC_HTTP_BIND": "127.0.0.1:0",
            "SVC_INGEST_OTLP_TRANSPORT": "BOTH",
            "SVC_INGEST_OTLP_GRPC_PORT": str(grpc_port),
            "SVC_INGEST_DECODERS": "1",
            **settings,
        },
    )
    if code is not None:
        env["PYTHONPATH"] = str(code)
    with log.open("w") as sink:
        process: subprocess.Popen[str]
        if forks and loads_alike(env):
            process = Forked([program, "serve"], env=env, cwd=os.getcwd(), stderr=sink)
        else:
            # Its children find their code where it runs.
            process = subprocess.Popen(
                [program, "serve"], env=env, cwd=cwd or code, stdout=subprocess.PIPE, stderr=sink, text=True
            )
    try:
        grpc = env["SVC_INGEST_OTLP_TRANSPORT"] != "HTTP"
        url, keys = _greeting(process, log, grpc=grpc, upgrades=upgrades)
        service = Service(process, url, folder, env, *(keys or _kept_keys(folder)), grpc_port, log)
        yield service
        if process.poll() is None:
            assert service.stop() == 0, log.read_text()
        if not errors_expected:
            assert not _errors(log), _errors(log)
    except BaseException:
        # Beside what failed; the log goes with the folder.
        print(*_errors(log)[-20:], sep="\n")
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
        stop_postgres(folder)


def _errors(log: Path) -> list[str]:
    """The lines of a service's log that tell of an ERROR."""
    return [line for line in log.read_text().splitlines() if "level=error" in line]


def _kept_keys(folder: Path) -> tuple[str, str]:
    """The write key and the query key of the folder's first start; blank where they were not kept."""
    kept = folder / "first-keys"
    found = re.findall(r"^  (?:write|query)  (svc_\S+)", kept.read_text(), re.M) if kept.exists() else ()
    return (found[0], found[1]) if found else ("", "")


def _greeting(
    process: subprocess.Popen[str], log: Path, *, grpc: bool, upgrades: bool
) -> tuple[str, tuple[str, str] | None]:
    """Read standard output until the address; of a first start also the keys, from the file it names."""
    assert process.stdout is not None
    watchdog = threading.Timer(WAIT_S, process.kill)
    watchdog.start()
    url = ""
    try:
        for line in process.stdout:
            if match := re.match(r"trace-svc is ready at (\S+)", line):
                url = match[1]
            if match := re.match(r"first start: .* are in (\S+);", line):
                return url, _kept_keys(Path(match[1]).parent)
            # A later start says no more than this.
            # Earlier releases spoke of a door.
            last = line.startswith(("gRPC is ready", "gRPC door") if grpc else "trace-svc is ready")
            if last and (upgrades or not _first_start(log)):
                break
    finally:
        watchdog.cancel()
    assert url, log.read_text()
    return url, None


def _first_start(log: Path) -> bool:
    # Earlier releases brought it to a step.
    return re.search("migrated the schema to step|schema brought to step", log.read_text()) is not None


def stop_postgres(data_dir: Path) -> None:
    """End an embedded server that a killed service left behind."""
    pid_file = data_dir / "postgres" / "18" / "data" / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
    except (OSError, ValueError, IndexError):
        return
    deadline = time.monotonic() + 10
    while pid_file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
