"""Laws of what pages start: what cannot start says so and breaks no page."""

from __future__ import annotations

import sys

import pytest

from svc.application.demo_process import DemoProcess


async def test_a_demo_that_cannot_start_is_one_sentence_and_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    demo = DemoProcess("http://127.0.0.1:1")
    assert demo.state() == "idle"
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    await demo.start()
    assert demo.state() == "failed"
    [record] = caplog.records
    assert "the demo could not start" in record.getMessage()
    assert "/nowhere/python" in record.getMessage()
