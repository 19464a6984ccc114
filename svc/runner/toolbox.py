"""What a model may call: the tools of the project that its request names, scripts, the answer.

Each result has a ref (`q1`, `s1`) and is kept: what was asked, its hash, its first 64 KB. Of a long one the
model sees whole rows and how many there are; scripts find all of it among their files. What was shown is what
an answer may cite.

Danger: every result is a stranger's text. It goes to the model and into the sandbox, never into an
argument of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any, Final

import attrs
import trio

from protocol.agents import RUN_TOOLS
from svc.domain.agents.answers import ShownEvidence, ids_in
from svc.outside.git import RepositoryAway
from svc.outside.mcp import McpAway, McpClient, McpClosed
from svc.outside.models.conversation import ToolAnswer, ToolOffer, ToolUse
from svc.runner.failing import RunFailed
from svc.runner.repository import NAMES, OFFERS, Repository
from svc.runner.sandbox import SCRIPT_S, WORK, Sandbox, SandboxAway, SandboxBackend, SandboxDied, ScriptEnd
from svc.runner.shown_result import shown_result

KEPT_BYTES: Final = 64 * 1024
#: A longer result is cut; a text without rows is shown by its head. Both are less where the model reads less
#: at once.
LONG_BYTES: Final = 16 * 1024
HEAD_BYTES: Final = 4 * 1024
#: Results that are kept, and what they weigh together.
RESULTS: Final = 400
RESULTS_BYTES: Final = 24 * 1024 * 1024
#: What scripts are given of one result, and of all of them; of what has no room then, its first 64 KB.
WHOLE_BYTES: Final = 8 * 1024 * 1024
WHOLES_BYTES: Final = 24 * 1024 * 1024
#: What a row of `list_spans` weighs, by which it is said how many fit. Of the demo's spans the mean is
#: 732 bytes (measured November 2026).
ROW_BYTES: Final = 740
MCP_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0)

SUBMIT: Final = "submit_answer"
SCRIPT: Final = "run_python"

Tell = Callable[..., None]


@attrs.frozen
class KeptResult:
    """A result: what was asked, and what came back: its first as a text, for scripts all of it."""

    name: str
    arguments: Mapping[str, Any]
    digest: str
    text: str = attrs.field(repr=False)
    #: What scripts find in its file.
    data: bytes = attrs.field(default=b"", repr=False)


@attrs.define(eq=False)
class Toolbox:
    """The tools of one run. `tell` takes events."""

    mcp: McpClient
    backend: SandboxBackend
    files: Mapping[str, str]
    answer_schema: Mapping[str, Any]
    run_name: str
    tell: Tell
    left_s: Callable[[], float]
    repository: Repository | None = None
    long_bytes: int = LONG_BYTES
    results: dict[str, KeptResult] = attrs.field(factory=dict)
    ids: set[str] = attrs.field(factory=set)
    failed: set[str] = attrs.field(factory=set)
    #: Why no script was run; blank where one could be.
    without: str = ""
    #: Why the repository was not read; blank where it could be, or was not asked for.
    unread: str = ""
    _bytes: int = 0
    _whole_bytes: int = 0
    _scripts: int = 0
    _queries: int = 0
    _deaths: int = 0
    _offered: dict[str, ToolOffer] = attrs.field(factory=dict)
    _sandbox: Sandbox | None = None
    _stack: AsyncExitStack = attrs.field(factory=AsyncExitStack)
    _put: set[str] = attrs.field(factory=set)

    async def offers(self) -> list[ToolOffer]:
        """Every tool, the answer last. Raises `RunFailed`."""
        try:
            mcp_tools = await self.mcp.tools()
        except McpAway as away:
            raise RunFailed("mcp_away", str(away)) from None
        offers = [
            ToolOffer(tool.name, tool.description, tool.schema)
            for tool in mcp_tools
            if tool.name in RUN_TOOLS
        ]
        if self.backend.scripts:
            offers.append(_SCRIPT)
        else:
            # Told before it asks: what is cut off is nowhere else to be had.
            offers = [self._with_room(tool) for tool in offers]
            self.without = "no sandbox can be used"
            self.tell("without_scripts", why=self.without)
        if self.repository is not None:
            offers += OFFERS
        offers.append(ToolOffer(SUBMIT, _SUBMIT_SAID, self.answer_schema))
        self._offered = {tool.name: tool for tool in offers}
        return offers

    def shown(self) -> ShownEvidence:
        """What an answer may cite."""
        texts = {ref: result.text for ref, result in self.results.items()}
        # What a method says by way of example is no measurement.
        given = [text for path, text in self.files.items() if path.endswith(".json")]
        return ShownEvidence(self.ids, texts, self.failed, given)

    def notes(self) -> list[str]:
        """What a reader of the answer should know of how it came about."""
        notes = [f"No script could be run: {self.without}."] if self.without else []
        if self.unread:
            notes.append(f"The repository could not be read: {self.unread}.")
        return notes

    async def call(self, use: ToolUse) -> ToolAnswer:
        """One call. Refused and failed calls are answered with the reason. Raises `RunFailed`."""
        if use.name not in self._offered:
            self.tell("refused", why=f"no tool {use.name[:60]!r}")
            return ToolAnswer(use.id, f"there is no tool {use.name[:60]!r}", is_error=True)
        if use.arguments is None:
            self.tell("refused", why="arguments are no JSON object")
            return ToolAnswer(use.id, "the arguments are no JSON object", is_error=True)
        if len(self.results) >= RESULTS or self._bytes >= RESULTS_BYTES:
            return ToolAnswer(use.id, f"no more results fit into this run: call {SUBMIT}", is_error=True)
        if use.name == SCRIPT:
            return await self._script(use)
        begun_s = trio.current_time()
        of_repository = use.name in NAMES
        if of_repository:
            assert self.repository is not None
            try:
                text, is_error = await self.repository.call(use.name, use.arguments)
            except RepositoryAway as away:
                return self._unread(use, str(away))
        else:
            text, is_error = await self._call_mcp(use.name, use.arguments)
        self._queries += 1
        ref = f"q{self._queries}"
        summary = self._keep(ref, use, text, is_error, ids=not of_repository)
        ms = round((trio.current_time() - begun_s) * 1000)
        self.tell("tool", ref=ref, name=use.name, ms=ms, bytes=len(text.encode()), is_error=is_error)
        return ToolAnswer(use.id, summary, is_error)

    async def _call_mcp(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Patient with a service that does not answer: it may be starting anew."""
        for pause_s in (*MCP_PAUSES_S, None):
            try:
                answer = await self.mcp.call(name, arguments)
            except McpAway as away:
                if pause_s is None or isinstance(away, McpClosed) or pause_s >= self.left_s():
                    raise RunFailed("mcp_away", str(away)) from None
                await trio.sleep(pause_s)
            else:
                return answer.text, answer.is_error
        raise AssertionError("the last pause raises")

    def _unread(self, use: ToolUse, why: str) -> ToolAnswer:
        """The repository cannot be read: the run goes on without it, and says so."""
        self.unread = why
        for name in NAMES:
            self._offered.pop(name, None)
        self.tell("without_repository", why=why)
        return ToolAnswer(use.id, f"the repository cannot be read ({why}): go on without it", is_error=True)

    def _keep(self, ref: str, use: ToolUse, text: str, is_error: bool, *, ids: bool = True) -> str:
        """Keep a result; what the model sees of it. `ids`: those of it are the project's."""
        data = text.encode()
        head_text = data[:KEPT_BYTES].decode(errors="ignore")
        script_data = self._for_scripts(data)
        self.results[ref] = KeptResult(
            use.name, use.arguments or {}, sha256(data).hexdigest(), head_text, script_data
        )
        self._bytes += min(len(data), KEPT_BYTES)
        if is_error:
            self.failed.add(ref)
            return f"[{ref}] {text[: self._head_bytes]}"
        if ids:
            self.ids |= ids_in(text)
        if len(data) <= self.long_bytes:
            return f"[{ref}] {text}"
        return self._cut(ref, use, text, len(data))

    def _cut(self, ref: str, use: ToolUse, text: str, size_bytes: int) -> str:
        """A long result as the model sees it: what there is, its beginning, and where the rest is."""
        excerpt = shown_result(text, self.long_bytes, self._head_bytes)
        if not self.without:
            part = self.results[ref].data
            portion = "all of it" if len(part) == size_bytes else f"its first {len(part) // 1024} KB"
            remainder = f"scripts read {portion} in {WORK}/data/{ref}.json"
        elif excerpt.field and _takes_limit(self._offered[use.name]):
            remainder = f"ask again with limit {excerpt.rows} to page through it"
        else:
            remainder = "ask for less of it to see the rest"
        if not excerpt.field:
            return f"[{ref}] {excerpt.text}\n… cut: it is {size_bytes} bytes long; {remainder}"
        rows = f"rows 1–{excerpt.rows} of {excerpt.rows_in_all} in {excerpt.field}"
        return f"[{ref}] {rows}; {remainder}\n{excerpt.text}"

    def _for_scripts(self, data: bytes) -> bytes:
        """What scripts are given of a result."""
        script_data = b"" if self.without else data[:WHOLE_BYTES]
        if self._whole_bytes + len(script_data) > WHOLES_BYTES:
            script_data = data[:KEPT_BYTES]
        self._whole_bytes += len(script_data)
        return script_data

    def _with_room(self, tool: ToolOffer) -> ToolOffer:
        """A tool that says how much of its answer can be shown."""
        if not _takes_limit(tool):
            return tool
        advice = f"You see {self._room}: ask with a limit, and with fields for more rows."
        return attrs.evolve(tool, description=f"{tool.description} {advice}")

    @property
    def _room(self) -> str:
        """How much of an answer can be shown."""
        return f"{self.long_bytes // 1024} KB of an answer, some {self.long_bytes // ROW_BYTES} rows"

    @property
    def _head_bytes(self) -> int:
        return min(HEAD_BYTES, self.long_bytes // 2)

    async def _script(self, use: ToolUse) -> ToolAnswer:
        code = (use.arguments or {}).get("code")
        if not isinstance(code, str) or not code.strip():
            return ToolAnswer(use.id, "code must be a Python script", is_error=True)
        begun_s = trio.current_time()
        self._scripts += 1
        ref = f"s{self._scripts}"
        try:
            end = await self._ran(code)
        except SandboxAway as away:
            if self._sandbox is not None:
                raise RunFailed("sandbox_away", str(away)) from None
            return self._without(use, str(away))
        except SandboxDied as died:
            self._deaths += 1
            await self._drop()
            if self._deaths > 1 and died.unstarted:
                return self._without(use, f"the sandbox cannot be used: {died}")
            if self._deaths > 1:
                raise RunFailed("sandbox_died", "the sandbox died twice") from None
            end = ScriptEnd(None, "the sandbox died and is new: its files are there, what you wrote is gone")
        ms = round((trio.current_time() - begun_s) * 1000)
        self.tell("script", ref=ref, ms=ms, exit_code=end.exit_code)
        if end.exit_code is None:
            # Leaving its stream stops nothing: the next script gets another sandbox.
            await self._drop()
        verdict = (
            f"exit code {end.exit_code}" if end.exit_code is not None else f"stopped after {SCRIPT_S:g} s"
        )
        bad = end.exit_code != 0
        return ToolAnswer(use.id, self._keep(ref, use, f"{verdict}\n{end.out}", bad), bad)

    def _without(self, use: ToolUse, why: str) -> ToolAnswer:
        """No sandbox can be had: the run goes on without scripts, and says so."""
        self.without = why
        del self._offered[SCRIPT]
        self.tell("without_scripts", why=why)
        text = f"no script can be run ({why}): go on without {SCRIPT}; you see {self._room}"
        return ToolAnswer(use.id, text, is_error=True)

    async def _ran(self, code: str) -> ScriptEnd:
        if self._sandbox is None:
            self._sandbox = await self._stack.enter_async_context(
                self.backend.opened(self.run_name, self.left_s())
            )
            self._put.clear()
            self.tell("sandbox_up")
        for path, text in self.files.items():
            await self._give(f"{WORK}/{path}", text.encode())
        for ref, result in self.results.items():
            await self._give(f"{WORK}/data/{ref}.json", result.data)
        return await self._sandbox.run(code, min(SCRIPT_S, max(self.left_s(), 1.0)))

    async def _give(self, path: str, data: bytes) -> None:
        assert self._sandbox is not None
        if path not in self._put:
            await self._sandbox.put(path, data)
            self._put.add(path)

    async def _drop(self) -> None:
        self._sandbox = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def aclose(self) -> None:
        """Close the sandbox and let go of the repository. Shielded by whoever calls."""
        try:
            if self.repository is not None:
                await self.repository.aclose()
        finally:
            await self._drop()


def _takes_limit(tool: ToolOffer) -> bool:
    return "limit" in tool.schema.get("properties", {})


_SUBMIT_SAID: Final = (
    "Submit your answer and end. It is checked: what you cite must have been returned to you; what"
    " is wrong is"
    " told, and you may mend it twice."
)
_SCRIPT: Final = ToolOffer(
    SCRIPT,
    f"Run a Python script, at most 60 s, without network. {WORK} holds the files of the question,"
    f" its folder data"
    " the whole results by their refs (q1.json). What it prints comes back, at most 64 KB.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "maxLength": 60_000}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
