"""Which release this code is.

Owns the number of the release in the making and how a commit is named. `setup.py` asks when it builds, every
command, the doors and the backup when they name themselves. Reads the checkout's history through git; never
writes, never uses the network.

A commit with a tag `v2026.11.0` is `2026.11.0`. Every other one says which release it leads to, how many
commits lie since the last tag, and which commit it is: `2026.11.1.dev12+g34e4397` (PEP 440).
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

#: The release that the next tag is for, or the last one that was tagged.
UPCOMING: Final = "2026.11.0"
#: Names the version where there is no history: while a wheel or an image is built.
BUILD_VERSION: Final = "SVC_BUILD_VERSION"

ROOT: Final = Path(__file__).resolve().parent.parent
_TAG: Final = re.compile(r"v(20\d\d\.(?:[1-9]|1[0-2]))\.(0|[1-9]\d*)-(\d+)-g([0-9a-f]+)")
_GIT_TIMEOUT_S: Final = 5.0


@cache
def release() -> str:
    """The version of the running code: of a checkout by its commit, of an installation by its metadata."""
    return (described(ROOT) if (ROOT / ".git").exists() else None) or _installed()


def described(root: Path, commit: str = "HEAD") -> str | None:
    """The version of a commit of a checkout; None where git is missing or refuses the folder."""
    try:
        tag = _git(root, "describe", "--tags", "--long", "--match", "v20*", commit)
        if (match := _TAG.fullmatch(tag or "")) is not None:
            month, number, since, short = match[1], int(match[2]), int(match[3]), match[4]
            if not since:
                return f"{month}.{number}"
            tagged = f"{month}.{number}" == UPCOMING
            return f"{f'{month}.{number + 1}' if tagged else UPCOMING}.dev{since}+g{short}"
        since_first = _git(root, "rev-list", "--count", commit)
        abbreviated = _git(root, "rev-parse", "--short", commit)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return f"{UPCOMING}.dev{since_first}+g{abbreviated}" if since_first and abbreviated else None


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, None where it refuses. Raises `OSError` and `subprocess.TimeoutExpired`."""
    words = ["git", "-C", str(root), *arguments]
    # The git of whoever runs the checkout; it refuses one that belongs to somebody else.
    ran = subprocess.run(words, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False)  # noqa: S603
    return ran.stdout.strip() if ran.returncode == 0 else None


def image_tag(version: str) -> str:
    """The version as the tag of an image, in which no plus may stand."""
    return version.replace("+", "-")


def _installed() -> str:
    from importlib.metadata import version

    return version("trace-svc")
