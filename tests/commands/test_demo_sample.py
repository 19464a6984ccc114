"""The small demo holds what it promises, whatever the dice say."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from svc.commands.demo_sample import TRACES, traces

NOW = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)


@given(st.integers(0, 2**32))
def test_each_demo_has_every_model_and_a_tool_that_fails(seed: int) -> None:
    made = list(traces(random.Random(seed), NOW))
    assert len(made) == TRACES
    spans = [span for _, of_trace in made for span in of_trace]
    failed = [span.name for span in spans if span.status.code == Status.STATUS_CODE_ERROR]
    assert failed == ["execute_tool find_parcel"] * 3
    calls = Counter(span.name for span in spans if span.name.startswith("chat "))
    assert calls == {
        "chat gpt-4o": 10,
        "chat gpt-4o-mini": 10,
        "chat claude-sonnet-4-5": 8,
        "chat house-llm-13b": 4,
    }
