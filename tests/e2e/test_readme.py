"""What the README and the pages beside it show, run as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.e2e.test_exporters import JS, node
from tests.readme import whole
from tests.service import Service, until

__all__ = ["node"]

#: All pages for users.
README = whole()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def env(service: Service) -> dict[str, str]:
    return {**os.environ, "SVC": service.url, "WRITE_KEY": service.write_key, "QUERY_KEY": service.query_key}


def _hello_spans(service: Service) -> int:
    asked = {"dataset": "spans", "filters": {"name": "chat gpt-4o", "model_id": "gpt-4o"}}
    count: int = service.ask("count", asked)["count"]
    return count


def test_the_python_example_sends_a_trace(service: Service, env: dict[str, str]) -> None:
    before = _hello_spans(service)
    (example,) = blocks("python")
    subprocess.run([sys.executable, "-c", example], env=env, check=True, timeout=60)
    until(lambda: _hello_spans(service) == before + 1)


def test_the_javascript_example_sends_a_trace(service: Service, env: dict[str, str], node: str) -> None:
    before = _hello_spans(service)
    (example,) = blocks("javascript")
    subprocess.run([node, "--input-type=module", "-e", example], cwd=JS, env=env, check=True, timeout=60)
    until(lambda: _hello_spans(service) == before + 1)


def test_the_questions_are_answered(service: Service, env: dict[str, str]) -> None:
    lines = re.findall(r'^curl "\$SVC/v1/query/.*$', README, re.MULTILINE)
    assert len(lines) == 5
    assert shutil.which("curl"), "curl is missing; .ci/run must install it"
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line], env=env, capture_output=True, text=True, timeout=30, check=True
        )
        assert done.stdout.startswith('{"ok":true,'), (line, done.stdout)


def test_the_key_made_on_the_page_opens_the_tools(service: Service, env: dict[str, str]) -> None:
    """The line above `claude mcp add` fills the variable that it reads."""
    lines = re.findall(r"^(export ADMIN_KEY=.*)\n(claude mcp add .*)$", README, re.MULTILINE)
    assert len(lines) == 2
    commands = str(Path(sys.executable).parent)
    path = {"PATH": f"{commands}:{env['PATH']}"}
    for export, connect in lines:
        # Shown instead of run: the client itself may not be here.
        done = subprocess.run(
            ["bash", "-euc", f"{export}\nprintf '%s\\n' {connect.removeprefix('claude mcp add')}"],
            env={**env, **service.env, **path, "SVC": service.url},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        url, (name, value) = done.stdout.split("\n")[3], done.stdout.split("\n")[5].split(": ")
        answer = httpx2.post(
            url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={name: value}, timeout=30
        )
        assert len(answer.json()["result"]["tools"]) == 19


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"trace-svc (serve|keys \w+|demo|doctor)", README))
    assert named >= {"keys create", "keys list", "keys rotate", "keys revoke", "demo", "doctor"}
    for command in named:
        subprocess.run(
            [str(Path(sys.executable).with_name("trace-svc")), *command.split(), "--help"],
            check=True,
            capture_output=True,
            timeout=30,
        )


def test_the_standard_variables_of_exporters_suffice(service: Service, env: dict[str, str]) -> None:
    (block,) = blocks("bash")
    send = (
        "from opentelemetry.sdk.trace import TracerProvider;"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor;"
        "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter;"
        "p = TracerProvider(); p.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()));"
        "p.get_tracer('t').start_span('by the variables alone').end(); p.shutdown()"
    )
    script = f'{block}\n"{sys.executable}" -c "{send}"'
    subprocess.run(["bash", "-euc", script], env=env, check=True, timeout=60)
    service.wait_for_spans(1, name="by the variables alone")


def test_the_map_names_every_room() -> None:
    root = Path(__file__).parents[2]
    rooms = re.findall(r"^\| `([a-z]+/[a-z./]*)`", README, re.MULTILINE)
    assert all((root / room).exists() for room in rooms)
    assert {"protocol/", "actors/", "svc/domain/", "svc/store/", "svc/front/", "svc/web/", "tests/"} <= set(
        rooms
    )
