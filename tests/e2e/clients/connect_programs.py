"""The programs of the page Connect run as they stand there: each makes a trace with model, tokens and
messages.

Not part of the default tests, because their packages are many: `make test-clients` runs this file. Models are
a stand-in, reached by the variables that their SDKs read; nothing in a program is changed but address and
key.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from svc.web.connect.programs import PROGRAMS, ExampleProgram
from tests.e2e.clients.real_clients import settled
from tests.e2e.clients.standin import ANSWER, StandIn, standing_in
from tests.e2e.environments import node_with, python_with
from tests.e2e.mcp import call
from tests.service import Service, until

HERE = Path(__file__).parent
RUN_TIMEOUT_S = 120
#: By program: the environment that holds its packages.
ENVIRONMENTS = {
    **dict.fromkeys(
        ("openai", "anthropic", "langgraph", "llamaindex", "pydantic-ai", "openai-agents"), "connect"
    ),
    "crewai": "connect_crewai",
    **dict.fromkeys(("vercel", "openai-js", "langchain-js"), "js_connect"),
}
#: Programs whose SDK says no session and no user.
SAYS_NO_SESSION = {"vercel"}
QUESTION = "What is the weather in Paris?"


def unavailable(part: str) -> NoReturn:
    """Registries need not serve so many packages everywhere: skip aloud, in CI too."""
    pytest.skip(f"{part} is not to be had here")


@pytest.fixture(scope="module")
def standin() -> Iterator[StandIn]:
    with standing_in() as found:
        yield found


def interpreter(program: ExampleProgram) -> str:
    """What runs it."""
    environment = ENVIRONMENTS.get(program.key)
    if environment is None:
        return "bash"
    if environment.startswith("js_"):
        return node_with(HERE / environment, "ai", "--legacy-peer-deps", otherwise=unavailable)
    return str(python_with(HERE / f"{environment}.txt", otherwise=unavailable))


def trace_ids(service: Service) -> set[str]:
    """The newest traces."""
    rows = call(service, "list_traces", limit=100)["structuredContent"]["traces"]
    return {row["trace_id"] for row in rows}


RUN = [program for program in PROGRAMS if program.key in ENVIRONMENTS or program.key == "curl"]


@pytest.mark.parametrize("program", RUN, ids=lambda program: program.key)
def test_a_program_of_connect_ends_in_a_trace_with_model_tokens_and_messages(
    service: Service, standin: StandIn, tmp_path: Path, program: ExampleProgram
) -> None:
    runs = interpreter(program)
    folder = tmp_path
    if runs.endswith("node"):
        # Packages are looked for from the folder of a module upwards.
        (tmp_path / "node_modules").symlink_to(HERE / ENVIRONMENTS[program.key] / "node_modules")
    script = folder / program.file_name
    script.write_text(program.text(service.url, service.write_key))
    before = trace_ids(service)
    models = f"{standin.url}/{program.key}"
    env = {
        **os.environ,
        "OPENAI_BASE_URL": f"{models}/v1",
        "OPENAI_API_BASE": f"{models}/v1",
        "ANTHROPIC_BASE_URL": models,
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_API_KEY": "none",
        "CREWAI_TRACING_ENABLED": "false",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [runs, str(script)], cwd=folder, env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]

    until(lambda: trace_ids(service) > before, timeout_s=60)
    traces = [settled(service, trace_id) for trace_id in sorted(trace_ids(service) - before)]
    spans = [span for trace in traces for span in trace["spans"]]
    answers = [span for span in spans if span["kind"] == "llm" and span["counts_as_call"]]
    assert answers, spans
    assert all(span["total_tokens"] for span in answers), answers
    assert all(span["model_id"] in ("gpt-4o-mini", "claude-sonnet-4-5") for span in answers)
    assert all(trace["total_cost"] and not trace["unpriced_spans"] for trace in traces)
    texts = str([[span["input"], span["output"]] for span in spans if span["kind"] == "llm"])
    assert QUESTION in texts
    assert ANSWER in texts
    assert all(span["call_site_id"].startswith("support-bot/") for span in spans)
    if program.key not in SAYS_NO_SESSION:
        assert {trace["session_id"] for trace in traces} == {"session-1"}
