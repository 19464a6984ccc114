"""How a long command says where it is: every line on a terminal once a second, else one every ten seconds.

A command that waits for somebody else is never silent: `beat` says that it waits where nothing was printed
for a while.
"""

from __future__ import annotations

import sys
import time
from typing import Final

import trio

from svc.commands.columns import printable
from svc.domain.quantities import count

_TERMINAL_S: Final = 1.0
_LOG_S: Final = 10.0
#: The longest silence, about.
BEAT_S: Final = 5.0


class Teller:
    """Takes lines of progress and prints some of them, on standard error."""

    def __init__(self) -> None:
        self._every_s = _TERMINAL_S if sys.stderr.isatty() else _LOG_S
        self._last_s = time.monotonic()

    def __call__(self, line: str) -> None:
        """One line; printed when the last one is long enough ago."""
        if time.monotonic() - self._last_s >= self._every_s:
            self.say(line)

    def say(self, line: str) -> None:
        """One line that is printed whenever the last one was."""
        self._last_s = time.monotonic()
        print(printable(line), file=sys.stderr, flush=True)

    async def beat(self, sentence: str) -> None:
        """Say for ever that it goes on, where nothing was said for a while."""
        while True:
            quiet_s = time.monotonic() - self._last_s
            if quiet_s >= BEAT_S:
                self.say(f"{sentence}, {count(round(quiet_s))} s since the last line")
            await trio.sleep(BEAT_S)
