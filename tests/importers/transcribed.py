"""Transcripts of coding agents, rebuilt with the field names of Claude Code 2.1 and Codex 0.169."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

START: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
SESSION: Final = "0b7e4c1e-5f4e-4b43-9d0e-0f6d2a1c9f11"
FOLDER: Final = "/home/mara/src/shop"

THREAD: Final = "019aa000-0000-7000-8000-000000000001"
CHILD: Final = "019aa000-0002-7000-8000-000000000002"
FORK: Final = "019aa000-000f-7000-8000-000000000003"
URL: Final = "git@github.com:acme/shop.git"


def turn_id(number: int) -> str:
    """Codex's name of a turn: its first part is its time."""
    return f"019aa000-{number:04x}-7000-8000-0000000000aa"


def lines(rows: list[dict[str, Any]]) -> bytes:
    """Rows as a file."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


@attrs.define
class Claude:
    """Writes the lines of one of Claude Code's files; each is a second later than the one before."""

    session: str = SESSION
    agent: str | None = None
    sidechain: bool = False
    second: int = 0
    rows: list[dict[str, Any]] = attrs.field(factory=list)
    prefix: str = "main"

    def line(self, kind: str, **fields: Any) -> str:
        self.second += 1
        uuid = f"{self.prefix}-{len(self.rows)}"
        row = {
            "parentUuid": self.rows[-1].get("uuid") if self.rows else None,
            "isSidechain": self.sidechain,
            "userType": "external",
            "cwd": FOLDER,
            "sessionId": self.session,
            "version": "2.1.79",
            "gitBranch": "feature/returns",
            "type": kind,
            "uuid": uuid,
            "timestamp": (START + timedelta(seconds=self.second)).isoformat(timespec="milliseconds"),
            **fields,
        }
        if self.agent is not None:
            row["agentId"] = self.agent
        self.rows.append(row)
        return uuid

    def prompt(self, text: str, **fields: Any) -> str:
        return self.line("user", message={"role": "user", "content": text}, **fields)

    def answer(self, message_id: str, block: dict[str, Any], usage: dict[str, Any], **fields: Any) -> str:
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-5-20251101",
            "content": [block],
            "stop_reason": fields.pop("stop_reason", None),
            "stop_sequence": None,
            "usage": usage,
        }
        return self.line("assistant", message=message, requestId=f"req_{message_id}", **fields)

    def result(self, call_id: str, content: Any, *, is_error: bool = False, **fields: Any) -> str:
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        if is_error:
            block["is_error"] = True
        return self.line("user", message={"role": "user", "content": [block]}, **fields)


def usage(plain: int, output: int, write: int = 0, read: int = 0) -> dict[str, Any]:
    """Usage as the Messages API tells it."""
    return {
        "input_tokens": plain,
        "cache_creation_input_tokens": write,
        "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "speed": "standard",
    }


