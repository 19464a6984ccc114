"""The repository of a run: what of it is read, what of it is not, and that nothing else comes of it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from protocol.running import RepoPlace
from svc.outside.addresses import LOCAL_NETWORKS, AddressRule
from svc.outside.git import COPY_BYTES, RepositoryAway
from svc.runner.repository import PREFIX, SAID_BYTES, Repository, clear_left
from tests.conftest import missing
from tests.runner.git_host import SECRET, GitHost, git_host, large, shop
from tests.runner.running import Place, answer, ended, kinds, request, runner
from tests.runner.standin_model import Asked, Reply, calls, standin
from tests.service import Service, until

NEAR = AddressRule(LOCAL_NETWORKS)


@attrs.frozen
class Shop:
    """A host with the repository, and its commits."""

    host: GitHost
    commits: list[str]

    def place(self, **fields: Any) -> RepoPlace:
        return RepoPlace(**{"clone_url": self.host.clone_url(), "secret": SECRET, **fields})

    @asynccontextmanager
    async def open(
        self, rule: AddressRule = NEAR, left_s: float = 120.0, most: int = COPY_BYTES, **fields: Any
    ) -> AsyncIterator[Repository]:
        found = Repository(self.place(**fields), rule, lambda: left_s, most)
        try:
            yield found
        finally:
            await found.aclose()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    if shutil.which("git") is None:
        missing("git")
    root = tmp_path_factory.mktemp("repositories")
    commits = shop(root)
    large(root)
    with git_host(root) as host:
        yield Shop(host, commits)


@pytest.fixture
def there(made: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    """The host as it was, and a folder of the test's own for copies."""
    made.host.moved = made.host.gate = None
    made.host.heard.clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(made.host.root / "trusted.pem"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return made


def copies(folder: Path) -> list[Path]:
    """Those of runs that are there."""
    return list(folder.glob(f"{PREFIX}*"))


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]


def started() -> list[bytes]:
    """How every process of this machine was started."""
    lines = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(arguments.read_bytes())
    return lines


async def said(repository: Repository, name: str, **arguments: Any) -> str:
    text, is_error = await repository.call(name, arguments)
    assert not is_error, text
    return text


async def refused(repository: Repository, name: str, **arguments: Any) -> str:
    text, is_error = await repository.call(name, arguments)
    assert is_error, text
    return text


async def test_it_is_listed_read_searched_and_its_commits_are_told(there: Shop, tmp_path: Path) -> None:
    first, second, third = there.commits
    async with there.open() as repository:
        log = (await said(repository, "list_commits")).splitlines()
        assert [line.split()[0] for line in log[1:]] == [third[:12], second[:12], first[:12]]
        assert log[2].endswith("2026-11-18T09:00:00+00:00 Bound what we ask the carrier [app/tools.py]")
        assert "ann" not in "".join(log)
        assert "app/\n" in await said(repository, "list_files")
        assert "tools.py (78 bytes)" in await said(repository, "list_files", path="/app/")
        now = await said(repository, "read_file", path="app/tools.py")
        assert "1: QUOTA = 100" in now
        assert "5:     return carrier(order, quota=QUOTA)" in now
        before = await said(repository, "read_file", path="app/tools.py", commit=first)
        assert "QUOTA" not in before
        assert (await said(repository, "list_commits", path="README.md")).count("\n") == 1
        found = await said(repository, "search_files", text="quota")
        assert "app/tools.py:1:QUOTA = 100" in found
        assert "stands nowhere" in await said(repository, "search_files", text="quota", commit=first[:9])
        # One copy, however often it is read.
        assert sum("info/refs" in path for path, _ in there.host.heard) == 1
        assert copies(tmp_path)
    assert not copies(tmp_path)


