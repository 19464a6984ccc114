"""The image, built and run for real: health, ingest, a clean stop, a kill, an account of the operator's.

The base comes from Debian's archive (`base.sh`), the engine is one of the test's own, without a network.
Where the kernel lets no engine run this is skipped, with what it said.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.commands.test_init import docker_compose as docker_compose
from tests.commands.test_init import init
from tests.conftest import missing
from tests.service import until
from tests.wire import request, span

ROOT = Path(__file__).parent.parent.parent
BASE = Path(os.environ.get("TRACE_SVC_IMAGE_BASE", "/var/tmp/trace-svc-base"))

#: Another engine to use, such as unix:///var/run/docker.sock; it keeps what was built.
OTHER = os.environ.get("TEST_DOCKER_HOST")

#: As in compose.yaml.
CONFINED = (
    *("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true", "--tmpfs=/tmp"),
    *("--network=none", "--shm-size=256m", "--memory=2g", "--stop-timeout=40"),
)

#: Sends a request, given as hex, over gRPC; prints the response, which is empty when all is accepted.
EXPORT = """
import asyncio, sys
from grpclib.client import Channel, UnaryUnaryMethod
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest as Request, ExportTraceServiceResponse as Response
)

async def export(port, key, body):
    async with Channel("127.0.0.1", int(port)) as channel:
        name = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        method = UnaryUnaryMethod(channel, name, Request, Response)
        metadata = {"authorization": f"Bearer {key}"}
        print(await method(Request.FromString(bytes.fromhex(body)), metadata=metadata, timeout=20))

asyncio.run(export(*sys.argv[1:]))
"""

pytestmark = [pytest.mark.alone, pytest.mark.release]


@attrs.frozen
class Engine:
    """A container engine that nobody else uses."""

    host: str

    def __call__(self, *arguments: str, timeout_s: float = 120.0, check: bool = True) -> str:
        done = subprocess.run(
            ["docker", "-H", self.host, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=ROOT,
            env={**os.environ, "DOCKER_BUILDKIT": "0"},
        )
        assert done.returncode == 0 or not check, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    for part in ("dockerd", "docker"):
        if shutil.which(part) is None:
            missing(part)
    if OTHER:
        yield Engine(OTHER)
        return
    if os.geteuid() != 0:
        pytest.skip("a container engine wants root")
    with tempfile.TemporaryDirectory(prefix="trace-svc-engine-") as name:
        folder = Path(name)
        log = folder / "log"
        with log.open("w") as sink:
            daemon = subprocess.Popen(
                [
                    *("dockerd", "--bridge=none", "--iptables=false"),
                    *("--data-root", folder / "data", "--exec-root", folder / "exec"),
                    *("-H", f"unix://{folder}/engine.sock", "-p", folder / "pid"),
                ],
                stdout=sink,
                stderr=sink,
            )
        found = Engine(f"unix://{folder}/engine.sock")
        deadline = time.monotonic() + 60
        while not found("version", "--format", "{{.Server.Version}}", check=False):
            if daemon.poll() is not None or time.monotonic() > deadline:
                daemon.kill()
                daemon.wait(10)
                said = [line for line in log.read_text().splitlines() if "level=info" not in line]
                pytest.skip(f"no container engine runs on this kernel; it said: {said[-3:]}")
            time.sleep(0.2)
        yield found
        for container in found("ps", "-aq").split():
            found("rm", "-f", container)
        daemon.terminate()
        daemon.wait(30)
        # It leaves the namespace of its network mounted.
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed(mounts):
            if mount.startswith(f"{folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=True, timeout=30)


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    made = BASE / ".made"
    if not made.exists() or "git" not in made.read_text():
        missing(f"the base of the image, {BASE}, which tests/image/base.sh makes")
    if not engine("images", "-q", "base:test"):
        tar = ["tar", "-C", str(BASE), "-c", "."]
        with subprocess.Popen(tar, stdout=subprocess.PIPE) as packed:
            subprocess.run(
                ["docker", "-H", engine.host, "import", "-", "base:test"],
                stdin=packed.stdout,
                check=True,
                capture_output=True,
                timeout=120,
            )
    engine(
        *("build", "--quiet", "--network=host", "-f", "deploy/Dockerfile"),
        *(
            "--build-arg",
            "BASE=base:test",
            "--build-arg",
            "VERSION=2026.11.1.dev3+gabc1234",
            "-t",
            "trace-svc:test",
            ".",
        ),
        timeout_s=900,
    )
    return "trace-svc:test"


@attrs.frozen
class Container:
    """One container of the image, under the confinement of compose.yaml."""

    engine: Engine
    name: str

    def state(self) -> dict[str, Any]:
        """What the engine knows of it."""
        told: dict[str, Any] = json.loads(self.engine("inspect", self.name))[0]["State"]
        return told

    def healthy(self) -> None:
        """Wait until the image's own health check is content."""
        until(lambda: self._health() == "healthy", 90, 0.5)

    def _health(self) -> str:
        state = self.state()
        assert state["Status"] == "running", self.engine("logs", self.name, check=False)
        return str(state["Health"]["Status"])

    def python(self, code: str) -> str:
        """What a piece of Python prints inside."""
        return self.engine("exec", self.name, "python3", "-ISc", code)

    def ask(self, path: str, key: str, body: dict[str, Any]) -> Any:
        """Post to the service inside."""
        return json.loads(
            self.python(
                "import urllib.request as u;"
                f"r = u.Request('http://127.0.0.1:8000{path}', {json.dumps(body).encode()!r},"
                f" {{'Authorization': 'Bearer {key}', 'Content-Type': 'application/json'}});"
                "print(u.urlopen(r, timeout=20).read().decode())"
            )
        )

    def export(self, port: str, key: str, body: bytes) -> None:
        """Send an OTLP request over gRPC to the service inside, by what the image has installed."""
        assert self.engine("exec", self.name, "python3", "-Ic", EXPORT, port, key, body.hex()) == ""

    def keys(self) -> dict[str, str]:
        """The keys of the first start."""
        lines = self.engine("exec", self.name, "cat", "/data/first-keys").splitlines()
        return dict(line.split() for line in lines if line.startswith(("  write ", "  query ")))

    def count(self, key: str) -> int:
        """Spans that are stored."""
        return int(self.ask("/v1/query/count", key, {"dataset": "spans"})["data"]["count"])


