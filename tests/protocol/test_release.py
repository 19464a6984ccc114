"""How a commit is named: by its tag, else by the release that it leads to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from protocol import release
from protocol.release import UPCOMING, described, image_tag


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, "-C", str(root), *arguments], check=True, capture_output=True, timeout=30)


def commit(root: Path) -> None:
    git(root, "commit", "--allow-empty", "-m", "more")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    commit(tmp_path)
    return tmp_path


def test_before_the_first_tag_commits_are_counted_from_the_first(checkout: Path) -> None:
    commit(checkout)
    assert re.fullmatch(rf"{re.escape(UPCOMING)}\.dev2\+g[0-9a-f]{{7,}}", described(checkout) or "")


def test_a_tagged_commit_is_its_release_and_the_ones_after_it_lead_to_the_next(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(checkout, "tag", "v2026.11.3")
    git(checkout, "tag", "another-tag")
    commit(checkout)
    commit(checkout)
    for upcoming, leads_to in (("2026.11.3", "2026.11.4"), ("2026.12.0", "2026.12.0")):
        monkeypatch.setattr(release, "UPCOMING", upcoming)
        assert described(checkout, "HEAD~2") == "2026.11.3"
        assert re.fullmatch(rf"{re.escape(leads_to)}\.dev2\+g[0-9a-f]{{7,}}", described(checkout) or "")


def test_a_folder_without_a_history_has_no_name_and_neither_has_one_without_git(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    empty = tmp_path.parent / f"{tmp_path.name}-empty"
    empty.mkdir()
    assert described(empty) is None
    monkeypatch.setenv("PATH", "")
    assert described(checkout) is None


def test_the_tag_of_an_image_has_no_plus() -> None:
    assert image_tag("2026.11.1.dev12+g34e4397") == "2026.11.1.dev12-g34e4397"
