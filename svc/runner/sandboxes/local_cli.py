"""The host's own agent CLI as the agent loop of a run: logged in by whoever owns the machine, with MCP only.

Owns `LocalCli`. For development: its budget is checked by the CLI, after each call and not before. It gets
a folder of its own, a clean environment and a group of its own, and is ended with all that it began.

Danger: the CLI is another's program on this machine. It is given no tool but those of the project, and its
answer is checked as any other. The key of the project stands in its environment, never in its arguments or
files.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from protocol.agents import Spent
from protocol.running import RunRequest
from svc.domain.agents.answers import ShownEvidence, completed, faults, ids_in, tidied, unsupported
from svc.runner.failing import RunFailed
from svc.runner.runs import RunnerRun

#: What a CLI may say in all, and on one line.
SAID_BYTES: Final = 32 * 1024 * 1024
END_S: Final = 5.0
_ENVIRONMENT: Final = ("HOME", "PATH", "LANG", "USER")


@attrs.frozen
class LocalCli:
    """Does runs by a program, named or by its path."""

    program: str

    def fault(self) -> str:
        """Why it can do no run, for the operator; empty when its program is there."""
        if shutil.which(self.program) is not None:
            return ""
        return f"the agent CLI {self.program!r} is not found: set SANDBOX_CLI, or another SANDBOX_BACKEND"

    async def work(self, run: RunnerRun) -> dict[str, Any]:
        """The answer of a run. Raises `RunFailed`."""
        request = run.request
        assert request is not None
        with tempfile.TemporaryDirectory(prefix="trace-svc-run-") as folder:
            messages = await self._said(run, request, Path(folder))
        return _answer(run, request, messages)

    async def _said(self, run: RunnerRun, request: RunRequest, folder: Path) -> list[Any]:
        """The messages of its stream, when it ended well."""
        servers = {
            "svc": {
                "type": "http",
                "url": request.mcp.url,
                "headers": {"Authorization": "Bearer ${RUN_TOKEN}"},
            }
        }
        config = folder / "mcp.json"
        config.write_bytes(msgspec.json.encode({"mcpServers": servers}))
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            process = await trio.lowlevel.open_process(
                self._command(request, config),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={**environment, "RUN_TOKEN": request.mcp.token},
                start_new_session=True,
            )
        except OSError as error:
            raise RunFailed(
                "no_provider", f"the agent CLI cannot be started ({type(error).__name__})"
            ) from None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with trio.open_nursery() as nursery:
                prompt = f"{request.system_prompt}\n\n{request.prompt}".encode()
                nursery.start_soon(_feed, process.stdin, prompt)
                messages = await _messages(run, process.stdout)
            status = await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
        last_message = messages[-1] if messages else {}
        # Its `subtype` says success also where nothing came of it.
        if status != 0 or last_message.get("type") != "result" or last_message.get("is_error"):
            raise RunFailed("provider_refused", f"the agent CLI ended with {status}")
        return messages

    def _command(self, request: RunRequest, config: Path) -> list[str]:
        schema = msgspec.json.encode(request.json_schema).decode()
        return [
            *(self.program, "-p", "--output-format", "stream-json", "--verbose"),
            *("--mcp-config", str(config), "--strict-mcp-config", "--tools", ""),
            *("--allowedTools", "mcp__svc__*", "--json-schema", schema),
            *("--max-turns", str(request.limits.turns), "--max-budget-usd", f"{request.limits.usd:.4f}"),
            *("--no-session-persistence", "--setting-sources", ""),
            *(() if request.model is None else ("--model", request.model)),
        ]


async def _feed(stdin: trio.abc.SendStream, prompt: bytes) -> None:
    async with stdin:
        try:
            await stdin.send_all(prompt)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # It has ended; its status says why.
            return


async def _messages(run: RunnerRun, stdout: trio.abc.ReceiveStream) -> list[Any]:
    """What it says, line by line. Raises `RunFailed` beyond the bound."""
    messages: list[Any] = []
    buffer, size = b"", 0
    async for data in stdout:
        size += len(data)
        if size > SAID_BYTES:
            raise RunFailed("bad_output", "the agent CLI says too much")
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            try:
                message = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            if isinstance(message, dict):
                messages.append(message)
                _note_turn(run, message)
    return messages


def _note_turn(run: RunnerRun, message: dict[str, Any]) -> None:
    """A turn, when the model spoke."""
    if message.get("type") == "assistant":
        run.spent = run.spent.plus(Spent(turns=1))
        run.tell("turn", n=run.spent.turns, spent=msgspec.to_builtins(run.spent))


async def _end(process: trio.Process) -> None:
    """End it and all that it began."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        with trio.move_on_after(END_S):
            await process.wait()
            if number == signal.SIGTERM:
                continue
    with trio.move_on_after(END_S):
        await process.wait()


def _results(messages: list[Any]) -> Iterator[str]:
    """The texts of what its tools answered."""
    for message in messages:
        content = (message.get("message") or {}).get("content") if message.get("type") == "user" else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                output = block.get("content")
                parts = output if isinstance(output, list) else [{"text": output}]
                yield "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _answer(run: RunnerRun, request: RunRequest, messages: list[Any]) -> dict[str, Any]:
    """The answer as it counts. Raises `RunFailed`."""
    last_message = messages[-1]
    run.spent = _spent(last_message)
    texts = list(_results(messages))
    ids = set(request.known_ids).union(*(ids_in(text) for text in texts))
    evidence = ShownEvidence(
        ids, {f"q{n}": text for n, text in enumerate(texts, 1)}, files=list(request.files.values())
    )
    raw_answer = last_message.get("structured_output")
    faults_ = faults(request.kind, raw_answer, evidence, request.checklist)
    if faults_:
        raise RunFailed("bad_output", "the answer did not stand up to the checks")
    answer = tidied(raw_answer, [request.mcp.token])
    if request.kind == "rca":
        answer = completed(answer, request.checklist)
    return {**answer, "unsupported": unsupported(request.kind, answer, evidence)}


def _spent(message: dict[str, Any]) -> Spent:
    usage = message.get("usage") or {}
    usd = message.get("total_cost_usd")
    return Spent(
        turns=int(message.get("num_turns") or 0),
        input=int(usage.get("input_tokens") or 0),
        output=int(usage.get("output_tokens") or 0),
        cache_read=int(usage.get("cache_read_input_tokens") or 0),
        cache_write=int(usage.get("cache_creation_input_tokens") or 0),
        usd=float(usd) if isinstance(usd, int | float) else None,
    )
