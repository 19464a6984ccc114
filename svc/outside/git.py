"""A client of Git hosts, by the `git` program: a shallow copy of one branch, read at its commits.

The runner reads repositories through it. Nothing is ever checked out: a copy is a bare store of objects, and
files are read out of that, so links lead nowhere, submodules are names, and no hook, filter or attribute of a
repository is run. Nothing is written back.

Danger: a repository is a stranger's, and so is its host. A copy has a bound on the disk and a deadline; the
host is resolved once, its addresses are checked, and git connects to what was checked, over TLS, without
redirects. What git says of a failure is sorted and never quoted.

Secrets: the credential goes to git in its environment, never into an address, an argument, a file or a log;
whoever reads the copy afterwards has none.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from svc.outside.addresses import AddressRule

#: Commits of the branch that are copied, what the copy may weigh, and a file of it.
DEPTH: Final = 200
COPY_BYTES: Final = 192 * 1024 * 1024
FILE_BYTES: Final = 1024 * 1024
COPY_S: Final = 180.0
READ_S: Final = 30.0
#: What one look may say, and what git may use of memory and processor time.
OUT_BYTES: Final = 4 * 1024 * 1024
_MEMORY_KB: Final = 1024 * 1024
_CPU_S: Final = 170
#: How often a copy is measured, and how long a program gets to end after SIGTERM.
WEIGH_S: Final = 0.2
_END_S: Final = 5.0

_COMMIT: Final = re.compile(r"[0-9a-f]{7,40}", re.ASCII)
#: What git says, and what it means; the first that fits.
_MEANINGS: Final = (
    (re.compile(rb"(?i)couldn't find remote ref"), "there is no such branch, tag or commit"),
    (
        re.compile(rb"(?i)authentication failed|could not read (?:username|password)|\b40[13]\b"),
        "the Git host refuses the credential",
    ),
    (
        re.compile(rb"(?i)not found|\b404\b"),
        "there is no such repository, or the credential does not open it",
    ),
    (
        re.compile(rb"(?i)redirect|\b30[12378]\b"),
        "the Git host leads elsewhere: name the repository where it is now",
    ),
    (re.compile(rb"(?i)certificate|ssl|tls"), "the Git host has no certificate that is trusted"),
)
#: The copy as git sees it: without the host it came from, and without what would be run.
_CONFIG: Final = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\thooksPath = /dev/null\n"


class RepositoryAway(Exception):
    """The repository cannot be read; the text is for the operator and quotes nobody."""


@attrs.frozen
class GitPlace:
    """Which repository, at which branch, tag or commit (None: its default), and what opens it."""

    url: str
    ref: str | None = None
    username: str | None = None
    secret: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class GitSaid:
    """What git said, up to the bound."""

    exit_code: int
    out: bytes
    cut: bool = False


async def copied(
    place: GitPlace, folder: Path, rule: AddressRule, *, timeout_s: float = COPY_S, most: int = COPY_BYTES
) -> GitCopy:
    """Copy a repository into an empty folder. Raises `RepositoryAway`; the folder is the caller's.

    The caller has looked at the place: it is a plain https address, and its ref is no option.
    """
    if shutil.which("git") is None:
        raise RepositoryAway("git is not installed where the runner is")
    with trio.move_on_after(timeout_s):
        address = await _checked(place.url, rule)
        init = await _git(["init", "--quiet", "--bare", "--template=", str(folder)], folder, READ_S)
        if init.exit_code != 0:
            raise RepositoryAway("the copy of the repository cannot be made")
        fetch = await _fetched(place, folder, address, most)
        if fetch is None:
            raise RepositoryAway(f"the repository is larger than {most // (1024 * 1024)} MB")
        if fetch.exit_code != 0:
            raise RepositoryAway(_meaning(fetch.out))
        (folder / "config").write_text(_CONFIG)
        tip = await _git(["rev-parse", "refs/heads/read"], folder, READ_S)
        if tip.exit_code != 0:
            raise RepositoryAway("the branch has no commit")
        return GitCopy(folder, tip.out.decode().strip())
    raise RepositoryAway(f"the repository was not copied within {timeout_s:g} s")


async def _checked(url: str, rule: AddressRule) -> str:
    """The host with the address to connect to, as git takes it."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    try:
        rows = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise RepositoryAway("the Git host has no address") from None
    addresses = [str(row[4][0]) for row in rows]
    for why_not in map(rule.why_not, addresses):
        if why_not is not None:
            raise RepositoryAway(f"the Git host's address: {why_not}")
    address = addresses[0]
    return f"{host}:{port}:{f'[{address}]' if ':' in address else address}"


