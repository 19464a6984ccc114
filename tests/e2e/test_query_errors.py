"""The query API refuses to the letter, and takes hostile questions literally."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx2
import pytest

from tests import wire
from tests.e2e.hostile import (
    FULL,
    ask,
    client,
    connected,
    head,
    minted,
    post,
    read_response,
    refusal,
    rows_of,
    trace_id,
    unharmed,  # noqa: F401 - a fixture
    unique,
    wait_for_spans,
)
from tests.service import Service

pytestmark = pytest.mark.usefixtures("unharmed")

ROUTES = ["count", "timeseries", "facets", "search"]
NO_TENANT = (401, "UNAUTHORIZED", "no tenant context")
WRONG_SCOPE = (
    403,
    "FORBIDDEN",
    "this API key is not scoped for the query API (needs a query or admin key)",
)
NO_SUCH_PATH = (404, "NOT_FOUND", "no such path")
DAY = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}

#: A question that each route answers.
ASKED: dict[str, dict[str, Any]] = {
    "count": {"dataset": "spans"},
    "timeseries": {"dataset": "spans", "interval": "hour", "range": DAY},
    "facets": {"dataset": "spans", "field": "kind"},
    "search": {"dataset": "spans", "limit": 1},
}


def query(service: Service, route: str, body: Any, key: str | None = "") -> httpx2.Response:
    """A question as JSON, or as the bytes it is; with the query key unless told otherwise."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return post(service, f"/v1/query/{route}", raw, service.query_key if key == "" else key)


def refused(service: Service, route: str, body: Any) -> tuple[str, str]:
    """Code and message of a 400."""
    status, code, message = refusal(query(service, route, body))
    assert status == 400, message
    return code, message


def stored(service: Service, session: str, name: str, **attributes: Any) -> None:
    """Store one span of the session."""
    span = wire.span(name, {"session.id": session, **attributes}, trace_id=trace_id())
    body = wire.request(span).SerializeToString()
    sent = post(service, "/v1/traces", body, service.write_key, {"Content-Type": "application/x-protobuf"})
    assert sent.status_code == 200


# --- credentials ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_living_key_the_query_api_says_no_tenant_context(service: Service, route: str) -> None:
    tokens = (None, "not-a-token", "svc_q_AAAAAAAAAAAAAAAAAAAAAA", service.query_key[:-1] + "_")
    for token in tokens:
        response = query(service, route, ASKED[route], token)
        assert refusal(response) == NO_TENANT
        reason = "no bearer token" if token is None else "unknown key"
        assert response.json() == {
            "ok": False,
            "error": {"code": "UNAUTHORIZED", "message": "no tenant context", "details": {"reason": reason}},
        }


@pytest.mark.parametrize("route", ROUTES)
def test_a_write_key_may_not_query_and_an_admin_key_may(service: Service, route: str) -> None:
    assert refusal(query(service, route, ASKED[route], service.write_key)) == WRONG_SCOPE
    assert query(service, route, ASKED[route], minted(service, "admin")).status_code == 200


def test_credentials_are_checked_before_the_body(service: Service) -> None:
    for body in (b"\xff", b"x" * 3_000_000):
        assert refusal(query(service, "count", body, None)) == NO_TENANT
        assert refusal(query(service, "count", body, service.write_key)) == WRONG_SCOPE


