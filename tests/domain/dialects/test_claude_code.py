"""Laws of reading Claude Code and the Claude Agent SDK."""

from __future__ import annotations

from typing import Any

import pytest

from svc.domain.intake.payload import payload_of
from tests.domain import buckets, event, mapped, wire

REQUEST: dict[str, Any] = {
    "span.type": "llm_request",
    "model": "claude-opus-4-5",
    "gen_ai.system": "anthropic",
    "gen_ai.request.model": "claude-opus-4-5",
    "session.id": "s",
    "input_tokens": 5000,
    "output_tokens": 333,
    "cache_read_tokens": 3000,
    "cache_creation_tokens": 679,
    "ttft_ms": 1341,
    "success": "true",
    "stop_reason": "tool_use",
    "new_context": "[USER PROMPT]\nhi",
    "response.model_output": "hello",
}


def test_a_request_is_read_whole_and_its_input_leaves_out_the_cache() -> None:
    for prefix in ("", "claude_code."):
        said = {**REQUEST, "span.type": f"{prefix}llm_request"}
        row = mapped(said, name="claude_code.llm_request")
        assert (row.kind, row.provider, row.provided_model_name) == ("llm", "anthropic", "claude-opus-4-5")
        assert (row.session_id, row.status) == ("s", "ok")
        assert buckets(row) == (5000, 333, 3000, 679, None)
        assert (row.input_preview, row.output_preview) == ("[USER PROMPT]\nhi", "hello")
        payload = payload_of(wire(said))
        assert (payload["finish_reasons"], payload["time_to_first_token_ms"]) == (["tool_use"], 1341)
        assert payload["provided_usage"].keys() == {
            "input_tokens",
            "output_tokens",
            "cache_read_tokens",
            "cache_creation_tokens",
        }


def test_its_usage_in_shared_keys_leaves_out_the_cache_too() -> None:
    row = mapped(
        {
            "span.type": "llm_request",
            "gen_ai.usage.input_tokens": 5000,
            "gen_ai.usage.cache_read.input_tokens": 3000,
            "gen_ai.usage.cache_creation.input_tokens": 500,
        }
    )
    assert buckets(row) == (5000, None, 3000, 500, None)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("interaction", "agent"),
        ("claude_code.interaction", "agent"),
        ("tool", "tool"),
        ("tool.execution", "step"),
        ("claude_code.tool.blocked_on_user", "step"),
        ("hook", "step"),
    ],
)
def test_a_span_type_names_its_kind_and_one_call_is_one_tool(said: str, kind: str) -> None:
    row = mapped({"span.type": said, "tool_name": "Bash"})
    assert (row.kind, len(row.tool_calls)) == (kind, int(kind == "tool"))


def test_bare_keys_mean_nothing_beside_another_type() -> None:
    for said in ({**REQUEST, "span.type": "web"}, {k: v for k, v in REQUEST.items() if k != "span.type"}):
        row = mapped({k: v for k, v in said.items() if not k.startswith("gen_ai.")})
        assert (row.kind, row.provided_model_name, buckets(row)) == ("step", None, (None,) * 5)
        assert "finish_reasons" not in payload_of(wire(said))


def test_a_tool_shows_what_it_was_called_with() -> None:
    said = {
        "span.type": "tool",
        "tool_name": "Bash",
        "tool_use_id": "toolu_1",
        "full_command": "ls",
        "file_path": "<REDACTED>",
    }
    output = (event("tool.output", output="<REDACTED>", content="a.txt"),)
    row = mapped(said, name="claude_code.tool", events=output)
    assert [(call.name, call.call_id) for call in row.tool_calls] == [("Bash", "toolu_1")]
    assert (row.input_preview, row.output_preview) == ('{"full_command":"ls"}', "a.txt")
    assert payload_of(wire(said, events=output))["tool"] == {
        "name": "Bash",
        "call_id": "toolu_1",
        "arguments": {"full_command": "ls"},
    }


def test_a_tool_of_an_mcp_server_is_mcp() -> None:
    assert mapped({"span.type": "tool", "tool_name": "mcp__github__search"}).kind == "mcp"


def test_no_success_is_an_error() -> None:
    for value in ("false", False, "False"):
        row = mapped({**REQUEST, "success": value, "error": "overloaded"})
        assert (row.status, row.error_message) == ("error", "overloaded")


def test_what_is_redacted_is_absent() -> None:
    row = mapped({"span.type": "interaction", "user_prompt": "<REDACTED>"})
    assert (row.kind, row.input_preview) == ("agent", None)
    assert mapped({"span.type": "interaction", "user_prompt": "hi"}).input_preview == "hi"
