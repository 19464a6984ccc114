"""A body that never ends: both doors say so in time, in their own words, and log no error."""

from __future__ import annotations

from typing import Any

import attrs
import h2.events
import pytest
import trio
from trio.testing import MockClock

from protocol.refusals import BODY_TIMEOUT
from svc.front.otlp import grpc as otlp_grpc
from svc.front.otlp import http as otlp_http
from svc.front.otlp.http import OtlpHttp
from svc.runtime.asyncio_loop import asyncio_loop
from tests.e2e.hostile import EXPORT, http2, pseudo
from tests.front.otlp.doors import CALLERS, TOKEN, AnyKey, grpc_door, intake, opened


@attrs.define(eq=False)
class Client:
    """A client that sends the first half of its body and hears what it is told, on Trio's clock."""

    sent: bool = False
    heard: list[tuple[float, Any]] = attrs.field(factory=list)

    async def receive(self) -> Any:
        if self.sent:
            await trio.sleep_forever()
        self.sent = True
        return {"type": "http.request", "body": b"\x0a", "more_body": True}

    async def send(self, message: Any) -> None:
        self.heard.append((trio.current_time(), message))


async def test_a_body_that_never_ends_is_answered_over_http(autojump_clock: MockClock) -> None:
    door: Any = OtlpHttp(intake(), AnyKey(), True, CALLERS)  # type: ignore[arg-type]
    scope = {
        "method": "POST",
        "headers": [
            (b"authorization", f"Bearer {TOKEN}".encode()),
            (b"content-type", b"application/x-protobuf"),
        ],
    }
    client, started_s = Client(), trio.current_time()
    await door(scope, client.receive, client.send)
    at_s, head = client.heard[0]
    assert head["status"] == BODY_TIMEOUT.status == 408
    assert (b"connection", b"close") in head["headers"]
    assert otlp_http.BODY_TIMEOUT_S <= at_s - started_s < 2 * otlp_http.BODY_TIMEOUT_S
    assert door.intake.tally.refused == {"408": 1}


async def test_a_message_that_never_ends_is_answered_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_grpc, "MESSAGE_TIMEOUT_S", 0.1)
    taken = intake()
    door = grpc_door(taken)

    def call(port: int) -> dict[bytes, bytes]:
        with http2(port) as client:
            headers = (
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"authorization", b"Bearer " + TOKEN.encode()),
            )
            client.state.send_headers(1, pseudo(EXPORT.encode(), b"POST", *headers))
            client.state.send_data(1, b"\0\0\0\0\x10half")
            client.flush()
            answer = client.receive(h2.events.ResponseReceived)
            assert isinstance(answer, h2.events.ResponseReceived)
            return {bytes(name): bytes(value) for name, value in answer.headers}

    async with asyncio_loop(()):
        port = await opened(door)
        said = await trio.to_thread.run_sync(call, port)
        await door.close(1.0)
    # DEADLINE_EXCEEDED, which exporters try again (OTLP, "Failures").
    assert (said[b"grpc-status"], said[b"grpc-message"]) == (b"4", BODY_TIMEOUT.message.encode())
    assert taken.tally.refused == {"408": 1}