async def test_nothing_of_a_hostile_repository_is_followed_run_or_shown_raw(
    there: Shop, tmp_path: Path
) -> None:
    async with there.open() as repository:
        listed = await said(repository, "list_files")
        for line in (
            "passwd (a link, not followed)",
            "sub (a submodule, not read)",
            "huge.bin (larger than 1048576 bytes, not copied)",
            "odd�[2J name (21 bytes)",
        ):
            assert line in listed
        assert "a link, which is not followed" in await refused(repository, "read_file", path="passwd")
        assert "no file" in await refused(repository, "read_file", path="app/up/etc/passwd")
        assert "a submodule" in await refused(repository, "read_file", path="sub")
        assert "a folder" in await refused(repository, "read_file", path="app")
        assert "larger than" in await refused(repository, "read_file", path="huge.bin")
        assert "no text" in await refused(repository, "read_file", path="binary")
        for path in ("../shop", "app/../../x", "", None, 7, "a\nb", "x" * 600):
            assert "path is" in await refused(repository, "read_file", path=path)
        for commit in ("main", "--output=/tmp/x", "HEAD~1", "f" * 40, 7):
            assert "no such commit" in await refused(repository, "list_commits", commit=commit)
        assert "text is" in await refused(repository, "search_files", text="a\nb")
        assert "stands nowhere" in await said(repository, "search_files", text="--open-files-in-pager=x")
        # Pathspecs are no patterns.
        assert "stands nowhere" in await said(repository, "search_files", text="QUOTA", path=":(top)app")
        found = await said(repository, "search_files", text="QUOTA")
        assert "\x1b" not in found + listed + await said(repository, "list_commits")
        assert "binary" not in found
        (copy,) = copies(tmp_path)
        assert not any(path.is_symlink() or "hooks" in path.parts for path in files(copy))
    assert there.host.root / "touched" not in files(there.host.root)


async def test_a_long_text_is_read_in_parts_below_what_is_shown_whole(there: Shop) -> None:
    async with there.open() as repository:
        part = await said(repository, "read_file", path="long.txt")
        assert len(part.encode()) < SAID_BYTES + 200
        assert "long.txt at" in part
        assert "2000 lines" in part
        assert "more lines: ask for less at a time" in part
        last = await said(repository, "read_file", path="long.txt", from_line=1_990)
        assert "2000: line 2000 " in last
        assert "2000 lines" in await refused(repository, "read_file", path="long.txt", from_line=2_001)
        assert "more lines" in await said(repository, "search_files", text="line")


async def test_the_credential_stands_in_no_argument_no_file_and_no_text(there: Shop, tmp_path: Path) -> None:
    there.host.gate = threading.Event()
    seen: list[bytes] = []

    def looked() -> bool:
        if not there.host.heard:
            return False
        seen.extend(started())
        return True

    async with there.open() as repository:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repository.call, "list_files", {})
            await trio.to_thread.run_sync(until, looked)
            there.host.gate.set()
        assert any(b"fetch" in line and b"localhost" in line for line in seen)
        assert not any(SECRET.encode() in line for line in seen)
        assert not any(SECRET.encode() in path.read_bytes() for path in files(tmp_path))
    assert SECRET not in repr(there.place())
    async with there.open(secret="another secret") as stranger:
        with pytest.raises(RepositoryAway, match="the Git host refuses the credential"):
            await stranger.call("list_files", {})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"clone_url": "http://localhost/shop"}, "named by its https address"),
        ({"clone_url": "file:///etc"}, "named by its https address"),
        ({"clone_url": "ext::sh -c id"}, "named by its https address"),
        ({"clone_url": "https://user:secret@localhost/shop"}, "no user, no secret"),
        ({"clone_url": "https://169.254.169.254/shop"}, "the Git host's address"),
        ({"clone_url": "https://nowhere.invalid/shop"}, "has no address"),
        ({"ref": "--upload-pack=id"}, "named by letters"),
        ({"ref": "no-such-branch"}, "no such branch, tag or commit"),
    ],
)
async def test_what_cannot_or_may_not_be_copied_is_told_in_our_words(
    fields: Any, why: str, there: Shop, tmp_path: Path
) -> None:
    async with there.open(**fields) as repository:
        with pytest.raises(RepositoryAway, match=why):
            await repository.call("list_files", {})
    assert not copies(tmp_path)


