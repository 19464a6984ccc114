"""The programs that the page Connect offers: one file each in `examples/`, complete, to be run as it stands.

Owns the table of them. A file holds `ADDRESS` and `KEY` where the reader's own belong; the page fills them in
and marks them. `tests/e2e/clients/connect_programs.py` runs what stands on the page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import attrs

#: What a file of a program has in the places of the reader's own address and key.
ADDRESS: Final = "http://localhost:8000"
KEY: Final = "svc_w_KEY"

#: In the place of a file's name.
SHELL: Final = "shell"

EXAMPLES: Final = Path(__file__).parent / "examples"
_FILLED: Final = re.compile(f"({re.escape(ADDRESS)}|{re.escape(KEY)})")


@attrs.frozen
class ExampleProgram:
    """A row: its word in addresses, its label, its group, how to install what it needs and to run it.

    `runs` is the command, empty where the file is only kept; `note` says what the program cannot.
    """

    key: str
    label: str
    group: str
    file_name: str
    install: str = ""
    runs: str = ""
    note: str = ""

    @property
    def is_shell(self) -> bool:
        """Whether its text is typed into a shell."""
        return self.file_name == SHELL

    @property
    def is_added(self) -> bool:
        """Whether its text goes into a file that is there already."""
        return self.file_name.startswith("~")

    def parts(self, address: str, key: str) -> Sequence[tuple[str, bool]]:
        """Its text in pieces; the second value says whether the piece was filled in."""
        filled = {ADDRESS: address, KEY: key}
        return [
            (filled.get(piece, piece), piece in filled) for piece in _FILLED.split(_source(self.key)) if piece
        ]

    def text(self, address: str, key: str) -> str:
        """Its text with this address and key."""
        return "".join(piece for piece, _ in self.parts(address, key))


@cache
def _source(key: str) -> str:
    [path] = EXAMPLES.glob(f"{key}.*")
    return path.read_text(encoding="utf-8")


_EXPORTER: Final = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
_NODE: Final = (
    "@opentelemetry/api @opentelemetry/resources @opentelemetry/sdk-trace-node"
    " @opentelemetry/exporter-trace-otlp-proto"
)
_OPENAI_KEY: Final = "export OPENAI_API_KEY=sk-…"
_SESSIONS: Final = (
    "Call using_attributes once for each turn of a conversation: it names the session and the user of every"
    " span inside."
)
_LOG_EVENTS: Final = (
    "Coding agents report what they do in log events. The service accepts these when it runs with"
    " SVC_INGEST_GENAI_EVENTS=true."
)


def _python(
    key: str, label: str, packages: str, note: str = _SESSIONS, secret: str = _OPENAI_KEY
) -> ExampleProgram:
    return ExampleProgram(
        key,
        label,
        "Python",
        "support.py",
        f"pip install -U {packages} {_EXPORTER}\n{secret}",
        "python support.py",
        note,
    )


def _node(key: str, label: str, packages: str, note: str = "") -> ExampleProgram:
    return ExampleProgram(
        key,
        label,
        "JavaScript",
        "support.mjs",
        f"npm install {packages} {_NODE}\n{_OPENAI_KEY}",
        "node support.mjs",
        note,
    )


PROGRAMS: Final = (
    _python("openai", "OpenAI", "openai openinference-instrumentation-openai"),
    _python(
        "anthropic",
        "Anthropic",
        "anthropic openinference-instrumentation-anthropic",
        secret="export ANTHROPIC_API_KEY=sk-ant-…",  # noqa: S106 - what to type, not a secret
    ),
    _python("langgraph", "LangGraph", "langchain langchain-openai openinference-instrumentation-langchain"),
    _python(
        "llamaindex",
        "LlamaIndex",
        "llama-index-core llama-index-llms-openai openinference-instrumentation-llama-index",
    ),
    _python(
        "pydantic-ai",
        "Pydantic AI",
        '"pydantic-ai-slim[openai]"',
        "The span around the turn names the session and the user.",
    ),
    _python(
        "crewai",
        "CrewAI",
        "crewai openinference-instrumentation-crewai openinference-instrumentation-openai",
    ),
    _python("openai-agents", "OpenAI Agents", "openai-agents openinference-instrumentation-openai-agents"),
    _node(
        "vercel",
        "Vercel AI SDK",
        "ai @ai-sdk/openai @ai-sdk/otel zod",
        "For version 7. Earlier versions need no @ai-sdk/otel: pass experimental_telemetry:"
        " { isEnabled: true } to each call.",
    ),
    _node(
        "openai-js",
        "OpenAI",
        "openai @arizeai/openinference-instrumentation-openai @arizeai/openinference-core",
    ),
    _node(
        "langchain-js",
        "LangChain.js",
        "langchain @langchain/core @langchain/openai zod @arizeai/openinference-instrumentation-langchain"
        " @arizeai/openinference-core",
    ),
    ExampleProgram("claude-code", "Claude Code", "Coding agents", SHELL, note=_LOG_EVENTS),
    ExampleProgram("codex", "Codex", "Coding agents", "~/.codex/config.toml", runs="codex", note=_LOG_EVENTS),
    ExampleProgram("gemini-cli", "Gemini CLI", "Coding agents", SHELL, note=_LOG_EVENTS),
    ExampleProgram(
        "environment",
        "Environment variables",
        "Anything else",
        SHELL,
        note="Every OpenTelemetry SDK reads these. Start your program in the same shell.",
    ),
    ExampleProgram(
        "collector",
        "Collector",
        "Anything else",
        "config.yaml",
        runs="otelcol --config config.yaml",
        note="Programs send to the Collector at port 4318 (HTTP) or 4317 (gRPC), and it sends here.",
    ),
    ExampleProgram("curl", "curl", "Anything else", SHELL),
)
#: In the order of the page.
GROUPS: Final = tuple(dict.fromkeys(program.group for program in PROGRAMS))
