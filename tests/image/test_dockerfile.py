"""Laws of the Dockerfile that no engine is needed for; `test_image` builds it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.service import Service, free_port

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")


def healthy(bind: str | None) -> bool:
    """What the image's health check says when the service is bound there."""
    # A line that goes on in the next one is one to Docker.
    [words] = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)
    env = {"PATH": "/usr/bin:/bin"} | ({} if bind is None else {"SVC_HTTP_BIND": bind})
    done = subprocess.run(json.loads(words), env=env, capture_output=True, timeout=30)
    return done.returncode == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_the_health_check_asks_where_the_service_is_bound(service: Service, host: str) -> None:
    assert healthy(f"{host}:{service.port}")
    assert not healthy(f"{host}:{free_port()}")


def test_the_image_has_what_its_own_commands_ask_for() -> None:
    installed = re.findall(r"pip install [^\n]* (\S+) \\", DOCKERFILE)
    assert installed[0] == '".[parquet]"'


def test_the_engine_is_sent_all_that_the_image_copies_and_nothing_else() -> None:
    first, *lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert first == "*"
    sent = {line[1:] for line in lines if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert {source for copy in copies for source in copy.split()} == sent
    assert [source for source in sorted(sent) if not (ROOT / source).exists()] == []