def tool(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def first_turn(file: Claude) -> None:
    """Two calls of the model, a tool that failed, a sub-agent."""
    file.rows.append({"type": "queue-operation", "operation": "dequeue", "sessionId": file.session})
    file.prompt("<local-command-caveat>", isMeta=True)
    file.prompt("Why do returns fail?")
    thinking = {"type": "thinking", "thinking": "Look at the tests.", "signature": "c2lnbmF0dXJl"}
    file.answer("msg_01", thinking, usage(3, 1, 1000, 5000))
    file.answer("msg_01", tool("toolu_bash", "Bash", command="pytest"), usage(3, 40, 1000, 5000))
    file.line("progress", data={"type": "hook_progress"}, toolUseID="toolu_bash")
    file.result("toolu_bash", "Exit code 1\n2 failed", is_error=True, toolUseResult="Error: Exit code 1")
    asks = tool("toolu_task", "Task", subagent_type="Explore", prompt="Find refunds", description="find")
    file.answer("msg_02", asks, usage(5, 30, 200, 6000))
    file.result(
        "toolu_task",
        [text("in refunds.py"), text("agentId: a1b2c3d (for resuming)")],
        toolUseResult={"status": "completed", "agentId": "a1b2c3d", "totalTokens": 110},
    )
    file.answer("msg_03", text("A rounding error."), usage(7, 20, 0, 7000), stop_reason="end_turn")


def second_turn(file: Claude) -> None:
    """A call that failed, and one that did not."""
    file.prompt("Fix it.")
    file.line(
        "assistant",
        message={
            "id": "5b0d",
            "role": "assistant",
            "model": "<synthetic>",
            "content": [text("API Error: 529 overloaded")],
            "usage": usage(0, 0),
        },
        isApiErrorMessage=True,
        error="overloaded",
    )
    file.answer("msg_04", text("Fixed."), usage(2, 10, 50, 9000), stop_reason="end_turn")


def sub_agent() -> Claude:
    """What the sub-agent of the first turn did, in a file of its own."""
    file = Claude(agent="a1b2c3d", sidechain=True, second=8, prefix="agent")
    file.prompt("Find refunds")
    file.answer("msg_a1", tool("toolu_grep", "Grep", pattern="refund"), usage(10, 15))
    file.result("toolu_grep", "refunds.py:1")
    file.answer("msg_a2", text("in refunds.py"), usage(70, 15), stop_reason="end_turn")
    return file


def claude_folder(folder: Path, *, turns: int = 2) -> Path:
    """A folder as `~/.claude/projects`; returns the session's file."""
    project = folder / "-home-mara-src-shop"
    session = Claude()
    first_turn(session)
    if turns > 1:
        second_turn(session)
    agents = project / SESSION / "subagents"
    agents.mkdir(parents=True, exist_ok=True)
    (project / f"{SESSION}.jsonl").write_bytes(lines(session.rows))
    (agents / "agent-a1b2c3d.jsonl").write_bytes(lines(sub_agent().rows))
    (agents / "agent-a1b2c3d.meta.json").write_bytes(b'{"agentType":"Explore"}')
    return project / f"{SESSION}.jsonl"


@attrs.define
class Rollout:
    """Writes the lines of one of Codex's files; each is a second later than the one before."""

    second: int = 0
    rows: list[dict[str, Any]] = attrs.field(factory=list)
    total: dict[str, int] = attrs.field(factory=dict)

    def line(self, kind: str, payload: dict[str, Any]) -> None:
        self.second += 1
        moment = (START + timedelta(seconds=self.second)).isoformat(timespec="milliseconds")
        self.rows.append({"timestamp": moment, "type": kind, "payload": payload})

    def meta(self, thread: str, **fields: Any) -> None:
        payload = {
            "id": thread,
            "timestamp": START.isoformat(),
            "cwd": FOLDER,
            "originator": "codex_cli_rs",
            "cli_version": "0.169.0",
            "source": "cli",
            "model_provider": "openai",
            "git": {"commit_hash": "4f2a", "branch": "feature/returns", "repository_url": URL},
        }
        self.line("session_meta", payload | fields)

    def begin(self, number: int, prompt: str) -> None:
        turn = turn_id(number)
        self.event("task_started", turn_id=turn, model_context_window=272000)
        context = {"turn_id": turn, "cwd": FOLDER, "model": "gpt-5-codex", "effort": "high"}
        self.line("turn_context", context)
        self.item("message", role="user", content=[{"type": "input_text", "text": prompt}])
        self.event("user_message", message=prompt, images=[])

    def event(self, kind: str, **fields: Any) -> None:
        self.line("event_msg", {"type": kind, **fields})

    def item(self, kind: str, **fields: Any) -> None:
        self.line("response_item", {"type": kind, **fields})

    def used(self, given: int, cached: int, output: int, reasoned: int, *, again: bool = False) -> None:
        last = {
            "input_tokens": given,
            "cached_input_tokens": cached,
            "output_tokens": output,
            "reasoning_output_tokens": reasoned,
            "total_tokens": given + output,
        }
        if not again:
            self.total = {key: self.total.get(key, 0) + value for key, value in last.items()}
        info = {"total_token_usage": self.total, "last_token_usage": last, "model_context_window": 272000}
        self.event("token_count", info=info, rate_limits={"primary": {"used_percent": 7.0}})


def codex_turns(file: Rollout) -> None:
    """A command that failed, a patch that did not, a sub-agent, usage that is told twice."""
    file.begin(1, "Why do returns fail?")
    file.event("token_count", info=None, rate_limits={"primary": {"used_percent": 7.0}})
    summary = [{"type": "summary_text", "text": "Look at the tests"}]
    file.item("reasoning", id="rs_1", summary=summary, encrypted_content="gAAAA")
    file.item("function_call", name="exec_command", arguments='{"cmd":"pytest"}', call_id="call_exec")
    file.used(4000, 3000, 120, 64)
    file.used(4000, 3000, 120, 64, again=True)
    failed = "Chunk ID: 1\nProcess exited with code 1\nOutput:\n2 failed"
    file.item("function_call_output", call_id="call_exec", output=failed)
    asks = '{"message":"Find refunds","agent_type":"explorer"}'
    file.item("function_call", name="spawn_agent", arguments=asks, call_id="call_spawn")
    file.item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="call_patch")
    file.used(4400, 4000, 80, 0)
    file.item("function_call_output", call_id="call_spawn", output=f'{{"agent_id":"{CHILD}"}}')
    file.event("patch_apply_end", call_id="call_patch", success=True, stdout="Success.", stderr="")
    file.item("custom_tool_call_output", call_id="call_patch", output='{"output":"Success."}')
    said = [{"type": "output_text", "text": "A rounding error."}]
    file.item("message", role="assistant", content=said, phase="final")
    file.event("agent_message", message="A rounding error.")
    file.used(4700, 4400, 30, 10)
    file.event("task_complete", turn_id=turn_id(1), last_agent_message="A rounding error.")


def codex_folder(folder: Path) -> Path:
    """A folder as `~/.codex/sessions`, with a sub-agent and a fork; returns the first thread's file."""
    day = folder / "2026" / "11" / "20"
    day.mkdir(parents=True)
    thread = Rollout()
    thread.meta(THREAD)
    codex_turns(thread)
    child = Rollout(second=13)
    spawn = {"thread_spawn": {"parent_thread_id": THREAD, "depth": 1, "agent_role": "explorer"}}
    child.meta(CHILD, source={"subagent": spawn})
    child.begin(3, "Find refunds")
    child.item("message", role="assistant", content=[{"type": "output_text", "text": "in refunds.py"}])
    child.used(900, 0, 25, 5)
    child.event("task_complete", turn_id=turn_id(3), last_agent_message="in refunds.py")
    fork = Rollout(second=100)
    fork.meta(FORK, forked_from_id=THREAD)
    fork.meta(THREAD)
    codex_turns(fork)
    fork.begin(0x10, "And exchanges?")
    fork.item("message", role="assistant", content=[{"type": "output_text", "text": "Fine."}])
    fork.used(5000, 4700, 10, 0)
    for name, file in ((THREAD, thread), (CHILD, child), (FORK, fork)):
        (day / f"rollout-2026-11-20T12-00-01-{name}.jsonl").write_bytes(lines(file.rows))
    return day / f"rollout-2026-11-20T12-00-01-{THREAD}.jsonl"
