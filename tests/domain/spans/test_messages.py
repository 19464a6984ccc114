"""Laws of reading messages of any style into the normal form."""

from __future__ import annotations

from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from svc.domain.spans.messages import PREVIEW_CHARS, answer, conversation, last_user_text, normal, preview
from svc.domain.spans.values import decoded
from tests.domain import event, mapped, wire

CALL = {"type": "tool_call", "id": "c1", "name": "f", "arguments": {"a": 1}}
RESULT = {"type": "tool_result", "id": "c1", "name": None, "result": {"b": 2}}
HELLO = {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("raw", "role", "parts"),
    [
        # OpenTelemetry GenAI
        ({"role": "user", "parts": [{"type": "text", "content": "hello"}]}, "user", [HELLO]),
        ({"role": "assistant", "parts": [CALL]}, "assistant", [CALL]),
        ({"role": "assistant", "parts": [{**CALL, "arguments": '{"a": 1}'}]}, "assistant", [CALL]),
        (
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"b": 2}}]},
            "tool",
            [RESULT],
        ),
        (
            {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "result": '{"b": 2}'}]},
            "user",
            [RESULT],
        ),
        (
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]},
            "assistant",
            [{"type": "reasoning", "text": "hm"}],
        ),
        (
            {
                "role": "user",
                "parts": [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": "AA"}],
            },
            "user",
            [{"type": "media", "media": "image", "mime_type": "image/png", "data": "AA"}],
        ),
        # smolagents
        ({"role": "tool-response", "content": [{"type": "text", "text": "hello"}]}, "tool", [HELLO]),
        ({"role": "tool-call", "content": "hello"}, "assistant", [HELLO]),
        # Genkit
        (
            {"role": "model", "content": [{"toolRequest": {"ref": "c1", "name": "f", "input": {"a": 1}}}]},
            "assistant",
            [CALL],
        ),
        (
            {"role": "tool", "content": [{"toolResponse": {"ref": "c1", "output": {"b": 2}}}]},
            "tool",
            [RESULT],
        ),
        (
            {
                "role": "user",
                "content": [{"media": {"contentType": "image/png", "url": "https://x.y/z.png"}}],
            },
            "user",
            [{"type": "media", "media": "media", "mime_type": "image/png", "uri": "https://x.y/z.png"}],
        ),
        # OpenAI chat
        ({"role": "developer", "content": "hello"}, "system", [HELLO]),
        ({"role": "user", "content": [{"type": "text", "text": "hello"}]}, "user", [HELLO]),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
                ],
            },
            "assistant",
            [CALL],
        ),
        ({"role": "tool", "tool_call_id": "c1", "content": '{"b": 2}'}, "tool", [RESULT]),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]},
            "user",
            [{"type": "media", "media": "image", "uri": "http://x"}],
        ),
        # OpenAI Responses
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
            "assistant",
            [HELLO],
        ),
        (
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
            "assistant",
            [CALL],
        ),
        ({"type": "function_call_output", "call_id": "c1", "output": '{"b": 2}'}, "tool", [RESULT]),
        (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            "assistant",
            [{"type": "reasoning", "text": "hm"}],
        ),
        # Anthropic, Bedrock, Gemini
        (
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}],
            },
            "assistant",
            [CALL],
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": {"b": 2}}]},
            "user",
            [RESULT],
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            "assistant",
            [{"type": "reasoning", "text": "hm"}],
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"text": "hello"},
                    {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": 1}}},
                ],
            },
            "assistant",
            [HELLO, CALL],
        ),
        (
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}]},
            "assistant",
            [CALL],
        ),
        # LangChain, plain and serialised
        ({"type": "human", "content": "hello"}, "user", [HELLO]),
        (
            {"type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "f", "args": {"a": 1}}]},
            "assistant",
            [CALL],
        ),
        ({"type": "ai", "data": {"content": "hello"}}, "assistant", [HELLO]),
        ({"lc": 1, "id": ["langchain", "HumanMessage"], "kwargs": {"content": "hello"}}, "user", [HELLO]),
        # Vercel
        (
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "f", "args": {"a": 1}}],
            },
            "assistant",
            [CALL],
        ),
    ],
)
def test_every_style_reads_to_one_normal_form(raw: dict[str, Any], role: str, parts: list[Any]) -> None:
    found = conversation([raw])
    assert found is not None
    assert normal(found) == [{"role": role, "parts": parts}]


