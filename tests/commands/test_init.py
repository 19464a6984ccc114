"""The folder for Docker Compose: every setting reaches it, secrets are kept, nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from svc.config.checks import boot_refusals
from svc.config.table import read_settings, setting_rows
from tests.conftest import missing
from tests.forked import ran
from tests.service import TRACE_SVC, environment

ROOT = Path(__file__).parent.parent.parent

#: What the image says itself, and what is of the host alone.
FIXED = {"SVC_HTTP_BIND", "SVC_HTTPS_BIND", "SVC_DATA_DIR", "SVC_CERTS_DIR"}
HOST_ONLY = {"DB_DATA_DIR"}
#: What the runner has in the container as everywhere: its port, Docker's socket, no agent CLI of a host.
FIXED_FOR_RUNNER = {"SANDBOX_RUNNER_BIND", "SANDBOX_ENGINE_SOCKET", "SANDBOX_CLI"}
#: Of compose.yaml alone.
OWN = {"TRACE_SVC_IMAGE", "TRACE_SVC_MEMORY", "TRACE_SVC_DATA_DIR"}


COMPOSE = (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")


class Strict(yaml.SafeLoader):
    """Reads YAML as Docker Compose does: a key that stands twice is refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        assert not twice, f"{twice} twice, {node.start_mark}"
        return super().construct_mapping(node, deep=deep)


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(COMPOSE, Strict)
    return found


