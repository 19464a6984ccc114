"""What narrows the lists of the tools narrows them: every filter, by its effect on rows that are there."""

from __future__ import annotations

import functools
import itertools
import json
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from protocol.detection import Cause, Firing, Ref
from protocol.rest.query import timestamp
from svc.application.open_store import Store
from svc.domain.feedback.entries import checked
from svc.store.accounts.projects import ProjectStore
from svc.store.feedback.sets import NoRoomForSets, SetStore
from svc.store.feedback.writing import FeedbackStore
from svc.store.postgres.database import Connection
from tests import wire
from tests.e2e.hostile import FULL, post, trace_id, unharmed, unique, wait_for_spans  # noqa: F401 - a fixture
from tests.e2e.mcp import NOW, asked, beside, call, filled_ids, invalid, tool_error
from tests.service import Service, until
from tests.store.detection.detecting import fire, record_firings, seen

pytestmark = pytest.mark.usefixtures("unharmed")


@attrs.frozen
class Told:
    """Three traces of one session: `ask` with a failed chat, `plan` with a tool, and `fail`, which failed."""

    session: str
    site: str
    user: str
    traces: dict[str, str]


@functools.cache
def told(service: Service) -> Told:
    """The three, stored and rolled up; each span has the session in its name."""
    session, site, user = unique("filters"), unique("site"), unique("user")
    ids = {name: trace_id() for name in ("ask", "plan", "fail")}
    root, child = (1).to_bytes(8, "big"), (2).to_bytes(8, "big")
    about = {"session.id": session, "user.id": user}
    said = '[{"role":"user","parts":[{"type":"text","content":"where is the zebra?"}]}]'
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.input.messages": said,
        "svc.call_site.id": site,
    }
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}
    seconds = itertools.count()

    def span(name: str, of: str, attributes: dict[str, Any], **more: Any) -> Any:
        start_ns = wire.START_NS + next(seconds) * 1_000_000_000
        return wire.span(f"{name} {session}", about | attributes, trace_id=ids[of], start_ns=start_ns, **more)

    body = wire.request(
        span("ask", "ask", {}, span_id=root),
        span("chat", "ask", chat, span_id=child, parent=root, status_code=2),
        span("plan", "plan", {}, span_id=root),
        span("lookup", "plan", tool, span_id=child, parent=root),
        span("fail", "fail", {}, span_id=root, status_code=2),
    ).SerializeToString()
    sent = post(service, "/v1/traces", body, service.write_key, {"Content-Type": "application/x-protobuf"})
    assert sent.status_code == 200, sent.text
    wait_for_spans(service, 5, session_id=session)
    until(lambda: asked(service, "get_session", id=session)["trace_count"] == 3)
    until(lambda: asked(service, "get_session", id=session)["unsettled_traces"] == 0)
    return Told(session, site, user, {name: trace.hex() for name, trace in ids.items()})


#: What each filter of `list_spans` lets through.
SPANS: list[tuple[dict[str, Any], str]] = [
    ({}, "fail lookup plan chat ask"),
    ({"trace_id": "{ask}"}, "chat ask"),
    ({"call_site_id": "{site}"}, "chat"),
    ({"kind": "tool"}, "lookup"),
    ({"name": "plan {session}"}, "plan"),
    ({"status": "error"}, "fail chat"),
    ({"status": "ok", "trace_id": "{ask}"}, "ask"),
    ({"model_id": "gpt-4o"}, "chat"),
    ({"q": "ZEBRA"}, "chat"),
    ({"q": "lookup {session}"}, "lookup"),
    ({"q": "lookup {session}", "mode": "keyword", "kind": "llm"}, ""),
    ({"range": {"to": "2020-01-01"}}, ""),
    ({"range": {"from": "2020-01-01", "to": "9999-12-31T23:59:59.999999Z"}, "kind": "tool"}, "lookup"),
    ({"range": {"from": "9999-12-31T23:59:00Z"}, "kind": "tool"}, ""),
]
PAIRS = [
    (one | other, " ".join(name for name in names.split() if name in more.split()))
    for (one, names), (other, more) in itertools.combinations(SPANS[1:], 2)
    if one.keys().isdisjoint(other)
]


@pytest.mark.parametrize(("narrowed", "names"), SPANS + PAIRS[:: 1 if FULL else 8], ids=str)
def test_list_spans_is_narrowed(service: Service, narrowed: dict[str, Any], names: str) -> None:
    made = told(service)
    spans = asked(service, "list_spans", session_id=made.session, **filled(narrowed, made))["spans"]
    # Those of one moment stand by their ids.
    assert sorted(span["name"].split()[0] for span in spans) == sorted(names.split())


