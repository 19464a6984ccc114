"""Laws of reading LangSmith's OpenTelemetry export."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, mapped, wire

HUMAN = {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "hi"}}
AI = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "AIMessage"],
    "kwargs": {"content": "hello", "tool_calls": [{"name": "look", "args": {"a": 1}, "id": "c"}]},
}
LLM = {
    "langsmith.span.kind": "llm",
    "langsmith.trace.session_id": "a project",
    "langsmith.trace.name": "ChatOpenAI",
    "langsmith.metadata.thread_id": "thread",
    "langsmith.metadata.user_id": "u",
    "langsmith.metadata.ls_provider": "openai",
    "langsmith.metadata.lc_agent_name": "planner",
    "gen_ai.operation.name": "chat",
    "gen_ai.system": "langchain",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.prompt": json.dumps({"messages": [[HUMAN]]}),
    "gen_ai.completion": json.dumps({"generations": [[{"text": "hello", "message": AI}]]}),
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.total_tokens": 150,
    "gen_ai.usage.input_token_details": "{'audio': 0, 'cache_read': 100, 'cache_creation': None}",
    "gen_ai.usage.output_token_details": "{'reasoning': 12}",
    "gen_ai.response.finish_reasons": ["stop"],
}


def test_a_model_call_is_read_whole() -> None:
    row = mapped(LLM)
    assert (row.kind, row.provider, row.model_id) == ("llm", "openai", "gpt-4o")
    assert (row.session_id, row.user_id) == ("thread", "u")
    assert buckets(row) == (20, 18, 100, None, 12)
    assert (row.input_preview, row.output_preview) == ("hi", "hello")
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "c")]
    assert row.call_site_id == "unknown_service/planner/chat"
    payload = payload_of(wire(LLM))
    assert payload["input"] == [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]
    assert (payload["agent"], payload["finish_reasons"]) == ("planner", ["stop"])


def test_the_project_is_no_session() -> None:
    assert mapped({"langsmith.span.kind": "llm", "langsmith.trace.session_id": "p"}).session_id is None


@pytest.mark.parametrize(
    ("run", "operation", "kind"),
    [
        ("llm", "chat", "llm"),
        ("prompt", "chat", "step"),
        ("retriever", "embeddings", "retrieval"),
        ("embedding", "embeddings", "embedding"),
        ("tool", "execute_tool", "tool"),
        ("chain", "chain", "step"),
        ("parser", "parser", "step"),
    ],
)
def test_the_kind_of_the_run_is_heard_before_the_operation_made_of_it(
    run: str, operation: str, kind: str
) -> None:
    assert mapped({"langsmith.span.kind": run, "gen_ai.operation.name": operation}).kind == kind


def test_a_tool_shows_what_it_was_called_with() -> None:
    said = {
        "langsmith.span.kind": "tool",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c",
        "gen_ai.prompt": json.dumps({"input": "{'city': 'Paris'}"}),
        "gen_ai.completion": json.dumps({"output": "21C"}),
    }
    row = mapped(said)
    assert (row.input_preview, row.output_preview) == ("{'city': 'Paris'}", "21C")
    payload = payload_of(wire(said))
    assert (payload["input"], payload["output"]) == ("{'city': 'Paris'}", "21C")
    assert payload["tool"]["call_id"] == "c"


def test_what_a_chain_was_given_is_a_value_unless_it_is_messages() -> None:
    said: dict[str, Any] = {"langsmith.span.kind": "chain", "gen_ai.prompt": '{"city": "Paris"}'}
    assert mapped(said).input_preview == '{"city": "Paris"}'
    assert payload_of(wire(said))["input"] == {"city": "Paris"}
    said["gen_ai.prompt"] = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    assert mapped(said).input_preview == "hi"


def test_what_a_retriever_found_is_documents() -> None:
    said = {
        "langsmith.span.kind": "retriever",
        "gen_ai.prompt": '{"query": "sun"}',
        "gen_ai.completion": json.dumps({"documents": [{"page_content": "sun", "metadata": {"id": 1}}]}),
    }
    (document,) = payload_of(wire(said))["documents"]
    assert (document["rank"], document["id"], document["text"]) == (1, "1", "sun")


def test_usage_metadata_is_inclusive() -> None:
    usage = {
        "input_tokens": 120,
        "output_tokens": 30,
        "input_token_details": {"cache_read": 60, "cache_creation": 40},
        "output_token_details": {"reasoning": 12},
    }
    row = mapped({"langsmith.span.kind": "llm", "langsmith.usage_metadata": json.dumps(usage)})
    assert buckets(row) == (20, 18, 60, 40, 12)
