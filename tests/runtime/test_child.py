"""Laws of child processes: they hear and answer, and are gone when they should be, whatever they are at."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import trio

import svc
from svc.runtime.child import child, fault_of, program
from tests.service import until

#: A child that answers a line, then keeps the processor to itself for ever.
STUBBORN = """
import signal, sys
from svc.runtime.child import end_with_parent, parent_pipe
import os
signal.signal(signal.SIGTERM, signal.SIG_IGN)
orders, answers = parent_pipe()
end_with_parent(orders, 0.5)
print("what is printed is no answer")
os.write(answers, os.environ["GREETING"].encode() + os.read(orders, 100) + str(os.getpid()).encode())
while True:
    pass
"""

#: A parent that starts it and waits.
PARENT = """
import trio
from svc.runtime.child import child, program
async def main():
    async with child("stubborn", env={"GREETING": "hello "}) as stream:
        await stream.send_all(b"you ")
        print((await stream.receive_some(100)).decode(), flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stubborn.py").write_text(textwrap.dedent(STUBBORN))
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parent.parent.parent)))
    monkeypatch.setenv("PYTHONPATH", path)
    return tmp_path


def _gone(pid: int) -> bool:
    try:
        # A zombie is gone as well.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_a_child_that_does_not_listen_is_gone_when_it_is_left(stubborn: Path) -> None:
    async with child("stubborn", env={"GREETING": "hello "}) as stream:
        await stream.send_all(b"you ")
        answer = (await stream.receive_some(100)).decode()
        assert answer.startswith("hello you ")
        began = time.monotonic()
    assert _gone(int(answer.split()[-1]))
    assert time.monotonic() - began < 5.0


async def test_a_child_that_works_without_pause_is_gone_soon_after_its_parent_was_killed(
    stubborn: Path,
) -> None:
    process = await trio.lowlevel.open_process([sys.executable, "-c", PARENT], stdout=-1)
    assert process.stdout is not None
    with trio.fail_after(30):
        answer = (await process.stdout.receive_some(100)).decode()
    pid = int(answer.split()[-1])
    assert not _gone(pid)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await trio.to_thread.run_sync(until, lambda: _gone(pid), 10.0)


#: A module that says where it is and from where it has its own modules.
OPEN = """
import json, os, sys, trio, svc
print(json.dumps([os.getcwd(), svc.__file__, trio.__file__, sys.argv[1:]]))
"""


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    started = program(module, *arguments)
    return subprocess.run(started.words, cwd=started.cwd, capture_output=True, text=True, timeout=60)


def test_a_process_of_ours_imports_nothing_from_the_folder_it_is_started_in(
    stubborn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stubborn / "open_minded.py").write_text(OPEN)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in ("svc", "json", "trio", "runpy"):
        (foreign / f"{name}.py").write_text("raise SystemExit('foreign code ran')")
    monkeypatch.chdir(foreign)
    done = _run("open_minded", "one", "two")
    assert done.returncode == 0, done.stderr
    folder, own, library, words = json.loads(done.stdout)
    assert folder == "/"
    assert own == svc.__file__
    assert library == trio.__file__
    assert words == ["one", "two"]


def test_a_process_whose_code_is_not_there_says_so_in_one_sentence(stubborn: Path) -> None:
    (stubborn / "half_there.py").write_text("import no_such_library")
    for module, lacks in (("half_there", "no_such_library"), ("not_there", "not_there")):
        done = _run(module)
        assert done.returncode == 1
        assert re.fullmatch(rf"trace-svc: the process {module} cannot start: .*{lacks}.*\n", done.stderr)


#: A child that fails as soon as its orders end, or at once.
FAILING = """
import sys
import trio
from svc.runtime.child import parent_pipe, run_for_parent
async def live(orders, answers):
    async with trio.lowlevel.FdStream(orders) as stream, trio.lowlevel.FdStream(answers):
        if sys.argv[1] == "orphaned":
            assert await stream.receive_some(1) == b""
        raise RuntimeError("it broke")
run_for_parent(live, *parent_pipe())
"""


@pytest.mark.parametrize("when", ["orphaned", "at once"])
def test_what_breaks_under_an_orphan_is_one_line_and_a_bug_is_a_traceback(when: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FAILING, when], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        if when == "orphaned":
            process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == 1
    if when == "orphaned":
        assert said == "ended because the parent process ended (RuntimeError)\n"
    else:
        assert said.endswith("RuntimeError: it broke\n")


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("pass", None),
        ("import sys; print('warning', file=sys.stderr)", None),
        ("import sys; sys.exit('before\\ntrace-svc: the disk is full')", "the disk is full"),
        ("import sys; sys.exit(3)", "exit status 3"),
    ],
)
async def test_a_command_that_failed_says_why_in_its_last_words(code: str, fault: str | None) -> None:
    assert await fault_of([sys.executable, "-c", code], timeout_s=60) == fault


async def test_a_command_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    fault = await fault_of([str(tmp_path / "nothing")], timeout_s=60)
    assert fault == "it could not be started: No such file or directory"


async def test_a_command_that_does_not_end_is_ended() -> None:
    with pytest.raises(trio.TooSlowError):
        await fault_of([sys.executable, "-c", "import signal; signal.pause()"], timeout_s=0.5)