@pytest.mark.parametrize(
    ("narrowed", "names"),
    [
        ({}, "fail plan ask"),
        ({"model": "gpt-4o"}, "ask"),
        ({"kind": "tool"}, "plan"),
        ({"call_site_id": "{site}"}, "ask"),
        ({"status": "error"}, "fail"),
        ({"status": "ok"}, "plan ask"),
        ({"q": "PLAN {session}"}, "plan"),
        ({"q": "zebra"}, "ask"),
        ({"q": "{plan}"}, "plan"),
        ({"q": "{user}"}, "fail plan ask"),
        ({"q": "no such words"}, ""),
        ({"model": "gpt-4o", "kind": "tool"}, ""),
        # Both bounds are inside: the second trace began two seconds after the first, the third after four.
        ({"range": {"from": "{2}", "to": "{4}"}}, "fail plan"),
        ({"range": {"to": "{2}"}}, "plan ask"),
        ({"range": {"from": "{2.000001}", "to": "{3.999999}"}}, ""),
    ],
    ids=str,
)
def test_list_traces_is_narrowed(service: Service, narrowed: dict[str, Any], names: str) -> None:
    made = told(service)
    within = {"q": made.session} | filled(narrowed, made)
    found = asked(service, "list_traces", **within)["traces"]
    ours = [trace for trace in found if trace["session_id"] == made.session]
    assert [trace["name"].split()[0] for trace in ours] == names.split()


def filled(narrowed: dict[str, Any], made: Told) -> dict[str, Any]:
    """The arguments with the names of what was made, and the moments so many seconds after the first."""
    names = {"session": made.session, "site": made.site, "user": made.user, **made.traces}
    first = datetime.fromtimestamp(wire.START_NS / 1e9, NOW.tzinfo)

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: of(item) for name, item in value.items()}
        if value[:1] == "{" and value[1:2].isdigit():
            return timestamp(first + timedelta(seconds=float(value[1:-1])))
        return value.format(**names)

    return {name: of(value) for name, value in narrowed.items()}


def test_a_trace_that_still_receives_spans_is_not_settled(service: Service) -> None:
    settled = told(service).traces["ask"]
    assert asked(service, "get_trace", trace_id=settled)["is_settled"] is True
    trace, session = trace_id(), unique("unsettled")
    # Its root has not come, so it is waited for.
    child = wire.span("child", {"session.id": session}, trace_id=trace, parent=b"\x01" * 8)
    body = wire.request(child).SerializeToString()
    sent = post(service, "/v1/traces", body, service.write_key, {"Content-Type": "application/x-protobuf"})
    assert sent.status_code == 200
    wait_for_spans(service, 1, session_id=session)
    assert asked(service, "get_trace", trace_id=trace.hex())["is_settled"] is False
    assert asked(service, "get_session", id=session)["unsettled_traces"] == 1


def test_get_trace_gives_payloads_when_asked(service: Service) -> None:
    trace = told(service).traces["ask"]
    plain = asked(service, "get_trace", trace_id=trace)["spans"]
    whole = asked(service, "get_trace", trace_id=trace, fields=["payload"])["spans"]
    assert [span["span_id"] for span in plain] == [span["span_id"] for span in whole]
    assert all("input" not in span and "input_preview" in span for span in plain)
    assert all("attributes" in span and "input_preview" not in span for span in whole)
    assert "where is the zebra?" in json.dumps(whole[1]["input"])


def test_a_long_identifier_is_found_by_what_was_sent(service: Service) -> None:
    long = unique("long") + "x" * 300
    body = wire.request(
        wire.span("step", {"session.id": long, "svc.call_site.id": long}, trace_id=trace_id())
    ).SerializeToString()
    sent = post(service, "/v1/traces", body, service.write_key, {"Content-Type": "application/x-protobuf"})
    assert sent.status_code == 200
    until(lambda: len(asked(service, "list_spans", session_id=long)["spans"]) == 1)
    assert len(asked(service, "list_spans", call_site_id=long)["spans"]) == 1
    assert len(asked(service, "list_traces", call_site_id=long)["traces"]) == 1
    assert asked(service, "get_session", id=long)["trace_count"] == 1


