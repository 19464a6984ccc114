"""A release: the same bytes from the same commit, everything in the wheel, sums and materials that fit."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2
import pytest

from svc.store.postgres.migrate import migrations
from tests.service import PLAIN, running

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.alone


def released(dist: Path) -> Path:
    """Make a release of the present commit; its wheel."""
    subprocess.run(
        [sys.executable, "deploy/release.py", str(dist)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("dist"))


def test_the_same_commit_makes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    again = released(tmp_path)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
    assert (tmp_path / "SHA256SUMS").read_text() == (wheel.parent / "SHA256SUMS").read_text()


def test_sums_and_materials_fit_what_lies_beside_them(wheel: Path) -> None:
    sums = dict(line.split()[::-1] for line in (wheel.parent / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {path.name for path in wheel.parent.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((wheel.parent / name).read_bytes()).hexdigest() == digest
    (path,) = wheel.parent.glob("*.cdx.json")
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


def test_the_wheel_alone_runs_the_service_with_its_pages(wheel: Path, open_folder: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(("tests", "deploy"))]
    assert len([name for name in names if "/migrations/" in name]) == len(migrations())
    target = open_folder / "installed"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--target", str(target), str(wheel)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    with running(first=True, PYTHONPATH=str(target)) as service:
        page = httpx2.get(service.url, follow_redirects=True, **PLAIN)
        assert page.status_code == 200
        assert "<html" in page.text
        (style, *_) = [part.split('"')[0] for part in page.text.split('href="')[1:] if ".css" in part]
        assert httpx2.get(f"{service.url}{style}", **PLAIN).status_code == 200
        loaded = Path(f"/proc/{service.process.pid}/environ").read_bytes()
        assert str(target).encode() in loaded
        assert "trace-svc" in service.command("init", "--help")
