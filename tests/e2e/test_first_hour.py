"""Laws of the first hour, on traces of other people: what always fails is named, and nothing else is."""

from __future__ import annotations

import secrets
import time

import pytest
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from svc.application.open_store import open_store
from svc.config.table import read_settings
from tests.bench.judge import counted
from tests.detecting.house import execute
from tests.e2e.mcp import asked
from tests.service import Service, running
from tests.store.spans.test_writing import fetch
from tests.wire import capture

#: Each is one trace of an agent that asks a model twice and a tool, `get_weather`, once in between.
CAPTURES = {
    "Pydantic AI": "v1-traces_005_pydanticai.pb",
    "Vercel AI SDK": "v1-traces_008_aisdk-OpenTelemetry.pb",
}
TOOL = "get_weather"
TRACES = 5


def turn(body: bytes, number: int, tool: str, *, fails: bool) -> bytes:
    """The captured trace as another one, minutes ago, in which its tool has this name and fails or not."""
    request = ExportTraceServiceRequest.FromString(body)
    spans = [span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]
    trace_id, ids = secrets.token_bytes(16), {span.span_id: secrets.token_bytes(8) for span in spans}
    later_ns = (
        time.time_ns() - (10 - number) * 60_000_000_000 - max(span.end_time_unix_nano for span in spans)
    )
    for span in spans:
        span.trace_id, span.span_id = trace_id, ids[span.span_id]
        span.parent_span_id = ids.get(span.parent_span_id, b"")
        span.start_time_unix_nano += later_ns
        span.end_time_unix_nano += later_ns
        for attribute in span.attributes:
            if TOOL in attribute.value.string_value:
                attribute.value.string_value = attribute.value.string_value.replace(TOOL, tool)
        if span.name == f"execute_tool {TOOL}":
            span.name = f"execute_tool {tool}"
            if fails:
                span.status.code = Status.STATUS_CODE_ERROR
                span.status.message = "the weather station does not answer"
    return request.SerializeToString()


def replay(service: Service, failing: bytes, healthy: bytes) -> None:
    """Traces of two applications by turns, as if the last had come a while ago; wait until all are judged."""
    for number in range(TRACES):
        for body in (
            turn(failing, number, "ask_station", fails=True),
            turn(healthy, number, "ask_almanac", fails=False),
        ):
            answer = service.send(body)
            assert answer.status_code == 200, answer.text
    trio.run(counted, service, 2 * TRACES)


async def told(service: Service) -> list[str]:
    """The titles of all findings, once nothing has come for a while, all is judged and one is confirmed."""
    async with open_store(read_settings(dict(service.env))) as store:
        database = store.database
        await execute(database, "update fold_state set touched_since = clock_timestamp() - interval '1 hour'")
        with trio.fail_after(120):
            while await database.fetch(  # noqa: ASYNC110 - it happens elsewhere
                "select from (select) one where exists (select from tally_due)"
                " or not exists (select from finding where status = 'confirmed')"
            ):
                await trio.sleep(0.2)
        return [row["title"] for row in await fetch(database, "select title from finding")]


@pytest.mark.parametrize(("failing", "healthy"), [tuple(CAPTURES), tuple(reversed(CAPTURES))])
def test_a_tool_that_always_fails_is_named_with_its_fifth_trace_and_nothing_else_is(
    failing: str, healthy: str
) -> None:
    with running(SVC_DETECTORS_INTERVAL_SECONDS="1") as service:
        replay(service, capture(CAPTURES[failing]), capture(CAPTURES[healthy]))
        facts = asked(service, "get_project")["first_look"]["facts"]
        assert [(fact["what"], fact["proof"]) for fact in facts if fact["kind"] == "tool_broken"] == [
            ("ask_station has failed in every trace", "5 of 5 traces; surely more than 20 %.")
        ]
        assert {fact["kind"] for fact in facts} <= {"tool_broken", "no_user", "no_session"}
        assert asked(service, "query_search", dataset="classifier_events")["rows"] == []
        title = "`ask_station` has failed from the start: 100 % of traces"
        assert trio.run(told, service) == [title]
        assert [finding["title"] for finding in asked(service, "list_findings")["findings"]] == [title]
