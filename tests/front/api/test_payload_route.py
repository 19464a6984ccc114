"""Laws of the payload route: few on their way out at once, and who reads slowly is left in time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from svc.front.api.traces import spans
from svc.front.api.traces.spans import MOST_AT_ONCE, PIECE_BYTES
from svc.store.postgres.database import Database
from tests.front.people import PROJECT, Replica, replica
from tests.store.spans.test_writing import one, rows, store_of

TRACE = bytes(range(16))
PATH = f"{PROJECT}/spans/{TRACE.hex()}/{(1).to_bytes(8, 'big').hex()}/payload"


async def stored(house: Replica) -> None:
    """A span that takes several pieces to send."""
    text = "so it went on " * (3 * PIECE_BYTES // 14)
    project = await house.minted("query")
    assert project.plaintext
    await store_of(house.database).write(
        rows(one(1, trace_id=TRACE, attributes={"gen_ai.prompt": text}), project=1)
    )


class SlowReader:
    """Asks for the payload and takes its head and first piece, then nothing more until it is told to."""

    def __init__(self, house: Replica, token: str) -> None:
        self._house, self._token = house, token
        self.holds, self.go_on, self.ended = trio.Event(), trio.Event(), trio.Event()
        self.status = 0
        self.received = 0

    async def run(self) -> None:
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {self._token}".encode())],
            "client": ("192.0.2.1", 1),
            "server": ("localhost", 80),
            "extensions": {},
        }
        asked = False

        async def receive() -> Any:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await trio.sleep_forever()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                return
            self.received += len(message.get("body", b""))
            if self.received:
                self.holds.set()
                await self.go_on.wait()

        await self._house.app(scope, receive, send)
        self.ended.set()


async def test_more_payloads_at_once_than_there_are_lanes_are_told_to_come_back(store: Database) -> None:
    async with replica(store) as house, trio.open_nursery() as nursery:
        await stored(house)
        readers = [SlowReader(house, await house.token("query")) for _ in range(MOST_AT_ONCE)]
        for reader in readers:
            nursery.start_soon(reader.run)
        with trio.fail_after(60):
            for reader in readers:
                await reader.holds.wait()
        late = house.browser(key=await house.token("query"))
        told = await late.get(PATH)
        assert told.refused == (429, "RATE_LIMITED", "other payloads are on their way out; ask again")
        assert told.headers["retry-after"] == "2"
        for reader in readers:
            reader.go_on.set()
        with trio.fail_after(60):
            for reader in readers:
                await reader.ended.wait()
        assert [reader.status for reader in readers] == [200] * MOST_AT_ONCE
        last = SlowReader(house, await house.token("query"))
        last.go_on.set()
        with trio.fail_after(60):
            await last.run()
        assert (last.status, spans._lanes.borrowed_tokens) == (200, 0)


async def test_who_reads_slowly_is_left_and_its_lane_is_free_again(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "STREAM_TIMEOUT_S", 0.5)
    async with replica(store) as house, trio.open_nursery() as nursery:
        await stored(house)
        reader = SlowReader(house, await house.token("query"))
        nursery.start_soon(reader.run)
        with trio.fail_after(60):
            await reader.holds.wait()
            assert spans._lanes.borrowed_tokens == 1
            await reader.ended.wait()
        assert 0 < reader.received < 3 * PIECE_BYTES
        assert spans._lanes.borrowed_tokens == 0
        reader.go_on.set()


def test_a_payload_has_two_minutes() -> None:
    assert spans.STREAM_TIMEOUT_S == 120.0
