"""What librdkafka says, on our log and in moderation.

A client that cannot reach its broker repeats itself at every attempt. The actor behind the spool says once
that it waits; what the library adds is shown as warnings, a few a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

LINES: Final = 5
WINDOW_S: Final = 60.0


class BoundedLog:
    """Stands where librdkafka wants a logger. Called from several threads."""

    def __init__(self, target: logging.Logger) -> None:
        self._target, self._lock = target, threading.Lock()
        self._since_s, self._lines, self._left_out = float("-inf"), 0, 0

    def log(self, level: int, message: str, *arguments: Any) -> None:
        """Log a line, at most as a warning; leave it out when there were enough in this minute."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._since_s >= WINDOW_S:
                left_out, self._since_s, self._lines, self._left_out = self._left_out, now_s, 0, 0
                if left_out:
                    self._target.warning("the Kafka client said %d things more", left_out)
            if self._lines >= LINES:
                self._left_out += 1
                return
            self._lines += 1
        self._target.log(min(level, logging.WARNING), message, *arguments)
