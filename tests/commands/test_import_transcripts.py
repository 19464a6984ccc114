"""Laws of `trace-svc import claude-code | codex`: sessions of coding agents, once, and only what is new."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.forked import ran_raw
from tests.importers.transcribed import SESSION, START, claude_folder, codex_folder
from tests.service import TRACE_SVC, Service, running

TERM_SAFE = timedelta(days=1)


@pytest.fixture(scope="module")
def instance() -> Iterator[Service]:
    """An instance in which projects are made without ado."""
    with running(SVC_AUTH_DISABLED="true") as service:
        yield service


def imported(
    service: Service, product: str, folder: Path, *words: str
) -> tuple[dict[str, Any], subprocess.CompletedProcess[bytes]]:
    done = ran_raw(
        [TRACE_SVC, "import", product, str(folder), "--json", *words], env=service.env, timeout_s=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done


def of_yesterday(folder: Path) -> None:
    """The files as if they were written a day ago: no term of retention leaves them out."""
    day = (datetime.now(UTC) - TERM_SAFE).strftime("%Y-%m-%d").encode()
    for file in folder.rglob("*.jsonl"):
        file.write_bytes(file.read_bytes().replace(START.strftime("%Y-%m-%d").encode(), day))


def test_sessions_come_in_once_and_one_that_grew_adds_only_what_is_new(
    instance: Service, tmp_path: Path
) -> None:
    claude_folder(tmp_path, turns=1)
    of_yesterday(tmp_path)
    looked_at, _ = imported(instance, "claude-code", tmp_path, "--dry-run")
    assert (looked_at["given"]["spans"], looked_at["now_here"]) == (10, None)
    first, _ = imported(instance, "claude-code", tmp_path)
    # 3 and 2 calls, 3 tools, 2 agents; 19,415 tokens as the transcript counts them.
    assert first["moved"]["stored"] == first["now_here"]["spans"] == 10
    assert first["now_here"]["tokens"] == first["given"]["tokens"] == 19_415
    assert (first["now_here"]["unpriced"], first["now_here"]["traces"], first["missing"]) == (0, 1, 0)
    again, _ = imported(instance, "claude-code", tmp_path)
    assert (again["moved"]["stored"], again["moved"]["known"]) == (0, 10)
    claude_folder(tmp_path)
    of_yesterday(tmp_path)
    more, _ = imported(instance, "claude-code", tmp_path)
    assert (more["moved"]["stored"], more["moved"]["known"]) == (3, 10)
    assert (more["now_here"]["spans"], more["now_here"]["traces"]) == (13, 2)
    sessions = [json.loads(line) for line in instance.command("export", "sessions").splitlines()]
    assert [row["id"] for row in sessions] == [SESSION]


def test_threads_of_codex_come_in_with_their_cost_and_since_leaves_out(
    instance: Service, tmp_path: Path
) -> None:
    codex_folder(tmp_path)
    of_yesterday(tmp_path)
    facts, _ = imported(instance, "codex", tmp_path)
    assert facts["moved"]["stored"] == facts["given"]["spans"] == 11
    assert (facts["now_here"]["unpriced"], facts["moved"]["without_model"]) == (0, 0)
    later = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    facts, _ = imported(instance, "codex", tmp_path, "--since", later, "--again")
    assert (facts["moved"]["stored"], facts["moved"]["outside"]) == (0, 11)


@pytest.mark.parametrize(
    ("product", "words"),
    [
        ("claude-code", b"there is no transcript of Claude Code (*.jsonl) in"),
        ("codex", b"there is no transcript of Codex (rollout-*.jsonl, rollout-*.jsonl.zst) in"),
    ],
)
def test_an_empty_folder_says_where_transcripts_are(
    instance: Service, tmp_path: Path, product: str, words: bytes
) -> None:
    done = ran_raw([TRACE_SVC, "import", product, str(tmp_path)], env=instance.env, timeout_s=60)
    assert done.returncode == 1
    assert words in done.stderr
