"""The demo that somebody starts from a page: `trace-svc demo` in a process of its own."""

from __future__ import annotations

import logging
import subprocess
from typing import Literal

import attrs
import trio

from svc.runtime.child import program

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class DemoProcess:
    """Runs `trace-svc demo` against this very process, as an operator would beside it.

    It ends by itself: when the service goes away, it finds nobody to send to.
    """

    #: The address of the door from this machine, once it is bound.
    url: str = ""
    _process: trio.Process | None = None
    _refused: bool = False

    def state(self) -> Literal["idle", "running", "done", "failed"]:
        """Whether it runs, and how the last one ended."""
        if self._process is None:
            return "failed" if self._refused else "idle"
        status = self._process.poll()
        return "running" if status is None else "failed" if status else "done"

    async def start(self) -> None:
        """Start it, unless it runs."""
        if self.state() == "running":
            return
        demo = program("svc", "demo", "--url", self.url)
        null = subprocess.DEVNULL
        try:
            self._process = await trio.lowlevel.open_process(
                demo.words, cwd=demo.cwd, stdin=null, stdout=null
            )
        except OSError as error:
            self._process, self._refused = None, True
            log.warning("the demo could not start: %s", error)
