"""A secret that was sent is in no answer: of no tool, no question, no route, whatever said it and where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from svc.front.mcp.tools import TOOLS
from tests import wire
from tests.domain.detect.secrets.test_secrets import B64, POSITIVES, checked, some
from tests.e2e.hostile import client, minted, post, trace_id, unharmed, unique, wait_for_spans
from tests.e2e.mcp import TODAY, asked, call
from tests.service import Service

__all__ = ["unharmed"]


def planted(service: Service, tokens: dict[str, str]) -> dict[str, str]:
    """A conversation in which a model says secrets, and everybody repeats them."""
    session, trace = unique("secrets"), trace_id()
    said = (
        f"Sure, the keys are:\n{tokens['github']}\nand {tokens['aws']} with password: {tokens['password']}."
    )
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": f"is {tokens['stripe']} mine?"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": said}]},
    ]
    own = {"session.id": session, "svc.call_site.id": session}
    first = wire.span(
        "chat",
        own
        | {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.input.messages": json.dumps(messages[:1]),
            "gen_ai.output.messages": json.dumps(messages[1:]),
        },
        trace_id=trace,
        span_id=b"\x01" * 8,
        events=[wire.event("log", {"body": said, "nested": json.dumps({"args": json.dumps({"x": said})})})],
    )
    again = wire.span(
        "chat",
        own
        | {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.input.messages": json.dumps([*messages, messages[0]]),
            "gen_ai.output.messages": json.dumps(messages[1:]),
            # Cut by the preview in the middle of the token.
            "gen_ai.prompt.0.content": "y " * 90 + tokens["github"],
        },
        trace_id=trace,
        span_id=b"\x02" * 8,
        parent=b"\x01" * 8,
    )
    tool = wire.span(
        "execute_tool push",
        own
        | {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": session,
            "gen_ai.tool.call.arguments": json.dumps(
                {"auth": tokens["github"], "db_password": tokens["password"]}
            ),
            "gen_ai.tool.call.result": json.dumps({"log": f"used\n{tokens['stripe']}"}),
            "error.type": "Refused",
        },
        trace_id=trace,
        span_id=b"\x03" * 8,
        parent=b"\x01" * 8,
        status_code=2,
        status_message=f"401 for key {tokens['stripe']}",
        links=[wire.link(trace, b"\x01" * 8, {"why": said})],
    )
    cut = wire.span(
        "step",
        own | {"input.value": "y " * 92 + tokens["github"], "output.value": "z " * 88 + tokens["aws"]},
        trace_id=trace,
        span_id=b"\x04" * 8,
        parent=b"\x01" * 8,
    )
    resource = {"service.name": session, "deploy.command": f"run --token={tokens['password']}"}
    body = wire.request(first, again, tool, cut, resource=resource).SerializeToString()
    sent = post(service, "/v1/traces", body, service.write_key, {"Content-Type": "application/x-protobuf"})
    assert sent.status_code == 200, sent.text
    wait_for_spans(service, 4, session_id=session)
    return {"trace_id": trace.hex(), "session": session}


@pytest.mark.usefixtures("unharmed")
def test_a_planted_secret_is_in_no_answer(service: Service) -> None:
    tokens = {
        "github": checked("gh" + "p_"),
        "aws": POSITIVES["aws-access-key-id"]()[1],
        "stripe": POSITIVES["stripe"]()[1],
        "password": some(24, B64.replace("/", "").replace("+", "")),
    }
    ids = planted(service, tokens)
    trace, session = ids["trace_id"], ids["session"]
    answers: dict[str, Any] = {}
    arguments: dict[str, list[dict[str, Any]]] = {
        "get_trace": [{"trace_id": trace}, {"trace_id": trace, "fields": ["payload"]}],
        "list_spans": [
            {"trace_id": trace},
            {"trace_id": trace, "fields": ["payload"]},
            {"q": "the keys are", "range": TODAY},
        ],
        "get_span": [{"trace_id": trace, "span_id": f"0{n}" * 8} for n in (1, 2, 3, 4)],
        "list_traces": [{"call_site_id": session}],
        "get_session": [{"id": session}],
        "query_count": [{"dataset": "spans"}],
        "query_timeseries": [{"dataset": "spans", "interval": "day", "range": TODAY}],
        "query_facets": [
            {"dataset": "spans", "field": "name"},
            {"dataset": "tool_calls", "field": "error_type"},
        ],
        "query_search": [
            {"dataset": "tool_calls", "filters": {"name": session}},
            {"dataset": "classifier_events"},
        ],
        "compare": [{"baseline": {}, "comparison": {"filters": {"name": session}}}],
    }
    needs_a_finding = {"get_case", "get_finding", "get_finding_evidence"}
    for name in sorted({tool.name for tool in TOOLS} - needs_a_finding):
        for number, asking in enumerate(arguments.get(name, [{}])):
            answers[f"{name} {number}"] = json.dumps(call(service, name, **asking))
    for dataset in ("spans", "tool_calls"):
        body = json.dumps({"dataset": dataset, "q": "", "limit": 1000}).encode()
        answers[f"search {dataset}"] = post(service, "/v1/query/search", body, service.query_key).text
    for n in (1, 2, 3, 4):
        path = f"/api/orgs/default/projects/default/spans/{trace}/{f'0{n}' * 8}/payload"
        got = client(service).get(path, headers={"Authorization": f"Bearer {minted(service, 'admin')}"})
        assert got.status_code == 200, got.text
        answers[f"payload {n}"] = got.text
    for place, answer in answers.items():
        for form, token in tokens.items():
            assert token not in answer, (form, place)
            # Nor is half of one, where a preview was cut.
            assert token[: len(token) // 2] not in answer, (form, place)
    # What is shown instead says what it was, and the rest is there.
    whole = asked(service, "get_span", trace_id=trace, span_id="01" * 8)
    assert f"[github-pat {tokens['github'][:4]}… 40 characters]" in json.dumps(whole, ensure_ascii=False)
    assert "Sure, the keys are:" in json.dumps(whole)
    assert isinstance(whole["attributes"], dict)
