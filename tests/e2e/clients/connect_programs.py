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
from typing import Any

import pytest

from svc.web.connect.programs import PROGRAMS, ExampleProgram
from tests.e2e.clients.real_clients import settled, unavailable
from tests.e2e.clients.standin import ANSWER, StandIn
from tests.e2e.environments import node_with, python_with
from tests.e2e.mcp import call
from tests.service import Service, running, until

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


#: How a coding agent is asked once, in the place of its program's last line, and what its home holds before.
ASKED = {
    "claude-code": ("claude", "-p"),
    "codex": ("codex", "exec --skip-git-repo-check"),
    "gemini-cli": ("gemini", "--skip-trust -p"),
}
_CODEX_MODELS = """model = "gpt-4o"
model_provider = "standin"
[model_providers.standin]
name = "standin"
base_url = "{url}/codex/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
_GEMINI_SETTINGS = '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'


@pytest.fixture(scope="module")
def hearing() -> Iterator[Service]:
    """A service that takes the log events of coding agents."""
    with running(SVC_INGEST_GENAI_EVENTS="true") as service:
        yield service


@pytest.mark.parametrize("key", ASKED)
def test_a_coding_agent_of_connect_ends_in_a_trace_with_model_tokens_and_messages(
    hearing: Service, standin: StandIn, tmp_path: Path, key: str
) -> None:
    node_with(HERE / "js_agents", "@openai/codex", otherwise=unavailable)
    [program] = [program for program in PROGRAMS if program.key == key]
    text = program.text(hearing.url, hearing.write_key)
    command, asks = ASKED[key]
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text(_GEMINI_SETTINGS)
    if program.is_added:
        config = tmp_path / program.file_name.removeprefix("~/")
        config.parent.mkdir()
        config.write_text(_CODEX_MODELS.format(url=standin.url) + text)
        text = command
    (tmp_path / "work").mkdir()
    once = f'{command}() {{ command {command} {asks} "{QUESTION}"; }}'
    done = subprocess.run(
        ["bash", "-c", f"{once}\n{text}"],
        cwd=tmp_path / "work",
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "PATH": f"{HERE / 'js_agents' / 'node_modules' / '.bin'}:{os.environ['PATH']}",
            "ANTHROPIC_BASE_URL": f"{standin.url}/{key}",
            "ANTHROPIC_API_KEY": "none",
            "OPENAI_API_KEY": "none",
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": f"{standin.url}/{key}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * RUN_TIMEOUT_S,
    )
    assert ANSWER in done.stdout, done.stderr[-3000:]

    def calls() -> list[dict[str, Any]]:
        rows = call(hearing, "list_spans", kind="llm", limit=50)["structuredContent"]["spans"]
        return [row for row in rows if row["call_site_id"].startswith(program.key.partition("-")[0])]

    until(lambda: bool(calls()))
    assert all(row["model_id"] and row["total_tokens"] == 150 and row["total_cost"] for row in calls())
    texts = ""
    for trace_id in {row["trace_id"] for row in calls()}:
        spans = settled(hearing, trace_id)["spans"]
        texts += str([[span["input"], span["output"]] for span in spans])
    assert QUESTION in texts


def test_the_spans_of_gemini_cli_say_model_tokens_messages_and_session(
    service: Service, standin: StandIn, tmp_path: Path
) -> None:
    node_with(HERE / "js_agents", "@openai/codex", otherwise=unavailable)
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text(_GEMINI_SETTINGS)
    (tmp_path / "work").mkdir()
    before = trace_ids(service)
    # Without a model it asks another one first which to take, and again until that answers in JSON.
    asks = ("-m", "gemini-2.5-flash", "--skip-trust", "-p", QUESTION)
    done = subprocess.run(
        [HERE / "js_agents" / "node_modules" / ".bin" / "gemini", *asks],
        cwd=tmp_path / "work",
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": f"{standin.url}/gemini-spans",
            "GEMINI_TELEMETRY_ENABLED": "true",
            "GEMINI_TELEMETRY_TRACES_ENABLED": "true",
            "GEMINI_TELEMETRY_TARGET": "local",
            "GEMINI_TELEMETRY_OTLP_PROTOCOL": "http",
            "GEMINI_TELEMETRY_OTLP_ENDPOINT": service.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer {service.write_key}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * RUN_TIMEOUT_S,
    )
    assert ANSWER in done.stdout, done.stderr[-3000:]

    def answers() -> list[dict[str, Any]]:
        traces = [settled(service, trace_id) for trace_id in sorted(trace_ids(service) - before)]
        return [span for trace in traces for span in trace["spans"] if span["kind"] == "llm"]

    until(lambda: any(ANSWER in str(span["output"]) for span in answers()))
    calls = standin.calls["gemini-spans", "generateContent"]
    assert len(answers()) == calls
    for span in answers():
        assert span["model_id"].startswith("gemini-")
        # It leaves out what was thought: 12 of 30 tokens of the answer.
        assert (span["input_tokens"], span["output_tokens"]) == (120, 18)
        assert span["total_cost"]
    assert QUESTION in str([span["input"] for span in answers()])
    assert len({settled(service, span["trace_id"])["session_id"] for span in answers()}) == 1


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

    until(lambda: trace_ids(service) > before)
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
