"""The streams of one HTTP/2 connection: what is begun on it is bounded, and what is reset ends.

Owns the class that stands in for Hypercorn's `H2Protocol`; `svc.front.server.connection` puts it there.
Hypercorn 0.18 starts a handler for each stream and lets it run on when the client resets it, and HTTP/2
counts only open streams: 20,000 requests, each reset at once, took 2 s to send and 12 to 49 s to get over
(measured 2026-11). Here a reset cancels the handler, handlers count until they have ended, and a connection
that resets more than it lets be answered is closed. Never looks into a request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h2.errors
import h2.events
import h2.exceptions
import trio
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.task_group import _handle

log = logging.getLogger(__name__)

#: Requests at once on one connection: what the settings frame promises.
MOST_STREAMS: Final = 32
#: Handlers at once, those of reset streams that have not ended yet included; a stream beyond is refused in
#: words that let the client try again.
MOST_HANDLERS: Final = 48
#: Resets that are forgiven, beside one for each answer: clients give up now and then.
FREE_RESETS: Final = 100
#: Frames are read so many bytes at a time, so that others have their turn and a flood is noticed early: a
#: quarter of a megabyte holds 8,000 streams.
STEP_BYTES: Final = 8 * 1024


class Streams(H2Protocol):
    """Hypercorn's HTTP/2, bounded."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._handlers: dict[int, trio.CancelScope] = {}
        self._resets = self._answered = 0
        self._group = self.task_group

    async def handle(self, event: Event) -> None:
        """What has come, piece by piece."""
        if not isinstance(event, RawData) or len(event.data) <= STEP_BYTES:
            await super().handle(event)
            return
        received = memoryview(event.data)
        for start in range(0, len(received), STEP_BYTES):
            if self.closed:
                return
            await super().handle(RawData(bytes(received[start : start + STEP_BYTES])))
            await trio.lowlevel.checkpoint()

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if self.closed:
                return
            if isinstance(event, h2.events.StreamReset):
                await self._reset(event)
            elif isinstance(event, h2.events.RequestReceived) and not self._has_room():
                self._refuse(event)
            else:
                await super()._handle_events([event])
        await self._flush()

    def _has_room(self) -> bool:
        """Whether a request may begin. In a stop none does; refused like this, it is safe to send again."""
        return len(self._handlers) < MOST_HANDLERS and not self.context.terminated.is_set()

    async def _reset(self, event: h2.events.StreamReset) -> None:
        await super()._handle_events([event])
        handler = self._handlers.get(event.stream_id or 0)
        if handler is not None:
            handler.cancel()
        self._resets += 1
        if self._resets > FREE_RESETS + self._answered:
            log.warning("a connection was closed: it reset %d streams", self._resets)
            self.connection.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
            await self._flush()
            await self.send(Closed())

    def _refuse(self, event: h2.events.RequestReceived) -> None:
        try:
            self.connection.reset_stream(event.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
        except h2.exceptions.ProtocolError:
            # The client has reset it already.
            return

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        # Hypercorn hands its group of tasks to the stream, which begins its handler there and nowhere else.
        self.task_group = _OneHandler(self, request.stream_id, self._group)  # type: ignore[assignment]
        try:
            await super()._create_stream(request)
        finally:
            self.task_group = self._group

    def begin(self, stream_id: int, handler: Callable[[], Awaitable[None]]) -> None:
        """Start a handler. It counts from here on, not from its first turn: a flood comes within one."""
        self._handlers[stream_id] = scope = trio.CancelScope()
        self._group.spawn(self._run, stream_id, scope, handler)

    async def _run(
        self, stream_id: int, scope: trio.CancelScope, handler: Callable[[], Awaitable[None]]
    ) -> None:
        with scope:
            try:
                await handler()
            finally:
                self._handlers.pop(stream_id, None)
        if not scope.cancelled_caught:
            self._answered += 1


class _OneHandler:
    """The group of tasks as one stream sees it."""

    def __init__(self, streams: Streams, stream_id: int, group: Any) -> None:
        self._streams, self._stream_id, self._group = streams, stream_id, group

    async def spawn_app(self, app: Any, config: Any, scope: Any, send: Any) -> Any:
        """As `TaskGroup.spawn_app`; the handler counts from here on."""
        put, take = trio.open_memory_channel[Any](config.max_app_queue_size)

        async def handler() -> None:
            await _handle(
                app, config, scope, take.receive, send, trio.to_thread.run_sync, trio.from_thread.run
            )

        self._streams.begin(self._stream_id, handler)
        return put.send

    def spawn(self, function: Callable[..., Any], *arguments: Any) -> None:
        """As `TaskGroup.spawn`."""
        self._group.spawn(function, *arguments)