def test_traces_are_found_by_what_was_thought_of_them_and_by_a_set(service: Service) -> None:
    made, name = told(service), unique("set")
    ask, plan = bytes.fromhex(made.traces["ask"]), bytes.fromhex(made.traces["plan"])
    # Names of its own: the service is shared.
    liked = unique("liked")

    async def judge(store: Store) -> None:
        project = (await ProjectStore(store.database).make_default()).id
        entries = [
            checked(source="api", name=liked, trace_id=trace, number=number)
            for trace, number in ((ask, 0.0), (plan, 1.0))
        ]
        assert not await FeedbackStore(store.database).keep(project, entries, NOW)
        kept = await SetStore(store.database).add(
            project, name, [(plan, None), (ask, bytes(7) + b"\2")], "ann"
        )
        assert not isinstance(kept, NoRoomForSets)
        await SetStore(store.database).annotate(project, kept[0].id, (plan, None), "look here", "ann")

    beside(service, judge)

    def names(**arguments: Any) -> list[str]:
        answer = asked(service, "list_traces", q=made.session, **arguments)
        return [trace["name"].split()[0] for trace in answer["traces"]]

    assert names(feedback=[f"{liked}<0.5"]) == ["ask"]
    assert names(feedback=[liked]) == ["plan", "ask"]
    assert names(feedback=[f"-{liked}>0.5"]) == ["fail", "ask"]
    assert "compared with a number" in tool_error(service, "list_traces", feedback=["helpful<much"])
    traces = asked(service, "list_traces", set=name)["traces"]
    assert [trace["set_entries"] for trace in traces] == [
        [{"span_id": None, "note": "look here"}],
        [{"span_id": (2).to_bytes(8, "big").hex(), "note": None}],
    ]
    assert repr(name) in tool_error(service, "list_traces", set="no such set")


# --- what detectors wrote ---------------------------------------------------------------------------------


def test_evidence_is_narrowed_to_a_role_and_counts_all(service: Service) -> None:
    trace = bytes.fromhex(told(service).traces["ask"])

    async def detect(store: Store) -> str:
        project = (await ProjectStore(store.database).make_default()).id
        what = seen(cause=Cause("tool-errors", "error_type", unique("key")), detected_at=NOW)
        refs = [Ref(role, trace_id=trace) for role in ("exemplar", "member", "baseline")]
        refs.append(Ref("member", session_id=told(service).session))
        return str(await fire(store.database, what, refs, project))

    finding = beside(service, detect)
    counts = {"exemplar": 1, "member": 2, "baseline": 1, "witness": 0, "changepoint": 0}
    for role, count in counts.items():
        answer = asked(service, "get_finding_evidence", finding_id=finding, role=role)
        assert [ref["role"] for ref in answer["refs"]] == [role] * count
        assert answer["counts"] == answer["recorded_counts"] == counts


def test_ranges_of_every_dataset_are_half_open(service: Service) -> None:
    """Rule 4, on the datasets whose rows are not spans."""
    metric, classifier = unique("metric"), unique("classifier")
    hour = NOW.replace(minute=0, second=0, microsecond=0)

    async def write(store: Store) -> None:
        project = (await ProjectStore(store.database).make_default()).id
        fired = [Firing(classifier, "low", "session", "again", session_id="s")]
        await record_firings(store.database, project, fired, hour)

        async def insert(connection: Connection) -> None:
            await connection.executemany(
                "insert into metric_rollup values ($1, $2, 'hour', $3, $4)",
                [(project, metric, hour, 2.5), (project, metric, hour + timedelta(hours=1), 4)],
            )

        await store.database.run(insert)

    beside(service, write)
    step = timedelta(microseconds=1)
    for dataset, filters, first in (
        ("classifier_events", {"classifier_id": classifier}, 1),
        ("metric_rollups", {"metric": metric}, 2.5),
    ):

        def count(low: datetime, high: datetime, dataset: str = dataset, filters: Any = filters) -> Any:
            bounds = {"from": timestamp(low), "to": timestamp(high)}
            answer = asked(service, "query_count", dataset=dataset, filters=filters, range=bounds)
            return answer["count"]

        assert (count(hour, hour + step), count(hour - step, hour)) == (first, 0)
        assert count(hour + step, hour + 30 * 60 * 1_000_000 * step) == 0
    # Rule 6: buckets and facets of roll-ups are sums as well.
    about = {"dataset": "metric_rollups", "filters": {"metric": metric, "granularity": "hour"}}
    both = {"from": timestamp(hour), "to": timestamp(hour + timedelta(hours=2))}
    buckets = asked(service, "query_timeseries", interval="hour", range=both, **about)["buckets"]
    assert [bucket["count"] for bucket in buckets] == [2.5, 4]
    facets = asked(service, "query_facets", field="metric", range=both, **about)["facets"]
    assert facets == [{"value": metric, "count": 6.5}]


