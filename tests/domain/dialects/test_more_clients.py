"""Laws about what real clients send that no convention asks for, one or two for each client."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from protocol.otlp.reading import WireSpan
from svc.domain.intake.payload import payload_of
from tests.domain import buckets, event, mapped, wire
from tests.domain.dialects.clients import CLIENT, FAILED, INTERNAL, calls, rolled, rows, scope, span

CHAT: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini"}
USED: dict[str, Any] = {"gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 30}
#: One call of the stand-in: 120 in, 100 of them cached, 30 out, 12 of them thought.
CALL = (20, 18, 100, None, 12)

# --- LangSmith's export, 0.15 -------------------------------------------------------------------------------

RUN = {"langsmith.span.kind": "llm", **CHAT, **USED}
LANGSMITH_USAGE = {
    "input_tokens": 120,
    "output_tokens": 30,
    "total_tokens": 150,
    "input_token_details": {"cache_read": 100},
    "output_token_details": {"reasoning": 12},
}


def test_langsmith_tells_what_was_cached_in_the_metadata_of_a_run() -> None:
    row = mapped({**RUN, "langsmith.metadata.usage_metadata": json.dumps(LANGSMITH_USAGE)})
    assert buckets(row) == CALL


def test_an_exception_fails_a_run_of_langsmith_and_its_message_holds_the_class() -> None:
    raised = event(
        "exception",
        **{
            "exception.type": "Exception",
            "exception.message": "OpenAIInvalidRequestError('no such model', param=None)Traceback …",
        },
    )
    row = mapped(RUN, events=(raised,), status_code=1)
    assert (row.status, row.error_type) == ("error", "OpenAIInvalidRequestError")
    # Of other exporters the status is to be trusted: the exception may have been handled.
    assert mapped(CHAT, events=(raised,), status_code=1).status == "ok"
    # A class of its own is left alone.
    raised = event("exception", **{"exception.type": "ValueError", "exception.message": "Other('x')"})
    assert mapped(RUN, events=(raised,)).error_type == "ValueError"


# --- Google's Agent Development Kit, 1.14 -------------------------------------------------------------------

ADK = scope("gcp.vertex.agent", "1.14.0")


def test_a_tool_of_adk_that_failed_is_read_from_its_name_and_beats_the_answer_that_asked() -> None:
    boom = event("exception", **{"exception.type": "ConnectionError", "exception.message": "boom"})
    asks = span(
        2,
        "call_llm",
        {
            "gen_ai.system": "gcp.vertex.agent",
            "gen_ai.request.model": "gemini-2.5-flash",
            "gcp.vertex.agent.llm_request": "{}",
            "gcp.vertex.agent.llm_response": json.dumps(
                {"content": {"role": "model", "parts": [
                    {"function_call": {"id": "c1", "name": "broken_weather", "args": {}}}]}}
            ),
        },
        below=1,
        scope=ADK,
    )  # fmt: skip
    tool = span(
        3,
        "execute_tool broken_weather",
        below=1,
        scope=ADK,
        kind=INTERNAL,
        status_code=FAILED,
        events=(boom,),
    )
    agent = span(1, "agent_run [planner]", scope=ADK, kind=INTERNAL, status_code=FAILED)
    assert calls(agent, asks, tool) == [("broken_weather", "error", "ConnectionError")]
    kinds = [(row.kind, row.status) for row in rows(agent, asks, tool)]
    assert kinds == [("agent", "error"), ("llm", "ok"), ("tool", "error")]
    assert rows(agent)[0].call_site_id == "unknown_service/planner/agent_run [planner]"
    assert mapped(name="call_llm", scope=ADK, status_code=FAILED).kind == "llm"
    assert payload_of(wire(name="execute_tool broken_weather", scope=ADK))["tool"] == {
        "name": "broken_weather"
    }


def test_nobody_else_is_read_from_a_name_that_is_a_common_word() -> None:
    for name, fields in (
        ("call_llm", {}),
        ("chat lobby", {"kind": CLIENT}),
        ("chat lobby", {"kind": INTERNAL, "status_code": FAILED}),
        ("agent_run [x]", {}),
        ("invoke_agent", {}),
    ):
        assert mapped(name=name, **fields).kind == "step"
    # What its attributes say goes before.
    assert mapped({"openinference.span.kind": "CHAIN"}, name="execute_tool x").kind == "step"


def test_adk_tells_what_was_cached_and_thought_in_the_response_alone() -> None:
    usage = {
        "prompt_token_count": 120,
        "cached_content_token_count": 100,
        "candidates_token_count": 18,
        "thoughts_token_count": 12,
        "total_token_count": 150,
    }
    said = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.request.model": "gemini-2.5-flash",
        "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.llm_response": json.dumps({"content": {"parts": []}, "usage_metadata": usage}),
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 18,
    }
    assert buckets(mapped(said)) == CALL
    # Where the output holds what was thought, it stays as it is.
    assert buckets(mapped({**said, "gen_ai.usage.output_tokens": 30})) == CALL


# --- Gemini CLI 0.61 ----------------------------------------------------------------------------------------

GEMINI_CLI = scope("gemini-cli", "v1")
GEMINI: dict[str, Any] = {
    "gen_ai.agent.name": "gemini-cli",
    "gen_ai.agent.description": "An agent in your terminal.",
    "gen_ai.conversation.id": "s1",
}
GEMINI_ID = "read_file__read_file_1795806802389_0"


def gemini_model(number: int, parts: list[dict[str, Any]]) -> WireSpan:
    said = {
        **GEMINI,
        "gen_ai.operation.name": "llm_call",
        "gen_ai.request.model": "gemini-2.5-flash",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"text": "What is in nope.txt?"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "model", "parts": parts}]),
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 18,
    }
    return span(number, "llm_call", said, scope=GEMINI_CLI, status_code=1)


def gemini_tool(outcome: dict[str, Any] | str) -> WireSpan:
    request = {"callId": GEMINI_ID, "name": "read_file", "args": {"file_path": "nope.txt"}}
    said = {
        **GEMINI,
        "gen_ai.operation.name": "tool_call",
        "gen_ai.tool.name": "read_file",
        "gen_ai.tool.call_id": GEMINI_ID,
        "gen_ai.input.messages": json.dumps(request),
        "gen_ai.output.messages": outcome if type(outcome) is str else json.dumps(outcome),
    }
    return span(3, "tool_call", said, below=2, scope=GEMINI_CLI, status_code=1)


def gemini_outcome(status: str, response: dict[str, Any], **more: str) -> dict[str, Any]:
    parts = [{"functionResponse": {"id": GEMINI_ID, "name": "read_file", "response": response}}]
    return {"status": status, "request": {}, "response": {"responseParts": parts, **more}}


def test_a_tool_of_gemini_cli_failed_where_its_outcome_says_so_though_its_span_is_ok() -> None:
    call = {"functionCall": {"name": "read_file", "args": {"file_path": "nope.txt"}, "id": GEMINI_ID}}
    asks = gemini_model(1, [call])
    schedules = {**GEMINI, "gen_ai.operation.name": "schedule_tool_calls", "gen_ai.input.messages": "[{}]"}
    runs = span(2, "schedule_tool_calls", schedules, scope=GEMINI_CLI, status_code=1)
    failed = gemini_outcome("error", {"error": "File not found: nope.txt"}, errorType="file_not_found")
    answers = gemini_model(4, [{"text": "Nothing."}])
    spans = rows(asks, runs, gemini_tool(failed), answers)
    assert [(row.kind, row.status, row.session_id) for row in spans] == [
        ("llm", "ok", "s1"),
        ("step", "ok", "s1"),
        ("tool", "error", "s1"),
        ("llm", "ok", "s1"),
    ]
    assert calls(asks, runs, gemini_tool(failed), answers) == [("read_file", "error", "file_not_found")]
    tool = spans[2]
    assert (tool.input_preview, tool.error_message) == (
        '{"file_path":"nope.txt"}',
        "File not found: nope.txt",
    )
    model = spans[3]
    assert (model.model_id, model.provider, model.output_preview) == (
        "gemini-2.5-flash",
        "google",
        "Nothing.",
    )
    assert buckets(model) == (120, 18, None, None, None)
    # Per million: 0.30 in, 2.50 out.
    assert model.total_cost == Decimal("0.000081")


def test_a_tool_of_gemini_cli_gave_what_the_model_is_told() -> None:
    (read,) = rows(gemini_tool(gemini_outcome("success", {"output": "hello"})))
    assert (read.status, read.output_preview) == ("ok", "hello")
    # A long outcome is cut off, and is no JSON any more.
    for status, expected in (("success", "ok"), ("error", "error"), ("cancelled", "error")):
        (cut,) = rows(gemini_tool(json.dumps({"status": status}, separators=(",", ":"))[:-1] + ',"requ'))
        assert cut.status == expected
    (cancelled,) = rows(gemini_tool(gemini_outcome("cancelled", {"error": "[Operation Cancelled]"})))
    assert (cancelled.status, cancelled.error_type) == ("error", "cancelled")


def test_a_model_span_of_gemini_cli_without_usage_is_no_call_beside_its_event() -> None:
    said = {**GEMINI, "gen_ai.operation.name": "llm_call", "gen_ai.request.model": "gemini-2.5-flash"}
    assert mapped(said, scope=GEMINI_CLI).kind == "step"
    assert mapped({**GEMINI, "gen_ai.operation.name": "user_prompt"}, scope=GEMINI_CLI).kind == "agent"
    assert mapped({**GEMINI, "gen_ai.operation.name": "agent_call"}, scope=GEMINI_CLI).kind == "agent"


# --- usage objects under any key ----------------------------------------------------------------------------

OBJECTS: dict[str, dict[str, Any]] = {
    "openai chat": {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 12},
    },
    "openai responses": {
        "input_tokens": 120,
        "output_tokens": 30,
        "input_tokens_details": {"cached_tokens": 100},
        "output_tokens_details": {"reasoning_tokens": 12},
    },
    "anthropic": {
        "input_tokens": 20,
        "output_tokens": 30,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 12},
    },
    "an anthropic total that holds the cache": {
        "input_tokens": 120,
        "output_tokens": 30,
        "total_tokens": 150,
        "cache_read_input_tokens": 100,
        "reasoning_tokens": 12,
    },
    "google": {
        "promptTokenCount": 120,
        "cachedContentTokenCount": 100,
        "candidatesTokenCount": 18,
        "thoughtsTokenCount": 12,
    },
    "bedrock": {
        "inputTokens": 20,
        "outputTokens": 30,
        "cacheReadInputTokens": 100,
        "totalTokens": 150,
        "reasoningTokens": 12,
    },
    "langchain": LANGSMITH_USAGE,
}


@pytest.mark.parametrize("key", ["app.response.usage", "x.usage_metadata"])
@pytest.mark.parametrize("maker", OBJECTS)
def test_a_usage_object_of_any_maker_fills_disjoint_buckets(maker: str, key: str) -> None:
    usage = OBJECTS[maker]
    for value in (usage, json.dumps(usage), str(usage)):
        given, answered, read, written, thought = buckets(mapped({**CHAT, key: value}))
        assert (given, answered, read, written or None, thought) == CALL
    # Beside totals that agree with it, with or without their parts, it tells the parts alone.
    assert buckets(mapped({**CHAT, **USED, key: usage}))[::2] == (20, 100, 12)
    raw = {key_: usage[key_] for key_ in ("input_tokens", "output_tokens") if key_ in usage}
    if raw:
        said = {f"gen_ai.usage.{name}": tokens for name, tokens in raw.items()}
        assert buckets(mapped({**CHAT, **said, key: usage}))[::2] == (20, 100, 12)
    assert payload_of(wire({**CHAT, key: usage}))["provided_usage"][key] == usage


def test_a_usage_object_that_counts_something_else_says_nothing() -> None:
    said = {**CHAT, **USED, "session.total.usage": OBJECTS["openai chat"] | {"prompt_tokens": 9000}}
    assert buckets(mapped(said)) == (120, 30, None, None, None)


def test_openinference_has_the_parts_in_the_raw_answer_where_it_leaves_them_out() -> None:
    said = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-4o-mini",
        "llm.token_count.prompt": 120,
        "llm.token_count.completion": 30,
        "output.value": json.dumps({"id": "r", "usage": OBJECTS["openai chat"]}),
    }
    assert buckets(mapped(said)) == CALL


# --- OpenLIT 1.34 -------------------------------------------------------------------------------------------


def test_a_cost_of_nothing_for_a_model_with_a_price_is_no_price() -> None:
    row = mapped({**CHAT, **USED, "gen_ai.usage.cost": 0.0})
    assert (row.cost_source, row.total_cost) == ("inferred", mapped({**CHAT, **USED}).total_cost)
    # What nobody prices, and what used nothing, may be free.
    free = mapped({**CHAT, **USED, "gen_ai.request.model": "mine", "gen_ai.usage.cost": 0})
    assert (free.cost_source, free.total_cost) == ("provided", Decimal(0))
    assert mapped({**CHAT, "gen_ai.usage.cost": 0}).cost_source == "provided"
    assert mapped({**CHAT, **USED, "gen_ai.usage.cost": 0.5}).total_cost == Decimal("0.5")


def test_openlit_names_the_call_that_an_answer_asks_for_beside_it() -> None:
    said = {
        **CHAT,
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.args": '{"city": "Paris"}',
    }
    row = mapped(said)
    assert (row.kind, row.output_preview) == ("llm", 'get_weather({"city": "Paris"})')
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("get_weather", "call_1")]
    several = mapped({**said, "gen_ai.tool.name": "a, b", "gen_ai.tool.call.id": "1, 2"})
    assert [(call.name, call.call_id) for call in several.tool_calls] == [("a", "1"), ("b", "2")]
    ran = span(
        2, "execute_tool get_weather",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather",
         "gen_ai.tool.call.id": "call_1"}, below=1, status_code=FAILED,
    )  # fmt: skip
    assert calls(span(1, "chat", said), ran) == [("get_weather", "error", None)]


def test_a_failed_call_without_attributes_has_the_model_of_its_name() -> None:
    row = mapped(name="chat gpt-4o-mini", kind=CLIENT, status_code=FAILED)
    assert (row.kind, row.provided_model_name, row.status, row.cost_source) == (
        "llm",
        "gpt-4o-mini",
        "error",
        None,
    )


# --- pipecat 1.14 -------------------------------------------------------------------------------------------


def test_pipecat_has_texts_under_bare_keys_and_a_session() -> None:
    asked = [{"role": "user", "content": "Weather in Paris?"}]
    said = {**CHAT, **USED, "input": json.dumps(asked), "output": "Sunny.", "conversation.id": "c1"}
    row = mapped(said)
    assert (row.session_id, row.input_preview, row.output_preview) == ("c1", "Weather in Paris?", "Sunny.")
    assert payload_of(wire(said))["output"] == [
        {"role": "assistant", "parts": [{"type": "text", "text": "Sunny."}]}
    ]
    # Anybody's `input` is not.
    assert mapped({"input": "x", "output": "y"}).input_preview is None


PIPECAT = scope("pipecat", "")
PIPECAT_QUESTION = {"role": "user", "content": "Weather in Paris?"}


def pipecat_call(number: int, result: str) -> list[dict[str, Any]]:
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    return [
        {"role": "assistant", "tool_calls": [{"id": f"c{number}", "function": function, "type": "function"}]},
        {"role": "tool", "content": result, "tool_call_id": f"c{number}"},
    ]


def pipecat_request(number: int, messages: list[dict[str, Any]], **said: str) -> WireSpan:
    return span(number, "llm", {**CHAT, **USED, "input": json.dumps(messages), **said}, scope=PIPECAT)


def test_a_call_that_pipecat_says_in_the_next_request_alone_is_a_call_once() -> None:
    first, second = pipecat_call(1, '"sunny"'), pipecat_call(2, '{"error": "no such place"}')
    rounds = (
        pipecat_request(1, [PIPECAT_QUESTION]),
        pipecat_request(2, [PIPECAT_QUESTION, *first]),
        # A later round holds the call of the one before again, and so does a request that is sent again.
        pipecat_request(3, [PIPECAT_QUESTION, *first, *second]),
        pipecat_request(4, [PIPECAT_QUESTION, *first, *second], output="Sunny."),
    )
    told = [("get_weather", "ok", None), ("get_weather", "error", "no such place")]
    assert [call[:2] for call in calls(*rounds)] == [call[:2] for call in told]
    # What was said since is history.
    later = [PIPECAT_QUESTION, *first, {"role": "assistant", "content": "Sunny."}, PIPECAT_QUESTION]
    assert calls(pipecat_request(5, later)) == []
    # Of other exporters an answer says itself what it calls.
    assert calls(span(2, "llm", {**CHAT, "input": json.dumps([PIPECAT_QUESTION, *first])})) == []


def test_realtime_models_of_pipecat_say_calls_in_spans_and_attributes_of_their_own() -> None:
    live = {
        "gen_ai.request.model": "gemini-2.5-flash",
        "tool.function_name": "get_weather",
        "tool.call_id": "c1",
    }
    asks = {
        **live,
        "gen_ai.operation.name": "llm_tool_call",
        "tool.all_function_names": "get_weather,get_time",
        "tool.arguments": '{"city": "Paris"}',
    }
    gave = {
        **live,
        "gen_ai.operation.name": "llm_tool_result",
        "tool.result": '{"error": "no such place',
        "tool.result_status": "error",
    }
    spans = (
        span(1, "llm_tool_call", asks, scope=PIPECAT),
        span(2, "llm_tool_result", gave, scope=PIPECAT),
    )
    assert [row.kind for row in rows(*spans)] == ["step", "tool"]
    assert sorted(calls(*spans)) == [("get_time", "ok", None), ("get_weather", "error", None)]
    answered = {
        **USED,
        "gen_ai.request.model": "gpt-realtime",
        "gen_ai.operation.name": "llm_response",
        "function_calls.all_names": "get_weather",
    }
    row = mapped(answered, scope=PIPECAT)
    assert (row.kind, [call.name for call in row.tool_calls]) == ("llm", ["get_weather"])
    spoken = mapped(
        {**USED, **live, "gen_ai.operation.name": "llm_response", "output": "Sunny."}, scope=PIPECAT
    )
    assert (spoken.kind, spoken.output_preview) == ("llm", "Sunny.")


# --- Haystack 3.4, OpenInference ----------------------------------------------------------------------------

HAYSTACK = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-4o-2024-08-06",
    "llm.token_count.prompt": 120,
    "llm.token_count.completion": 30,
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "Sunny.",
}


def haystack(usage: str, said: str = "Sunny.") -> dict[str, Any]:
    reply = (
        "ChatMessage(_role=<ChatRole.ASSISTANT: 'assistant'>, _content=[TextContent(text="
        f"{said!r})], _name=None, _meta={{'model': 'gpt-4o', 'index': 0, 'usage': {usage}}})"
    )
    return {**HAYSTACK, "output.value": json.dumps({"replies": [reply]})}


def test_haystack_says_what_was_cached_and_thought_in_its_printed_answer() -> None:
    usage = (
        "{'completion_tokens': 30, 'prompt_tokens': 120, 'total_tokens': 150, 'completion_tokens_details':"
        " {'audio_tokens': 0, 'reasoning_tokens': 12, 'text_tokens': None}, 'prompt_tokens_details':"
        " {'audio_tokens': 0, 'cache_write_tokens': None, 'cached_tokens': 100}}"
    )
    assert buckets(mapped(haystack(usage))) == CALL
    # The words of a model are not its usage, nor are other totals, nor what was cut off.
    for printed in (usage.replace("120", "121"), usage[:-20], "{}"):
        row = mapped(haystack(printed, said=f"'usage': {usage}"))
        assert buckets(row) == (120, 30, None, None, None), printed


# --- Microsoft's agent-framework 1.23 -----------------------------------------------------------------------


def test_the_id_of_a_response_is_no_session() -> None:
    assert mapped({**CHAT, "gen_ai.conversation.id": "resp_0a1b"}).session_id is None
    assert mapped({**CHAT, "gen_ai.conversation.id": "conv_0a1b"}).session_id == "conv_0a1b"


# --- Spring AI ----------------------------------------------------------------------------------------------

SPRING: dict[str, Any] = {"gen_ai.operation.name": "framework", "gen_ai.system": "spring_ai"}


def test_spring_ai_calls_a_tool() -> None:
    said = {
        **SPRING,
        "spring.ai.kind": "tool_call",
        "spring.ai.tool.definition.name": "get_weather",
        "spring.ai.tool.definition.description": "Looks.",
        "spring.ai.tool.call.arguments": '{"city":"Paris"}',
        "spring.ai.tool.call.id": "call_1",
        "spring.ai.tool.call.result": '"Sunny."',
    }
    row = mapped(said, name="tool_call get_weather")
    assert (row.kind, row.provider) == ("tool", None)
    assert (row.input_preview, row.output_preview) == ('{"city":"Paris"}', "Sunny.")
    assert [call.name for call in row.tool_calls] == ["get_weather"]
    assert payload_of(wire(said))["tool"]["description"] == "Looks."


def test_spring_ai_names_a_session_and_is_no_provider() -> None:
    said = {**SPRING, "spring.ai.kind": "chat_client", "spring.ai.chat.client.conversation.id": "c1"}
    row = mapped(said)
    assert (row.kind, row.session_id, row.provider) == ("step", "c1", None)
    below = mapped({**CHAT, "gen_ai.system": "openai"})
    assert (below.kind, below.provider) == ("llm", "openai")


# --- MLflow 3.17 in the mode of GenAI -----------------------------------------------------------------------


def test_mlflow_writes_its_types_as_operations_in_capitals() -> None:
    kinds = {
        "RETRIEVER": "retrieval",
        "CHAT_MODEL": "llm",
        "TOOL": "tool",
        "AGENT": "agent",
        "CHAIN": "step",
    }
    for operation, kind in kinds.items():
        assert mapped({"gen_ai.operation.name": operation}).kind == kind


@pytest.mark.parametrize(
    "said",
    [
        {"gen_ai.operation.name": "CHAT_MODEL", "model": "gpt-4o-mini"},
        {"gen_ai.operation.name": "chat", "mlflow.spanInputs": '{"model": "gpt-4o-mini", "messages": []}'},
        {"mlflow.spanType": '"CHAT_MODEL"', "model": '"gpt-4o-mini"'},
    ],
)
def test_a_failed_call_of_mlflow_has_its_model_where_the_caller_put_it(said: dict[str, Any]) -> None:
    row = mapped(said, status_code=FAILED)
    assert (row.kind, row.provided_model_name) == ("llm", "gpt-4o-mini")


def test_a_model_of_what_calls_none_is_not_one() -> None:
    assert mapped({"model": "T"}).provided_model_name is None


# --- LiveKit Agents 1.8 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "provider"),
    [
        ("127.0.0.1:7101", "openai"),
        ("http://localhost:8000/v1", "openai"),
        ("models.internal", "openai"),
        ("api.anthropic.com", "anthropic"),
        ("az.ai.openai", "azure"),
    ],
)
def test_an_address_is_no_provider(address: str, provider: str) -> None:
    row = mapped({**CHAT, **USED, "gen_ai.provider.name": address})
    # Where nobody says who serves a model, it is whoever the price book has it from.
    assert row.provider == provider


@pytest.mark.parametrize("inner", ["pii.", ""])
def test_a_turn_of_livekit_has_texts(inner: str) -> None:
    said = {f"lk.{inner}user_input": "Weather?", f"lk.{inner}response.text": "Sunny."}
    row = mapped(said, name="agent_turn")
    assert (row.kind, row.input_preview, row.output_preview) == ("agent", "Weather?", "Sunny.")


def test_a_tool_of_livekit_says_that_it_failed() -> None:
    said = {
        "lk.function_tool.id": "call_1",
        "lk.function_tool.name": "look",
        "lk.function_tool.arguments": '{"a":1}',
        "lk.function_tool.output": "no such city",
        "lk.function_tool.is_error": True,
    }
    row = mapped(said, name="function_tool")
    assert (row.kind, row.status, row.input_preview) == ("tool", "error", '{"a":1}')
    assert [(call.name, call.call_id, call.status) for call in row.tool_calls] == [
        ("look", "call_1", "error")
    ]


# --- any client ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("rerank", "reranker"),
        ("run_guardrail", "guardrail"),
        ("apply_guardrail", "guardrail"),
        ("run_step", "step"),
        ("fetch_response", "step"),
        ("search_memory", "memory"),
        ("upsert_memory", "memory"),
        ("plan", "plan"),
        ("speech_to_text", "llm"),
        ("text_to_speech", "llm"),
        ("realtime_inference", "llm"),
        ("generate_live_content", "llm"),
        ("agent_step", "step"),
    ],
)
def test_each_operation_has_its_kind(operation: str, kind: str) -> None:
    assert mapped({"gen_ai.operation.name": operation}).kind == kind


def test_audio_among_the_modalities_is_a_part_of_either_bucket() -> None:
    row = mapped(
        {**CHAT, **USED, "gen_ai.usage.audio.input_tokens": 50, "gen_ai.usage.audio.output_tokens": 10}
    )
    assert (row.input_audio_tokens, row.output_audio_tokens) == (50, 10)
    assert buckets(row) == (120, 30, None, None, None)


@pytest.mark.parametrize(("cached", "heard"), [(30, 20), (50, 0), (60, 50)])
def test_audio_from_the_cache_is_no_audio_of_the_input_bucket(cached: int, heard: int) -> None:
    row = mapped(
        {
            **CHAT,
            "gen_ai.request.model": "gpt-realtime",
            "gen_ai.provider.name": "openai",
            "gen_ai.usage.input_tokens": 120,
            "gen_ai.usage.cache_read.input_tokens": 60,
            "gen_ai.usage.audio.input_tokens": 50,
            "gen_ai.usage.audio.cache_read.input_tokens": cached,
        }
    )
    # More from the cache than there is was counted beside it.
    assert (row.input_tokens, row.input_audio_tokens) == (60, heard)
    assert row.input_cost == ((60 - heard) * Decimal(4) + heard * Decimal(32)) / 10**6


def test_a_realtime_session_is_a_session_where_no_conversation_is_named() -> None:
    said = {"gen_ai.operation.name": "realtime_inference", "gen_ai.realtime_session.id": "sess_1"}
    assert mapped(said).session_id == "sess_1"
    assert mapped({**said, "gen_ai.conversation.id": "conv_1"}).session_id == "conv_1"


def test_memories_show_what_was_asked_and_remembered() -> None:
    row = mapped(
        {
            "gen_ai.operation.name": "search_memory",
            "gen_ai.memory.query.text": "diet",
            "gen_ai.memory.records": json.dumps([{"content": "vegetarian", "id": "m1"}]),
        }
    )
    assert (row.kind, row.input_preview) == ("memory", "diet")
    assert row.output_preview is not None
    assert "vegetarian" in row.output_preview


def test_gemini_cli_writes_the_id_of_a_call_its_own_way() -> None:
    row = mapped({"gen_ai.tool.name": "look", "gen_ai.tool.call_id": "call_1"})
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("look", "call_1")]


def test_a_traces_output_is_never_what_a_tool_gave_back() -> None:
    """Claude Code's answers are in its log events alone."""
    turn = span(1, "claude_code.interaction", {"span.type": "interaction", "user_prompt": "Weather?"})
    asks = span(
        2, "claude_code.llm_request", {"span.type": "llm_request", "model": "claude-opus-4-5"}, below=1
    )
    tool = span(
        3,
        "claude_code.tool",
        {"span.type": "tool", "tool_name": "Bash", "new_context": "21 degrees"},
        below=1,
    )
    trace = rolled(turn, asks, tool)
    assert (trace.input_preview, trace.output_preview) == ("Weather?", None)
    # A trace that is nothing but a call shows what it gave.
    assert rolled(tool).output_preview == "21 degrees"
