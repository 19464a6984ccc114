"""Metrics and logs are refused with what to do, counted apart from exports, and named once an hour."""

from __future__ import annotations

import logging

import pytest

from protocol.refusals import GRPC_OTHER_SIGNALS, GRPC_SIGNALS, OTHER_SIGNALS, SIGNAL_REMEDIES
from svc.commands import doctor
from svc.front.otlp.intake import IntakeTally
from svc.front.otlp.signals import LINE_S


def test_each_refused_signal_comes_with_what_to_do() -> None:
    assert set(GRPC_OTHER_SIGNALS.values()) == set(SIGNAL_REMEDIES) == {"metrics", "logs"}
    for signal, variable in (("metrics", "OTEL_METRICS_EXPORTER=none"), ("logs", "OTEL_LOGS_EXPORTER=none")):
        refusal = OTHER_SIGNALS[f"/v1/{signal}"]
        assert (refusal.status, refusal.code) == (404, "NOT_FOUND")
        for message in (refusal.message, GRPC_SIGNALS[signal]):
            assert message.startswith(f"{signal} are not accepted; this service accepts traces, ")
            assert variable in message


def test_a_signal_is_named_in_the_log_once_an_hour_and_counted_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    now_s = 0.0
    tally = IntakeTally(clock=lambda: now_s)
    for moment_s in (0.0, 1.0, LINE_S - 1, LINE_S):
        now_s = moment_s
        tally.signals.note("logs")
    tally.signals.note("metrics")
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "refused 1 requests with logs",
        "refused 3 requests with logs",
        "refused 1 requests with metrics",
    ]
    assert tally.signals.counts == {"logs": 4, "metrics": 1}
    # They are no refused exports, over which an alert is raised.
    assert (tally.refused, tally.lately.told()) == ({}, [])


def test_health_and_doctor_show_a_signal_for_an_hour() -> None:
    now_s = 0.0
    tally = IntakeTally(clock=lambda: now_s)
    assert tally.signals.recent() == []
    tally.signals.note("logs")
    components = {"ingest": {"details": {"refused_signals": tally.signals.recent()}}}
    (finding,) = doctor._signals(components)
    assert finding.line() == (
        "warn  signals     logs are sent here and rejected, 1 request since the start: "
        + SIGNAL_REMEDIES["logs"]
    )
    now_s = LINE_S
    assert tally.signals.recent() == []
    assert doctor._signals({}) == []
