"""`python -m tests.releases NAME`: makes the dump of a release with its own code, beside this file."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.releases import RELEASES, ROOT
from tests.service import environment


def main() -> None:
    """Make one."""
    (release,) = (release for release in RELEASES if release.name == sys.argv[1])
    with release.code() as code, tempfile.TemporaryDirectory(prefix="trace-svc-dump-") as made:
        os.chmod(made, 0o755)
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("made.py")), made],
            cwd=code,
            env={**os.environ, "PYTHONPATH": str(code)},
            check=True,
        )
        # As it is: the schema is the release's.
        subprocess.run(
            [sys.executable, "-m", "svc", "backup", str(Path(made) / "backup")],
            cwd=ROOT,
            env={**environment(Path(made) / "data"), "PYTHONPATH": str(ROOT)},
            check=True,
        )
        with tarfile.open(release.dump, "w:xz", format=tarfile.PAX_FORMAT) as archive:
            for name in ("answers.json", "backup"):
                archive.add(Path(made) / name, name)
    print(f"{release.dump}: {release.dump.stat().st_size} bytes")


if __name__ == "__main__":
    main()