def init(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a data folder beside."""
    return ran(
        [TRACE_SVC, "init", str(folder), *arguments],
        env=environment(folder.parent / "data", **settings),
        timeout_s=60,
    )


def env_of(folder: Path) -> dict[str, str]:
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(AssertionError, match="SVC_TEE_MAX_BYTES"):
        yaml.load(COMPOSE.replace("SVC_TEE_HEADERS:", "SVC_TEE_MAX_BYTES:"), Strict)


def test_the_broker_has_bounded_memory() -> None:
    broker = compose()["services"]["kafka"]
    sizes = re.findall(r"-(?:Xmx|XX:\w+=)(\d+)m", broker["environment"]["KAFKA_HEAP_OPTS"])
    # Heap, classes, compiled code and buffers; threads and the machine itself take the rest.
    assert len(sizes) == 4
    assert sum(map(int, sizes)) <= 512 <= int(broker["mem_limit"].removesuffix("m")) <= 640


def test_compose_hands_every_setting_to_the_container_and_no_other() -> None:
    names = {row.name for row in setting_rows()}
    services = compose()["services"]
    service, runner = (services[name]["environment"].keys() for name in ("trace-svc", "sandbox-runner"))
    assert service | runner == names - FIXED - HOST_ONLY - FIXED_FOR_RUNNER
    # Credentials of model providers are the runner's alone.
    assert {"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "SANDBOX_HOSTED_KEY"} <= runner - service
    assert {"SANDBOX_RUNNER_KEY", "AGENT_PROVIDER", "CLOUD_REGION"} <= runner & service
    assert not {name for name in runner - service if name.startswith("SVC_")}
    assert set(re.findall(r"\$\{([A-Z_]+)", COMPOSE)) <= names | OWN


def test_the_defaults_of_compose_are_those_of_the_table() -> None:
    defaults = {row.name: row.default for row in setting_rows()}
    said = dict(re.findall(r"\$\{((?:DB|HTTP|HTTPS|SVC)_[A-Z_]+):-([^}$]+)\}", COMPOSE))
    assert said.keys() == {
        *("DB_DATA_DIR", "DB_NAME", "DB_USER", "DB_PASSWORD", "HTTP_PORT", "HTTPS_PORT"),
        "SVC_INGEST_OTLP_GRPC_PORT",
    }
    assert said == {name: defaults[name] for name in said}


def test_the_container_is_confined() -> None:
    service = compose()["services"]["trace-svc"]
    assert service["read_only"] is True
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert service["stop_grace_period"] == "40s"
    assert service["ports"][:2] == ["${HTTP_PORT:-80}:8000", "${HTTPS_PORT:-443}:8443"]
    runner = compose()["services"]["sandbox-runner"]
    assert (runner["read_only"], runner["cap_drop"], runner["profiles"]) == (True, ["ALL"], ["agents"])
    assert "ports" not in runner, "nobody else may reach it"
    sockets = [name for name, one in compose()["services"].items() if "docker.sock" in str(one["volumes"])]
    assert sockets == ["sandbox-runner"]
    named = {volume.partition(":")[0] for one in compose()["services"].values() for volume in one["volumes"]}
    assert {"trace-svc-db", "trace-svc-kafka", "trace-svc-state"} == compose()["volumes"].keys()
    assert "trace-svc-kafka" in named


def test_a_folder_has_fresh_secrets_that_a_public_name_may_run_on(tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = init(tmp_path / name, "--domain", "traces.example.org", "--email", "me@example.org")
        assert done.returncode == 0, done.stderr
        assert f"next, in {tmp_path / name}: docker compose up -d\n" in done.stdout
    one, two = env_of(tmp_path / "one"), env_of(tmp_path / "two")
    assert boot_refusals(read_settings(one)) == []
    assert one["SVC_SECRET_KEY"] != two["SVC_SECRET_KEY"]
    assert one["SVC_AUTH_COOKIE_PASSWORD"] != two["SVC_AUTH_COOKIE_PASSWORD"]
    assert one["SVC_SECRET_KEY"] not in done.stdout
    assert (tmp_path / "one" / ".env").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "one" / "compose.yaml").read_text() == (ROOT / "deploy/compose.yaml").read_text()


def test_the_secrets_of_a_local_instance_are_taken_along(tmp_path: Path) -> None:
    secrets = tmp_path / "data" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "secret-key").write_text("B" * 43 + "=\n")
    assert init(tmp_path / "one", "--postgres").returncode == 0
    env = env_of(tmp_path / "one")
    assert env["SVC_SECRET_KEY"] == "B" * 43 + "="
    assert (env["DB_HOST"], env["TRACE_SVC_DATA_DIR"]) == ("postgres", "trace-svc-state")
    assert len(env["DB_PASSWORD"]) >= 24


@pytest.mark.parametrize("name", ["compose.yaml", ".env"])
def test_nothing_that_is_there_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / name).write_text("mine")
    done = init(tmp_path / "one")
    assert (done.returncode, done.stderr) == (
        1,
        f"trace-svc: {tmp_path / 'one' / name} exists; nothing was written\n",
    )
    assert os.listdir(tmp_path / "one") == [name]


def test_a_domain_without_an_address_for_the_authority_is_refused(tmp_path: Path) -> None:
    done = init(tmp_path / "one", "--domain", "traces.example.org")
    assert done.returncode == 1
    assert "--email is missing" in done.stderr
    assert not (tmp_path / "one").exists()


#: What `tests/image/compose.sh` builds where the machine has no Compose.
BUILT = Path(os.environ.get("TRACE_SVC_COMPOSE", "/var/tmp/trace-svc-compose")) / "docker-compose"


@pytest.fixture(scope="module")
def docker_compose() -> list[str]:
    """Docker Compose by its command; version 1, a program of its own that is no longer kept, is none."""
    for words in (["docker", "compose"], ["docker-compose"], [str(BUILT)]):
        if shutil.which(words[0]) is None:
            continue
        said = subprocess.run([*words, "version"], capture_output=True, text=True, check=False, timeout=30)
        if said.returncode == 0 and "Docker Compose version" in said.stdout:
            return words
    missing(f"Docker Compose, which tests/image/compose.sh builds into {BUILT.parent},")


@pytest.mark.parametrize(
    ("arguments", "profiles"),
    [
        ([], []),
        (["--domain", "traces.example.org", "--email", "me@example.org"], []),
        (["--postgres"], ["postgres"]),
        ([], ["kafka"]),
        ([], ["agents"]),
        (["--postgres"], ["postgres", "kafka", "agents"]),
    ],
    ids=["plain", "public", "postgres", "kafka", "agents", "all"],
)
@pytest.mark.release
def test_docker_compose_reads_the_file(
    tmp_path: Path, docker_compose: list[str], arguments: list[str], profiles: list[str]
) -> None:
    services = _read_by(docker_compose, tmp_path / "one", arguments, profiles)
    wanted = {name for name in profiles if name != "agents"}
    wanted |= {"sandbox-runner"} if "agents" in profiles else set()
    assert services.keys() == {"trace-svc", *wanted}


@pytest.mark.release
def test_the_port_of_grpc_is_published_when_grpc_is_on(tmp_path: Path, docker_compose: list[str]) -> None:
    def ports(name: str, **settings: str) -> dict[int, str | None]:
        lines = [f"{key}={value}" for key, value in settings.items()]
        service = _read_by(docker_compose, tmp_path / name, [], [], lines)["trace-svc"]
        return {port["target"]: port.get("published") for port in service["ports"]}

    assert ports("off") == {8000: "80", 8443: "443", 4317: None}
    assert ports("on", SVC_INGEST_OTLP_TRANSPORT="BOTH")[4317] == "4317"
    moved = ports("moved", SVC_INGEST_OTLP_TRANSPORT="GRPC", SVC_INGEST_OTLP_GRPC_PORT="4320", HTTP_PORT="81")
    assert moved == {8000: "81", 8443: "443", 4320: "4320"}


def _read_by(
    docker_compose: list[str],
    folder: Path,
    arguments: list[str],
    profiles: list[str],
    lines: Sequence[str] = (),
) -> dict[str, Any]:
    """The services of a folder that `init` wrote, as Docker Compose understands them."""
    done = init(folder, *arguments)
    assert done.returncode == 0, done.stderr
    with (folder / ".env").open("a") as env:
        env.writelines(line + "\n" for line in lines)
    words = [word for profile in profiles for word in ("--profile", profile)]
    done = subprocess.run(
        [*docker_compose, *words, "config", "--format", "json"],
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    services: dict[str, Any] = json.loads(done.stdout)["services"]
    return services
