"""A thousand traces of a real Phoenix and of a real MLflow, moved in by one command each, with equal counts.

Not part of the default tests, because their packages are many: `make test-imports` runs this file. Each
server lives in an environment of its own, frozen in the lock files beside this one.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import httpx2
import pytest

from tests.e2e.environments import python_with
from tests.service import PLAIN, Service, free_port, running, until
from tests.wire import request, span

HERE = Path(__file__).parent
TRACES = 1000
#: The first start of Phoenix makes its database, which takes most of a minute on a busy machine.
START_TIMEOUT_S = 180.0
FILL_TIMEOUT_S = 300.0
#: Phoenix is most of a gigabyte.
INSTALL_TIMEOUT_S = 900.0
#: Traces of one request that fills a server.
BATCH_TRACES = 100
#: Traces that MLflow's own client logs; the rest come over its OTLP door.
LOGGED = 20

SAID = re.compile(r"^(\S.*?)  +(.*)$", re.MULTILINE)


def absent(part: str) -> NoReturn:
    """Without packages there is nothing to be said of a server, also in CI."""
    pytest.skip(f"no {part} here")


@pytest.fixture(scope="module")
def environments() -> dict[str, Path]:
    """The folder of programs of each environment; they are made side by side."""
    names = ("phoenix", "mlflow")
    with ThreadPoolExecutor() as pool:
        made = pool.map(
            lambda name: python_with(HERE / f"{name}.txt", otherwise=absent, timeout_s=INSTALL_TIMEOUT_S),
            names,
        )
    return {name: python.parent for name, python in zip(names, made, strict=True)}


@pytest.fixture(scope="module")
def instance() -> Iterator[Service]:
    """An empty instance."""
    with running() as service:
        yield service


@contextmanager
def serving(command: list[str], env: dict[str, str], health: str, log: Path) -> Iterator[None]:
    """A server while it answers."""
    with log.open("w") as sink:
        process = subprocess.Popen(
            command, env={**os.environ, **env}, stdout=sink, stderr=sink, cwd=log.parent
        )

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return httpx2.get(health, timeout=5, **PLAIN).status_code == 200
        except httpx2.TransportError:
            return False

    try:
        until(answers, START_TIMEOUT_S, 0.5)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def moved_in(instance: Service, *words: str) -> dict[str, str]:
    """What the command says; it ends well."""
    return dict(SAID.findall(instance.command("import", *words, timeout_s=FILL_TIMEOUT_S)))


def counted(found: dict[str, int]) -> str:
    return f"{found['traces']:,} traces, {found['spans']:,} spans, {found['tokens']:,} tokens"


def stored(instance: Service, name: str) -> int:
    answer: int = instance.ask("count", {"dataset": "spans", "filters": {"name": name}})["count"]
    return answer


def twice(instance: Service, theirs: dict[str, int], *words: str) -> None:
    """Move it in, then once more: the counts are theirs, and the second run adds nothing."""
    for new in (theirs["spans"], 0):
        told = moved_in(instance, *words)
        assert told["given"] == counted(theirs)
        assert told["now here"].startswith(counted(theirs))
        assert told["stored"] == f"{new:,} spans"
        assert told["compared"] == "equal"


def judged(instance: Service, name: str) -> list[tuple[str, str]]:
    """What kind of thing each entry of a name is about, and what it says."""
    body = {"dataset": "classifier_events", "filters": {"classifier_id": f"feedback.{name}"}}
    rows = [row["fields"] for row in instance.ask("search", body)["rows"]]
    return [(row["subject_kind"], row["summary"]) for row in rows]


# --- Phoenix -----------------------------------------------------------------------------------------------


def fill_phoenix(url: str) -> None:
    """Agents that call a model and a tool, as OpenInference tells them, over the last ten days."""
    now_ns = time.time_ns()
    for part in range(0, TRACES, BATCH_TRACES):
        made = []
        for n in range(part, part + BATCH_TRACES):
            trace, start = b"phoenix" + n.to_bytes(9, "big"), now_ns - n * 864 * 10**9 - 10**12
            ids = [(3 * n + k + 1).to_bytes(8, "big") for k in range(3)]
            agent = {"openinference.span.kind": "AGENT", "session.id": f"session {n % 50}"}
            call = {
                "openinference.span.kind": "LLM",
                "llm.model_name": "gpt-4o",
                "llm.provider": "openai",
                "llm.token_count.prompt": 100 + n,
                "llm.token_count.completion": 10,
                "llm.token_count.total": 110 + n,
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": f"question {n}",
            }
            tool = {"openinference.span.kind": "TOOL", "tool.name": "look_up", "input.value": '{"order": 1}'}
            times: dict[str, Any] = {"start_ns": start + 1000, "end_ns": start + 10**9}
            whole: dict[str, Any] = {"start_ns": start, "end_ns": start + 2 * 10**9}
            made += [
                span("phoenix agent", agent, trace_id=trace, span_id=ids[0], **whole),
                span("phoenix chat", call, trace_id=trace, span_id=ids[1], parent=ids[0], **times),
                span("look_up", tool, trace_id=trace, span_id=ids[2], parent=ids[0], **times),
            ]
        body = request(*made, resource={"openinference.project.name": "moving out"}).SerializeToString()
        headers = {"content-type": "application/x-protobuf"}
        answer = httpx2.post(f"{url}/v1/traces", content=body, headers=headers, timeout=60, **PLAIN)
        assert answer.status_code == 200, answer.text


def of_phoenix(url: str) -> dict[str, int]:
    """What Phoenix itself counts in the project."""
    asked = {"query": "{ projects { edges { node { name traceCount recordCount tokenCountTotal } } } }"}
    answer = httpx2.post(f"{url}/graphql", json=asked, timeout=60, **PLAIN).json()
    for edge in answer["data"]["projects"]["edges"]:
        if (node := edge["node"])["name"] == "moving out":
            return {
                "traces": node["traceCount"],
                "spans": node["recordCount"],
                "tokens": int(node["tokenCountTotal"] or 0),
            }
    return {"traces": 0, "spans": 0, "tokens": 0}


def test_a_thousand_traces_of_phoenix_are_here_with_its_own_counts(
    environments: dict[str, Path], instance: Service, tmp_path: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {
        "PHOENIX_WORKING_DIR": str(tmp_path),
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    command = [str(environments["phoenix"] / "phoenix"), "serve"]
    with serving(command, env, f"{url}/healthz", tmp_path / "phoenix.log"):
        fill_phoenix(url)
        until(lambda: of_phoenix(url)["spans"] == 3 * TRACES, FILL_TIMEOUT_S, 0.5)
        theirs = of_phoenix(url)
        assert theirs["traces"] == TRACES
        # The call and the session of the trace of this number, which its own client annotates.
        about = [
            (3 * 60 + 2).to_bytes(8, "big").hex(),
            (b"phoenix" + (60).to_bytes(9, "big")).hex(),
            "session 10",
        ]
        ended = subprocess.run(
            [environments["phoenix"] / "python", HERE / "judge_phoenix.py", url, json.dumps(about)],
            capture_output=True,
            text=True,
            timeout=FILL_TIMEOUT_S,
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        twice(instance, theirs, "phoenix", url, "--source-project", "moving out", "--service", "shop")
    assert stored(instance, "phoenix chat") == TRACES
    assert judged(instance, "correct") == [("span", "correct: 0.75 “It is what was asked.”")]
    assert judged(instance, "tone") == [("span", "tone: calm")]
    assert judged(instance, "helpful") == [("span", "helpful: 1")]
    assert judged(instance, "visit") == [("session", "visit: 0.5, solved")]


# --- MLflow ------------------------------------------------------------------------------------------------


def experiment(url: str) -> str:
    """The id of the experiment, which the client made."""
    answer = httpx2.get(
        f"{url}/api/2.0/mlflow/experiments/get-by-name",
        params={"experiment_name": "moving out"}, timeout=60, **PLAIN,
    )  # fmt: skip
    found: str = answer.json()["experiment"]["experiment_id"]
    return found


def fill_mlflow(url: str) -> None:
    """Over its OTLP door, for its client logs a trace at a time."""
    now_ns = time.time_ns()
    for part in range(LOGGED, TRACES, BATCH_TRACES):
        made = []
        for n in range(part, min(part + BATCH_TRACES, TRACES)):
            trace, start = b"mlflow" + n.to_bytes(10, "big"), now_ns - n * 864 * 10**9 - 10**12
            ids = [(3 * n + k + 1).to_bytes(8, "big") for k in range(3)]
            said = {"messages": [{"role": "user", "content": f"question {n}"}], "model": "gpt-4o"}
            used = {"input_tokens": 100 + n, "output_tokens": 10, "total_tokens": 110 + n}
            call = {
                "mlflow.spanType": '"CHAT_MODEL"',
                "mlflow.spanInputs": json.dumps(said),
                "mlflow.chat.tokenUsage": json.dumps(used),
                "mlflow.llm.model": '"gpt-4o"',
            }
            times: dict[str, Any] = {"start_ns": start + 1000, "end_ns": start + 10**9}
            whole: dict[str, Any] = {"start_ns": start, "end_ns": start + 2 * 10**9}
            agent, tool = {"mlflow.spanType": '"AGENT"'}, {"mlflow.spanType": '"TOOL"'}
            made += [
                span("answer", agent, trace_id=trace, span_id=ids[0], **whole),
                span("chat", call, trace_id=trace, span_id=ids[1], parent=ids[0], **times),
                span("look up", tool, trace_id=trace, span_id=ids[2], parent=ids[0], **times),
            ]
        answer = httpx2.post(
            f"{url}/v1/traces",
            content=request(*made, resource={"service.name": "shop"}).SerializeToString(),
            headers={"content-type": "application/x-protobuf", "x-mlflow-experiment-id": experiment(url)},
            timeout=120,
            **PLAIN,
        )
        assert answer.status_code == 200, answer.text


def of_mlflow(url: str, database: Path) -> dict[str, int]:
    """What MLflow itself says of the traces of the experiment, and how many spans its database has."""
    location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment(url)}}
    found = {"traces": 0, "spans": 0, "tokens": 0}
    asked: dict[str, Any] = {"locations": [location], "max_results": 500}
    while asked:
        page = httpx2.post(f"{url}/api/3.0/mlflow/traces/search", json=asked, timeout=60, **PLAIN).json()
        for trace in page.get("traces", ()):
            found["traces"] += 1
            # A trace is summed up some time after it came.
            said = trace.get("trace_metadata", {}).get("mlflow.trace.tokenUsage", '{"total_tokens": 0}')
            found["tokens"] += json.loads(said)["total_tokens"]
        behind = page.get("next_page_token")
        asked = {**asked, "page_token": behind} if behind else {}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        (found["spans"],) = opened.execute("select count(*) from spans").fetchone()
    return found


def test_a_thousand_traces_of_mlflow_are_here_with_its_own_counts(
    environments: dict[str, Path], instance: Service, tmp_path: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    folder = environments["mlflow"]
    command = [
        *(str(folder / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"),
        *("--artifacts-destination", str(tmp_path / "artifacts")),
    ]
    # Its programs find each other by the path.
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    with serving(command, env, f"{url}/health", tmp_path / "mlflow.log"):
        filled = subprocess.run(
            [folder / "python", HERE / "fill_mlflow.py", url, str(LOGGED)],
            env={**os.environ, "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false"},
            capture_output=True,
            text=True,
            timeout=FILL_TIMEOUT_S,
        )
        assert filled.returncode == 0, filled.stderr[-3000:]
        logged = json.loads(filled.stdout.splitlines()[-1])
        fill_mlflow(url)
        tokens = logged["tokens"] + sum(110 + n for n in range(LOGGED, TRACES))
        theirs = {"traces": TRACES, "spans": 3 * TRACES, "tokens": tokens}
        until(lambda: of_mlflow(url, tmp_path / "mlflow.db") == theirs, FILL_TIMEOUT_S, 1.0)
        twice(instance, theirs, "mlflow", url, "--source-project", "moving out", "--service", "shop")
    assert stored(instance, "chat") == TRACES
    assert judged(instance, "useful") == [("span", "useful: 1")]
    assert judged(instance, "grade") == [("span", "grade: 0.25 “It only repeats the question.”")]
    assert judged(instance, "manner") == [("span", "manner: calm")]
    # What somebody took back, and what an answer should have been, is no feedback.
    assert judged(instance, "expected") == []
