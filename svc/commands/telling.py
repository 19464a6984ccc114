"""How a long command says where it is: every line on a terminal once a second, else one every ten seconds."""

from __future__ import annotations

import sys
import time
from typing import Final

from svc.commands.columns import printable

_TERMINAL_S: Final = 1.0
_LOG_S: Final = 10.0


class Teller:
    """Takes lines of progress and prints some of them, on standard error."""

    def __init__(self) -> None:
        self._every_s = _TERMINAL_S if sys.stderr.isatty() else _LOG_S
        self._last_s = time.monotonic()

    def __call__(self, line: str) -> None:
        """One line; printed when the last one is long enough ago."""
        now_s = time.monotonic()
        if now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            print(printable(line), file=sys.stderr, flush=True)
