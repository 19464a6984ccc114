"""Metrics and logs that exporters send though only traces are accepted: counted, and named in the log.

Owns `RefusedSignals`. Both listeners note each such request, whoever sends it; metrics, health and the
host's doctor show them. They are no fault of ingest: an SDK sends all signals by default, so they stand apart
from refused exports, which raise an alert.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final

import attrs

from protocol.refusals import SIGNAL_REMEDIES

log = logging.getLogger(__name__)

#: A signal is named in the log this often at most, and shown as long after the last request.
LINE_S: Final = 3600.0


@attrs.define(eq=False)
class RefusedSignals:
    """Requests by signal since the start. `clock` is monotonic and in seconds."""

    clock: Callable[[], float] = time.monotonic
    counts: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(SIGNAL_REMEDIES, 0))
    _unsaid: dict[str, int] = attrs.field(factory=dict)
    _said_s: dict[str, float] = attrs.field(factory=dict)
    _last_s: dict[str, float] = attrs.field(factory=dict)

    def note(self, signal: str) -> None:
        """A request with this signal was refused."""
        self.counts[signal] += 1
        self._last_s[signal] = now_s = self.clock()
        unsaid = self._unsaid.get(signal, 0) + 1
        if now_s - self._said_s.get(signal, -inf) < LINE_S:
            self._unsaid[signal] = unsaid
            return
        self._unsaid[signal], self._said_s[signal] = 0, now_s
        log.warning("refused %d requests with %s: %s", unsaid, signal, SIGNAL_REMEDIES[signal])

    def recent(self) -> list[dict[str, Any]]:
        """`{signal, count, remedy}` of each that came within the last hour; counts are since the start."""
        now_s = self.clock()
        return [
            {"signal": signal, "count": self.counts[signal], "remedy": SIGNAL_REMEDIES[signal]}
            for signal, last_s in sorted(self._last_s.items())
            if now_s - last_s < LINE_S
        ]