def test_a_choice_is_opened_and_keeps_why_it_ended() -> None:
    choices = {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
        ]
    }
    found = conversation(choices)
    assert found is not None
    assert normal(found) == [{"role": "assistant", "parts": [HELLO], "finish_reason": "stop"}]


def test_a_part_of_an_unknown_type_is_kept_whole() -> None:
    part = {"type": "hologram", "x": 1}
    assert normal([{"role": "user", "parts": [part]}])[0]["parts"] == [
        {"type": "media", "media": "hologram", "value": part}
    ]


@pytest.mark.parametrize(
    "value", [None, 1, "hi", [], {}, [1, 2], {"city": "Paris"}, {"input": "x"}, [[[[[[{"role": 1}]]]]]]]
)
def test_what_holds_no_message_is_no_conversation(value: Any) -> None:
    assert conversation(value) is None


def test_the_preview_is_the_last_thing_a_user_said() -> None:
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "parts": [{"type": "text", "content": "one"}, {"type": "text", "content": "two"}]},
        {"role": "assistant", "content": "calling"},
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "c", "result": 1}]},
    ]
    assert last_user_text(messages) == "one\ntwo"
    assert last_user_text([{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}]) == "a"
    assert last_user_text([{"role": "system", "content": "s"}]) is None


def test_an_answers_text_is_its_last_and_its_calls_are_all_up_to_the_limit() -> None:
    messages = [
        {"role": "assistant", "content": "one", "tool_calls": [{"id": 1, "name": "f"}, {"name": "g"}]},
        {"role": "assistant", "content": "two"},
        {"role": "assistant", "parts": [CALL]},
    ]
    assert answer(messages, 10) == ("two", [("1", "f"), (None, "g"), ("c1", "f")], {})
    assert answer(messages, 2)[1] == [("1", "f"), (None, "g")]


def test_a_preview_keeps_whitespace_and_whole_characters_up_to_two_hundred() -> None:
    assert preview("  a\n") == "  a\n"
    cut = preview("😀" * 300)
    assert cut == "😀" * PREVIEW_CHARS
    assert preview("a\0b") == "a\ufffdb"
    assert preview("") is preview(None) is None


def test_lone_surrogates_in_json_become_the_replacement_character() -> None:
    text = '[{"role": "user", "content": "a\\ud800b \\ud83d\\ude00"}]'
    assert decoded(text) == [{"role": "user", "content": "a\ufffdb 😀"}]
    row = mapped({"gen_ai.operation.name": "chat", "gen_ai.input.messages": text})
    assert row.input_preview == "a\ufffdb 😀"


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "[1", "{]", "[NaN", "[1e400", ""])
def test_what_is_no_json_is_no_structure_and_stays_text(text: str) -> None:
    assert decoded(text) is None
    row = mapped({"gen_ai.operation.name": "chat", "gen_ai.prompt": text})
    assert row.input_preview == (text[:200] or None)


def test_json_that_only_python_writes_is_opened() -> None:
    assert decoded('{"a": Infinity, "b": [1]}') == {"a": float("inf"), "b": [1]}
    payload = payload_of(wire({"input.value": '{"a": NaN}'}))
    assert payload["input"] == {"a": "NaN"}


def test_a_payload_holds_everything_that_was_said() -> None:
    span = wire(
        {
            "llm.token_count.prompt": 5,
            "operation.cost": 0.1,
            "x": b"\x01",
            "k\0": "v\0",
            "input.value": "plain",
        },
        events=(event("e", a=1),),
        resource={"service.name": "s"},
    )
    payload = payload_of(span)
    assert payload["attributes"]["x"] == "AQ=="
    assert payload["attributes"]["k\ufffd"] == "v\ufffd"
    assert payload["provided_usage"] == {"llm.token_count.prompt": 5, "operation.cost": 0.1}
    assert payload["events"] == [{"name": "e", "time": "2026-11-20T09:20:13.000000Z", "attributes": {"a": 1}}]
    assert (payload["input"], payload["output"], payload["links"]) == ("plain", None, [])
    assert payload["resource"] == {"attributes": {"service.name": "s"}, "schema_url": ""}
