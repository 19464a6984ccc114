"""The wheel holds every file of the packages: templates, static files, SQL and data, whatever they are named.

Built from the source archive, so that holds them as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[2]
PACKAGES = ("svc", "actors", "protocol")


def copied(folder: Path) -> Path:
    """The tracked files, as they are now."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    ).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "deploy/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def lacking(tree: Path, dist: Path) -> set[str]:
    """The files of our packages that the wheel of a tree does not hold."""
    files = {
        path.relative_to(tree).as_posix()
        for package in PACKAGES
        for path in (tree / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    subprocess.run(
        [
            *(sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"),
            *("--outdir", str(dist), str(tree)),
        ],
        env={
            **os.environ,
            "SVC_COMPILED_MODULES": "false",
            "SVC_BUILD_VERSION": "2026.1.0",
            "PYTHONPATH": "",
        },
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = dist.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not [name for name in names if not name.startswith((*PACKAGES, "trace_svc-"))]
    return files - names


def test_the_wheel_holds_every_file_of_the_packages_and_one_that_is_left_out_is_noticed(
    tmp_path: Path,
) -> None:
    tree = copied(tmp_path / "tree")
    assert lacking(tree, tmp_path / "dist") == set()
    # Of a kind that no line of pyproject.toml names.
    planted = tree / "svc" / "web" / "cases" / "planted.txt"
    planted.write_text("read by a page")
    assert lacking(tree, tmp_path / "again") == {"svc/web/cases/planted.txt"}
