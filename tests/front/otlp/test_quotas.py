"""Laws of quotas: what one key and one project may send is counted, bounded, and refused by its reason."""

from __future__ import annotations

import gzip
import json
from datetime import date
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from protocol.otlp import admission
from protocol.otlp.admission import admit
from protocol.otlp.limits import DEFAULT_LIMITS
from protocol.otlp.reading import read_clean, walk
from svc.front.otlp import quotas
from svc.front.otlp.quotas import ProjectQuota, Quotas, QuotaSizes
from tests.examples import examples
from tests.service import PLAIN, Service, running
from tests.wire import request, span

MONDAY, TUESDAY = date(2026, 11, 2), date(2026, 11, 3)
A, B = b"\x0a" * 16, b"\x0b" * 16


def body_of(*spans: tuple[bytes, str]) -> bytes:
    return request(*(span(name, trace_id=trace) for trace, name in spans)).SerializeToString()


def limits_of(today: date = MONDAY, held: Quotas | None = None, **sizes: int) -> Any:
    return (held or Quotas(QuotaSizes(**sizes))).limits(1, DEFAULT_LIMITS, today)


def test_spans_of_a_trace_beyond_its_quota_are_refused_one_by_one_and_others_stay() -> None:
    limits = limits_of(trace_spans=3)
    clean, first = admit(body_of((A, "a"), (A, "b")), "protobuf", limits, inline=True)
    assert (first.accepted, first.rejected) == (2, 0)
    clean, second = admit(body_of((A, "c"), (B, "d"), (A, "e"), (A, "f")), "protobuf", limits, inline=True)
    assert [one.name for one in walk(read_clean(clean))] == ["c", "d"]
    assert second.message() == (
        "2 of 4 spans refused: more than 3 spans of one trace (SVC_QUOTA_TRACE_SPANS) (2)"
    )


def test_new_names_beyond_the_quota_of_a_day_are_refused_and_the_next_day_begins_anew() -> None:
    held = Quotas(QuotaSizes(names_per_day=2))
    spans = ((A, "a"), (A, "b"), (A, "c"), (A, "a"))
    _, today = admit(body_of(*spans), "protobuf", limits_of(held=held), inline=True)
    assert today.reasons == (("more than 2 span names today (SVC_QUOTA_NAMES_PER_DAY)", 1),)
    _, tomorrow = admit(body_of((A, "c"), (A, "d")), "protobuf", limits_of(TUESDAY, held), inline=True)
    assert tomorrow.rejected == 0
    assert held.refused_spans == 1


@given(
    st.lists(st.tuples(st.sampled_from([A, B, bytes(16)]), st.sampled_from("abcdef")), max_size=40),
    st.integers(1, 8),
    st.integers(1, 4),
)
@settings(max_examples=examples(100), deadline=None)
def test_each_way_of_reading_a_body_refuses_the_same_spans(
    spans: list[tuple[bytes, str]], trace_spans: int, names: int
) -> None:
    sizes = {"trace_spans": trace_spans, "names_per_day": names}
    body = body_of(*spans)
    in_loop = admit(body, "protobuf", limits_of(**sizes), inline=True)
    in_thread = admit(body, "protobuf", limits_of(**sizes), inline=False)
    assert in_loop[1] == in_thread[1]
    kept = [(one.trace_id, one.name) for one in walk(read_clean(in_loop[0]))]
    assert kept == [(one.trace_id, one.name) for one in walk(read_clean(in_thread[0]))]
    # A plain model of it.
    count: dict[bytes, int] = {}
    seen: set[str] = set()
    wanted = []
    for trace, name in spans:
        if trace == bytes(16) or (name not in seen and len(seen) >= names):
            continue
        seen.add(name)
        count[trace] = count.get(trace, 0) + 1
        if count[trace] <= trace_spans:
            wanted.append((trace, name))
    assert kept == wanted


def test_a_json_body_read_in_pieces_is_held_to_the_quota() -> None:
    spans = [
        {"traceId": "0a" * 16, "spanId": f"{n:016x}", "name": "a", "startTimeUnixNano": "9"} for n in (1, 2)
    ]

    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    for inline in (True, False):
        _, screening = admission.admit(body, "json", limits_of(trace_spans=1), inline=inline)
        assert (screening.accepted, screening.rejected) == (1, 1)


def test_a_key_that_sends_too_much_in_a_minute_waits_for_the_next() -> None:
    held = Quotas(QuotaSizes(key_bytes_per_minute=100))
    assert held.sent("one", 60, 120.0) is None
    assert held.sent("one", 41, 130.0) == 51
    # Another key has a minute of its own; what was refused does not count.
    assert held.sent("two", 100, 130.0) is None
    assert held.sent("one", 40, 179.0) is None
    assert held.sent("one", 500, 180.0) is None
    assert held.sent("one", 1, 181.0) == 60
    assert held.refused_requests == 2


def test_counts_of_traces_are_bounded_and_a_trace_that_goes_on_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotas, "COUNTED_TRACES", 10)
    quota = ProjectQuota(QuotaSizes(trace_spans=30), MONDAY)
    refused = 0
    for number in range(1000):
        quota(number.to_bytes(16, "big"), "a")
        refused += quota(A, "a") is not None
        assert len(quota.traces) + len(quota.earlier_traces) <= 22
    assert refused == 970


def test_without_quotas_nothing_is_counted() -> None:
    assert limits_of() is DEFAULT_LIMITS
    assert Quotas().sent("one", 1 << 40, 0.0) is None
    assert {use.size for use in Quotas().uses(1)} == {0}


def test_both_doors_tell_of_quotas_and_the_page_of_sources_shows_them() -> None:
    sizes = {"SVC_QUOTA_TRACE_SPANS": "2", "SVC_QUOTA_KEY_BYTES_PER_MINUTE": "4096"}
    with running(**sizes) as service:
        told(service)


def told(service: Service) -> None:
    answer = service.send(body_of((A, "a"), (A, "b"), (A, "c")))
    assert answer.status_code == 200
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 1
    assert "SVC_QUOTA_TRACE_SPANS" in partial.error_message
    body = gzip.compress(request(span(attributes={"t": "x" * 9000}, trace_id=B)).SerializeToString(), 0)
    refused = service.send(body, Content_Encoding="gzip")
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["message"] == (
        "this key has sent more bytes in this minute than SVC_QUOTA_KEY_BYTES_PER_MINUTE allows"
    )
    assert service.metric("svc_quota_refused_spans_total") == 1
    assert service.metric("svc_quota_refused_requests_total") == 1
    with httpx2.Client(base_url=service.url, headers={"Origin": service.url}, timeout=60, **PLAIN) as owner:
        person = {"email": "owner@example.org", "password": "correct horse battery"}
        assert owner.post("/auth/signup", json=person).status_code == 201
        page = owner.get("/orgs/default/projects/default/settings/sources").text
    assert "Spans of one trace" in page
    assert "this key has sent more bytes" in page
