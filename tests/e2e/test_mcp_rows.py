"""Every row of the specification's table of tools: arguments to the letter, defaults, bounds, answers.

The tool rules, faults and redaction are in `test_mcp.py`, the protocol in `tests/front/mcp/test_protocol.py`.
"""

from __future__ import annotations

import functools
import json
import re
from datetime import timedelta
from typing import Any

import attrs
import pytest
from msgspec import UNSET

from protocol.detection import CaseMoved, Cause, Ref
from protocol.rest.answers import Counted
from svc.application.open_store import Store
from svc.domain.attributes.conventions import CONVENTION_FIELDS, PAYLOAD
from svc.domain.traces.agent_path import AGENT_PATH
from svc.front.mcp.reads import Reads
from svc.front.mcp.tools import TOOLS, BadArguments, catalogue
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from tests import wire
from tests.e2e.hostile import ask, post, trace_id, unharmed, unique, wait_for_spans  # noqa: F401 - a fixture
from tests.e2e.mcp import NOW, TODAY, asked, beside, envelope, every_call, filled_ids, invalid, mcp, result
from tests.service import Service, until
from tests.store.detection.detecting import ANN, confirm, fire, opened, seen
from tests.store.spans.test_writing import one, rows, store_of

pytestmark = pytest.mark.usefixtures("unharmed")

#: The table as it is printed: the required arguments of a tool, then its optional ones.
SPECIFIED = {
    "get_project": ("", ""),
    "list_call_sites": ("", ""),
    "list_failure_modes": ("", "call_site_id chain_id scope severity layer pack_id compliance_tag"),
    "list_cases": ("", "state detector call_site_id limit cursor"),
    "get_case": ("id", ""),
    "list_findings": ("", "status call_site_id detector include"),
    "get_finding": ("id", ""),
    "get_finding_evidence": ("finding_id", "role count_only limit cursor"),
    "list_traces": ("", "model kind call_site_id status range q limit cursor"),
    "get_trace": ("trace_id", "fields"),
    "list_spans": (
        "",
        "trace_id call_site_id kind name status model_id session_id range q mode fields limit cursor",
    ),
    "get_span": ("trace_id span_id", ""),
    "list_sessions": ("", "limit cursor"),
    "get_session": ("id", ""),
    "describe_dataset": ("", "dataset"),
    "query_count": ("dataset", "range filters"),
    "query_timeseries": ("dataset interval range", "filters"),
    "query_facets": ("dataset field", "range filters top_n"),
    "query_search": ("dataset", "q mode range filters limit cursor"),
}
DATASETS = "spans tool_calls classifier_events metric_rollups"
#: The values that an argument can have, where the specification and the contract list them.
VALUES = {
    "list_failure_modes.scope": "single_call chain trace",
    "list_failure_modes.severity": "low medium high",
    "list_failure_modes.layer": "A B C",
    "list_cases.state": "open muted resolved",
    "list_findings.include": "confirmed all",
    "get_finding_evidence.role": "exemplar member baseline witness changepoint",
    "list_traces.kind": "llm reasoning tool mcp retrieval embedding reranker agent workflow plan memory"
    " handoff guardrail step",
    "list_traces.status": "ok error",
    "list_spans.kind": "llm reasoning tool mcp retrieval embedding reranker agent workflow plan memory"
    " handoff guardrail step",
    "list_spans.status": "ok error",
    "list_spans.mode": "keyword",
    "describe_dataset.dataset": DATASETS,
    "query_count.dataset": DATASETS,
    "query_timeseries.dataset": DATASETS,
    "query_timeseries.interval": "hour day week month",
    "query_facets.dataset": DATASETS,
    "query_search.dataset": "tool_calls classifier_events",
    "query_search.mode": "keyword",
}


#: What extends it, and is not there when SVC_MCP_EXTENSIONS is false.
EXTENDED = {
    "list_traces": "failed_spans sort mark feedback set filters fields",
    "list_spans": "by filters",
    "query_count": "by measure",
    "query_timeseries": "by measure group_by top_n",
    "query_facets": "by measure sort",
    "query_search": "by",
}


def to_the_letter() -> dict[str, dict[str, Any]]:
    """What `tools/list` shows when nothing extends the specification."""
    tools = json.loads(bytes(catalogue(extensions=False).listed))["tools"]
    return {tool["name"]: tool for tool in tools}


