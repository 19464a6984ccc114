"""Where a run's scripts are run: the port that each kind of sandbox implements, and the one that is none.

Called by the toolbox. A sandbox holds no credential and has no network. Never trusts what comes out of one.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import attrs

#: Where a sandbox has the files of its run, and scripts their place.
WORK: Final = "/work"
SCRIPT_S: Final = 60.0
OUT_BYTES: Final = 64 * 1024
FILES_BYTES: Final = 64 * 1024 * 1024


class SandboxAway(Exception):
    """What runs sandboxes is away; the text is for the operator."""


class SandboxDied(Exception):
    """The sandbox is gone, or of no more use. `unstarted`: it began no script at all."""

    def __init__(self, why: str = "", *, unstarted: bool = False) -> None:
        super().__init__(why)
        self.unstarted = unstarted


@attrs.frozen
class ScriptEnd:
    """How a script ended; `exit_code` None: its time was over. `out` is cut at `OUT_BYTES`."""

    exit_code: int | None
    out: str
    cut: bool = False

    @classmethod
    def said(cls, exit_code: int, out: bytes, *, cut: bool) -> ScriptEnd:
        """It ended by itself, and this is what it said."""
        return cls(exit_code, out.decode("utf-8", "replace") + ("\n… cut" if cut else ""), cut)

    @classmethod
    def stopped(cls, seconds: float) -> ScriptEnd:
        """Its time was over."""
        return cls(None, f"stopped: a script has {min(seconds, SCRIPT_S):.0f} s")


class Sandbox(Protocol):
    """One sandbox, for one run. Raises `SandboxAway` and `SandboxDied`."""

    async def put(self, path: str, data: bytes) -> None: ...

    async def run(self, code: str, seconds: float) -> ScriptEnd: ...


class SandboxBackend(Protocol):
    """A kind of sandbox. `scripts`: whether it can be used here; `fault`: why it cannot, for the operator."""

    @property
    def name(self) -> str: ...

    @property
    def scripts(self) -> bool: ...

    @property
    def fault(self) -> str: ...

    async def look(self) -> None:
        """Find out whether it can be used; clear away what is overdue."""
        ...

    def opened(self, run: str, seconds: float) -> AbstractAsyncContextManager[Sandbox]: ...


class NoSandboxBackend:
    """No sandbox: runs go on without scripts."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """What was asked for."""
        return self._name

    @property
    def scripts(self) -> bool:
        """Never."""
        return False

    @property
    def fault(self) -> str:
        """There is nothing that could fail."""
        return ""

    async def look(self) -> None:
        """Nothing is to be found."""

    def opened(self, run: str, seconds: float) -> AbstractAsyncContextManager[Sandbox]:
        """Nobody asks for it."""
        raise SandboxAway("there is no sandbox here")
