"""Transcripts of coding agents: the files of a folder, line by line, as pages.

Owns: `TranscriptFolder`, and which files there are of whom. Called by `trace-svc import claude-code` and
`codex`. What lines mean is in `claude_code` and `codex`.

A cursor is a file and a place in it, and the reader of a file remembers its turn: a run that goes on reads
the file from its beginning and keeps what was before the place to itself. In memory are the lines of one
page and what its turn waits for, however large a file is. A line that cannot be read is counted and left out.
"""

from __future__ import annotations

import io
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import attrs
import msgspec
import zstandard

from protocol.operator import OperatorError
from protocol.otlp.admission import Form
from svc.importers.claude_code import AGENT as CLAUDE_CODE
from svc.importers.claude_code import ClaudeCodeTranscript
from svc.importers.codex import AGENT as CODEX
from svc.importers.codex import CodexRollout, parent_thread
from svc.importers.source import ImportPage, ImportWindow, request_of, service_resource
from svc.importers.turns import Calls, TurnSpan

#: Lines and bytes of one page, and spans of one request.
PAGE_LINES: Final = 1_000
PAGE_BYTES: Final = 8 * 1024 * 1024
_REQUEST_SPANS: Final = 200
#: A longer line is counted and left out, in pieces.
MOST_BYTES: Final = 64 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
#: So much of a file says whether it is a transcript.
_HEAD_BYTES: Final = 256 * 1024
#: Sessions whose calls are remembered for their sub-agents' files.
_REMEMBERED: Final = 16

NO_JSON: Final = "a damaged line: no JSON object"
NO_FIELDS: Final = "a damaged line: no message or no time"
TOO_LONG: Final = f"a line of more than {MOST_BYTES >> 20} MiB"
CUT_OFF: Final = "a file that cannot be read to its end"

_THREAD: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl(?:\.zst)?$")


class Transcript(Protocol):
    """Reads the lines of one file, in their order."""

    calls: Calls

    def feed(self, line: Mapping[str, Any]) -> Iterator[TurnSpan] | None:
        """The spans that a line completes; None for a line that is damaged."""
        ...

    def finish(self) -> Iterator[TurnSpan]:
        """What was still open when the file ended."""
        ...


@attrs.frozen
class _Agent:
    """Whose transcripts are looked for: their files, and what stands in every one of them."""

    title: str
    patterns: tuple[str, ...]
    mark: bytes
    home: str


_AGENTS: Final[Mapping[str, _Agent]] = {
    CLAUDE_CODE: _Agent("Claude Code", ("*.jsonl",), b'"sessionId"', "~/.claude/projects"),
    CODEX: _Agent(
        "Codex", ("rollout-*.jsonl", "rollout-*.jsonl.zst"), b'"session_meta"', "~/.codex/sessions"
    ),
}


@attrs.define(eq=False)
class _OpenFile:
    """The file that is being read, from the place at which the next line begins."""

    name: str
    lines: Iterator[tuple[bytes | str, int]]
    transcript: Transcript
    offset: int = 0


@attrs.define(eq=False)
class TranscriptFolder:
    """A file, or every transcript below a folder. `user` is who they are of, when somebody says so."""

    product: str
    folder: Path
    service: str
    user: str | None = None
    name: str = attrs.field(default=attrs.Factory(lambda self: _AGENTS[self.product].title, takes_self=True))
    leaves: tuple[str, ...] = (
        "pictures and files in messages, and what a provider encrypted",
        "costs that the agent worked out: they are worked out here from the price book",
    )
    _files: Sequence[str] = ()
    _open: _OpenFile | None = None
    _remembered: OrderedDict[Path, Calls] = attrs.field(factory=OrderedDict)
    _threads: Mapping[str, Path] = attrs.field(factory=dict)

    @classmethod
    def at(cls, product: str, path: Path, service: str, user: str | None) -> TranscriptFolder:
        """The transcripts there. Raises `OperatorError` when there are none."""
        source = cls(product, path if path.is_dir() else path.parent, service, user)
        source._files = _transcripts_in(product, path)
        source._threads = {
            match[1]: source.folder / name for name in source._files if (match := _THREAD.search(name))
        }
        return source

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The lines behind a place in a file, as the spans that they complete."""
        name, offset = (None, 0) if cursor is None else msgspec.json.decode(cursor, type=tuple[str, int])
        spans: list[TurnSpan] = []
        unread: dict[str, int] = {}
        file = self._opened(window, name, offset)
        if file is None:
            return ImportPage((), None)
        size, ended = 0, False
        for _ in range(PAGE_LINES):
            line, line_bytes = next(file.lines, (b"", 0))
            if not line_bytes:
                ended = True
                break
            size += line_bytes
            _feed(file.transcript, line, spans, unread)
            if size >= PAGE_BYTES:
                break
        file.offset += size
        if ended:
            spans += file.transcript.finish()
            self._open = None
        # Behind its last byte a file is over: the next page is that of the file behind it.
        following = [file.name, -1 if ended else file.offset]
        return self._page(spans, unread, msgspec.json.encode(following).decode())

    def _page(self, spans: Sequence[TurnSpan], unread: Mapping[str, int], cursor: str) -> ImportPage:
        bodies: list[tuple[Form, bytes]] = []
        for start in range(0, len(spans), _REQUEST_SPANS):
            group = [span.fields for span in spans[start : start + _REQUEST_SPANS]]
            scope = {"scope": {"name": self.product}}
            bodies.append(("json", request_of([(service_resource(self.service), scope, group)])))
        return ImportPage(
            tuple(bodies), cursor, {span.identity: span.tokens for span in spans}, unread=unread
        )

    def _opened(self, window: ImportWindow, name: str | None, offset: int) -> _OpenFile | None:
        """The file of a cursor at its place, else the one behind it; None behind the last."""
        file = self._open
        if file is not None and (file.name, file.offset) == (name, offset):
            return file
        self._open = None
        for candidate in self._files:
            if name is not None and (candidate < name or (candidate == name and offset < 0)):
                continue
            if window.low is not None and _written_at(self.folder / candidate) < window.low:
                continue
            file = _OpenFile(
                candidate, _lines(self.folder / candidate), self._transcript(self.folder / candidate)
            )
            if candidate == name:
                self._skip(file, offset)
            self._open = file
            return file
        return None

    def _skip(self, file: _OpenFile, offset: int) -> None:
        """Read again what an earlier run stored, for what the rest of its turn needs."""
        while file.offset < offset:
            line, line_bytes = next(file.lines, (b"", 0))
            if not line_bytes:
                return
            file.offset += line_bytes
            _feed(file.transcript, line, [], {})

    def _transcript(self, path: Path) -> Transcript:
        """The reader of a file, which for a sub-agent's knows the calls of its session."""
        first = _first_object(path, self.product)
        if self.product == CODEX:
            meta = first.get("payload")
            parent = parent_thread(meta) if type(meta) is dict else None
            above = None if parent is None else self._threads.get(parent)
            parents = None if parent is None else Calls() if above is None else self._calls_in(above)
            return CodexRollout(self.user, parents)
        if first.get("isSidechain") is not True or not path.name.startswith("agent-"):
            return ClaudeCodeTranscript(self.user)
        session = f"{first.get('sessionId')}.jsonl"
        for folder in path.parents:
            if (folder / session).is_file():
                return ClaudeCodeTranscript(self.user, self._calls_in(folder / session))
            if folder == self.folder:
                break
        return ClaudeCodeTranscript(self.user, Calls())

    def _calls_in(self, path: Path) -> Calls:
        """The calls of a session, from its own file."""
        if path not in self._remembered:
            make: Callable[..., Transcript] = CodexRollout if self.product == CODEX else ClaudeCodeTranscript
            transcript = make(self.user)
            for line, _ in _lines(path):
                _feed(transcript, line, [], {})
            self._remembered[path] = transcript.calls
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return self._remembered[path]


