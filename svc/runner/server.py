"""The door of the runner: its calls as an ASGI application, bearer key first.

`PUT`, `GET`, `DELETE /v1/runs/{name}`, `GET /v1/runs/{name}/events`, `GET /healthz` without a key, and the
older synchronous `POST /triage` and `/rca`, whose caller cancels by leaving.

Secrets: bodies are not logged, and of a key nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import parse_qsl
from uuid import uuid4

import attrs
import msgspec
import trio

from protocol.running import (
    DETAIL_CHARS,
    OVER,
    REQUEST_BYTES,
    WAIT_S,
    OldAnswer,
    OldFailure,
    RunEvents,
    RunnerError,
    RunnerHealth,
    RunRequest,
    RunResult,
    RunStands,
)
from protocol.tokens import bearer
from svc.runner.runs import OtherDigest, RunnerRun, RunTable, TableFull
from svc.runner.sandbox import SandboxBackend

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

BODY_TIMEOUT_S: Final = 60.0
#: When a full runner may be asked again.
RETRY_AFTER_S: Final = 60
EVENTS_A_POLL: Final = 500
MILLISECOND: Final = timedelta(milliseconds=1)
#: How often whoever waits for the answer counts as a reader.
READ_S: Final = 10.0

_RUN: Final = re.compile(r"/v1/runs/([A-Za-z0-9.-]{1,80})(/events)?")
_OLD: Final = {"/triage": "triage", "/rca": "rca"}


class _TooLarge(Exception):
    """A body beyond `REQUEST_BYTES`, or one that never ends."""


@attrs.frozen
class _Reply:
    status: int
    body: Any
    headers: tuple[tuple[bytes, bytes], ...] = ()


def _error(status: int, kind: str, detail: str = "", **headers: str) -> _Reply:
    header_pairs = tuple((name.replace("_", "-").encode(), text.encode()) for name, text in headers.items())
    return _Reply(status, RunnerError("refused", kind, detail[:DETAIL_CHARS]), header_pairs)


@attrs.frozen
class RunnerDoor:
    """The application. `key` is what every call but `/healthz` has to bring."""

    table: RunTable
    backend: SandboxBackend
    key: str = attrs.field(repr=False)
    version: str
    provider_mode: str
    #: Why no run can be done here; empty when runs can.
    fault: Callable[[], str] = str

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            reply = await self._answer(scope, receive)
        except _TooLarge:
            reply = _error(413, "too_large", f"a body has at most {REQUEST_BYTES} bytes", connection="close")
        body = msgspec.json.encode(reply.body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send(
            {"type": "http.response.start", "status": reply.status, "headers": [*headers, *reply.headers]}
        )
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> _Reply:
        method, path = scope["method"], scope["path"]
        if path == "/healthz" and method == "GET":
            return _Reply(200, self._health())
        headers = {name.decode("latin1").lower(): text.decode("latin1") for name, text in scope["headers"]}
        token = bearer(headers.get("authorization")) or ""
        if not compare_digest(token.encode(), self.key.encode()):
            return _error(401, "unauthorized")
        if path in _OLD and method == "POST":
            return await self._old(_OLD[path], receive)
        match = _RUN.fullmatch(path)
        if match is None:
            return _error(404, "not_found")
        name, events = match[1], match[2] is not None
        match method, events:
            case "PUT", False:
                return await self._begin(name, receive)
            case "GET", True:
                return await self._events(name, dict(parse_qsl(scope["query_string"].decode("latin1"))))
            case "GET", False:
                return self._one(name)
            case "DELETE", False:
                self.table.cancel(name)
                return _Reply(202, {})
            case _:
                return _error(405, "method_not_allowed")

    def _health(self) -> RunnerHealth:
        return RunnerHealth(
            ok=not self.table.draining,
            version=self.version,
            backend=self.backend.name,
            scripts=self.backend.scripts,
            provider_mode=self.provider_mode,
            running=self.table.running,
            queued=self.table.waiting,
            capacity=self.table.capacity,
            scripts_fault=self.backend.fault[:DETAIL_CHARS],
            fault=self.fault()[:DETAIL_CHARS],
        )

    async def _begin(self, name: str, receive: Receive) -> _Reply:
        raw = await _body(receive)
        if self.table.draining:
            return _error(503, "draining")
        try:
            request = msgspec.json.decode(raw, type=RunRequest)
        except (msgspec.DecodeError, RecursionError) as error:
            return _error(400, "bad_request", str(error))
        start = self.table.begin(name, request)
        if isinstance(start, OtherDigest):
            return _error(409, "other_digest", "a run of this name was asked for with something else")
        if isinstance(start, TableFull):
            return _error(429, "full", retry_after=str(RETRY_AFTER_S))
        run, new = start
        return _Reply(202 if new else 200, RunStands(run.state, self.table.position(run), not new))

    async def _events(self, name: str, query: Mapping[str, str]) -> _Reply:
        run = self.table.find(name)
        if run is None:
            return _error(404, "unknown_run")
        try:
            cursor, wait_s = int(query.get("after", "0")), float(query.get("wait", "0"))
        except ValueError:
            return _error(400, "bad_request", "after and wait are numbers")
        run.read_s = trio.current_time()
        with trio.move_on_after(min(max(wait_s, 0.0), WAIT_S)):
            while not (
                run.state in OVER
                or run.spent != run.spent_heard
                or any(event.seq > cursor for event in run.events)
            ):
                await run.changed.wait()
        run.read_s = trio.current_time()
        events = [event.told() for event in run.events if event.seq > cursor][:EVENTS_A_POLL]
        last_seq = events[-1]["seq"] if events else cursor
        run.spent_heard = run.spent
        return _Reply(200, RunEvents(run.state, last_seq, datetime.now(UTC).isoformat(), run.spent, events))

    def _one(self, name: str) -> _Reply:
        run = self.table.find(name)
        return _error(404, "unknown_run") if run is None else _Reply(200, _result(run))

    async def _old(self, kind: str, receive: Receive) -> _Reply:
        """The older form: one call that lasts as long as the run, which ends when its caller leaves."""
        raw = await _body(receive)
        if self.table.draining:
            return _error(503, "draining")
        try:
            request = msgspec.json.decode(raw, type=RunRequest)
        except (msgspec.DecodeError, RecursionError) as error:
            return _error(400, "bad_request", str(error))
        if request.kind != kind:
            return _error(400, "bad_request", f"this is the place of {kind}")
        began = trio.current_time()
        start = self.table.begin(f"old-{uuid4()}", request)
        if not isinstance(start, tuple):
            return _error(429, "full", retry_after=str(RETRY_AFTER_S))
        run, _ = start
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_left, receive, self.table, run)
            nursery.start_soon(_reading, run)
            await run.over.wait()
            nursery.cancel_scope.cancel()
        if run.result is not None and run.state == "done":
            started = next((event for event in run.events if event.kind == "turn"), run.events[0])
            ms = (datetime.fromisoformat(started.at) - datetime.fromisoformat(run.events[0].at)) / MILLISECOND
            return _Reply(200, OldAnswer(run.result, run.spent.turns, round(ms)))
        kind_, detail = ("cancelled", "") if run.failure is None else (run.failure.kind, run.failure.detail)
        elapsed_ms = round((trio.current_time() - began) * 1000)
        timeout_ms = round(request.limits.seconds * 1000)
        failed = OldFailure(
            "the run failed", kind_, kind_ == "timeout", kind_, detail, elapsed_ms, timeout_ms, run.spent
        )
        return _Reply(502, failed)


def _result(run: RunnerRun) -> RunResult:
    return RunResult(run.state, run.spent, run.model, run.result, run.failure)


async def _until_left(receive: Receive, table: RunTable, run: RunnerRun) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    table.cancel(run.name)


async def _reading(run: RunnerRun) -> None:
    """Whoever waits for the answer reads, too."""
    while True:
        run.read_s = trio.current_time()
        await trio.sleep(READ_S)


async def _body(receive: Receive) -> bytes:
    """The whole body. Raises `_TooLarge`."""
    body = bytearray()
    with trio.move_on_after(BODY_TIMEOUT_S):
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > REQUEST_BYTES:
                raise _TooLarge
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return bytes(body)
    raise _TooLarge


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