async def test_a_branch_a_tag_or_a_commit_can_be_named(there: Shop) -> None:
    for ref in ("main", there.commits[1]):
        async with there.open(ref=ref) as repository:
            assert there.commits[1][:12] in await said(repository, "list_commits")


async def test_a_host_that_leads_elsewhere_or_is_not_to_be_asked_is_left_alone(there: Shop) -> None:
    async with there.open(AddressRule()) as repository:
        with pytest.raises(RepositoryAway, match="the Git host's address"):
            await repository.call("list_files", {})
    assert not there.host.heard
    there.host.moved = "https://localhost:1"
    async with there.open() as repository:
        with pytest.raises(RepositoryAway, match="leads elsewhere"):
            await repository.call("list_files", {})


async def test_a_repository_beyond_the_bound_is_not_kept(there: Shop, tmp_path: Path) -> None:
    async with there.open(clone_url=there.host.clone_url("large"), most=2 * 1024 * 1024) as repository:
        with pytest.raises(RepositoryAway, match=r"larger than 2 MB|cannot be copied"):
            await repository.call("list_files", {})
        assert sum(path.lstat().st_size for path in files(tmp_path)) < 4 * 1024 * 1024
    assert not copies(tmp_path)


async def test_a_host_that_says_nothing_is_left_in_time_with_all_that_was_begun(there: Shop) -> None:
    there.host.gate = threading.Event()
    async with there.open(left_s=1.0) as repository:
        with pytest.raises(RepositoryAway, match="not copied within 1 s"):
            await repository.call("list_files", {})
    there.host.gate.set()
    assert not any(there.host.url.encode() in line for line in started())


def test_copies_of_runners_that_died_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, living = tmp_path / f"{PREFIX}4194999-x", tmp_path / f"{PREFIX}{os.getpid()}-x"
    strangers = tmp_path / f"{PREFIX}of-somebody"
    for folder in (dead, living, strangers):
        (folder / "objects").mkdir(parents=True)
    clear_left()
    assert sorted(tmp_path.iterdir()) == sorted([living, strangers])


@pytest.fixture(scope="module")
def place(service: Service) -> Place:
    token = service.command("keys", "create", "--scope", "admin", "--name", "repository").strip()
    return Place(f"{service.url}/mcp", token)


def reads_the_code(asked: Asked) -> Reply:
    if not asked.results:
        return calls(("query_count", {"dataset": "spans"}), ("search_files", {"text": "quota"}))
    ref = "q2" if "QUOTA = 100" in asked.results[1] else "q1"
    return calls(("submit_answer", answer(ref=ref)))


async def test_a_run_cites_what_it_read_of_the_code(there: Shop, place: Place) -> None:
    with standin(reads_the_code) as model:
        async with runner() as client:
            wanted = request(model, place.url, place.token, repo=there.place())
            result, events = await ended(client, "run.1", wanted)
    assert result.result is not None, result
    assert result.result["citations"][0]["id"] == "q2"
    assert [event["name"] for event in events if event["kind"] == "tool"] == ["query_count", "search_files"]
    assert "search_files" in model.asked[0].tools
    assert SECRET not in str([asked.body for asked in model.asked]) + str(events)


async def test_a_run_whose_repository_cannot_be_read_goes_on_without_it_and_says_so(
    there: Shop, place: Place
) -> None:
    with standin(reads_the_code) as model:
        async with runner() as client:
            wanted = request(model, place.url, place.token, repo=there.place(secret="another"))
            result, events = await ended(client, "run.1", wanted)
    assert result.result is not None, result
    assert result.result["notes"][1:] == [
        "The repository could not be read: the Git host refuses the credential."
    ]
    assert kinds(events).count("without_repository") == 1