def listed(service: Service) -> dict[str, dict[str, Any]]:
    """What `tools/list` shows, by name."""
    return {tool["name"]: tool for tool in result(mcp(service, envelope("tools/list")))["tools"]}


def test_the_tools_and_their_arguments_are_those_of_the_specification() -> None:
    shown = to_the_letter()
    assert list(shown) == list(SPECIFIED)
    for name, (required, optional) in SPECIFIED.items():
        schema = shown[name]["inputSchema"]
        assert schema["type"] == "object"
        assert set(schema.get("required", [])) == set(required.split()), name
        assert set(schema["properties"]) == {*required.split(), *optional.split()}, name


def test_extensions_are_optional_arguments_of_the_same_tools(service: Service) -> None:
    specified, shown = to_the_letter(), listed(service)
    assert list(shown) == [*specified, "compare"]
    for name in specified:
        tool = shown[name]
        schema, without = tool["inputSchema"], specified[name]["inputSchema"]
        assert schema.get("required") == without.get("required")
        assert set(schema["properties"]) - set(without["properties"]) == set(EXTENDED.get(name, "").split())
        assert tool["description"].startswith(specified[name]["description"])


async def test_without_extensions_their_arguments_are_refused_and_nothing_is_noted(store: Database) -> None:
    tools = catalogue(extensions=False).tools
    for name, arguments in EXTENDED.items():
        required = {"dataset": "tool_calls"} if name.startswith("query") else {}
        required |= (
            {"interval": "day", "range": {"from": "2026-01-01", "to": "2026-01-02"}}
            if (name == "query_timeseries")
            else {}
        )
        required |= {"field": "name"} if name == "query_facets" else {}
        tools[name].read(required)
        for argument in arguments.split():
            with pytest.raises(BadArguments, match=f"unknown field `{argument}`; it takes:"):
                tools[name].read(required | {argument: "x"})
    with pytest.raises(BadArguments, match="interval"):
        tools["query_timeseries"].read(
            {"dataset": "spans", "interval": "minute", "range": {"from": "2026-01-01", "to": "2026-01-02"}}
        )
    day = NOW - timedelta(days=30)
    await store_of(store).write(rows(one(1, start=day)))
    range_ = {"from": (day - timedelta(hours=1)).isoformat(), "to": (day + timedelta(hours=1)).isoformat()}
    for extensions in (True, False):
        reads = Reads.of(store, QueryStore(store), lambda: NOW, extensions=extensions)
        tool = catalogue(extensions=extensions).tools["query_count"]
        answer = await tool.handler(reads, 1, tool.read({"dataset": "spans", "range": range_}))
        assert isinstance(answer, Counted)
        assert (answer.count, answer.notes is not UNSET) == (0, extensions)


def test_listed_values_are_those_of_the_specification_and_no_others_are_closed() -> None:
    closed = {
        f"{name}.{argument}": set(schema["enum"])
        for name, tool in to_the_letter().items()
        for argument, schema in tool["inputSchema"]["properties"].items()
        if "enum" in schema
    }
    assert closed == {argument: set(values.split()) for argument, values in VALUES.items()}


def test_ranges_and_fields_have_the_shape_of_the_specification(service: Service) -> None:
    for name, tool in listed(service).items():
        properties = tool["inputSchema"]["properties"]
        if "range" in properties:
            assert set(properties["range"]["properties"]) == {"from", "to"}
            needed = properties["range"].get("required", [])
            assert set(needed) == ({"from", "to"} if name == "query_timeseries" else set())
    for tool in to_the_letter().values():
        fields = tool["inputSchema"]["properties"].get("fields")
        assert fields is None or fields["items"] == {"type": "string", "enum": ["payload"]}


def test_rows_of_chosen_fields_have_these_and_their_ids_alone(service: Service) -> None:
    ids = filled_ids(service)
    of_trace = {"trace_id": ids["trace_id"]}
    for spans in (
        asked(service, "list_spans", **of_trace, fields=["name", "error_type"])["spans"],
        asked(service, "get_trace", **of_trace, fields=["name", "error_type"])["spans"],
    ):
        assert spans
        assert all(span.keys() == {"trace_id", "span_id", "name", "error_type"} for span in spans)
    [span, *_] = asked(service, "list_spans", **of_trace, fields=["name", "payload"])["spans"]
    assert {"trace_id", "span_id", "name", "input", "attributes"} <= span.keys()
    assert not span.keys() & {"kind", "started_at", "input_preview"}
    [trace, *_] = asked(service, "list_traces", fields=["total_cost"])["traces"]
    assert trace.keys() == {"trace_id", "total_cost"}
    assert "one of: cache_read_tokens," in invalid(service, "list_traces", fields=["payload"])