async def _fetched(remote: GitPlace, folder: Path, address: str, most: int) -> GitSaid | None:
    """Fetch within the bound; None: it is too large."""
    settings = {
        "http.curloptResolve": address,
        "http.followRedirects": "false",
        "http.proxy": "",
        "http.lowSpeedLimit": "1000",
        "http.lowSpeedTime": "30",
        # One pack, whose size the kernel bounds.
        "fetch.unpackLimit": "1",
        "transfer.unpackLimit": "1",
    }
    if (ca_file := os.environ.get("SSL_CERT_FILE")) is not None:
        settings["http.sslCAInfo"] = ca_file
    if remote.secret is not None:
        pair = b64encode(f"{remote.username or 'x-access-token'}:{remote.secret}".encode()).decode()
        settings["http.extraHeader"] = f"Authorization: Basic {pair}"
    refspec = f"+{remote.ref or 'HEAD'}:refs/heads/read"
    arguments = [
        *("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", f"--depth={DEPTH}"),
        *(f"--filter=blob:limit={FILE_BYTES}", remote.url, refspec),
    ]
    fetch: GitSaid | None = None
    async with trio.open_nursery() as nursery:

        async def weighing() -> None:
            async for _ in _ticks(WEIGH_S):
                if await trio.to_thread.run_sync(_weight, folder) > most:
                    nursery.cancel_scope.cancel()

        nursery.start_soon(weighing)
        fetch = await _git(arguments, folder, COPY_S, settings=settings, network=True, file_bytes=most)
        nursery.cancel_scope.cancel()
    return None if fetch is None or _weight(folder) > most else fetch


async def _ticks(seconds: float) -> AsyncIterator[None]:
    while True:
        await trio.sleep(seconds)
        yield


def _weight(folder: Path) -> int:
    weight = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                weight += os.lstat(os.path.join(parent, name)).st_size
    return weight


def _meaning(output: bytes) -> str:
    for pattern, meaning in _MEANINGS:
        if pattern.search(output):
            return meaning
    return "the repository cannot be copied"


@attrs.frozen
class GitCopy:
    """A copy of a repository. All verbs raise `RepositoryAway` where git itself fails."""

    folder: Path
    tip: str

    async def commit(self, name: str) -> str | None:
        """The whole name of a commit that is in the copy."""
        if not _COMMIT.fullmatch(name):
            return None
        revision = await self.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return revision.out.decode().strip() if revision.exit_code == 0 else None

    async def ask(self, *arguments: str, most: int = OUT_BYTES, timeout_s: float = READ_S) -> GitSaid:
        """One look, of a command of ours; the end of its time is a failure."""
        with trio.move_on_after(timeout_s):
            return await _git(["--literal-pathspecs", *arguments], self.folder, timeout_s, most=most)
        raise RepositoryAway(f"git took longer than {timeout_s:g} s")


async def _git(
    arguments: Sequence[str],
    folder: Path,
    timeout_s: float,
    *,
    settings: Mapping[str, str] | None = None,
    network: bool = False,
    most: int = OUT_BYTES,
    file_bytes: int = 64 * 1024 * 1024,
) -> GitSaid:
    """Run git in a group of its own, which is ended with whoever waits for it."""
    # The kernel bounds what it writes and uses; a shell sets that before git is there.
    bounds = {"c": 0, "f": file_bytes // 512, "v": _MEMORY_KB, "t": _CPU_S}
    limits = "".join(f"ulimit -{name} {most_};" for name, most_ in bounds.items()) + ' exec git "$@"'
    process = await trio.lowlevel.open_process(
        ["/bin/sh", "-c", limits, "sh", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if network else subprocess.DEVNULL,
        cwd=folder,
        env=_environment(folder, settings or {}, network=network),
        start_new_session=True,
    )
    out, cut = bytearray(), False
    try:
        assert process.stdout is not None
        async with process.stdout:
            async for data in process.stdout:
                room = most - len(out)
                out += data[: max(0, room)]
                if len(data) > room:
                    cut = True
                    break
        if cut:
            _kill(process.pid)
        return GitSaid(await process.wait(), bytes(out), cut)
    finally:
        _kill(process.pid)
        with trio.move_on_after(_END_S, shield=True):
            await process.wait()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _environment(folder: Path, settings: Mapping[str, str], *, network: bool) -> dict[str, str]:
    """What git knows: nothing of this machine's, and a credential only while it fetches."""
    always = {
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        "core.attributesFile": "/dev/null",
        "credential.helper": "",
        "gc.auto": "0",
        "maintenance.auto": "false",
        "pack.threads": "1",
        "grep.threads": "1",
        "pack.windowMemory": "64m",
        "core.packedGitWindowSize": "32m",
        "core.packedGitLimit": "256m",
        "safe.directory": str(folder),
    }
    config = {**always, **settings}
    pairs = {
        name: text
        for number, (key, value) in enumerate(config.items())
        for name, text in ((f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", value))
    }
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_DIR": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_PAGER": "cat",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "https" if network else "",
        "GIT_CONFIG_COUNT": str(len(config)),
        **pairs,
    }