SPAN = {
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174",
    "name": "chat",
    "kind": 3,
    "startTimeUnixNano": str(time.time_ns() - 10**9),
    "endTimeUnixNano": str(time.time_ns()),
}
TRACE = {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}


def test_the_container_of_the_installation_page_serves_and_shows_its_first_keys(
    engine: Engine, image: str
) -> None:
    page = (ROOT / "deploy" / "install.md").read_text(encoding="utf-8")
    block = page.split("## Docker")[1].split("```sh\n")[1].split("```")[0]
    run, shown = (line.split()[1:] for line in block.splitlines())
    # The engine of the test has no network to publish a port of, and the image another name.
    port = run.index("-p")
    assert run[port + 1] == "127.0.0.1:8000:8000"
    engine("rm", "-fv", "trace-svc", check=False)
    engine(*run[:port], "--network=none", *run[port + 2 : -1], image)
    assert run[-1] == "trace-svc"
    Container(engine, "trace-svc").healthy()
    files = engine(*shown)
    assert "svc_w_" in files
    assert "/signup?owner=" in files
    assert (
        Container(engine, "trace-svc").ask(
            "/v1/traces", Container(engine, "trace-svc").keys()["write"], TRACE
        )
        == {}
    )
    engine("rm", "-fv", "trace-svc")


def test_the_image_serves_stops_clean_and_comes_back_from_a_kill(engine: Engine, image: str) -> None:
    engine("rm", "-fv", "one", check=False)
    # A volume of its own, which goes with the container.
    engine("run", "-d", "--name", "one", *CONFINED, image)
    one = Container(engine, "one")
    one.healthy()
    status = one.python("print(open('/proc/1/status').read())")
    assert "Uid:\t10001\t10001" in status
    assert "CapEff:\t0000000000000000" in status
    assert one.python("import os; print(oct(os.stat('/data').st_mode & 0o777))") == "0o700"
    keys = one.keys()
    assert one.ask("/v1/traces", keys["write"], TRACE) == {}
    until(lambda: one.count(keys["query"]) == 1, 30, 0.5)

    began = time.monotonic()
    engine("stop", "one")
    assert (one.state()["ExitCode"], time.monotonic() - began < 40) == (0, True)
    assert "not stored" not in engine("logs", "one")
    engine("start", "one")
    one.healthy()
    assert one.count(keys["query"]) == 1

    engine("kill", "one")
    engine("start", "one")
    one.healthy()
    assert one.count(keys["query"]) == 1
    engine("rm", "-fv", "one")


def test_health_is_asked_where_the_service_is_bound(engine: Engine, image: str) -> None:
    engine("rm", "-fv", "moved", check=False)
    engine("run", "-d", "--name", "moved", *CONFINED, "-e", "SVC_HTTP_BIND=0.0.0.0:9000", image)
    Container(engine, "moved").healthy()
    engine("rm", "-fv", "moved")


@attrs.frozen
class Compose:
    """Docker Compose in a folder that `trace-svc init` wrote."""

    words: list[str]
    folder: Path
    engine: Engine
    image: str

    def __call__(self, *words: str) -> str:
        outcome = subprocess.run(
            [*self.words, *words],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "DOCKER_HOST": self.engine.host,
                "TRACE_SVC_IMAGE": self.image,
            },
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert outcome.returncode == 0, outcome.stderr[-2000:]
        return outcome.stdout

    def up(self) -> Container:
        """The container, ready; made anew where a setting has changed."""
        self("up", "-d", "--wait")
        return Container(self.engine, self("ps", "-q", "trace-svc").strip())

    def ports(self) -> dict[int, str | None]:
        """By port of the container: that of the host, None where Docker chooses it."""
        # The file by its name, without what the test lays over it.
        config = json.loads(self("-f", "compose.yaml", "config", "--format", "json"))
        return {port["target"]: port.get("published") for port in config["services"]["trace-svc"]["ports"]}