def _feed(transcript: Transcript, line: bytes | str, spans: list[TurnSpan], unread: dict[str, int]) -> None:
    """Have a line read, or count why it cannot be."""
    if type(line) is bytes:
        if not line.strip():
            return
        fields = _object(line)
        made = None if fields is None else transcript.feed(fields)
        if made is not None:
            spans += made
            return
        line = NO_JSON if fields is None else NO_FIELDS
    unread[str(line)] = unread.get(str(line), 0) + 1


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return document if type(document) is dict else None


@contextmanager
def _stream(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as file:
        if path.suffix != ".zst":
            yield file
            return
        with zstandard.ZstdDecompressor().stream_reader(file) as unpacked:
            yield io.BufferedReader(unpacked)


def _lines(path: Path) -> Iterator[tuple[bytes | str, int]]:
    """Each line with its size; in place of one that cannot be had, why."""
    try:
        with _stream(path) as stream:
            while piece := stream.readline(_PIECE_BYTES):
                pieces, size = [piece], len(piece)
                while not piece.endswith(b"\n") and (piece := stream.readline(_PIECE_BYTES)):
                    size += len(piece)
                    if size <= MOST_BYTES:
                        pieces.append(piece)
                    else:
                        pieces.clear()
                yield (b"".join(pieces) if size <= MOST_BYTES else TOO_LONG), size
    except (OSError, zstandard.ZstdError):
        yield CUT_OFF, 1


def _first_object(path: Path, product: str) -> dict[str, Any]:
    """The first line that says what the file is of."""
    mark = _AGENTS[product].mark
    size = 0
    for line, line_bytes in _lines(path):
        size += line_bytes
        if type(line) is bytes and mark in line and (fields := _object(line)) is not None:
            return fields
        if size > _HEAD_BYTES:
            break
    return {}


def _written_at(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _transcripts_in(product: str, path: Path) -> list[str]:
    """The names of the transcripts below a folder, in their order. Raises `OperatorError` without any."""
    agent = _AGENTS[product]
    if not path.exists():
        raise OperatorError(f"{path} does not exist; transcripts of {agent.title} are in {agent.home}")
    files = _files_of(agent, path)
    names = [name for name, file in files if _is_of(file, agent.mark)]
    if names:
        return names
    for candidate, agent_of in _AGENTS.items():
        if candidate != product and any(_is_of(file, agent_of.mark) for _, file in _files_of(agent_of, path)):
            raise OperatorError(
                f"the transcripts in {path} are of {agent_of.title}: trace-svc import {candidate} {path}"
            )
    present = f"its {len(files):,} files of that name are something else" if files else "it has no such file"
    raise OperatorError(
        f"there is no transcript of {agent.title} ({', '.join(agent.patterns)}) in {path}: {present}."
        f" They are in {agent.home}"
    )


def _files_of(agent: _Agent, path: Path) -> list[tuple[str, Path]]:
    if path.is_file():
        return [(path.name, path)]
    found_files = {file for pattern in agent.patterns for file in path.rglob(pattern) if file.is_file()}
    return sorted((file.relative_to(path).as_posix(), file) for file in found_files)


def _is_of(file: Path, mark: bytes) -> bool:
    try:
        with _stream(file) as stream:
            return mark in stream.read(_HEAD_BYTES)
    except (OSError, zstandard.ZstdError):
        return False
