"""Laws of what is noted about exporters, and of what the ingest doctor makes of it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.otlp.reading import WireResource, WireScope, read_protobuf, walk
from protocol.rest.ingest_report import Share
from svc.domain.calendar import EPOCH
from svc.domain.dialects import is_read
from svc.domain.exporters.counters import FIRST, ONE_IN, Exporter, Observations, SeenSpans, exporter_of
from svc.domain.exporters.report import advice, exporter_report, schema_name
from svc.domain.intake.mapping import map_span
from svc.domain.spans.span import instant
from tests.domain import BOOK, START_NS, wire
from tests.wire import capture

NOW = instant(START_NS) + timedelta(seconds=3)
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 1}


def noted(*spans: Any, at: datetime = NOW) -> dict[Any, SeenSpans]:
    observations = Observations()
    for span in spans:
        observations.note(1, at, span, map_span(span, BOOK))
    return observations.take()


def seen(count: int = 8, at: datetime = NOW, **attributes: Any) -> SeenSpans:
    (found,) = noted(*[wire(attributes)] * count, at=at).values()
    return found


def test_every_span_is_counted_and_few_are_looked_into() -> None:
    found = seen(FIRST + 10 * ONE_IN, **CHAT)
    assert found.spans == FIRST + 10 * ONE_IN
    assert FIRST <= found.looked <= FIRST + 11
    assert found.model_calls == found.with_model == found.with_usage == found.looked
    assert found.with_session == 0


def test_exporters_are_told_apart_by_service_sdk_and_scope() -> None:
    sdk = {"telemetry.sdk.name": "otel", "telemetry.sdk.language": "go", "telemetry.sdk.version": "1.2"}
    one = wire({}, resource={"service.name": "shop", **sdk})
    other = msgspec.structs.replace(one, scope=WireScope("lib", "3", {}, b"", ""))
    assert exporter_of(other) == Exporter("shop", "otel go", "1.2", "lib", "3")
    found = noted(one, other, one, other)
    assert {key[2].scope: counters.spans for key, counters in found.items()} == {"": 2, "lib": 2}
    odd = wire({}, resource={"service.name": "a\0" + "b" * 5000})
    assert len(exporter_of(odd).service) == 200
    assert "\0" not in exporter_of(odd).service


def test_what_was_taken_is_not_taken_twice() -> None:
    observations, span = Observations(), wire(CHAT)
    for _ in range(2):
        observations.note(1, NOW, span, map_span(span, BOOK))
        (found,) = observations.take().values()
        assert found.spans == 1
    assert observations.take() == {}


def test_a_client_that_renames_itself_fills_no_memory() -> None:
    observations = Observations()
    for number in range(2000):
        span = wire(CHAT, resource={"service.name": f"s{number}"})
        observations.note(1, NOW, span, map_span(span, BOOK))
    found = observations.take()
    assert len(found) <= 501
    assert sum(counters.spans for counters in found.values()) == 2000


def test_a_key_that_says_a_field_is_read() -> None:
    own = {"tenant.id": "acme", "customerId": "c", "langfuse.release": "1", "metadata.plan": "pro"}
    assert seen(2, **CHAT, **own, **{"tenant.region": "eu"}).unread == {"tenant.region": 2}


def test_a_reranker_is_not_asked_for_tokens() -> None:
    reranker = {"openinference.span.kind": "RERANKER", "reranker.model_name": "rerank-1"}
    found = seen(30, **reranker)
    assert (found.model_calls, found.without_usage) == (found.looked, 0)
    assert not any("tokens" in line for line in advice(Exporter("shop"), found))


def test_keys_that_nobody_reads_are_named_without_their_numbers_and_bounded() -> None:
    found = seen(
        2, **CHAT, **{"my.key": 1, "my.list.0.name": 1, "my.list.17.name": 2, "http.route": "/", "svc.x": 1}
    )
    assert found.unread == {"my.key": 2, "my.list.N.name": 2}
    many = seen(2, **{f"k{n}": 1 for n in range(5000)})
    assert len(many.unread) <= 120
    many.merge(SeenSpans())
    assert len(many.unread) <= 60
    assert many.unread.total() == 10_000


counters = st.builds(
    SeenSpans,
    spans=st.integers(0, 1000),
    looked=st.integers(0, 1000),
    lag_s=st.none() | st.floats(-1e6, 1e6),
    dialects=st.dictionaries(st.sampled_from(["genai", "vercel"]), st.integers(1, 9)).map(Counter),
    unread=st.dictionaries(st.sampled_from(["a", "b", "…"]), st.integers(1, 9)).map(Counter),
    schemas=st.dictionaries(st.sampled_from(["1.45.0", "1.46.0"]), st.integers(1, 9)).map(Counter),
    last_seen_at=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
)


@given(st.lists(counters, max_size=5), st.randoms(use_true_random=False))
def test_counters_add_up_in_any_order_and_through_the_store(parts: list[SeenSpans], dice: Any) -> None:
    def total(order: list[SeenSpans]) -> dict[str, Any]:
        whole = SeenSpans()
        for part in order:
            whole.merge(SeenSpans.of_json(part.as_json(), part.last_seen_at))
        return {**whole.as_json(), "last": whole.last_seen_at}

    shuffled = list(parts)
    dice.shuffle(shuffled)
    assert total(parts) == total(shuffled)
    assert total(parts)["spans"] == sum(part.spans for part in parts)


def test_an_exporter_names_the_versions_of_the_conventions_that_it_follows() -> None:
    observations = Observations()
    for number in range(8):
        address = f"https://opentelemetry.io/schemas/1.{36 + max(number - 3, 0)}.0"
        span = wire(CHAT, scope=WireScope("lib", "1", {}, b"", address))
        observations.note(1, NOW, span, map_span(span, BOOK))
    (totals,) = observations.take().values()
    # Every span may declare another.
    assert len(totals.schemas) == 4
    report = exporter_report(Exporter("shop"), totals)
    assert report.conventions[0] == Share("1.36.0", 0.5)
    assert schema_name("https://opentelemetry.io/schemas/gen-ai/0.1.0") == "gen-ai 0.1.0"
    assert schema_name("https://example.org/schemas/2") == "https://example.org/schemas/2"


def said(found: SeenSpans, exporter: Exporter | None = None) -> list[str]:
    return list(advice(exporter or Exporter("shop"), found))


def test_an_exporter_that_says_everything_is_left_alone() -> None:
    whole = {**CHAT, "session.id": "s", "gen_ai.input.messages": '[{"role": "user", "content": "hi"}]'}
    assert said(seen(**whole)) == []


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"gen_ai.operation.name": "chat"}, "set gen_ai.request.model"),
        ({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, '{"include_usage": true}'),
        (CHAT, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
        ({"openinference.span.kind": "LLM"}, "OPENINFERENCE_HIDE_INPUTS"),
        ({"openinference.span.kind": "LLM"}, "using_session"),
        ({"llm.request.type": "chat"}, "TRACELOOP_TRACE_CONTENT"),
        ({"ai.operationId": "ai.streamText.doStream"}, "sessionId into experimental_telemetry.metadata"),
        (CHAT, "set the span attribute session.id"),
        ({"gen_ai.operation.name": "invoke_agent"}, "no model span is made by this instrumentation"),
        ({"http.route": "/"}, "none of its spans speaks of models"),
    ],
)
def test_advice_names_what_to_change(attributes: dict[str, Any], words: str) -> None:
    assert any(words in sentence for sentence in said(seen(**attributes)))


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("opentelemetry.instrumentation.anthropic", "Traceloop.set_association_properties"),
        ("opentelemetry.instrumentation.genai.openai", "CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
        ("openinference.instrumentation.openai", "using_session"),
        ("opentelemetry.instrumentation.google_genai", "CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
        ("semantic_kernel.utils.telemetry.model_diagnostics.decorators", "OTEL_DIAGNOSTICS_SENSITIVE=true"),
        ("strands.telemetry.tracer", "trace_attributes"),
        ("logfire.openai", "add_baggage_to_attributes"),
        ("com.anthropic.sdk.python", "an instrumentation on top of it"),
        ("gen_ai", "experimental_telemetry"),
        ("gen_ai.of.ours", "CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
    ],
)
def test_whoever_speaks_genai_alone_is_told_by_the_name_of_the_library(scope: str, words: str) -> None:
    assert any(words in sentence for sentence in said(seen(**CHAT), Exporter("shop", scope=scope)))


def test_a_clock_that_runs_ahead_and_spans_that_come_late_are_told_apart() -> None:
    end = instant(START_NS + 10**9)
    assert "clock runs at least 1 m 00 s ahead" in said(seen(at=end - timedelta(seconds=60), **CHAT))[0]
    assert "no span came sooner than 1 h 00 m" in said(seen(at=end + timedelta(hours=1), **CHAT))[0]
    assert not any("clock" in sentence for sentence in said(seen(at=end + timedelta(seconds=9), **CHAT)))


def test_a_service_without_a_name_is_told() -> None:
    for name in ("", "unknown_service:node"):
        assert any("OTEL_SERVICE_NAME" in sentence for sentence in said(seen(**CHAT), Exporter(name)))


def test_a_service_that_is_called_as_its_container_is_told() -> None:
    for name in ("4f1c2ab93d0e", "shop-7d9f8b6c5d-x2x4z"):
        assert f"called as its container, {name}," in said(seen(**CHAT), Exporter(name))[0]
    assert not any("container" in sentence for sentence in said(seen(**CHAT), Exporter("shop")))


def test_a_report_of_nothing_divides_by_nothing() -> None:
    report = exporter_report(Exporter(), SeenSpans(last_seen_at=EPOCH))
    assert (report.service, report.shares.model, report.least_lag_s) == (None, None, None)


@pytest.mark.parametrize(
    ("file", "dialect"),
    [
        ("v1-traces_001_openinference.pb", "openinference"),
        ("v1-traces_004_official-genai.pb", "genai"),
        ("v1-traces_005_pydanticai.pb", "pydantic_ai"),
        ("v1-traces_008_aisdk-OpenTelemetry.pb", "genai"),
    ],
)
def test_of_real_exporters_nearly_every_key_is_read(file: str, dialect: str) -> None:
    body = capture(file)
    spans = list(walk(read_protobuf(body)))
    whole = SeenSpans()
    for found in noted(*spans).values():
        whole.merge(found)
    assert whole.dialects[dialect] > 0
    keys = {key for span in spans for key in span.attributes}
    assert len(whole.unread) <= 0.15 * len(keys), whole.unread


def test_a_resource_is_no_attribute_of_the_span() -> None:
    span = msgspec.structs.replace(wire(CHAT), resource=WireResource({"my.resource": 1}, b"", ""))
    (found,) = noted(span).values()
    assert not found.unread
    assert is_read("gen_ai.prompt.3.role")
    assert not is_read("gen_ai.unheard.of")


def test_a_call_is_in_the_session_of_its_trace() -> None:
    root = wire({"session.id": "s"}, scope=WireScope("web", "", {}, b"", ""))
    other = msgspec.structs.replace(
        root, trace_id=b"\x09" * 16, attributes=CHAT, scope=WireScope("lib", "", {}, b"", "")
    )
    call = msgspec.structs.replace(other, trace_id=root.trace_id)
    # Children come first.
    found = {key[2].scope: counters for key, counters in noted(call, call, other, root).items()}
    assert (found["lib"].model_calls, found["lib"].with_session) == (3, 2)


def test_whoever_makes_no_model_span_is_not_asked_for_one_where_another_library_does() -> None:
    agents = seen(**{"gen_ai.operation.name": "invoke_agent"})
    assert not list(advice(Exporter("shop"), agents, calls_beside=True))
    own_spans = seen(**{"http.route": "/"})
    assert not list(advice(Exporter("shop"), own_spans, calls_beside=True))


@pytest.mark.parametrize(("lacking", "share"), [(12, "12 %"), (5, "5.0 %"), (100, "100 %"), (4, None)])
def test_each_twentieth_of_calls_without_tokens_is_told(lacking: int, share: str | None) -> None:
    totals = SeenSpans(model_calls=100, with_model=100, with_session=100, with_content=100)
    totals.without_usage = lacking
    lines = said(totals)
    assert len(lines) == (0 if share is None else 1)
    assert all(line.startswith(f"{share} of model calls report no tokens, so they cost") for line in lines)


def test_a_call_that_failed_is_not_asked_for_tokens() -> None:
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    (found,) = noted(*[wire(call, status_code=2)] * 8).values()
    assert (found.model_calls, found.with_usage, found.without_usage) == (8, 0, 0)
    (answered,) = noted(*[wire(call)] * 8).values()
    assert answered.without_usage == 8


def test_the_traces_that_are_remembered_are_bounded() -> None:
    observations = Observations()
    for number in range(20_000):
        session = {"session.id": "s"} if number % 2 else {}
        span = wire({**CHAT, **session}, trace_id=number.to_bytes(16, "big"))
        observations.note(1, NOW, span, map_span(span, BOOK))
    assert len(observations._in_session) <= 10_000
    (found,) = observations.take().values()
    assert found.with_session <= found.model_calls
    assert not observations._in_session
