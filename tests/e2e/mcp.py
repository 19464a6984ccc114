"""What the tests of the tool endpoint share: talk to `/mcp` with an admin key, and data to ask about."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import jsonschema_rs
import trio

from protocol.detection import CaseMoved, Cause, Opened, Ref, Triage
from protocol.rest.query import timestamp
from svc.application.open_store import Store, open_store
from svc.config.table import read_settings
from svc.front.mcp.outputs import output_schema
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.rca.reports import RcaStore
from tests import wire
from tests.e2e.hostile import minted, post, trace_id, unique, wait_for_spans
from tests.service import Service
from tests.store.detection.detecting import AGENT, fire, seen

NOW = datetime.now(UTC)
TODAY = {"from": timestamp(NOW - timedelta(hours=12)), "to": timestamp(NOW + timedelta(hours=12))}
#: What stands in every ruling of `ruled_ids`, and in no answer.
VERDICT = "this ruling must stay inside"


def mcp(
    service: Service, body: Any, *, key: str | None = "", headers: dict[str, str] | None = None
) -> httpx2.Response:
    """POST a body to the endpoint, as JSON or as the bytes it is; with an admin key unless told otherwise."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return post(service, "/mcp", raw, minted(service, "admin") if key == "" else key, headers)


def envelope(method: str, params: Any = None, id_: Any = 1) -> dict[str, Any]:
    """A request."""
    made: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return made | ({} if id_ is None else {"id": id_}) | ({} if params is None else {"params": params})


def result(response: httpx2.Response) -> Any:
    """The result in a response; fails on an error."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"jsonrpc", "id", "result"}, body
    return body["result"]


def error(response: httpx2.Response, status: int = 200) -> tuple[int, str]:
    """Code and message of an error response."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.keys() == {"jsonrpc", "id", "error"}, body
    assert body["error"].keys() == {"code", "message"}
    return body["error"]["code"], body["error"]["message"]


def call(service: Service, name: str, /, **arguments: Any) -> dict[str, Any]:
    """The result of a tool call, after checking that its two forms are equal."""
    answer: dict[str, Any] = result(
        mcp(service, envelope("tools/call", {"name": name, "arguments": arguments}))
    )
    (block,) = answer["content"]
    assert block["type"] == "text"
    if not answer["isError"]:
        assert isinstance(answer["structuredContent"], dict)
        assert json.loads(block["text"]) == answer["structuredContent"]
        # Compact: no space that a text does not hold.
        assert not re.search(r"\s", re.sub(r'"(?:\\.|[^"\\])*"', "", block["text"]))
        # Clients drop an answer that does not fit, whatever was asked.
        fitting(name).validate(answer["structuredContent"])
    return answer


@functools.cache
def fitting(name: str) -> jsonschema_rs.Validator:
    """What holds the answers of a tool against its output schema."""
    return jsonschema_rs.validator_for(output_schema(name))


def asked(service: Service, name: str, /, **arguments: Any) -> Any:
    """What a tool says; fails on a tool error."""
    answer = call(service, name, **arguments)
    assert not answer["isError"], answer
    return answer["structuredContent"]


def tool_error(service: Service, name: str, /, **arguments: Any) -> str:
    """The text of a tool error."""
    answer = call(service, name, **arguments)
    assert answer["isError"], answer
    assert answer.keys() == {"content", "isError"}
    text: str = answer["content"][0]["text"]
    return text


def invalid(service: Service, name: str, /, **arguments: Any) -> str:
    """The text of a -32602."""
    code, message = error(mcp(service, envelope("tools/call", {"name": name, "arguments": arguments})))
    assert code == -32602
    return message


@functools.cache
def filled_ids(service: Service) -> dict[str, str]:
    """One stored trace of two spans in a session: its ids."""
    session, trace = unique("mcp-session"), trace_id()
    said = '[{"role":"user","parts":[{"type":"text","content":"which order is late?"}]}]'
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.input.messages": said,
        "session.id": session,
    }
    root = wire.span("ask", {"session.id": session}, trace_id=trace, span_id=b"\x01" * 8)
    child = wire.span(
        "chat gpt-4o", chat, trace_id=trace, span_id=b"\x02" * 8, parent=b"\x01" * 8, status_code=2
    )
    body = wire.request(root, child, resource={"service.name": session}).SerializeToString()
    sent = post(service, "/v1/traces", body, service.write_key, {"Content-Type": "application/x-protobuf"})
    assert sent.status_code == 200, sent.text
    wait_for_spans(service, 2, session_id=session)
    return {"trace_id": trace.hex(), "span_id": "02" * 8, "root_id": "01" * 8, "session_id": session}


def beside(service: Service, work: Callable[[Store], Awaitable[Any]]) -> Any:
    """Do something with the store beside the running service, as its own commands do."""

    async def opened() -> Any:
        async with open_store(read_settings(service.env)) as store:
            return await work(store)

    return trio.run(opened)


@functools.cache
def ruled_ids(service: Service) -> dict[str, str]:
    """A case and its finding, both ruled on by triage."""
    trace = bytes.fromhex(filled_ids(service)["trace_id"])

    async def work(store: Store) -> dict[str, str]:
        project = await ProjectStore(store.database).make_default()
        what = seen(
            cause=Cause("tool-errors", "error_type", unique("key")), severity=0.9, detected_at=NOW,
            triage_source="agent", payload={"rates": [{"ruling": VERDICT, "rate": 0.5}]},
        )  # fmt: skip
        refs = [Ref("exemplar", trace_id=trace, rank=1), Ref("member", trace_id=trace)]
        refs += [Ref("member", trace_id=trace, span_id=b"\x02" * 8), Ref("member", trace_id=b"\x7f" * 16)]
        finding = await fire(store.database, what, refs, project.id)
        triage = Triage("positive", VERDICT, VERDICT, [VERDICT])
        await FindingStates(store.database).rule(project.id, finding, triage, AGENT, NOW)
        opened = await CaseFindings(store.database).open(project.id, finding, AGENT, NOW)
        assert isinstance(opened, Opened)
        ruled = await CaseStates(store.database).rule(project.id, opened.id, {"why": VERDICT}, AGENT, NOW)
        assert isinstance(ruled, CaseMoved)
        reports = RcaStore(store.database)
        assert await reports.start(project.id, opened.id, AGENT, NOW) is not None
        lease = await reports.claim(NOW)
        assert lease is not None
        report = {"summary": "the upstream timed out", "ruling": VERDICT}
        assert await reports.finish(lease, report, AGENT, NOW)
        return {"finding_id": str(finding), "case": opened.reference, "case_id": str(opened.id)}

    found: dict[str, str] = beside(service, work)
    return found


def every_call(service: Service) -> dict[str, dict[str, Any]]:
    """Arguments for each tool that asks for anything, on data that is there."""
    ids, ruled = filled_ids(service), ruled_ids(service)
    return {
        "get_case": {"id": ruled["case"]},
        "get_finding": {"id": ruled["finding_id"]},
        "get_finding_evidence": {"finding_id": ruled["finding_id"]},
        "get_trace": {"trace_id": ids["trace_id"], "fields": ["payload"]},
        "get_span": {"trace_id": ids["trace_id"], "span_id": ids["span_id"]},
        "get_session": {"id": ids["session_id"]},
        "query_count": {"dataset": "spans"},
        "query_timeseries": {"dataset": "spans", "interval": "hour", "range": TODAY},
        "query_facets": {"dataset": "spans", "field": "kind"},
        "query_search": {"dataset": "tool_calls"},
        "compare": {"baseline": {"status": "ok"}, "comparison": {"status": "error"}},
    }
