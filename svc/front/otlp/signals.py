"""Metrics and logs that exporters send beside traces: what is accepted, how each is answered, and the counts.

Owns `Signal` and the answers to each, `TakenSignals`, what became of log records and data points, and
`RefusedSignals`, the requests with signals that are not accepted. Both listeners note each such request,
whoever sends it; metrics, health and the host's doctor show them. They are no fault of ingest: an SDK sends
all signals by default, so they stand apart from refused exports, which raise an alert.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final, Literal

import attrs
import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from protocol.otlp.admission import Form
from protocol.otlp.screen import Screening
from protocol.refusals import SIGNAL_REMEDIES

log = logging.getLogger(__name__)

#: A signal is named in the log this often at most, and shown as long after the last request.
LINE_S: Final = 3600.0

Signal = Literal["traces", "logs", "metrics"]
#: Accepted beside traces where `SVC_INGEST_GENAI_EVENTS` says so.
OTHERS: Final[tuple[Signal, ...]] = ("logs", "metrics")

_RESPONSES: Final[dict[Signal, tuple[Any, str, str]]] = {
    "traces": (ExportTraceServiceResponse, "rejected_spans", "rejectedSpans"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records", "rejectedLogRecords"),
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points", "rejectedDataPoints"),
}


def success(screening: Screening, form: Form, signal: Signal = "traces") -> bytes:
    """An empty response when everything was taken, else one with `partial_success`."""
    message = screening.message()
    if not message:
        return b"{}" if form == "json" else b""
    response_type, field, json_field = _RESPONSES[signal]
    if form == "json":
        partial = {json_field: str(screening.refused), "errorMessage": message}
        return msgspec.json.encode({"partialSuccess": partial})
    response = response_type()
    setattr(response.partial_success, field, screening.refused)
    response.partial_success.error_message = message
    serialised: bytes = response.SerializeToString()
    return serialised


@attrs.define(eq=False)
class TakenSignals:
    """What became of the log records and data points of accepted requests since the start."""

    #: Made into spans.
    log_spans: int = 0
    #: Log records refused over a quota once they were spans.
    log_refused: int = 0
    #: Log records dropped, by reason.
    log_dropped: dict[str, int] = attrs.field(factory=dict)
    data_points: int = 0

    def note(self, signal: Signal, screening: Screening) -> None:
        """A request of this signal was accepted."""
        if signal == "metrics":
            self.data_points += screening.refused
        elif signal == "logs":
            self.log_spans += screening.accepted
            self.log_refused += screening.rejected
            for reason, count in screening.dropped:
                self.log_dropped[reason] = self.log_dropped.get(reason, 0) + count

    def report(self) -> dict[str, Any]:
        """For health: `taken` is the sum of the three beside it."""
        dropped = sum(self.log_dropped.values())
        return {
            "taken": self.log_spans + self.log_refused + dropped,
            "spans": self.log_spans,
            "refused": self.log_refused,
            "dropped": dropped,
            "reasons": dict(sorted(self.log_dropped.items())),
            "data_points_dropped": self.data_points,
        }


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