# --- defaults and bounds of what is listed ----------------------------------------------------------------


@attrs.frozen
class Bulk:
    """More rows than any page holds: names under which tests find them."""

    user: str
    session: str
    trace_id: str
    site: str
    detector: str
    finding_id: str


MANY, PAGES, STEPS = 1001, 101, 201


@functools.cache
def bulk(service: Service) -> Bulk:
    """A session of 1,001 traces with a tool call each, 101 sessions, a trace of 201 spans, 101 cases, and a
    finding with 1,001 refs.
    """
    user, session, site, detector = (unique(word) for word in ("user", "session", "site", "detector"))
    calls = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "session.id": session}
    traces, large = [trace_id() for _ in range(MANY)], trace_id()
    spans = [
        wire.span("look", {**calls, "svc.call_site.id": site}, trace_id=trace, span_id=b"\x01" * 8)
        for trace in traces
    ]
    spans += [
        wire.span(f"page {n}", {"session.id": f"{session} {n}", "user.id": user}, trace_id=trace_id())
        for n in range(PAGES)
    ]
    root = wire.span("root", {"user.id": large.hex()}, trace_id=large, span_id=b"\x01" * 8)
    steps = {"user.id": large.hex(), "svc.call_site.id": f"{site} large"}
    spans += [
        root,
        *(wire.span(f"step {n}", steps, trace_id=large, parent=b"\x01" * 8) for n in range(STEPS - 1)),
    ]
    body = wire.request(*spans).SerializeToString()
    sent = post(service, "/v1/traces", body, service.write_key, {"Content-Type": "application/x-protobuf"})
    assert sent.status_code == 200, sent.text
    for count, filters in (
        (MANY, {"call_site_id": site}),
        (PAGES, {"user_id": user}),
        (STEPS, {"user_id": large.hex()}),
    ):
        wait_for_spans(service, count, **filters)

    async def detect(store: Store) -> str:
        project = (await ProjectStore(store.database).make_default()).id
        for n in range(PAGES):
            what = seen(cause=Cause(detector, "error_type", str(n)), detected_at=NOW)
            at = NOW + timedelta(seconds=n)
            await opened(store.database, what, project_id=project, at=at)
        refs = [Ref("member", trace_id=trace) for trace in traces]
        what = seen(cause=Cause(detector, "error_type", detector), detected_at=NOW, trace_count=MANY)
        return str(await fire(store.database, what, refs, project))

    finding_id: str = beside(service, detect)
    return Bulk(user, session, large.hex(), site, detector, finding_id)


