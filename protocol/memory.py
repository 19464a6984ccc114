"""How much memory this process may use.

Owns reading it from the machine and from the control groups around the process. Called where the settings are
read and where the embedded database is sized. Never changes a limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/sys/fs/cgroup")


def usable_memory_bytes() -> int:
    """The memory of the machine, or the least limit of a control group around this process."""
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limits():
        with suppress(OSError, ValueError):
            # A group without a limit says `max`, which is no number.
            least = min(least, int(file.read_text()))
    return least


def _limits() -> Iterator[Path]:
    yield _GROUPS / "memory" / "memory.limit_in_bytes"
    lines: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = _GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(root):
                yield folder / name