# --- paths and methods ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/query",
        "/v1/query/",
        "/v1/query/sum",
        "/v1/query/count/",
        "/v1//query/count",
        "/v1/traces/",
        "/V1/traces",
        "/index.html",
        "/..%2f..%2fetc/passwd",
        "/%00",
        "/%ff%fe",
        "/favicon.ico",
        "/apiary",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_404_in_the_envelope(service: Service, path: str, method: str) -> None:
    with connected(service.port) as sock:
        sock.sendall(head(method, path, "Content-Length: 2") + b"{}")
        status, headers, body = read_response(sock)
    if (method, path) == ("GET", "/"):
        # The pages begin there.
        assert (status, headers["location"]) == (303, "/login")
        return
    assert (status, headers["content-type"]) == (404, "application/json")
    told = json.loads(body)
    if (method, path) == ("POST", "/") or path == "/v1/traces/":
        # An exporter that was given the base address without the path of traces, or a slash behind it.
        assert told["error"].pop("details") == {"path": "/v1/traces"}
        told["error"]["message"] = told["error"]["message"].removesuffix("; traces are taken at /v1/traces")
    assert told == {"ok": False, "error": {"code": "NOT_FOUND", "message": "no such path"}}


@pytest.mark.parametrize("path", ["/actuator/health", "/actuator/prometheus"])
def test_the_actuator_is_read_only(service: Service, path: str) -> None:
    response = client(service).post(path)
    assert refusal(response)[:2] == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "GET"