def test_an_unknown_filter_is_named_by_each_query_tool(service: Service) -> None:
    """Rule 8, on the tools beside `query_count`."""
    both = {"from": "2026-11-20", "to": "2026-11-21"}
    for name, arguments in (
        ("query_timeseries", {"dataset": "tool_calls", "interval": "day", "range": both}),
        ("query_facets", {"dataset": "tool_calls", "field": "name"}),
        ("query_search", {"dataset": "tool_calls"}),
    ):
        text = tool_error(service, name, filters={"model_id": "x"}, **arguments)
        assert "unknown field 'model_id' for dataset 'tool_calls'" in text
        assert "error_type" in text


def test_errors_say_what_would_have_been_right(service: Service) -> None:
    month = {"from": "2020-01-01", "to": "2026-01-01"}
    for said, text in (
        (
            "facets from filters",
            tool_error(service, "query_facets", dataset="spans", field="span_id"),
        ),
        (
            "longer interval",
            tool_error(service, "query_timeseries", dataset="spans", interval="hour", range=month),
        ),
        ("2026-11-21T09:30:00Z", tool_error(service, "list_traces", range={"from": "yesterday"})),
        ("takes: from, to", invalid(service, "list_traces", range={"since": "2026"})),
        ("payload, payload_available", invalid(service, "list_spans", fields=["text"])),
        ("one of: keyword", invalid(service, "query_search", dataset="tool_calls", mode="regex")),
    ):
        assert said in text
    assert "list_spans" not in invalid(service, "query_search", dataset="tool_calls", mode="regex")


def test_a_span_shows_nothing_beside_the_contract_where_nothing_is_known(service: Service) -> None:
    extras = {"error_message", "input_tokens", "cache_read_tokens", "price_book", "usage_repeats"}
    ids = filled_ids(service)
    root, chat = asked(service, "get_trace", trace_id=ids["trace_id"])["spans"]
    assert extras.isdisjoint(root)
    assert chat["input_tokens"] == 120
    assert all(span[name] is not None for span in (root, chat) for name in extras & span.keys())


# --- the taxonomy -----------------------------------------------------------------------------------------


def test_what_owners_say_of_a_call_site_is_shown_with_it(service: Service, tmp_path: Any) -> None:
    made = told(service)
    path = tmp_path / "taxonomy.yaml"
    path.write_text(
        "packs: [{id: p, name: P}]\n"
        "chains: [{id: c, name: C}]\n"
        f"call_sites: [{{id: {made.site}, intent: Answers, shape: chat,"
        " output_schema: {type: object}}]\n"
        "failure_modes:\n"
        "  - {id: one, name: One, severity: high, scope: single_call, layer: A,"
        f" call_site_id: {made.site}}}\n"
        "  - {id: two, name: Two, severity: low, scope: chain, layer: B, chain_id: c, compliance_tags: [t]}\n"
        "  - {id: three, name: Three, severity: medium, scope: trace, layer: C, pack_id: p}\n"
    )
    service.command("taxonomy", "import", str(path))
    sites = asked(service, "list_call_sites")
    assert (sites["call_sites_truncated"], sites["call_sites_left_out"]) == (False, 0)
    counts = [site["sample_count"] for site in sites["call_sites"]]
    assert counts == sorted(counts, reverse=True)
    (site,) = [site for site in sites["call_sites"] if site["id"] == made.site]
    assert (site["intent"], site["shape"], site["output_schema"]) == ("Answers", "chat", {"type": "object"})
    assert (site["sample_count"], site["tagged"], site["observed"]["error_rate"]) == (1, True, 1.0)
    assert all("output_schema" not in other for other in sites["call_sites"] if other is not site)
    for narrowed, modes in (
        ({}, "one three two"),
        ({"call_site_id": made.site}, "one"),
        ({"chain_id": "c"}, "two"),
        ({"scope": "trace"}, "three"),
        ({"severity": "low"}, "two"),
        ({"layer": "C"}, "three"),
        ({"pack_id": "p"}, "three"),
        ({"compliance_tag": "t"}, "two"),
        ({"compliance_tag": "u"}, ""),
    ):
        found = asked(service, "list_failure_modes", **narrowed)["failure_modes"]
        assert [mode["id"] for mode in found] == modes.split(), narrowed
        for mode in found:
            assert mode.keys() >= {
                "id", "name", "description", "severity", "scope", "call_site_id", "chain_id", "layer",
                "pack_id", "compliance_tags",
            }  # fmt: skip
    for schema, said in (
        ("{type: strin}", "no JSON Schema"),
        ("[]", "object"),
        (f"{{x: {'y' * 20_000}}}", "larger"),
    ):
        path.write_text(f"call_sites: [{{id: a, intent: b, output_schema: {schema}}}]")
        with pytest.raises(AssertionError, match=said):
            service.command("taxonomy", "import", str(path))
    assert call(service, "list_failure_modes")["structuredContent"]["failure_modes"]
