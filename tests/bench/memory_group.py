"""A control group that bounds the memory of what is started in it, for benches; needs root.

Owns one group, of either version of control groups. `tests.bench.soak` starts a service in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import attrs

ROOT = Path("/sys/fs/cgroup")


@attrs.frozen
class MemoryGroup:
    """A folder of the kernel's, and whether it is of the first version."""

    folder: Path
    is_first: bool

    @classmethod
    @contextmanager
    def made(cls, limit_bytes: int) -> Iterator[Self]:
        """A group with this limit, removed at the end, when nothing may run in it any more."""
        is_first = (ROOT / "memory" / "memory.limit_in_bytes").exists()
        folder = (ROOT / "memory" if is_first else ROOT) / f"trace-svc-bench-{os.getpid()}"
        folder.mkdir()
        try:
            group = cls(folder, is_first)
            group.write("memory.limit_in_bytes" if is_first else "memory.max", limit_bytes)
            yield group
        finally:
            with suppress(OSError):
                folder.rmdir()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Whatever this process starts meanwhile stays in the group."""
        self.write("cgroup.procs", os.getpid())
        try:
            yield
        finally:
            (self.folder.parent / "cgroup.procs").write_text(str(os.getpid()))

    def write(self, name: str, value: int) -> None:
        """Set one value of the group."""
        (self.folder / name).write_text(str(value))

    def held_mb(self) -> float:
        """What the group holds and the kernel cannot take back: all but cached files."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        names = ("total_rss", "total_shmem") if self.is_first else ("anon", "shmem")
        return sum(int(stat.get(name, 0)) for name in names) / 1024 / 1024

    def killed(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        file = "memory.oom_control" if self.is_first else "memory.events"
        lines = dict(line.split() for line in (self.folder / file).read_text().splitlines())
        return int(lines.get("oom_kill", 0))
