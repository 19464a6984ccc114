"""What the door does before it hands a request on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from svc.front.server import door
from svc.front.server.door import Door


async def test_the_first_reader_has_numpy_loaded_beside_the_loop_and_probes_and_exporters_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded_in: list[threading.Thread] = []
    monkeypatch.setattr(door, "is_loaded", lambda: bool(loaded_in))
    monkeypatch.setattr(door, "load", lambda: loaded_in.append(threading.current_thread()))
    answered: list[tuple[str, bool]] = []

    async def app(scope: dict[str, Any], receive: object, send: object) -> None:
        answered.append((scope["path"], bool(loaded_in)))

    async def nothing(*_: object) -> Any:
        raise AssertionError("nobody reads or sends here")

    house = Door(otlp={"/v1/traces": app}, mcp=app, app=app)
    paths = ["/actuator/health", "/v1/traces", "/mcp", "/orgs/default", "/actuator/health"]
    for path in paths:
        scope = {"type": "http", "path": path, "scheme": "http", "http_version": "1.1", "headers": []}
        await house(scope, nothing, nothing)
    assert answered == list(zip(paths, [False, False, True, True, True], strict=True))
    assert [thread is threading.main_thread() for thread in loaded_in] == [False]
