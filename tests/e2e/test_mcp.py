"""The nineteen tools on the real service: each tool rule, redaction, fuzzing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.refusals import TOO_SLOW, UNAVAILABLE
from protocol.rest.query import timestamp
from svc.application.open_store import Store
from svc.front.mcp.redaction import HIDDEN, redacted
from svc.front.mcp.tools import TOOLS, Tool
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases.evidence import EVIDENCE_ORDER
from svc.store.postgres.database import Connection
from svc.store.postgres.keyset import Keyset
from svc.store.reads.traces.spans import NEWEST_SPANS
from svc.store.reads.traces.trace_filter import NEWEST_TRACES
from tests import wire
from tests.e2e.hostile import (
    from_store,
    minted,
    post,
    trace_id,
    unharmed,  # noqa: F401 - a fixture
    unique,
    wait_for_spans,
    with_store,
)
from tests.e2e.mcp import (
    NOW,
    TODAY,
    VERDICT,
    asked,
    beside,
    call,
    envelope,
    every_call,
    filled_ids,
    invalid,
    mcp,
    ruled_ids,
    tool_error,
)
from tests.examples import examples
from tests.service import Service, until

pytestmark = pytest.mark.usefixtures("unharmed")

PAYLOAD = ["payload"]


# --- the tool rules, by their number ----------------------------------------------------------------------


def test_rule_1_fields_payload_stands_in_place_of_the_previews(service: Service) -> None:
    ids = filled_ids(service)
    plain = asked(service, "list_spans", trace_id=ids["trace_id"])["spans"]
    whole = asked(service, "list_spans", trace_id=ids["trace_id"], fields=PAYLOAD)["spans"]
    previews, payload = (
        {"input_preview", "output_preview"},
        {"input", "output", "attributes", "provided_usage"},
    )
    for before, after in zip(plain, whole, strict=True):
        assert previews <= before.keys()
        assert payload.isdisjoint(before)
        assert payload <= after.keys()
        assert previews.isdisjoint(after)
        assert isinstance(after["attributes"], dict)
        assert isinstance(after["provided_usage"], dict)
    for bad in (["previews"], ["payload", "payload"], "payload"):
        assert "fields" in invalid(service, "list_spans", trace_id=ids["trace_id"], fields=bad)


def test_rule_2_payloads_of_a_page_need_one_trace_or_a_day_and_of_a_trace_nothing(service: Service) -> None:
    ids = filled_ids(service)
    day = {"from": "2026-11-20T00:00:00Z", "to": "2026-11-21T00:00:00Z"}
    asked(service, "list_spans", fields=PAYLOAD, range=day)
    asked(service, "list_spans", fields=PAYLOAD, trace_id=ids["trace_id"])
    assert "spans" in asked(service, "get_trace", trace_id=ids["trace_id"], fields=PAYLOAD)
    for arguments in (
        {},
        {"range": {**day, "to": "2026-11-21T00:00:00.000001Z"}},
        {"range": {"from": day["from"]}},
        {"range": {"to": day["to"]}},
        {"session_id": ids["session_id"]},
        {"trace_id": " "},
    ):
        text = tool_error(service, "list_spans", fields=PAYLOAD, **arguments)
        assert "trace_id" in text
        assert "24 hours" in text


def test_rule_3_get_span_without_trace_id_names_the_argument_to_add(service: Service) -> None:
    for arguments in ({"span_id": "02" * 8}, {"span_id": "02" * 8, "trace_id": ""}, {}):
        assert "add trace_id" in tool_error(service, "get_span", **arguments)


def test_rule_4_ranges_of_the_query_tools_are_half_open(service: Service) -> None:
    ids = filled_ids(service)
    spans = asked(service, "list_spans", trace_id=ids["trace_id"])["spans"]
    created = spans[0]["created_at"]
    filters = {"trace_id": ids["trace_id"]}
    later = timestamp(datetime.fromisoformat(created) + timedelta(microseconds=1))

    def count(low: str, high: str) -> int:
        bounds = {"from": low, "to": high}
        found: int = asked(service, "query_count", dataset="spans", filters=filters, range=bounds)["count"]
        return found

    assert (count(created, later), count("2020-01-01", created), count(later, "2100-01-01")) == (2, 0, 0)
    # While the range of a list is inclusive on both sides.
    exactly = {"from": created, "to": created}
    assert len(asked(service, "list_spans", trace_id=ids["trace_id"], range=exactly)["spans"]) == 2


def test_rule_5_a_timeseries_needs_both_bounds(service: Service) -> None:
    for bounds in ({"from": "2026-11-20"}, {"to": "2026-11-20"}, {}, {"from": "2026-11-20", "to": " "}):
        text = invalid(service, "query_timeseries", dataset="spans", interval="day", range=bounds)
        assert "range" in text
    buckets = asked(service, "query_timeseries", dataset="spans", interval="day", range=TODAY)["buckets"]
    assert sum(bucket["count"] for bucket in buckets) > 0


def test_rule_6_metric_rollups_are_summed_and_want_their_granularity(service: Service) -> None:
    metric = unique("metric")

    async def work(store: Store) -> None:
        project = await ProjectStore(store.database).make_default()

        async def insert(connection: Connection) -> None:
            await connection.executemany(
                "insert into metric_rollup values ($1, $2, $3, $4, $5)",
                [
                    (project.id, metric, grain, NOW.replace(hour=hour), value)
                    for grain, hour, value in (("hour", 1, 2), ("hour", 2, 3), ("day", 0, 5))
                ],
            )

        await store.database.run(insert)

    beside(service, work)

    def total(**filters: str) -> Any:
        arguments = {"dataset": "metric_rollups", "filters": {"metric": metric, **filters}}
        return asked(service, "query_count", **arguments)["count"]

    assert (total(), total(granularity="hour"), total(granularity="day")) == (10, 5, 5)
    (told,) = asked(service, "describe_dataset", dataset="metric_rollups")["datasets"]
    assert "granularity" in told["note"]


def test_rule_7_search_takes_neither_spans_nor_roll_ups(service: Service) -> None:
    for dataset in ("spans", "metric_rollups", "nothing"):
        assert "list_spans" in invalid(service, "query_search", dataset=dataset)
    assert "rows" in asked(service, "query_search", dataset="tool_calls")
    assert "rows" in asked(service, "query_search", dataset="classifier_events")


def test_rule_8_an_unknown_filter_is_an_error_naming_the_dataset(service: Service) -> None:
    for dataset in ("spans", "tool_calls", "classifier_events", "metric_rollups"):
        text = tool_error(service, "query_count", dataset=dataset, filters={"project_id": 1})
        assert "'project_id'" in text
        assert f"'{dataset}'" in text
        assert "describe_dataset" in text
        assert f"'{dataset}'" in tool_error(service, "query_facets", dataset=dataset, field="value")
    assert "filters" in invalid(service, "query_count", dataset="spans", filters={"name": ["a"]})


def test_rule_9_evidence_is_one_ref_a_row_and_count_only_has_none(service: Service) -> None:
    ids = ruled_ids(service)
    told = asked(service, "get_finding_evidence", finding_id=ids["finding_id"])
    assert [ref["role"] for ref in told["refs"]] == ["exemplar", "member", "member"]
    only = asked(service, "get_finding_evidence", finding_id=ids["finding_id"], count_only=True)
    assert (only["refs"], only["counts"]) == ([], told["counts"])
    assert told["counts"] == {"exemplar": 1, "member": 2, "baseline": 0, "witness": 0, "changepoint": 0}
    assert told["recorded_counts"]["member"] == 3


def test_rule_10_a_stale_cursor_restarts_at_the_newest_page(service: Service) -> None:
    filled_ids(service)
    ids = ruled_ids(service)
    for name, arguments in (
        ("list_traces", {}),
        ("list_spans", {}),
        ("list_sessions", {}),
        ("list_cases", {}),
        ("get_finding_evidence", {"finding_id": ids["finding_id"]}),
        ("query_search", {"dataset": "tool_calls"}),
    ):
        # A trace that settles meanwhile is another answer.
        until(lambda: not from_store(service, "select 1 from trace_due limit 1"), every_s=0.5)
        first = asked(service, name, limit=1, **arguments)
        for cursor in ("nonsense", "é", "W10", "A" * 5000, "WyJjYXNlcyBvcGVuIiwxLDIsM10"):
            assert asked(service, name, limit=1, cursor=cursor, **arguments) == first, (name, cursor)


def test_rule_11_no_tool_is_named_like_a_write() -> None:
    for tool in TOOLS:
        assert tool.name.split("_")[0] in ("get", "list", "describe", "query", "compare")


# --- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_an_unlisted_argument_is_rejected_and_named(service: Service, tool: Tool) -> None:
    needed = {name: "0" * 32 for name in tool.schema().get("required", []) if name in tool.ask_for}
    assert "`project`" in invalid(service, tool.name, project="default", **needed)


def test_faults_against_the_schema_name_the_argument(service: Service) -> None:
    for name, arguments, said in (
        ("get_trace", {}, "trace_id"),
        ("get_trace", {"trace_id": ""}, "trace_id"),
        ("get_trace", {"trace_id": 5}, "trace_id"),
        ("list_cases", {"state": "closed"}, "muted"),
        ("list_traces", {"limit": "ten"}, "limit"),
        ("list_traces", {"limit": True}, "limit"),
        ("list_traces", {"range": {"since": "2026"}}, "since"),
        ("list_spans", {"kind": "chat"}, "llm"),
        ("query_count", {"dataset": "users"}, "spans"),
        ("query_facets", {"dataset": "spans"}, "field"),
    ):
        assert said in invalid(service, name, **arguments)


def test_faults_of_meaning_are_tool_errors_that_say_what_to_call(service: Service) -> None:
    ids = filled_ids(service)
    for name, arguments, said in (
        ("get_trace", {"trace_id": "0" * 32}, "list_traces"),
        ("get_trace", {"trace_id": "zz"}, "list_traces"),
        ("get_span", {"trace_id": ids["trace_id"], "span_id": "ff" * 8}, "get_trace"),
        ("get_session", {"id": "nobody"}, "list_sessions"),
        ("get_case", {"id": "C-999999"}, "list_cases"),
        ("get_finding", {"id": "x"}, "list_findings"),
        ("get_finding_evidence", {"finding_id": "x"}, "list_findings"),
        ("list_spans", {"trace_id": "zz"}, "list_traces"),
        ("list_findings", {"status": "open"}, "one of: withheld, confirmed, rejected, closed"),
        ("list_findings", {"detector": "tool_errors"}, "tool_error, "),
        ("list_cases", {"detector": "tool_errors"}, "tool_error, "),
        ("list_traces", {"range": {"from": "yesterday"}}, "range.from"),
        ("list_traces", {"range": {"from": "2026-02-02", "to": "2026-01-01"}}, "range.from"),
    ):
        assert said in tool_error(service, name, **arguments)


def test_page_sizes_are_clamped_and_blank_texts_are_absent(service: Service) -> None:
    session, trace = unique("many"), trace_id()
    body = wire.request(
        *(wire.span(f"step {n}", {"session.id": session}, trace_id=trace) for n in range(130))
    )
    sent = post(
        service,
        "/v1/traces",
        body.SerializeToString(),
        service.write_key,
        {"Content-Type": "application/x-protobuf"},
    )
    assert sent.status_code == 200
    wait_for_spans(service, 130, session_id=session)
    for limit, shown in (
        (0, 50),
        (-5, 50),
        (None, 50),
        (7, 7),
        (7.0, 7),
        (100, 100),
        (101, 100),
        (10**30, 100),
    ):
        page = asked(service, "list_spans", session_id=session, limit=limit, cursor="", q=" ", mode="keyword")
        assert len(page["spans"]) == shown, limit
        assert page["next_cursor"] is not None


def test_fields_are_those_of_the_contract(service: Service) -> None:
    ids = filled_ids(service)
    rows = {
        "trace_id name started_at ended_at latency_ms session_id user_id call_site_id span_count error_count"
        " status input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens"
        " total_tokens input_cost output_cost total_cost unpriced_spans is_settled input_preview"
        " output_preview": asked(service, "list_traces", q=ids["trace_id"])["traces"],
        "trace_id span_id parent_span_id kind name status error_type call_site_id session_id user_id"
        " provided_model_name model_id provider started_at ended_at created_at latency_ms total_tokens"
        " total_cost cost_source input_preview output_preview payload_available": asked(
            service, "list_spans", trace_id=ids["trace_id"]
        )["spans"],
        "id user_id started_at last_activity_at": asked(service, "list_sessions")["sessions"],
        "id intent shape model provider sample_count tagged observed": asked(service, "list_call_sites")[
            "call_sites"
        ],
        "id slug name org pipeline_version counts packs judge_runtime watching": [
            asked(service, "get_project")
        ],
        "trace_count unsettled_traces span_count error_count total_tokens total_cost unpriced_spans traces"
        " traces_truncated": [asked(service, "get_session", id=ids["session_id"])],
        "input output attributes provided_usage events links": [
            asked(service, "get_span", trace_id=ids["trace_id"], span_id=ids["span_id"])
        ],
    }
    case = asked(service, "get_case", id=ruled_ids(service)["case"])
    rows |= {
        "id reference detector subject_kind subject_id subject_label call_site_id metric state title basis"
        " severity onset_at current_value baseline_value delta opened_at last_seen_at resolved_at resolution"
        " resolution_reason muted_at finding_id rca_report_id rca_available": asked(service, "list_cases")[
            "cases"
        ],
        "findings events exemplars rca rca_beside": [case],
        "id detector role explained_share": case["findings"],
        "trace_id role rank name duration_ms cost started_at": case["exemplars"],
        "id title detector cause_kind cause_key call_site_id status first_seen_at last_seen_at trace_count"
        " recurrences triageStatus": asked(service, "list_findings")["findings"],
    }
    for names, found in rows.items():
        assert found, names
        for row in found:
            assert set(names.split()) <= row.keys(), set(names.split()) - row.keys()


def test_every_answer_over_the_demo_fits_the_schema_of_its_tool(service: Service) -> None:
    service.command("demo", "--url", service.url)
    calls = every_call(service)
    for tool in TOOLS:
        # Asking looks at the schema by itself; here every tool is asked.
        asked(service, tool.name, **calls.get(tool.name, {}))
    for trace in asked(service, "list_traces", limit=20)["traces"]:
        for fields in ([], ["payload"]):
            whole = asked(service, "get_trace", trace_id=trace["trace_id"], fields=fields)
        for span in whole["spans"][:5]:
            asked(service, "get_span", trace_id=trace["trace_id"], span_id=span["span_id"])
    for session in asked(service, "list_sessions", limit=10)["sessions"]:
        asked(service, "get_session", id=session["id"])
    for dataset in asked(service, "describe_dataset")["datasets"]:
        for measure in dataset.get("measures", {}):
            asked(service, "query_count", dataset=dataset["name"], measure=measure)
            asked(
                service, "query_facets", dataset=dataset["name"], field=dataset["facetable_fields"][0],
                measure=measure,
            )  # fmt: skip
            asked(
                service, "query_timeseries", dataset=dataset["name"], interval="hour", range=TODAY,
                group_by=dataset["facetable_fields"][0], measure=measure,
            )  # fmt: skip


# --- redaction --------------------------------------------------------------------------------------------


def names_in(value: Any) -> set[str]:
    """Every field name, at any depth."""
    if isinstance(value, dict):
        return set(value) | {name for item in value.values() for name in names_in(item)}
    return {name for item in value for name in names_in(item)} if isinstance(value, list) else set()


def unruled(answer: Any) -> None:
    """No field of a ruling and no word of one, at any depth."""
    assert names_in(answer).isdisjoint(HIDDEN)
    assert VERDICT not in json.dumps(answer)


def test_no_answer_holds_a_ruling_and_its_status_survives(service: Service) -> None:
    ids, calls = ruled_ids(service), every_call(service)
    answers = {tool.name: asked(service, tool.name, **calls.get(tool.name, {})) for tool in TOOLS}
    for answer in answers.values():
        unruled(answer)
    unruled(asked(service, "list_findings", include="all", detector="tool-errors"))
    unruled(asked(service, "get_case", id=ids["case_id"]))
    finding, case = answers["get_finding"], answers["get_case"]
    assert (finding["triageStatus"], finding["evidence"]) == ("done", {"rates": [{"rate": 0.5}]})
    assert case["rca"] == {"summary": "the upstream timed out"}
    (listed,) = [row for row in answers["list_findings"]["findings"] if row["id"] == ids["finding_id"]]
    assert listed["triageStatus"] == "done"


_leaves = st.none() | st.integers() | st.text(max_size=5)
_names = st.sampled_from(sorted(HIDDEN)) | st.text(max_size=5)
_anything: st.SearchStrategy[Any] = st.deferred(
    lambda: _leaves | st.lists(_anything, max_size=3) | st.dictionaries(_names, _anything, max_size=4)
)


@given(st.dictionaries(_names, _anything))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_redaction_reaches_every_depth_and_takes_nothing_else(answer: dict[str, Any]) -> None:
    plain = redacted(answer)
    assert names_in(plain) <= names_in(answer) - HIDDEN
    assert redacted(plain) == plain
    assert plain.keys() == answer.keys() - HIDDEN


# --- fuzzing ----------------------------------------------------------------------------------------------

LAST = datetime.max.replace(tzinfo=UTC)
NOBODY = UUID(int=0)
CASES: Any = (("severity_rank", "integer"), ("opened_at", "moment"), ("id", "uuid"))
CALLS: Any = (("created_at", "moment"), ("trace_id", "bytes"), ("span_id", "bytes"), ("index", "integer"))
_texts = st.text(max_size=20) | st.sampled_from(
    [
        "C-1",
        "0" * 32,
        "\x00",
        "%_\\",
        "2026-11-20",
        "'; drop table span",
        # The ends of the calendar, and well-formed cursors that point there or out of a column's bounds.
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:30:00-05:00",
        *(
            keyset.cursor(row)
            for keyset, row in (
                (NEWEST_SPANS, {"created_at": LAST, "trace_id": b"\xff", "span_id": b""}),
                (NEWEST_TRACES, {"started_at": LAST, "trace_id": b"\xff" * 99}),
                (EVIDENCE_ORDER, {"role": 70_000, "position": 2**31 - 1}),
                (Keyset("cases open", CASES), {"severity_rank": 70_000, "opened_at": LAST, "id": NOBODY}),
                (
                    Keyset("tool_calls", CALLS),
                    {"created_at": LAST, "trace_id": b"", "span_id": b"", "index": 1},
                ),
            )
        ),
    ]
)
_junk = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts


def from_schema(schema: dict[str, Any], texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values that fit a schema of ours."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(*(from_schema(one, texts) for one in schema["anyOf"]))
    match schema["type"]:
        case "string":
            return texts
        case "integer":
            return st.integers()
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(from_schema(schema["items"], texts), max_size=schema.get("maxItems", 3))
        case "object" if "properties" in schema:
            needed = schema.get("required", [])
            fields = {name: from_schema(inner, texts) for name, inner in schema["properties"].items()}
            return st.fixed_dictionaries(
                {name: fields[name] for name in needed},
                optional={name: field for name, field in fields.items() if name not in needed},
            )
        case "object":
            names = st.sampled_from(["status", "name", "trace_id", "metric"]) | texts
            return st.dictionaries(names, from_schema(schema["additionalProperties"], texts), max_size=3)
        case other:
            raise AssertionError(other)


#: Tables that only a write could change.
UNTOUCHED = (
    "span", "span_payload", "span_message", "tool_call", "trace", "session", "call_site", "project",
    "organization", "api_key", "detection_case", "case_event", "case_counter", "finding", "finding_evidence",
    "rca_report", "pack", "chain", "failure_mode", "call_site_intent", "classifier_event", "dead_letter",
)  # fmt: skip
#: Of them, those whose rows change by themselves: traces settle, a key notes when it was used, and the
#: analysis by rule goes on with a report that it had begun.
MOVING = {"trace", "session", "api_key", "rca_report"}
#: What a span learns when its trace is rolled up and counted.
LEARNED = "{facets,usage_repeats,cost_source}"


#: The folder goes on counting settled traces meanwhile, whoever asks what.
OF_THE_FOLDER = {"fold_due_place_seq", "tally_bucket_id_seq"}


def written(service: Service) -> dict[str, Any]:
    """How many rows each table holds and what is in them, and how far each sequence got."""

    async def count(connection: Connection) -> dict[str, Any]:
        sequences = await connection.fetch("select sequencename, last_value from pg_sequences")
        found = {
            row["sequencename"]: row["last_value"]
            for row in sequences
            if row["sequencename"] not in OF_THE_FOLDER
        }
        for table in UNTOUCHED:
            shown = f"(to_jsonb(row) - '{LEARNED}'::text[])::text" if table == "span" else "row::text"
            content = "0" if table in MOVING else f"sum(hashtextextended({shown}, 0))"
            found[table] = tuple(await connection.fetchrow(f"select count(*), {content} from {table} row"))
        return found

    found: dict[str, Any] = with_store(service, count)
    return found


def test_whatever_is_asked_no_tool_fails_inside_and_none_writes_a_row(service: Service) -> None:
    real = sorted({*filled_ids(service).values(), *ruled_ids(service).values()})
    minted(service, "admin")
    # Cases that other tests opened are looked into meanwhile.
    until(lambda: not from_store(service, "select id from rca_report where status = 'running'"), every_s=0.5)
    fitting = {tool.name: from_schema(tool.schema(), _texts | st.sampled_from(real)) for tool in TOOLS}
    mangled = {
        tool.name: st.dictionaries(
            st.sampled_from([*tool.schema()["properties"], "extra"]), _junk | st.lists(_junk, max_size=2)
        )
        for tool in TOOLS
    }

    @given(
        st.lists(
            st.sampled_from(sorted(fitting)).flatmap(
                lambda name: st.tuples(st.just(name), fitting[name] | mangled[name])
            ),
            min_size=1,
            max_size=20,
        )
    )
    @settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
    def ask(calls: list[tuple[str, Any]]) -> None:
        batch = [
            envelope("tools/call", {"name": name, "arguments": arguments}, id_=number)
            for number, (name, arguments) in enumerate(calls)
        ]
        answers = mcp(service, batch).json()
        assert [answer["id"] for answer in answers] == list(range(len(calls)))
        for answer, asking in zip(answers, calls, strict=True):
            if "error" in answer:
                assert answer["error"]["code"] == -32602, (asking, answer)
            else:
                told = answer["result"]
                assert told["content"][0]["text"] not in (UNAVAILABLE.message, TOO_SLOW.message), asking
                if not told["isError"]:
                    unruled(told["structuredContent"])
                    assert json.loads(told["content"][0]["text"]) == told["structuredContent"]

    # Detectors judge at their own pace what other tests sent; a tool that writes does so each time.
    for _ in range(3):
        before = written(service)
        ask()
        after = written(service)
        if after == before:
            break
    assert after == before


# --- the taxonomy -----------------------------------------------------------------------------------------


def test_a_taxonomy_is_imported_beside_the_running_service(service: Service, tmp_path: Any) -> None:
    path = tmp_path / "taxonomy.yaml"
    path.write_text(
        "packs: [{id: support, name: Support}]\n"
        "call_sites: [{id: reply, intent: Answers}]\n"
        "failure_modes: [{id: rude, name: Rude, severity: high, scope: single_call, layer: A,"
        " pack_id: support}]\n"
    )
    for _ in range(2):
        told = service.command("taxonomy", "import", str(path))
        assert told == "default/default now has 1 packs, 0 chains, 1 call sites, 1 failure modes\n"
    (mode,) = asked(service, "list_failure_modes", pack_id="support")["failure_modes"]
    assert mode["id"] == "rude"
    assert asked(service, "get_project")["packs"] == [{"id": "support", "name": "Support", "version": ""}]
    assert call(service, "list_failure_modes", severity="low")["structuredContent"] == {"failure_modes": []}