@pytest.fixture
def compose(engine: Engine, image: str, docker_compose: list[str], tmp_path: Path) -> Iterator[Compose]:
    folder = tmp_path / "traces"
    outcome = init(folder)
    assert outcome.returncode == 0, outcome.stderr
    # The engine of this test has no network to publish ports from.
    (folder / "compose.override.yaml").write_text(
        "services: {trace-svc: {network_mode: none, ports: !reset []}}\n"
    )
    project = Compose(docker_compose, folder, engine, image)
    try:
        yield project
    finally:
        project("down", "-v")


def test_docker_compose_brings_up_what_init_wrote(compose: Compose) -> None:
    container = compose.up()
    assert container.ask("/v1/traces", container.keys()["write"], TRACE) == {}
    until(lambda: container.count(container.keys()["query"]) == 1, 30, 0.5)
    compose("stop")
    assert container.state()["ExitCode"] == 0


def test_the_line_of_the_page_turns_grpc_on_under_docker_compose(compose: Compose) -> None:
    page = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    [(line, port)] = re.findall(r"`(\S+)` in `\.env` turns gRPC on and publishes its port, (\d+)", page)
    http_only = compose.up()
    keys = http_only.keys()
    now_ns = time.time_ns()
    body = request(span(start_ns=now_ns - 10**9, end_ns=now_ns)).SerializeToString()
    # Without the line Docker chooses a port of the host, and nothing answers behind it.
    assert compose.ports()[int(port)] is None
    with pytest.raises(AssertionError, match="ConnectionRefusedError"):
        http_only.export(port, keys["write"], body)

    with (compose.folder / ".env").open("a") as env:
        env.write(f"{line}\n")
    assert compose.ports()[int(port)] == port
    with_grpc = compose.up()
    assert with_grpc.name != http_only.name
    with pytest.raises(AssertionError, match="UNAUTHENTICATED"):
        with_grpc.export(port, keys["query"] + "x", body)
    with_grpc.export(port, keys["write"], body)
    until(lambda: with_grpc.count(keys["query"]) == 1, 30, 0.5)
    assert with_grpc.ask("/v1/traces", keys["write"], TRACE) == {}
    until(lambda: with_grpc.count(keys["query"]) == 2, 30, 0.5)


def test_a_folder_of_somebody_else_is_refused_in_one_sentence(engine: Engine, image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="trace-svc-volume-") as name:
        data = Path(name) / "data"
        data.mkdir(mode=0o700)
        said = subprocess.run(
            [
                *("docker", "-H", engine.host, "run", "--rm", *CONFINED),
                *("-v", f"{data}:/data", image),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert said.returncode == 1
        assert said.stderr.startswith("trace-svc: ")
        assert "/data" in said.stderr
        assert "Traceback" not in said.stderr


def test_any_account_may_own_the_volume(engine: Engine, image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="trace-svc-volume-") as name:
        os.chmod(name, 0o711)
        data = Path(name) / "data"
        data.mkdir(mode=0o700)
        os.chown(data, 54_321, 54_321)
        engine("rm", "-f", "other", check=False)
        engine(
            *("run", "-d", "--name", "other", "--user=54321:54321", *CONFINED, "-v", f"{data}:/data", image)
        )
        other = Container(engine, "other")
        other.healthy()
        assert other.ask("/v1/traces", other.keys()["write"], TRACE) == {}
        assert {path.stat().st_uid for path in data.rglob("*")} == {54_321}
        engine("stop", "other")
        assert other.state()["ExitCode"] == 0
        engine("rm", "-f", "other")


def test_the_image_says_what_is_in_it(engine: Engine, image: str) -> None:
    file = "/opt/trace-svc/share/trace-svc.cdx.json"
    bill = json.loads(engine("run", "--rm", "--network=none", "--entrypoint=cat", image, file))
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"] == "2026.11.1.dev3+gabc1234"
    code = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    python = ["--entrypoint=/opt/trace-svc/bin/python", image, "-c", code]
    there = set(engine("run", "--rm", "--network=none", *python).replace("_", "-").replace(".", "-").split())
    named = {part["name"].replace(".", "-") for part in bill["components"]}
    assert there - {"trace-svc"} == named


def test_the_image_exports_parquet(engine: Engine, image: str) -> None:
    python = ["--entrypoint=/opt/trace-svc/bin/python", image, "-c", "import pyarrow.parquet"]
    engine("run", "--rm", "--network=none", *python)


def test_the_image_has_neither_pip_nor_what_it_does_not_run(engine: Engine, image: str) -> None:
    listed = engine(
        "run", "--rm", "--network=none", "--entrypoint=find", image, "/opt/trace-svc", "-maxdepth", "5"
    )
    assert "/pip" not in listed
    assert "pginstall18" in listed
    assert "pginstall\n" not in listed + "\n"
    labels = json.loads(engine("inspect", image))[0]["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == "2026.11.1.dev3+gabc1234"