@pytest.mark.parametrize("path", ["/api/anything", "/api/", "/api/orgs/default/signup-policy", "/api/%00"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_any_api_path_without_a_living_credential_is_401(service: Service, path: str, method: str) -> None:
    for headers in ({}, {"Authorization": "Bearer svc_a_AAAAAAAAAAAAAAAAAAAAAA"}, {"Cookie": "session=x"}):
        response = client(service).request(method, path, headers=headers)
        status, code, _ = refusal(response)
        assert (status, code) == (401, "auth.unauthorized")


def test_an_unknown_api_path_with_a_credential_is_404(service: Service) -> None:
    for key in (service.query_key, service.write_key):
        response = client(service).get("/api/anything", headers={"Authorization": f"Bearer {key}"})
        assert refusal(response) == NO_SUCH_PATH


# --- bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_above_the_limit_is_413_however_it_is_sent(service: Service, route: str) -> None:
    large = json.dumps(ASKED[route] | {"filters": {"name": "x" * 1_100_000}}).encode()
    assert refusal(query(service, route, large))[:2] == (413, "PAYLOAD_TOO_LARGE")
    chunks = iter([large[:500_000], large[500_000:]])
    response = post(service, f"/v1/query/{route}", chunks, service.query_key)
    assert refusal(response)[:2] == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"spans"',
        b"{",
        b'{"dataset": "spans"} x',
        b"\xff\xfe{}",
        b'{"dataset": "sp\xffans"}',
        b'{"dataset": "\\ud800"}',
        b'{"dataset": 1}',
        b'{"dataset": null}',
        b"[" * 100_000,
        b'{"dataset":' * 50_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_is_not_a_question_is_400(service: Service, route: str, body: bytes) -> None:
    code, message = refused(service, route, body)
    assert code == "BAD_REQUEST"
    assert message.startswith("the body cannot be read: ")
    assert len(message) <= 500


@pytest.mark.parametrize("route", ROUTES)
def test_unknown_fields_datasets_and_filters_are_named(service: Service, route: str) -> None:
    code, message = refused(service, route, ASKED[route] | {"projct": "other"})
    assert code == "BAD_REQUEST"
    assert "`projct`" in message
    assert refused(service, route, ASKED[route] | {"dataset": "users"}) == (
        "QUERY.UNKNOWN_DATASET",
        "unknown dataset 'users'",
    )
    for field in ("project_id", "input_preview", "name; drop table span", "", "\x00"):
        assert refused(service, route, ASKED[route] | {"filters": {field: "x"}}) == (
            "QUERY.UNKNOWN_FIELD",
            f"unknown field '{field}' for dataset 'spans'",
        )


@pytest.mark.parametrize(
    ("route", "field"),
    [
        (route, field)
        for route in ROUTES
        for field in ("dataset", "interval", "range", "field")
        if field in ASKED[route]
    ],
)
def test_a_missing_field_is_named(service: Service, route: str, field: str) -> None:
    code, message = refused(
        service, route, {key: value for key, value in ASKED[route].items() if key != field}
    )
    assert code == "BAD_REQUEST"
    assert f"missing required field `{field}`" in message


@pytest.mark.parametrize(
    ("dataset", "field"),
    [
        ("spans", "trace_id"),
        ("spans", "span_id"),
        ("spans", "nothing"),
        ("tool_calls", "trace_id"),
        ("classifier_events", "subject_trace_id"),
        ("metric_rollups", "value"),
        ("metric_rollups", "name"),
    ],
)
def test_what_is_no_facet_is_refused_by_name(service: Service, dataset: str, field: str) -> None:
    response = query(service, "facets", {"dataset": dataset, "field": field})
    assert refusal(response) == (
        400,
        "QUERY.UNKNOWN_FIELD",
        f"dataset '{dataset}' is filtered by '{field}', but not grouped by it"
        if field.endswith("_id")
        else f"unknown field '{field}' for dataset '{dataset}'",
    )
    assert field not in response.json()["error"]["details"]["allowed"]


@pytest.mark.parametrize("interval", ["second", "Hour", "", "hour'; --", "year"])
def test_an_unknown_interval_is_named(service: Service, interval: str) -> None:
    asked = ASKED["timeseries"] | {"interval": interval}
    assert refused(service, "timeseries", asked) == (
        "QUERY.UNKNOWN_INTERVAL",
        f"unknown interval '{interval}'",
    )


@pytest.mark.parametrize("mode", ["semantic", "KEYWORD", "' or 1=1"])
def test_an_unknown_mode_is_named(service: Service, mode: str) -> None:
    assert refused(service, "search", ASKED["search"] | {"mode": mode}) == (
        "BAD_REQUEST",
        f"unknown mode '{mode}'",
    )


def test_roll_ups_cannot_be_searched(service: Service) -> None:
    assert refused(service, "search", {"dataset": "metric_rollups", "q": "x"}) == (
        "QUERY.SEARCH_UNSUPPORTED",
        "dataset 'metric_rollups' does not support search",
    )


# --- ranges -----------------------------------------------------------------------------------------------

MALFORMED = [
    "",
    " ",
    "yesterday",
    "2026-11-31T00:00:00Z",
    "2026-13-01",
    "2026-11-01T25:00:00Z",
    "2026-11-01T00:00:00+99:99",
    "2026-W45-1",
    "1795167269",
    "20261101T000000Z",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+10:00",
    "２０２６-11-01T00:00:00Z",
    "2026-11-01T00:00:00Z\x00",
    "infinity",
    "now()",
]


@pytest.mark.parametrize("text", MALFORMED)
@pytest.mark.parametrize("bound", ["from", "to"])
def test_a_malformed_instant_is_refused_and_its_bound_named(service: Service, bound: str, text: str) -> None:
    code, message = refused(service, "timeseries", ASKED["timeseries"] | {"range": DAY | {bound: text}})
    assert code == "QUERY.INVALID_RANGE"
    assert f"'range.{bound}'" in message


@pytest.mark.parametrize(
    "range_", [{}, {"from": DAY["from"]}, {"to": DAY["to"]}, {"from": None, "to": DAY["to"]}]
)
def test_a_timeseries_needs_both_bounds(service: Service, range_: dict[str, Any]) -> None:
    assert refused(service, "timeseries", ASKED["timeseries"] | {"range": range_}) == (
        "QUERY.INVALID_RANGE",
        "'range.from' and 'range.to' are both required",
    )


@pytest.mark.parametrize("route", ROUTES)
def test_a_range_that_runs_backwards_is_refused(service: Service, route: str) -> None:
    backwards = {"from": DAY["to"], "to": DAY["from"]}
    assert refused(service, route, ASKED[route] | {"range": backwards})[0] == "QUERY.INVALID_RANGE"


def test_ten_thousand_buckets_are_given_and_one_more_is_refused(service: Service) -> None:
    asked = ASKED["timeseries"] | {"range": {"from": "2025-01-01T00:00:00Z", "to": "2026-02-21T16:00:00Z"}}
    buckets = ask(service, "timeseries", asked)["buckets"]
    assert len(buckets) == 10_000
    longer = asked | {"range": {"from": "2025-01-01T00:00:00Z", "to": "2026-02-21T16:00:00.000001Z"}}
    code, message = refused(service, "timeseries", longer)
    assert code == "QUERY.INVALID_RANGE"
    assert "10000 buckets" in message


@pytest.mark.parametrize("interval", ["day", "week", "month"])
def test_the_ends_of_the_calendar_are_answered(service: Service, interval: str) -> None:
    for low, high in (("0001-01-01T00:00:00Z", "0001-02-01"), ("9999-12-01", "9999-12-31T23:59:59.999999Z")):
        asked = {"dataset": "spans", "interval": interval, "range": {"from": low, "to": high}}
        buckets = ask(service, "timeseries", asked)["buckets"]
        assert buckets
        assert not any(bucket["count"] for bucket in buckets)


# --- hostile values ---------------------------------------------------------------------------------------


def test_q_takes_every_sign_literally(service: Service) -> None:
    session = unique("q")
    names = [
        "100% sure",
        "100 sure",
        "snake_case",
        "snakeXcase",
        "back\\slash",
        "O'Reilly \"x\" ')--",
        "nul\x00",
    ]
    for name in names:
        stored(service, session, name)
    wait_for_spans(service, len(names), session_id=session)

    def found(q: str) -> set[str]:
        asked = {"dataset": "spans", "q": q, "filters": {"session_id": session}}
        return {row["fields"]["name"] for row in ask(service, "search", asked)["rows"]}

    assert found("%") == {"100% sure"}
    assert found("E_C") == {"snake_case"}
    assert found("\\") == {"back\\slash"}
    assert found("'") == found('"x" \')--') == {"O'Reilly \"x\" ')--"}
    assert found("nul\x00") == found("\x00") == {"nul\ufffd"}
    assert found("%%") == found("\\%") == found("' or 1=1 --") == set()
    assert len(found("")) == len(found("  ")) == len(names)
    assert found("x" * 1_000) == set()


@pytest.mark.parametrize(
    "asked",
    [
        {"q": "\ud800"},
        {"mode": "\udfff"},
        {"cursor": "\ud800\ud800"},
        {"filters": {"name": "\ud800"}},
        {"filters": {"\ud800": "x"}},
        {"range": {"from": "\ud800"}},
    ],
)
def test_a_lone_surrogate_is_a_400_wherever_it_stands(service: Service, asked: dict[str, Any]) -> None:
    assert refused(service, "search", ASKED["search"] | asked)[0] == "BAD_REQUEST"


def test_filters_take_strings_numbers_booleans_and_null(service: Service) -> None:
    session = unique("filters")
    stored(service, session, "42")
    stored(service, session, "true", **{"user.id": "1.5"})
    wait_for_spans(service, 2, session_id=session)

    def count(**filters: Any) -> int:
        n: int = ask(service, "count", {"dataset": "spans", "filters": {"session_id": session, **filters}})[
            "count"
        ]
        return n

    assert count(name=42) == count(name="42") == 1
    assert count(name=True) == count(name="true") == 1
    assert count(name=False) == count(name="false") == 0
    assert count(user_id=1.5) == 1
    assert count(user_id=None) == 1
    assert count(user_id=None, name=True) == 0
    assert count(trace_id=None) == 0


@pytest.mark.parametrize(
    "value", [2**63, -(2**63), 2**64, 1e308, -0.0, "", "\x00", "x" * 100_000, "%", "null"]
)
@pytest.mark.parametrize("field", ["name", "trace_id", "span_id"])
def test_a_filter_that_nothing_equals_counts_nothing(service: Service, field: str, value: Any) -> None:
    assert ask(service, "count", {"dataset": "spans", "filters": {field: value}}) == {"count": 0}


@pytest.mark.parametrize("value", [[], {}, ["x"], {"eq": "x"}])
def test_a_filter_is_one_plain_value(service: Service, value: Any) -> None:
    assert refused(service, "count", {"dataset": "spans", "filters": {"name": value}})[0] == "BAD_REQUEST"


@pytest.mark.parametrize("number", [b"1e999", b"1" + b"0" * 400, b"NaN", b"-Infinity"])
def test_a_number_that_json_cannot_hold_is_a_400(service: Service, number: bytes) -> None:
    body = b'{"dataset": "spans", "filters": {"name": ' + number + b"}}"
    response = query(service, "count", body)
    assert response.status_code in (200, 400)
    assert response.status_code == 200 or refusal(response)[1] == "BAD_REQUEST"


@pytest.mark.parametrize("limit", [-(2**63), -1, 0, 2**63 - 1])
def test_page_sizes_out_of_bounds_are_brought_inside(service: Service, limit: int) -> None:
    ask(service, "search", {"dataset": "spans", "limit": limit})
    ask(service, "facets", {"dataset": "spans", "field": "kind", "top_n": limit})


# --- cursors ----------------------------------------------------------------------------------------------


def packed(*place: Any) -> str:
    """A cursor with this inside."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).rstrip(b"=").decode()


MOMENT = "2026-11-20T00:00:00.000000Z"
IDS = ("ab" * 16, "cd" * 8)
CUTS = 1 if FULL else 20
GARBAGE = [
    "x",
    "====",
    "/+/+",
    "\x00",
    "ü",
    "A" * 100_000,
    packed(),
    packed("spans"),
    packed("spans", MOMENT),
    packed("spans", MOMENT, *IDS, "more"),
    packed("spans", "yesterday", *IDS),
    packed("spans", "0000-00-00T00:00:00.000000Z", *IDS),
    packed("spans", MOMENT, "zz", "zz"),
    packed("spans", MOMENT, 1, 2),
    packed("tool_calls", MOMENT, *IDS),
    packed("tool_calls", MOMENT, *IDS, 2**40),
    packed("tool_calls", MOMENT, *IDS, -(2**40)),
    packed("tool_calls", MOMENT, *IDS, "one"),
    packed("classifier_events", MOMENT, "not-an-id"),
    packed("classifier_events", MOMENT, "\x00"),
    packed("classifier_events", MOMENT, 7),
    packed("metric_rollups", MOMENT),
    # One that was cut on its way, anywhere.
    *(
        packed("spans", MOMENT, *IDS)[:length]
        for length in range(1, len(packed("spans", MOMENT, *IDS)), CUTS)
    ),
]


@pytest.mark.parametrize("cursor", GARBAGE, ids=lambda cursor: repr(cursor[:24]))
@pytest.mark.parametrize("dataset", ["spans", "tool_calls", "classifier_events"])
def test_a_cursor_that_cannot_be_read_starts_at_the_newest_row(
    service: Service, dataset: str, cursor: str
) -> None:
    first = ask(service, "search", {"dataset": dataset, "limit": 2})
    assert ask(service, "search", {"dataset": dataset, "limit": 2, "cursor": cursor}) == first


def test_pages_follow_each_other_and_another_datasets_cursor_does_not_count(service: Service) -> None:
    session = unique("pages")
    for number in range(5):
        stored(service, session, f"page {number}")
    wait_for_spans(service, 5, session_id=session)
    asked = {"dataset": "spans", "filters": {"session_id": session}, "limit": 2}
    seen: list[str] = []
    cursor = None
    while True:
        page = ask(service, "search", asked | {"cursor": cursor})
        seen += [row["id"] for row in page["rows"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        ask(service, "search", {"dataset": "tool_calls", "cursor": cursor})
    assert len(seen) == len(set(seen)) == 5
    assert {row["session_id"] for row in rows_of(service, session_id=session)} == {session}