#: Default and maximum of every argument that bounds an answer (specification, "Limits").
BOUNDED = {
    "list_cases": ("limit", "cases", 50, 100),
    "list_traces": ("limit", "traces", 50, 100),
    "list_spans": ("limit", "spans", 50, 100),
    "list_sessions": ("limit", "sessions", 50, 100),
    "query_search": ("limit", "rows", 100, 1000),
    "get_finding_evidence": ("limit", "refs", 100, 1000),
    "query_facets": ("top_n", "facets", 20, 100),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_page_has_its_default_and_its_maximum(service: Service, name: str) -> None:
    made = bulk(service)
    arguments: dict[str, Any] = {
        "list_cases": {"detector": made.detector},
        "list_spans": {"call_site_id": made.site},
        "query_search": {"dataset": "tool_calls", "filters": {"call_site_id": made.site}},
        "get_finding_evidence": {"finding_id": made.finding_id},
        "query_facets": {"dataset": "spans", "field": "session_id", "filters": {"user_id": made.user}},
    }.get(name, {})
    bound, rows, default, most = BOUNDED[name]
    until(lambda: len(asked(service, name, **arguments, **{bound: most})[rows]) == most)
    for wanted, shown in ((None, default), (0, default), (-1, default), (3, 3), (most + 1, most)):
        answer = asked(service, name, **arguments, **{bound: wanted})
        assert len(answer[rows]) == shown, wanted
        if bound == "limit":
            after = asked(service, name, **arguments, limit=1, cursor=answer["next_cursor"])
            assert len(after[rows]) == 1
            assert after[rows][0] not in answer[rows]


def test_bounds_are_said_where_an_agent_reads_them() -> None:
    for name, (bound, _rows, default, most) in BOUNDED.items():
        said = catalogue(extensions=True).tools[name].schema()["properties"][bound]["description"]
        assert re.findall(r"\d+", said) == [str(default), str(most)], name


def test_a_trace_shows_200_spans_and_counts_them_all(service: Service) -> None:
    made = bulk(service)

    def trace() -> Any:
        return asked(service, "get_trace", trace_id=made.trace_id)

    until(lambda: trace()["span_count"] == STEPS)
    whole = trace()
    starts = [span["started_at"] for span in whole["spans"]]
    assert (len(starts), whole["spans_truncated"]) == (200, True)
    assert starts == sorted(starts)
    small = asked(service, "get_trace", trace_id=filled_ids(service)["trace_id"])
    assert (len(small["spans"]), small["spans_truncated"]) == (2, False)


def test_a_session_shows_1000_traces_and_sums_them_all(service: Service) -> None:
    made = bulk(service)

    def session() -> Any:
        return asked(service, "get_session", id=made.session)

    until(lambda: session()["span_count"] == MANY)
    whole = session()
    starts = [trace["started_at"] for trace in whole["traces"]]
    assert (len(starts), whole["trace_count"], whole["traces_truncated"]) == (1000, MANY, True)
    assert starts == sorted(starts)


# --- what the rows return ---------------------------------------------------------------------------------


def test_cases_are_open_unless_asked_and_ordered_by_their_state(service: Service) -> None:
    detector = unique("detector")

    async def detect(store: Store) -> None:
        project = (await ProjectStore(store.database).make_default()).id
        states = CaseStates(store.database)
        for n, (severity, state) in enumerate(
            (
                (0.1, "open"),
                (0.9, "open"),
                (0.9, "open"),
                (0.1, "muted"),
                (0.9, "muted"),
                (0.9, "resolved"),
                (0.1, "resolved"),
            )
        ):
            what = seen(
                cause=Cause(detector, "error_type", str(n)), title=f"{n}", severity=severity,
                call_site_id=f"{detector} {n % 2}",
            )  # fmt: skip
            at = NOW + timedelta(minutes=n)
            case = await opened(store.database, what, project_id=project, at=at)
            if state == "muted":
                assert isinstance(await states.mute(project, case.id, ANN, at), CaseMoved)
            if state == "resolved":
                assert isinstance(await states.resolve(project, case.id, "fixed", ANN, at), CaseMoved)

    beside(service, detect)

    def titles(**arguments: Any) -> str:
        found = asked(service, "list_cases", detector=detector, **arguments)["cases"]
        return " ".join(case["title"] for case in found)

    assert titles() == titles(state="open") == "2 1 0"
    assert titles(state="muted") == "4 3"
    assert titles(state="resolved") == "6 5"
    assert titles(call_site_id=f"{detector} 0") == "2 0"


def test_findings_are_confirmed_unless_asked_and_the_withheld_are_counted(service: Service) -> None:
    detector = unique("detector")

    async def detect(store: Store) -> None:
        project = (await ProjectStore(store.database).make_default()).id
        for n, status in enumerate(("confirmed", "closed", "withheld")):
            what = seen(
                cause=Cause(detector, "error_type", str(n)), title=f"{n}",
                detected_at=NOW + timedelta(minutes=n), call_site_id=f"{detector} {n}", payload={"n": n},
            )  # fmt: skip
            finding = await fire(store.database, what, project_id=project)
            if status != "withheld":
                await confirm(store.database, finding, project)
            if status == "closed":
                await FindingStates(store.database).recover(project, finding, NOW)

    beside(service, detect)

    def found(**arguments: Any) -> tuple[str, int]:
        answer = asked(service, "list_findings", detector=detector, **arguments)
        assert answer.keys() == {"findings", "withheld"}
        assert all("evidence" not in row for row in answer["findings"])
        return " ".join(row["title"] for row in answer["findings"]), answer["withheld"]

    assert found() == found(include="confirmed") == ("1 0", 1)
    assert found(include="all") == ("2 1 0", 0)
    assert found(status="confirmed") == ("0", 0)
    assert found(status="withheld") == ("", 1)
    assert found(call_site_id=f"{detector} 1") == ("1", 0)


#: Facets beside those of the contract, counted row by row.
MORE_FACETS = {
    "spans": {"provided_model_name", "user_id", "error_type", *CONVENTION_FIELDS},
    "tool_calls": {"call_site_id", AGENT_PATH},
    "classifier_events": {"call_site_id"},
    "metric_rollups": set[str](),
}
#: The datasets as the contract prints them: facets, what else is filterable, searched by, time column.
DESCRIBED = {
    "spans": (
        "kind name call_site_id session_id status model_id provider cost_source usage_repeats",
        "provided_model_name trace_id span_id user_id error_type",
        "list_spans",
        "created_at",
        "count",
    ),
    "tool_calls": (
        "name status error_type", "trace_id span_id call_site_id", "query_search", "created_at", "count",
    ),
    "classifier_events": (
        "classifier_id severity confidence subject_kind",
        "subject_session_id subject_trace_id subject_span_id call_site_id",
        "query_search",
        "created_at",
        "count",
    ),
    "metric_rollups": ("metric granularity", "", None, "bucket_start", "sum of value"),
}  # fmt: skip


def test_datasets_are_described_as_they_can_be_asked(service: Service) -> None:
    described = {one["name"]: one for one in asked(service, "describe_dataset")["datasets"]}
    assert list(described) == list(DESCRIBED)
    for name, (facets, filters, search, time_column, measure) in DESCRIBED.items():
        told = described[name]
        assert told["facetable_fields"][: len(facets.split())] == facets.split()
        assert set(told["facetable_fields"]) - set(facets.split()) == MORE_FACETS[name]
        more_filters = {"spans": [*CONVENTION_FIELDS, PAYLOAD], "tool_calls": [AGENT_PATH]}.get(name, [])
        assert told["filterable_fields"] == [*facets.split(), *filters.split(), *more_filters]
        assert (told["search_with"], told["time_column"], told["measure"]) == (search, time_column, measure)
        assert told["searchable"] == (search == "query_search")
        for field in told["filterable_fields"]:
            assert "count" in asked(service, "query_count", dataset=name, filters={field: "x"})
        for field in told["facetable_fields"]:
            assert "facets" in asked(service, "query_facets", dataset=name, field=field)
        assert asked(service, "describe_dataset", dataset=name) == {"datasets": [told]}


def test_query_tools_answer_what_the_query_api_answers(service: Service) -> None:
    made = bulk(service)
    question = {"dataset": "spans", "filters": {"user_id": made.user}, "range": TODAY}
    calls = {"dataset": "tool_calls", "filters": {"call_site_id": made.site}, "limit": 7, "q": "LOO"}
    for tool, route, arguments in (
        ("query_count", "count", question),
        ("query_timeseries", "timeseries", question | {"interval": "hour"}),
        ("query_facets", "facets", question | {"field": "name", "top_n": 5}),
        ("query_search", "search", calls | {"mode": "keyword"}),
    ):
        answer = asked(service, tool, **arguments)
        assert answer == ask(service, route, arguments)
        assert answer not in ({"count": 0}, {"rows": [], "next_cursor": None})


#: Names of fields whose insides are not ours: what applications said, and what a detector measured.
THEIRS = {
    "attributes",
    "provided_usage",
    "input",
    "output",
    "events",
    "links",
    "evidence",
    "rca",
    "rca_beside",
}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
#: The one name that the specification itself spells otherwise.
SPELLED = {"triageStatus"}


def test_fields_are_snake_case_and_times_are_iso_8601_in_utc(service: Service) -> None:
    calls = every_call(service)
    times = 0

    def check(value: Any, where: str) -> None:
        nonlocal times
        if isinstance(value, list):
            for item in value:
                check(item, where)
        if not isinstance(value, dict):
            return
        for name, item in value.items():
            assert name in SPELLED or re.fullmatch(r"[a-z][a-z0-9_]*", name), f"{where}.{name}"
            if item is not None and (name.endswith("_at") or name == "bucket_start"):
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", item), (
                    f"{where}.{name}: {item}"
                )
                times += 1
            if name not in THEIRS:
                check(item, f"{where}.{name}")

    for tool in TOOLS:
        check(asked(service, tool.name, **calls.get(tool.name, {})), tool.name)
    assert times > 20
