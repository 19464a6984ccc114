"""What an agent's file gives to the table: which events it knows, and what becomes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from protocol.otlp.event_spans import EventSpan
from svc.domain.log_events.event import LogEvent, SpanKey


@attrs.frozen
class Rules:
    """The rules of one agent. An event without a key, or for which its rule has no span, is dropped."""

    agent: str
    key_of: Callable[[LogEvent], SpanKey | None]
    events: Mapping[str, Callable[[SpanKey, LogEvent], EventSpan | None]]
