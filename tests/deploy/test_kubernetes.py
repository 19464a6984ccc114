"""The manifests for Kubernetes are in step with the service, its image and its settings.

With kustomize and the schemas of Kubernetes (`tests/deploy/kubernetes.sh`) they are built and checked whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from svc.config.checks import boot_refusals
from svc.config.table import read_settings, setting_rows
from tests.conftest import missing
from tests.service import PLAIN, Service, running

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
TOOLS = Path("/var/tmp/trace-svc-kubernetes/bin")
OVERLAYS = ("one", "many")
#: From the oldest one that knows all that is used, to the newest that the tool has.
VERSIONS = ("1.29", "1.33", "1.37")
NAME = {"app.kubernetes.io/name": "trace-svc"}


def read(path: str) -> Any:
    """One manifest."""
    return yaml.safe_load((FOLDER / path).read_text(encoding="utf-8"))


WORKLOADS = {"one": read("one/stateful-set.yaml"), "many": read("many/deployment.yaml")}


def pod(overlay: str) -> dict[str, Any]:
    """The pod of an overlay."""
    spec: dict[str, Any] = WORKLOADS[overlay]["spec"]["template"]["spec"]
    return spec


def container(overlay: str) -> dict[str, Any]:
    """Its one container."""
    (only,) = pod(overlay)["containers"]
    return dict(only)


def settings_of(overlay: str) -> dict[str, str]:
    """The environment of an overlay: the ConfigMap, its patches, and what the container sets by itself."""
    env = dict(read("base/settings.yaml")["data"])
    for patch in read(f"{overlay}/kustomization.yaml").get("patches", ()):
        for change in yaml.safe_load(patch["patch"]):
            assert change["op"] == "add"
            env[change["path"].removeprefix("/data/")] = change["value"]
    return env | {row["name"]: row["value"] for row in container(overlay)["env"]}


def test_every_manifest_is_part_of_an_overlay() -> None:
    for folder in ("base", *OVERLAYS, "monitoring"):
        listed = {name for name in read(f"{folder}/kustomization.yaml")["resources"] if name != "../base"}
        files = {path.name for path in (FOLDER / folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert listed == files, folder


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_find_the_pods(overlay: str) -> None:
    spec = WORKLOADS[overlay]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == NAME
    assert read("base/service.yaml")["spec"]["selector"] == NAME
    assert read("base/network-policy.yaml")["spec"]["podSelector"]["matchLabels"] == NAME
    assert read(f"{overlay}/disruption-budget.yaml")["spec"]["selector"]["matchLabels"] == NAME
    assert read("monitoring/service-monitor.yaml")["spec"]["selector"]["matchLabels"] == NAME


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_and_scrapes_ask_what_the_service_answers(overlay: str, service: Service) -> None:
    probes = [container(overlay)[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {probe["port"] for probe in probes} == {"http"}
    paths = [probe["path"] for probe in probes]
    paths += [endpoint["path"] for endpoint in read("monitoring/service-monitor.yaml")["spec"]["endpoints"]]
    for path in paths:
        assert httpx2.get(service.url + path, timeout=30, **PLAIN).status_code == 200
    assert paths[2] != paths[1], "a restart brings no database back"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ports_and_account_are_those_of_the_image(overlay: str) -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    ports = {port["name"]: port["containerPort"] for port in container(overlay)["ports"]}
    assert ports == {"http": 8000, "grpc": 4317}
    assert re.search(r"^EXPOSE 8000 8443 4317$", dockerfile, re.M)
    assert "SVC_HTTP_BIND=0.0.0.0:8000" in dockerfile
    named = {port["targetPort"] for port in read("base/service.yaml")["spec"]["ports"]}
    allowed = {rule["port"] for rule in read("base/network-policy.yaml")["spec"]["ingress"][0]["ports"]}
    assert named == allowed == ports.keys()
    account = pod(overlay)["securityContext"]
    assert f"USER {account['runAsUser']}:{account['runAsGroup']}" in dockerfile
    assert account["runAsNonRoot"] is True


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_stop_has_the_time_to_drain(overlay: str) -> None:
    (_, wait_s) = container(overlay)["lifecycle"]["preStop"]["exec"]["command"]
    drain_s = read_settings(settings_of(overlay)).shutdown_drain_s
    assert pod(overlay)["terminationGracePeriodSeconds"] >= int(wait_s) + drain_s + 15


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_is_bounded_as_compose_bounds_it(overlay: str) -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["trace-svc"]
    only = container(overlay)
    assert (compose["mem_limit"], only["resources"]["limits"]["memory"]) == ("${TRACE_SVC_MEMORY:-2g}", "2Gi")
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {mount["name"] for mount in only["volumeMounts"]}
    volumes = {volume["name"] for volume in pod(overlay)["volumes"]}
    claims = WORKLOADS[overlay]["spec"].get("volumeClaimTemplates", [])
    assert mounts == volumes | {claim["metadata"]["name"] for claim in claims}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_service_may_start_with_these_settings(overlay: str) -> None:
    env = settings_of(overlay)
    assert env.keys() <= {row.name for row in setting_rows() if not row.secret}
    assert boot_refusals(read_settings(env)) == []
    assert read_settings(env).embedded is (overlay == "one")


def test_every_setting_stands_in_one_of_the_two_files() -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import settings as s; print(s.config_map() + '@' + s.secret(), end='@')"],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    config_map, secret, _ = made.stdout.split("@")
    assert config_map == (FOLDER / "base" / "settings.yaml").read_text(), "run deploy/kubernetes/settings.py"
    assert secret == (FOLDER / "secret.example.yaml").read_text(), "run deploy/kubernetes/settings.py"
    left_out = set(re.findall(r'"([A-Z_]+)"', (FOLDER / "settings.py").read_text().split("SET: Final")[0]))
    for row in setting_rows():
        places = [text for text in (config_map, secret) if re.search(rf"^  (# )?{row.name}:", text, re.M)]
        if row.name not in left_out:
            assert places == [secret if row.secret else config_map], row.name


def test_a_start_leaves_the_folder_of_the_volume_as_the_cluster_made_it(open_folder: Path) -> None:
    volume = open_folder / "volume"
    volume.mkdir()
    # What fsGroup does; where it finds another mode the next time, it changes every file below.
    os.chown(volume, -1, os.getgid())
    volume.chmod(0o2770 | 0o005 * (os.geteuid() == 0))
    before = volume.stat()
    folder = volume / Path(settings_of("one")["SVC_DATA_DIR"]).name
    for _ in range(2):
        with running(folder):
            pass
        after = volume.stat()
        assert (after.st_mode, after.st_gid) == (before.st_mode, before.st_gid)


def built(overlay: str) -> str:
    """What kustomize makes of an overlay."""
    if not (TOOLS / "kustomize").exists():
        missing("kustomize, built by tests/deploy/kubernetes.sh,")
    done = subprocess.run(
        [TOOLS / "kustomize", "build", FOLDER / overlay],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def validated(file: Path, version: str) -> subprocess.CompletedProcess[str]:
    """What the schemas of a version say, where unknown fields are faults too."""
    return subprocess.run(
        [TOOLS / "kubernetes-validate", "--strict", "-k", version, file],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.release
@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_built_is_valid(overlay: str, version: str, tmp_path: Path) -> None:
    file = tmp_path / "built.yaml"
    file.write_text(built(overlay))
    done = validated(file, version)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed") == len(list(yaml.safe_load_all(file.read_text())))


@pytest.mark.release
def test_a_field_that_is_not_known_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "built.yaml"
    file.write_text(built("one").replace("serviceName:", "serviceNames:"))
    assert validated(file, VERSIONS[-1]).returncode != 0


@pytest.mark.release
def test_patches_arrive_in_what_is_built() -> None:
    for overlay in OVERLAYS:
        (config,) = (
            each for each in yaml.safe_load_all(built(overlay)) if each and each["kind"] == "ConfigMap"
        )
        env = settings_of(overlay)
        env.pop("SVC_DATA_DIR")
        assert config["data"] == env
    assert yaml.safe_load(built("monitoring"))["kind"] == "ServiceMonitor"
