"""What `deploy/README.md` shows is run as it stands there; what needs an engine must at least exist."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.commands.test_init import compose
from tests.service import TRACE_SVC, Service

PAGE = (Path(__file__).parents[2] / "deploy" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
#: A service that is asked to serve ends when it is told to; the shared one stands for it.
RUN = [block for block in BLOCKS if "docker" not in block and block != "trace-svc serve\n"]


def test_the_page_has_commands_for_each_way() -> None:
    headings = re.findall(r"^## (\w+)", PAGE, re.MULTILINE)
    assert headings[:5] == ["How", "Small", "Public", "Durable", "Large"]
    assert len(BLOCKS) == 9
    assert "trace-svc serve\n" in BLOCKS


@pytest.mark.parametrize("block", RUN)
def test_a_command_of_the_page_does_what_it_says(service: Service, tmp_path: Path, block: str) -> None:
    path = f"{Path(TRACE_SVC).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=tmp_path,
        env={**service.env, "PATH": path, "SVC": service.url, "SVC_HTTP_BIND": f"127.0.0.1:{service.port}"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in tmp_path.iterdir():
        assert {path.name for path in folder.iterdir()} == {"compose.yaml", ".env", "certs"}


def test_what_needs_an_engine_names_folders_and_profiles_that_there_are() -> None:
    services = compose()["services"]
    profiles = {name for one in services.values() for name in one.get("profiles", ())}
    made = {name for block in RUN for name in re.findall(r"trace-svc init (\w+)", block)}
    for block in BLOCKS:
        if "docker" in block:
            assert set(re.findall(r"^cd (\w+)", block, re.MULTILINE)) <= made
            assert set(re.findall(r"--profile (\w+)", block)) <= profiles
            assert set(re.findall(r"exec ([\w-]+)", block)) <= services.keys()
