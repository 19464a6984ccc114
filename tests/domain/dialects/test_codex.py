"""Laws of reading Codex: its calls, its tools, and the model that stands above its usage."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from protocol.storage import Batch
from svc.domain.attributes.reading import AttributeReader
from svc.domain.intake.batches import decoder
from svc.domain.intake.inherited_models import inherit_models
from svc.domain.intake.mapping import map_span
from svc.domain.intake.rework import remapped
from svc.domain.spans.span import SpanRow
from tests import wire
from tests.domain import BOOK, buckets, mapped
from tests.domain import wire as wire_span
from tests.domain.dialects.clients import span

PAIRS_OF = partial(AttributeReader().pairs, 1)
ANSWER: dict[str, Any] = {
    "conversation.id": "c1",
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read.input_tokens": 100,
    "codex.usage.reasoning_output_tokens": 12,
}
EXEC: dict[str, Any] = {"conversation.id": "c1", "tool_name": "exec_command", "call_id": "call_1"}
TRACE = b"\x01" * 16


def decoded(*spans: Any) -> dict[str, SpanRow]:
    """The rows of one batch, by name."""
    body = wire.request(*spans).SerializeToString()
    groups = decoder(BOOK)(Batch(1, body, len(spans), datetime.now(UTC), 0.0))
    return {stored.row.name: stored.row for group in groups for stored in group}


def test_an_answer_of_codex_is_a_call_with_its_usage_and_session() -> None:
    row = mapped(ANSWER, name="handle_responses")
    assert (row.kind, row.session_id, row.provider) == ("llm", "c1", "openai")
    assert buckets(row) == (20, 18, 100, None, 12)


def test_a_command_of_codex_is_a_call_of_a_tool() -> None:
    row = mapped({**EXEC, "success": "false"}, name="exec_command")
    assert (row.kind, row.status, row.session_id) == ("tool", "error", "c1")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("exec_command", "call_1")]
    # Anybody's call id alone is none.
    assert mapped({"call_id": "1"}).kind == "step"


@pytest.mark.parametrize("between", [0, 40])
def test_the_model_is_that_of_the_request_above(between: int) -> None:
    """Which is sent behind what stands below it, since it ends later."""
    request = wire.span("try_run_sampling_request", {"model": "gpt-4o"}, span_id=b"request_")
    attributes = {**ANSWER, "env": "prod"}
    answer = wire.span("handle_responses", attributes, span_id=b"answer__", parent=b"request_")
    other = [wire.span(f"step {n}", {}, span_id=b"%08d" % (n + 1)) for n in range(between)]
    rows = decoded(answer, *other, request)
    row = rows["handle_responses"]
    assert len(rows) == 2 + between
    assert (row.provided_model_name, row.model_id, row.cost_source) == ("gpt-4o", "gpt-4o", "inferred")
    assert rows["try_run_sampling_request"].provided_model_name is None
    # Held back until its model was there, it has its attributes as well.
    assert row.attributes[::2] == ("environment",)
    # `remap` sees one span at a time, and keeps what is known.
    span = wire_span(ANSWER, name="handle_responses")
    assert remapped(row, span, BOOK, PAIRS_OF).provided_model_name == "gpt-4o"


def test_without_a_model_above_a_call_is_unpriced() -> None:
    itself = wire.span("handle_responses", ANSWER, span_id=b"answer__", parent=b"answer__")
    row = decoded(itself)["handle_responses"]
    assert (row.provided_model_name, row.cost_source) == (None, "unpriced")


def test_a_trace_that_came_in_several_batches_gets_its_model_when_it_is_remapped() -> None:
    request = span(1, "try_run_sampling_request", {"model": "gpt-4o"})
    answer = span(2, "handle_responses", ANSWER, below=1)
    spans = {(one.trace_id, one.span_id): one for one in (request, answer)}
    made = [map_span(one, BOOK) for one in (request, answer)]
    assert [row.provided_model_name for row in made] == [None, None]
    inherit_models(made, spans, lambda row, wire: remapped(row, wire, BOOK, PAIRS_OF))
    assert [row.provided_model_name for row in made] == [None, "gpt-4o"]
