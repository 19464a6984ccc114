"""The releases before this one, as far as an upgrade from them is promised: their code and a small database.

Each has a row here and a `NAME.tar.xz` beside it: a backup of what its code stored, and what it answered
then. The newest row is the release before: its suite runs on the schema of this tree, and a rolling upgrade
begins with it. Until there is a first release, a commit of earlier stands for it.

    python -m tests.releases NAME      makes the dump of a row with the code of its commit
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Release:
    """One of them: the name of its dump, its commit, and the newest step of its schema.

    `suite`: files of its tests that read and write; `about_the_schema`: laws in them that say what columns
    there are, and so cannot hold on a later schema.
    """

    name: str
    commit: str
    step: int
    suite: tuple[str, ...]
    about_the_schema: tuple[str, ...] = ()

    @property
    def dump(self) -> Path:
        """What `python -m tests.releases` made."""
        return Path(__file__).with_name(f"{self.name}.tar.xz")

    @contextmanager
    def code(self) -> Iterator[Path]:
        """A folder with the files of its commit. Skips aloud where git does not have them: nobody can install
        a history that a clone was made without.
        """
        import pytest

        try:
            archive = subprocess.run(
                ["git", "archive", "--format=tar", self.commit], cwd=ROOT, check=True, capture_output=True
            ).stdout
        except (OSError, subprocess.CalledProcessError):
            pytest.skip(
                f"this clone lacks the commit {self.commit[:12]}, of which the release before was made"
            )
        with tempfile.TemporaryDirectory(prefix="trace-svc-release-") as folder:
            os.chmod(folder, 0o755)
            with tarfile.open(fileobj=BytesIO(archive)) as files:
                files.extractall(folder, filter="data")
            yield Path(folder)


#: Oldest first.
RELEASES = (
    Release(
        "before-2026.11",
        "235e286d30d0b6364112ff766082ea9e9016b5db",
        102,
        (
            "tests/store/spans/test_writing.py",
            "tests/store/reads/test_reads.py",
        ),
    ),
)
