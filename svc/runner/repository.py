"""What a model may read of a project's Git repository: lists of files, texts, searches, commits.

Owns `Repository`, the repository of one run: copied when a tool first asks for it, into a folder of the run's
own that goes with it. Each answer fits into one result of the toolbox. Never checks anything out, and never
asks the host twice.

Danger: paths and patterns are a model's words, names and texts are a repository's. Both go to git as plain
arguments behind checks of ours, and come back as text.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from protocol.running import RepoPlace
from svc.domain.agents.repositories import repository_fault
from svc.outside.addresses import AddressRule
from svc.outside.git import COPY_BYTES, COPY_S, FILE_BYTES, GitCopy, GitPlace, RepositoryAway, copied
from svc.outside.models.conversation import ToolOffer

#: What one answer says: below what the toolbox shows whole.
SAID_BYTES: Final = 14 * 1024
ENTRIES: Final = 400
MATCHES: Final = 200
COMMITS: Final = 30
FILES_A_COMMIT: Final = 12
LINE_CHARS: Final = 500
#: The folders of runs, by the process that made them.
PREFIX: Final = "trace-svc-repo-"

LIST, SEARCH, READ, LOG = "list_files", "search_files", "read_file", "list_commits"


class _Wrong(Exception):
    """The model asked for what is not there; the text is for it."""


@attrs.define(eq=False)
class Repository:
    """The repository of one run. `left_s` says what is left of its time."""

    place: RepoPlace
    rule: AddressRule
    left_s: Callable[[], float]
    most: int = COPY_BYTES
    _folder: Path | None = None
    _copy: GitCopy | None = None

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What a tool says, and whether it is an error of the model's. Raises `RepositoryAway`."""
        copy = await self._copied()
        try:
            commit = await _commit(copy, arguments.get("commit"))
            match name:
                case "list_files":
                    return await _listed(copy, commit, _path(arguments.get("path"))), False
                case "read_file":
                    first = arguments.get("from_line", 1)
                    if not isinstance(first, int) or first < 1:
                        raise _Wrong("from_line is a number from 1 on")
                    return await _read_file(
                        copy, commit, _path(arguments.get("path"), needed=True), first
                    ), False
                case "search_files":
                    return await _search(copy, commit, arguments), False
                case _:
                    return await _log(copy, commit, _path(arguments.get("path"))), False
        except _Wrong as wrong:
            return str(wrong), True

    async def _copied(self) -> GitCopy:
        if self._copy is None:
            remote = self.place
            # A runner trusts no service: what would be an option of git is none of its places.
            fault = repository_fault(remote.clone_url, remote.ref)
            if fault is not None:
                raise RepositoryAway(fault)
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
            self._copy = await copied(
                GitPlace(remote.clone_url, remote.ref, remote.username, remote.secret),
                self._folder,
                self.rule,
                timeout_s=max(1.0, min(COPY_S, self.left_s())),
                most=self.most,
            )
        return self._copy

    async def aclose(self) -> None:
        """Remove the copy. Shielded by whoever calls."""
        folder, self._folder, self._copy = self._folder, None, None
        if folder is not None:
            await trio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


