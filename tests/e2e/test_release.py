"""A release: the same bytes from the same commit, everything in the wheel, sums and materials that fit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2
import pytest

from protocol.compiled import MODULES
from svc.store.postgres.migrate import migrations
from tests.conftest import missing
from tests.service import PLAIN, running

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.alone, pytest.mark.release]


def released(dist: Path) -> Path:
    """Make a release of the present commit; its folder."""
    subprocess.run(
        [sys.executable, "deploy/release.py", str(dist)],
        cwd=ROOT,
        # What is made is the same however well it is compiled, and made in a third of the time.
        env={**os.environ, "CFLAGS": "-O0"},
        check=True,
        capture_output=True,
        timeout=900,
    )
    return dist


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def wheel(dist: Path) -> Path:
    """The one for every system."""
    (wheel,) = dist.glob("*-py3-none-any.whl")
    return wheel


@pytest.fixture
def compiled_wheel(dist: Path) -> Path:
    """The one for this system and this Python."""
    found = list(dist.glob("*-cp3*.whl"))
    if not found:
        missing("a C compiler, for a wheel with compiled modules")
    (wheel,) = found
    return wheel


def test_the_same_commit_makes_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    again = released(tmp_path)
    assert {path.name for path in again.iterdir()} == {path.name for path in dist.iterdir()}
    for path in again.iterdir():
        assert path.read_bytes() == (dist / path.name).read_bytes(), path.name


def test_sums_and_materials_fit_what_lies_beside_them(dist: Path, wheel: Path) -> None:
    sums = dict(line.split()[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    (path,) = dist.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == wheel.name.split("-")[1]
    parts = {part["name"]: part for part in bill["components"]}
    pinned = dict(
        line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    # What is needed and what that needs in turn, and nothing of the tests.
    assert {"asyncpg", "hypercorn", "h11", "cryptography", "cffi"} <= parts.keys()
    assert not {"pytest", "mypy", "ruff", "playwright"} & parts.keys()
    for name, part in parts.items():
        assert pinned[name if name in pinned else name.replace("-", "_")] == part["version"], name


def installed(wheel: Path, target: Path) -> Path:
    """What a wheel holds, in a folder that a process may import from."""
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(("tests", "deploy", "setup"))]
    assert len([name for name in names if "/migrations/" in name]) == len(migrations())
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--target", str(target), str(wheel)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return target


def test_of_two_wheels_one_runs_compiled_and_one_everywhere(
    wheel: Path, compiled_wheel: Path, open_folder: Path
) -> None:
    for path, told in ((wheel, "nothing is compiled"), (compiled_wheel, f"compiled: {len(MODULES)} modules")):
        target = installed(path, open_folder / path.name)
        said = subprocess.run(
            [sys.executable, "-m", "svc", "--version"],
            env={"PYTHONPATH": str(target), "PATH": ""},
            cwd=open_folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        assert told in said


def test_the_wheel_alone_runs_the_service_with_its_pages(wheel: Path, open_folder: Path) -> None:
    target = installed(wheel, open_folder / "installed")
    with running(first=True, PYTHONPATH=str(target)) as service:
        page = httpx2.get(service.url, follow_redirects=True, **PLAIN)
        assert page.status_code == 200
        assert "<html" in page.text
        (style, *_) = [part.split('"')[0] for part in page.text.split('href="')[1:] if ".css" in part]
        assert httpx2.get(f"{service.url}{style}", **PLAIN).status_code == 200
        loaded = Path(f"/proc/{service.process.pid}/environ").read_bytes()
        assert str(target).encode() in loaded
        assert "trace-svc" in service.command("init", "--help")
