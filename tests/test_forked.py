"""A forked command is the command: its words, streams, environment, folder, status, and how it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from tests.forked import Forked, loads_alike, ran, ran_raw
from tests.service import TRACE_SVC, environment, running


@pytest.mark.parametrize(
    "words", [("--version",), ("keys", "--help"), ("no-such-command",), ("ask", "--nothing")]
)
def test_a_forked_command_says_and_ends_as_a_started_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    env = environment(tmp_path / "data", COLUMNS="80")
    forked = ran([TRACE_SVC, *words], env=env, timeout_s=60)
    started = subprocess.run(
        [TRACE_SVC, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


def test_it_reads_what_it_is_given_and_runs_where_it_is_told(tmp_path: Path) -> None:
    with running() as service:
        env = {**service.env, "SVC_DATA_DIR": "data"}
        done = ran_raw([TRACE_SVC, "keys", "list", "--json"], env=service.env, timeout_s=60)
        there = ran_raw(
            [TRACE_SVC, "keys", "list", "--json"], env=env, cwd=service.data_dir.parent, timeout_s=60
        )
        assert done.returncode == there.returncode == 0
        assert done.stdout == there.stdout != b""
        assert Path(f"/proc/{service.process.pid}/cwd").resolve() == Path.cwd()
        assert service.process.poll() is None
        os.kill(service.process.pid, signal.SIGKILL)
        assert service.process.wait(60) == -signal.SIGKILL


def test_who_waits_too_short_hears_so_and_one_process_knows_nothing_of_another(tmp_path: Path) -> None:
    with running() as one, running() as other:
        with pytest.raises(subprocess.TimeoutExpired):
            one.process.wait(0.01)
        assert one.process.pid != other.process.pid
        assert one.stop() == 0
        assert other.process.poll() is None
        assert other.health()["status"] == "UP"


def test_code_of_another_kind_is_loaded_anew() -> None:
    assert loads_alike(dict(os.environ))
    assert not loads_alike({**os.environ, "SVC_COMPILED_MODULES": "false"})
    assert not loads_alike({**os.environ, "PYTHONPATH": "/elsewhere"})


def test_its_streams_are_closed_at_both_ends(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with TemporaryFile() as errors:
        with Forked([TRACE_SVC, "--version"], env=dict(os.environ), cwd="/", stderr=errors) as process:
            assert process.stdout is not None
            assert process.stdout.read().startswith("trace-svc ")
        assert process.wait(60) == 0
    assert len(os.listdir("/proc/self/fd")) <= before + 1
