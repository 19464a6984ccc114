"""What CONTRIBUTING.md and SECURITY.md say is true: files, commands and settings exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from svc.config.table import setting_rows
from tests.house import ROOMS

ROOT = Path(__file__).parent.parent
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "SECURITY.md")}


def test_every_path_exists() -> None:
    text = PAGES["CONTRIBUTING.md"]
    named = set(re.findall(r"`((?:svc|actors|protocol|tests|deploy|\.ci)/[\w./]*)`", text))
    assert len(named) > 15
    assert [path for path in named if "NNNN" not in path and not (ROOT / path).exists()] == []


def test_the_layout_names_every_room() -> None:
    named = re.findall(r"^\| ((?:`[\w/.]+`(?:, )?)+) \|", PAGES["CONTRIBUTING.md"], re.M)
    rooms = {room.rstrip("/") for cell in named for room in re.findall(r"`([^`]+)`", cell)}
    # The store's own rooms are named in its line.
    wanted = {room for room in ROOMS if not room.startswith("svc/store/")} | {"svc/store", "tests", "deploy"}
    assert wanted - rooms == set()
    (store,) = re.findall(r"^\| `svc/store/` \| (.*) \|$", PAGES["CONTRIBUTING.md"], re.M)
    inner = {room.removeprefix("svc/store/") for room in ROOMS if room.startswith("svc/store/")}
    assert inner - {name.rstrip("/") for name in re.findall(r"`([\w/]+)`", store)} == set()


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([\w-]+)`", PAGES["CONTRIBUTING.md"]))
    assert named >= {"run", "test", "check"}
    assert [target for target in named if not re.search(rf"^{target}:", makefile, re.M)] == []


@pytest.mark.parametrize(
    "line", re.findall(r"^\.venv/bin/python -m pytest (.*)$", PAGES["CONTRIBUTING.md"], re.M)
)
def test_the_commands_for_one_test_find_tests(line: str) -> None:
    words = re.findall(r'"[^"]*"|\S+', line)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *(word.strip('"') for word in words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


def test_every_table_holds_what_is_named_as_its_line() -> None:
    for name, path in re.findall(r"`([A-Z]\w+)` in `([\w/.]+)`", PAGES["CONTRIBUTING.md"]):
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")), (name, path)


def test_every_setting_of_the_security_page_is_one() -> None:
    known = {row.name for row in setting_rows()}
    named = set(re.findall(r"`(SVC_\w+)", PAGES["SECURITY.md"]))
    assert named
    assert named <= known


def test_wheels_and_the_image_carry_the_license_and_the_notice() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    # What is built in the image is built from what is copied there.
    copied = re.findall(
        r"^COPY (.+) \./$", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"), re.M
    )
    assert {"LICENSE", "NOTICE"} <= set(copied[0].split())


def test_the_notice_names_what_was_taken_from_others() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    taken_from = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "svc").rglob("*.txt")
        if "Source:" in path.read_text(encoding="utf-8")
    ]
    assert taken_from
    assert [path for path in taken_from if path not in notice] == []
