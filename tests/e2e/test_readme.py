"""What the README and the other pages show, run as it is written there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from svc.commands.command_line import command_parser
from svc.front.mcp.tools import TOOLS
from tests.e2e.test_exporters import JS, node
from tests.readme import tables, whole
from tests.service import Service, until

__all__ = ["node"]

ROOT = Path(__file__).parents[2]
#: All pages for users.
README = whole()
#: A program that exports one span of a name, by what the environment says.
SEND = (
    "from opentelemetry.sdk.trace import TracerProvider;"
    "from opentelemetry.sdk.trace.export import SimpleSpanProcessor;"
    "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter;"
    "p = TracerProvider(); p.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()));"
    "p.get_tracer('t').start_span('{}').end(); p.shutdown()"
)


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
    assert len(lines) >= 5
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
    for export, connect in lines:
        # Shown instead of run: the client itself may not be here.
        done = subprocess.run(
            ["bash", "-euc", f"{export}\nprintf '%s\\n' {connect.removeprefix('claude mcp add')}"],
            env={**env, **service.env, **_on_path(env), "SVC": service.url},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        url, (name, value) = done.stdout.split("\n")[3], done.stdout.split("\n")[5].split(": ")
        answer = httpx2.post(
            url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={name: value}, timeout=30
        )
        assert len(answer.json()["result"]["tools"]) == len(TOOLS)


def _on_path(env: dict[str, str]) -> dict[str, str]:
    """The environment of somebody who has put the command on their path."""
    return {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}


def test_the_keys_made_on_the_first_page_send_and_ask(service: Service, env: dict[str, str]) -> None:
    """Each variable that the page reads is filled by a line above its first use."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = (
        block for block in re.findall(r"^```\n(.*?)^```", page, re.M | re.S) if "export WRITE_KEY=" in block
    )
    assert block.startswith("export SVC=")
    for name in ("SVC", "WRITE_KEY", "QUERY_KEY", "ADMIN_KEY"):
        assert (
            f"${name}" not in page[: page.index(f"export {name}=$") if name != "SVC" else page.index(block)]
        )
    keys = "\n".join(line for line in block.splitlines() if "_KEY=" in line)
    standard, send = blocks("bash")[0], SEND.format("by a key of the first page")
    ask = (
        """curl -fsS "$SVC/v1/query/count" -H "Authorization: Bearer $QUERY_KEY" -d '{"dataset": "spans"}'"""
    )
    done = subprocess.run(
        ["bash", "-euc", f'{keys}\n{standard}\n"{sys.executable}" -c "{send}"\n{ask}'],
        env={**env, **service.env, **_on_path(env), "SVC": service.url, "WRITE_KEY": "", "QUERY_KEY": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.startswith('{"ok":true,')
    service.wait_for_spans(1, name="by a key of the first page")


def test_the_command_is_found_after_the_line_that_says_where_it_is(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^export PATH=.*$", page, re.M)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    done = subprocess.run(
        ["bash", "-euc", f"{line}\ncommand -v trace-svc"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == f"{tmp_path}/.venv/bin/trace-svc\n"


def _command_lines() -> list[str]:
    """Every line of a block, on any page, that is a command of ours."""
    code = re.findall(r"^```\w*\n(.*?)^```", README, re.M | re.S)
    lines = "\n".join(code).replace("docker compose run --rm trace-svc ", "").splitlines()
    whole_lines = [re.sub(r"^TRACE_SVC_IMAGE=\S+ trace-svc ", "trace-svc ", line) for line in lines]
    inside = re.findall(r"\$\((trace-svc [^)]*)\)", "\n".join(whole_lines))
    return [line for line in whole_lines if re.match(r"(\.venv/bin/)?trace-svc ", line)] + inside


@pytest.mark.parametrize("line", _command_lines())
def test_every_command_of_the_pages_is_one_with_its_arguments(line: str) -> None:
    words = shlex.split(line.split(" > ")[0], comments=True)[1:]
    command_parser(words).parse_args(words)


def test_a_command_that_there_is_not_is_noticed() -> None:
    for line in ("trace-svc demo --month 4", "trace-svc kees create", "trace-svc cases resolve"):
        with pytest.raises(SystemExit):
            test_every_command_of_the_pages_is_one_with_its_arguments(line)
    assert len(_command_lines()) > 40


@pytest.mark.parametrize("block", blocks("bash"))
def test_the_standard_variables_of_exporters_suffice(
    service: Service, env: dict[str, str], block: str
) -> None:
    name = f"by the variables alone {os.urandom(4).hex()}"
    script = f'{block}\n"{sys.executable}" -c "{SEND.format(name)}"'
    subprocess.run(["bash", "-euc", script], env=env, check=True, timeout=60)
    service.wait_for_spans(1, name=name)


def test_the_first_page_claims_only_what_stands_elsewhere() -> None:
    """Its figures were measured, its lists are those of the code."""
    page, measured = (
        (ROOT / path).read_text(encoding="utf-8") for path in ("README.md", "deploy/BENCHMARKS.md")
    )
    (row,) = re.findall(r"^\| Spans stored per second.*$", page, re.M)
    figures = re.findall(r"\d[\d,]+", row)
    assert len(figures) == 4
    assert [figure for figure in figures if not re.search(rf"(?<![\d,]){figure}(?![\d,])", measured)] == []
    sizes = re.findall(r"[\d.]+ GB", page)
    assert len(sizes) == 2
    assert [
        size for size in sizes if size not in (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    ] == []
    (folders,) = re.findall(r"Data is kept in `(.*?)` \(as root in\s`(.*?)`\)", page)
    assert "| `SVC_DATA_DIR` | path | {}, for root {} |".format(*folders) in tables()["settings"]
    assert f"{len(TOOLS)} read-only tools" in page
    assert "Thirteen detectors run" in page
    assert tables()["detectors"].count("| always |") == 13
    (understood,) = re.findall(r"^Understands (.*?) and \[more\]", page, re.M | re.S)
    titles = tables()["dialects"]
    names = [name.strip() for name in understood.replace("\n", " ").split(",")]
    assert len(names) > 10
    assert [name for name in names if name not in titles] == []
