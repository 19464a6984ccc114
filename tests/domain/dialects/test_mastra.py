"""Laws of reading Mastra: GenAI's keys for calls of models and tools, its own for all else."""

from __future__ import annotations

from svc.domain.intake.payload import payload_of
from tests.domain import mapped, wire

RUN = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "forecaster",
    "gen_ai.system_instructions": "Be brief.",
    "mastra.span.type": "agent_run",
    "mastra.agent_run.input": "Weather in Paris?",
    "mastra.agent_run.output": '{"text": "Sunny.", "files": []}',
}


def test_an_agent_shows_what_it_was_given_and_gave() -> None:
    row = mapped(RUN)
    assert row.kind == "agent"
    assert row.input_preview == "Weather in Paris?"
    assert "Sunny." in str(row.output_preview)


def test_a_call_of_a_model_is_left_to_genai() -> None:
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}]}]',
        "mastra.span.type": "model_inference",
        "mastra.model_inference.output": "something else",
    }
    assert (mapped(call).kind, mapped(call).output_preview) == ("llm", "Sunny.")
    assert payload_of(wire(call))["output"][0]["parts"] == [{"type": "text", "text": "Sunny."}]


def test_thread_and_user_stand_in_the_metadata() -> None:
    row = mapped({**RUN, "mastra.metadata.threadId": "t", "mastra.metadata.userId": "u"})
    assert (row.session_id, row.user_id) == ("t", "u")
