"""The host's agent CLI as the agent loop: what it is given, how it is judged, and that nothing is left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol.agents import RUN_TOOLS, RunLimits
from protocol.running import Credential, McpPlace, RunRequest
from svc.domain.agents.schemas import SCHEMAS
from svc.runner.failing import RunFailed
from svc.runner.runs import RunnerRun
from svc.runner.sandboxes.local_cli import LocalCli
from tests.service import until

TOKEN = "svc_a_" + "k" * 22
TRACE = "ab" * 16
REQUEST = RunRequest(
    kind="triage",
    files={"claim.json": "{}"},
    system_prompt="Judge.",
    prompt="Is it true?",
    json_schema=dict(SCHEMAS["triage"]),
    model="sonnet",
    credential=Credential("local"),
    mcp=McpPlace("http://127.0.0.1:1/mcp", TOKEN, RUN_TOOLS),
    limits=RunLimits(30.0, 12, 200_000, 2.0),
)

CLI = """#!{python}
import json, os, sys, time
seen = {{
    "arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(), "prompt":
    sys.stdin.read(), "config": open(sys.argv[sys.argv.index("--mcp-config") + 1]).read(),
}}
open({seen!r}, "w").write(json.dumps(seen))
def say(**message): print(json.dumps(message), flush=True)
{act}
"""
DOES_WELL = """
say(type="system", subtype="init")
say(type="assistant", message={"content": []})
say(type="user", message={"content": [{"type": "tool_result", "content": [{"type": "text", "text": "%s"}]}]})
answer = {"verdict": "positive", "summary": "seen", "citations": [{"kind": "trace", "id": "%s", "note": ""}]}
say(type="result", subtype="success", is_error=False, structured_output=answer, num_turns=2,
total_cost_usd=0.01,
    usage={"input_tokens": 10, "output_tokens": 5})
"""


def cli(folder: Path, act: str) -> tuple[LocalCli, Path]:
    program, seen = folder / "cli", folder / "seen.json"
    program.write_text(CLI.format(python=sys.executable, seen=str(seen), act=act))
    program.chmod(0o755)
    return LocalCli(str(program)), seen


def text_of(path: Path) -> str:
    """What a file says; nothing where there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


async def run(found: LocalCli) -> tuple[RunnerRun, dict[str, Any]]:
    made = RunnerRun("run.1", REQUEST.digest(), REQUEST)
    return made, await found.work(made)


async def test_it_is_given_the_project_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the service")
    found, seen = cli(tmp_path, DOES_WELL % (TRACE, TRACE))
    made, answer = await run(found)
    assert (answer["verdict"], made.spent.turns, made.spent.usd) == ("positive", 2, 0.01)
    told = json.loads(text_of(seen))
    assert TOKEN not in json.dumps([told["arguments"], told["config"], told["prompt"]])
    assert told["environment"]["RUN_TOKEN"] == TOKEN
    assert "ANTHROPIC_API_KEY" not in told["environment"]
    assert json.loads(told["config"])["mcpServers"]["svc"]["headers"] == {
        "Authorization": "Bearer ${RUN_TOKEN}"
    }
    arguments = told["arguments"]
    assert arguments[arguments.index("--tools") + 1] == ""
    assert {"--strict-mcp-config", "--no-session-persistence", "--json-schema"} <= set(arguments)
    assert told["prompt"] == "Judge.\n\nIs it true?"
    assert not text_of(Path(told["folder"]) / "mcp.json")


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        ('say(type="result", subtype="success", is_error=True)', "provider_refused"),
        (DOES_WELL % (TRACE, TRACE) + "\nsys.exit(1)", "provider_refused"),
        ("pass", "provider_refused"),
        (DOES_WELL % ("nothing", TRACE), "bad_output"),
        ('say(type="result", is_error=False, structured_output={"verdict": "so"})', "bad_output"),
    ],
)
async def test_it_is_judged_by_its_status_and_its_answer_by_the_checks(
    tmp_path: Path, act: str, kind: str
) -> None:
    found, _ = cli(tmp_path, act)
    with pytest.raises(RunFailed) as failed:
        await run(found)
    assert failed.value.failure.kind == kind


async def test_without_the_program_the_run_waits_for_people() -> None:
    with pytest.raises(RunFailed) as failed:
        await run(LocalCli("/nowhere/claude"))
    assert failed.value.failure.kind == "no_provider"


async def test_one_that_does_not_end_is_ended_with_all_it_began(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    act = (
        "import signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(600)"
    )
    found, _ = cli(tmp_path, act)
    with trio.move_on_after(60) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, found)
            await trio.to_thread.run_sync(until, lambda: len(text_of(pids).split()) == 2, 50.0)
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught

    def gone(pid: str) -> bool:
        stat = text_of(Path(f"/proc/{pid}/stat"))
        return not stat or stat.split()[2] == "Z"

    # What was killed dies when the kernel comes to it.
    await trio.to_thread.run_sync(until, lambda: all(gone(pid) for pid in text_of(pids).split()), 10.0)
