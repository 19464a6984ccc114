"""The client of a sandbox runner: its calls as verbs, its refusals as values.

The launcher uses it. Never decides what a refusal means for a run; that is a table of the launcher's.

Secrets: requests hold a credential and a key. They go over loopback or TLS, into no log and no error.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import attrs
import msgspec

from protocol.running import (
    WAIT_S,
    RunEvents,
    RunnerAway,
    RunnerError,
    RunnerHealth,
    RunnerRefused,
    RunRequest,
    RunResult,
    RunStands,
)
from svc.outside.http import HttpAnswer, HttpClient, Unreached

CONNECT_S: Final = 10.0
ANSWER_BYTES: Final = 16 * 1024 * 1024

T = TypeVar("T")


@attrs.frozen
class RunnerClient:
    """One runner at an address that only the operator can name."""

    url: str
    key: str = attrs.field(repr=False)

    async def begin(self, name: str, request: RunRequest) -> RunStands | RunnerRefused | RunnerAway:
        """Have a run begun, or found under way."""
        answer = await self._send("PUT", f"/v1/runs/{name}", body=msgspec.json.encode(request))
        stands = _read(answer, RunStands)
        if not isinstance(stands, RunStands) or isinstance(answer, RunnerAway):
            return stands
        return msgspec.structs.replace(stands, known=answer.status == 200)

    async def events(self, name: str, after: int) -> RunEvents | RunnerRefused | RunnerAway:
        """What happened since; waits for an event."""
        path = f"/v1/runs/{name}/events?after={after}&wait={WAIT_S:g}"
        return await self._ask("GET", path, RunEvents, timeout_s=WAIT_S + CONNECT_S)

    async def result(self, name: str) -> RunResult | RunnerRefused | RunnerAway:
        """The state of a run, final or not."""
        return await self._ask("GET", f"/v1/runs/{name}", RunResult)

    async def cancel(self, name: str) -> None:
        """Have it end; whether anybody hears is of no matter."""
        await self._ask("DELETE", f"/v1/runs/{name}", dict)

    async def health(self) -> RunnerHealth | RunnerRefused | RunnerAway:
        """The state of the runner itself."""
        return await self._ask("GET", "/healthz", RunnerHealth)

    async def _ask(
        self, method: str, path: str, type_: type[T], *, timeout_s: float = CONNECT_S
    ) -> T | RunnerRefused | RunnerAway:
        return _read(await self._send(method, path, timeout_s=timeout_s), type_)

    async def _send(
        self, method: str, path: str, *, body: bytes = b"", timeout_s: float = CONNECT_S
    ) -> HttpAnswer | RunnerAway:
        http = HttpClient(timeout_s=timeout_s, answer_bytes=ANSWER_BYTES)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        try:
            return await http.ask(method, self.url.rstrip("/") + path, headers=headers, body=body)
        except Unreached as away:
            return RunnerAway(f"the runner {away}")


def _read(answer: HttpAnswer | RunnerAway, type_: type[T]) -> T | RunnerRefused | RunnerAway:
    if isinstance(answer, RunnerAway):
        return answer
    try:
        if answer.status in (200, 202):
            return msgspec.json.decode(answer.body, type=type_)
        return _refused(answer)
    except (msgspec.DecodeError, RecursionError):
        return RunnerRefused(answer.status, "unreadable")


def _refused(answer: HttpAnswer) -> RunnerRefused:
    try:
        error: Any = msgspec.json.decode(answer.body, type=RunnerError)
    except msgspec.DecodeError:
        return RunnerRefused(answer.status)
    return RunnerRefused(answer.status, error.kind)