def clear_left() -> None:
    """Remove the copies of runners that died."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


async def _commit(copy: GitCopy, name: Any) -> str:
    if name is None:
        return copy.tip
    commit = await copy.commit(name) if isinstance(name, str) else None
    if commit is None:
        raise _Wrong(f"there is no such commit in the copy: {LOG} names those that are")
    return commit


def _path(path: Any, *, needed: bool = False) -> str:
    """A path below the root, without a slash at either end."""
    if path is None and not needed:
        return ""
    if not isinstance(path, str) or len(path) > 500 or re.search(r"[\x00-\x1f\x7f]", path):
        raise _Wrong("path is the path of a file or folder in the repository")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or (needed and not parts):
        raise _Wrong("path is the path of a file or folder in the repository")
    return "/".join(parts)


async def _listed(copy: GitCopy, commit: str, path: str) -> str:
    listing = await copy.ask("ls-tree", "-z", "--long", f"{commit}:{path}")
    if listing.exit_code != 0 and not listing.cut:
        raise _Wrong(f"there is no folder {path!r} at this commit")
    rows = listing.out.decode("utf-8", "replace").split("\0")[:-1]
    lines = []
    for row in rows[:ENTRIES]:
        facts, _, name = row.partition("\t")
        mode, kind, _, size = facts.split()
        suffix = {"tree": "/", "commit": " (a submodule, not read)"}.get(kind)
        if suffix is None:
            # A link's text is its target; where a size is missing, the file was too large to copy.
            suffix = " (a link, not followed)" if mode == "120000" else f" ({_size(size)})"
        lines.append(printable_line(name) + suffix)
    return _bounded(f"{path or 'the root'} at {commit[:12]}", lines, len(rows), "entries")


def _size(digits: str) -> str:
    return f"{digits} bytes" if digits.isdigit() else f"larger than {FILE_BYTES} bytes, not copied"


async def _read_file(copy: GitCopy, commit: str, path: str, first: int) -> str:
    entry = await copy.ask("ls-tree", "-z", "--long", commit, "--", path)
    rows = entry.out.decode("utf-8", "replace").split("\0")[:-1]
    if entry.exit_code != 0 or len(rows) != 1:
        raise _Wrong(f"there is no file {path!r} at this commit")
    mode, kind, id_, size = rows[0].partition("\t")[0].split()
    if kind != "blob" or mode == "120000":
        kind_words = {"tree": "a folder", "commit": "a submodule, which is not read"}.get(kind)
        raise _Wrong(f"{path!r} is {kind_words or 'a link, which is not followed'}")
    if not size.isdigit() or int(size) > FILE_BYTES:
        raise _Wrong(f"{path!r} is larger than {FILE_BYTES} bytes")
    blob = await copy.ask("cat-file", "blob", id_, most=FILE_BYTES)
    if blob.exit_code != 0:
        raise _Wrong(f"{path!r} cannot be read")
    if b"\0" in blob.out[:8_000]:
        raise _Wrong(f"{path!r} is no text")
    lines = blob.out.decode("utf-8", "replace").splitlines()
    if first > max(len(lines), 1):
        raise _Wrong(f"{path!r} has {len(lines)} lines")
    numbered = [f"{number}: {printable_line(line)}" for number, line in enumerate(lines[first - 1 :], first)]
    return _bounded(f"{path} at {commit[:12]}, {len(lines)} lines", numbered, len(numbered), "lines")


async def _search(copy: GitCopy, commit: str, arguments: Mapping[str, Any]) -> str:
    pattern = arguments.get("text")
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= 200 or re.search(r"[\x00\n]", pattern):
        raise _Wrong("text is what to look for, on one line")
    path = _path(arguments.get("path"))
    matches = await copy.ask(
        *("grep", "-n", "-I", "-i", "-F", "--no-color", "--no-textconv", f"--max-count={MATCHES}"),
        *("-e", pattern, commit, "--", *([path] if path else [])),
        most=256 * 1024,
    )
    # 1: nothing was found.
    if matches.exit_code not in (0, 1) and not matches.cut:
        raise _Wrong("the search failed")
    rows = [row.removeprefix(f"{commit}:") for row in matches.out.decode("utf-8", "replace").splitlines()]
    if not rows:
        return f"{pattern!r} stands nowhere at {commit[:12]}" + (f" below {path}" if path else "")
    lines = [printable_line(row) for row in rows[:MATCHES]]
    return _bounded(f"{pattern!r} at {commit[:12]}", lines, len(rows), "lines")


async def _log(copy: GitCopy, commit: str, path: str) -> str:
    log = await copy.ask(
        *("log", f"--max-count={COMMITS}", "--format=%x00%H %cI %s", "--name-only", "--no-renames"),
        *("--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature", commit),
        *("--", *([path] if path else [])),
    )
    if log.exit_code != 0 and not log.cut:
        raise _Wrong("the commits cannot be read")
    lines = []
    for record in log.out.decode("utf-8", "replace").split("\0")[1:]:
        head, *files = [line for line in record.splitlines() if line]
        names = ", ".join(printable_line(name) for name in files[:FILES_A_COMMIT])
        suffix = f" and {len(files) - FILES_A_COMMIT} more" if len(files) > FILES_A_COMMIT else ""
        id_, date, *subject = head.split(" ", 2)
        lines.append(f"{id_[:12]} {date} {printable_line(' '.join(subject))[:160]} [{names}{suffix}]")
    return _bounded(f"commits{f' of {path}' if path else ''}, newest first", lines, len(lines), "commits")


def printable_line(text: str) -> str:
    """A line of a repository without what controls a screen, and no longer than one may be."""
    clean = "".join(
        character if character.isprintable() or character == "\t" else "�"
        for character in text[: LINE_CHARS + 1]
    )
    return clean if len(clean) <= LINE_CHARS else clean[:LINE_CHARS] + "…"


def _bounded(head: str, lines: list[str], total: int, unit: str) -> str:
    """As many lines as fit."""
    parts, size = [head], len(head.encode())
    for line in lines:
        size += len(line.encode()) + 1
        if size > SAID_BYTES:
            break
        parts.append(line)
    remainder = total - (len(parts) - 1)
    return "\n".join(parts) + (
        f"\n… {remainder} more {unit}: ask for less at a time" if remainder > 0 else ""
    )


_COMMIT: Final = {
    "type": "string",
    "maxLength": 40,
    "description": f"As {LOG} names it; the newest unless told.",
}
_WHERE: Final = {"type": "string", "maxLength": 500, "description": "Below the root of the repository."}


def _offer(name: str, description: str, needed: tuple[str, ...], **properties: Any) -> ToolOffer:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(needed),
        "additionalProperties": False,
    }
    return ToolOffer(name, description, schema)


OFFERS: Final = (
    _offer(
        LOG,
        f"The newest {COMMITS} commits of the application's repository up to one, with times and"
        " changed files.",
        (),
        commit=_COMMIT,
        path=_WHERE,
    ),
    _offer(
        LIST,
        "What a folder of the application's repository holds at a commit.",
        (),
        commit=_COMMIT,
        path=_WHERE,
    ),
    _offer(
        SEARCH,
        "Lines of the application's repository that hold a text, in any case; no patterns.",
        ("text",),
        text={"type": "string", "minLength": 1, "maxLength": 200},
        commit=_COMMIT,
        path=_WHERE,
    ),
    _offer(
        READ,
        "A text file of the application's repository at a commit, with numbered lines.",
        ("path",),
        path=_WHERE,
        commit=_COMMIT,
        from_line={"type": "integer", "minimum": 1},
    ),
)
NAMES: Final = frozenset(one.name for one in OFFERS)
