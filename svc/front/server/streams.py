"""The streams of one HTTP/2 connection: what is begun on it is bounded, and what is reset ends.

Owns the class that stands in for Hypercorn's `H2Protocol`; `svc.front.server.connection` puts it there.
Hypercorn 0.18 starts a handler for each stream and lets it run on when the client resets it, and HTTP/2
counts only open streams: 20,000 requests, each reset at once, took 2 s to send and 12 to 49 s to get over
(measured 2026-11). Here a reset cancels the handler, handlers count until they have ended, and a connection
that resets more than it lets be answered is closed. What comes of a body at once is handed on at once, more
of it may be on its way than Hypercorn lets, and an answer that is whole goes in one piece: a request of 100
spans, in 25 frames, took the main process over three times what it takes over HTTP/1.1 (measured 2026-11).
Never looks into a request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import h2.errors
import h2.events
import h2.exceptions
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, InformationalResponse, Request, Response, Trailers
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.task_group import _handle
from priority.priority import DeadlockError

from svc.front.server.body_frames import BodyFrames
from svc.front.server.frame_steps import FREE_RESETS, FrameSteps, FrameTooLong, lift_stream_limit
from svc.front.server.known_heads import KnownHeads
from svc.front.server.unread_bodies import UnreadBody

log = logging.getLogger(__name__)

#: Requests at once on one connection: what the settings frame promises.
MOST_STREAMS: Final = 32
#: Handlers at once, those of reset streams that have not ended yet included; a stream beyond is refused in
#: words that let the client try again.
MOST_HANDLERS: Final = 48
#: What of one body, and of all on a connection, may be on its way or wait for handlers. With the 64 KB that
#: HTTP/2 begins with, a body of 400 KB waits seven times for the way there and back.
STREAM_WINDOW_BYTES: Final = 256 * 1024
CONNECTION_WINDOW_BYTES: Final = 512 * 1024

_FIRST_WINDOW_BYTES: Final = 65_535
_CONTINUE: Final = ((b":status", b"100"),)


class Streams(H2Protocol):
    """Hypercorn's HTTP/2, bounded."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Those that have not ended.
        self._handlers: dict[int, _OneHandler] = {}
        self._resets = self._answered = 0
        self._group = self.task_group
        self._steps = FrameSteps()
        #: Heads of answers that are not sent yet, and their trailers.
        self._heads: dict[int, list[tuple[bytes, bytes]]] = {}
        self._trailers: dict[int, list[tuple[bytes, bytes]]] = {}
        self.connection.incoming_buffer = BodyFrames(server=True)
        self._known_heads = KnownHeads(self.connection)
        # In force from the beginning: it is told with all others in the first frame.
        self.connection.local_settings.initial_window_size = STREAM_WINDOW_BYTES
        self.connection.local_settings.acknowledge()

    async def initiate(
        self, headers: list[tuple[bytes, bytes]] | None = None, settings: bytes | None = None
    ) -> None:
        """The connection begins."""
        await super().initiate(headers, settings)
        lift_stream_limit(self.connection)
        self.connection.increment_flow_control_window(CONNECTION_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        await self._flush()
        if headers is None:
            # HTTP/1.1 took the preface for a request that is under way.
            await self.send(Updated(idle=True))

    async def handle(self, event: Event) -> None:
        """What has come, piece by piece."""
        if not isinstance(event, RawData) or not event.data:
            await super().handle(event)
            return
        try:
            for number, step in enumerate(self._steps.cut(memoryview(event.data))):
                if number:
                    await trio.lowlevel.checkpoint()
                if self.closed:
                    return
                await super().handle(RawData(step))  # type: ignore[arg-type]
        except FrameTooLong:
            await self._end(h2.errors.ErrorCodes.FRAME_SIZE_ERROR)
            return
        await self._flush()

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if self.closed:
                return
            if not self._is_proper(event):
                await self._end(h2.errors.ErrorCodes.PROTOCOL_ERROR)
            elif isinstance(event, h2.events.DataReceived):
                await self._hand_on(event)
            elif isinstance(event, h2.events.StreamReset):
                await self._reset(event)
            elif isinstance(event, h2.events.PriorityUpdated):
                # Of no use to whoever answers as fast as it can, and Hypercorn keeps what it was told of each
                # stream for ever, up to a thousand (RFC 9113 §5.3.2 lets it be ignored).
                continue
            elif isinstance(event, h2.events.RequestReceived):
                await self._begin(event)
            else:
                await super()._handle_events([event])

    async def _begin(self, request: h2.events.RequestReceived) -> None:
        if not self._has_room():
            self._refuse(request)
            return
        await super()._handle_events([request])
        waits = any(name == b"expect" and value.lower() == b"100-continue" for name, value in request.headers)
        if waits and request.stream_ended is None and request.stream_id in self.streams:
            # Nobody looks into a request before its body comes, so there is nothing to wait for.
            # The client may have reset it already.
            with suppress(h2.exceptions.ProtocolError):
                self.connection.send_headers(request.stream_id, _CONTINUE)
            await self._flush()

    def _is_proper(self, event: h2.events.Event) -> bool:
        """Check the head of a request, and what comes after its body; all else h2 has checked."""
        try:
            if isinstance(event, h2.events.RequestReceived):
                event.headers = list(self._known_heads.request(event.headers))
            elif isinstance(event, h2.events.TrailersReceived):
                self._known_heads.request_end(event.headers)
        except h2.exceptions.ProtocolError:
            return False
        return True

    async def _hand_on(self, piece: h2.events.DataReceived) -> None:
        """A piece of a body; `BodyFrames` has joined what came at once. What nobody reads counts as read."""
        stream, before_bytes = self.streams.get(piece.stream_id), self._waiting_bytes(piece.stream_id)
        if stream is not None:
            await stream.handle(Body(stream_id=piece.stream_id, data=piece.data))
        waiting_bytes = self._waiting_bytes(piece.stream_id) - before_bytes
        # Also of nothing: h2 then tells of what others have read, where this has used up the window.
        self.connection.acknowledge_received_data(
            piece.flow_controlled_length - waiting_bytes, piece.stream_id
        )

    def _waiting_bytes(self, stream_id: int) -> int:
        handler = self._handlers.get(stream_id)
        return handler.body.waiting_bytes if handler is not None else 0

    async def have_read(self, stream_id: int, size_bytes: int) -> None:
        """A handler has read this much of its body.

        Ordering: `send_task` tells the client. A handler that is cancelled while it sends would lose what
        others have to say to it.
        """
        self.connection.acknowledge_received_data(size_bytes, stream_id)
        if self.connection._data_to_send:
            await self.has_data.set()

    async def stream_send(self, event: StreamEvent) -> None:
        """As Hypercorn's; the head of an answer goes with what follows it at once, in one piece.

        Ordering: head, body and trailers of an answer are all sent by `send_task`, whoever is cancelled
        meanwhile. A handler that sent some of it itself could overtake the rest.
        """
        if not isinstance(event, Response | Trailers):
            # Their heads would go unchecked; nothing here sends any.
            assert not isinstance(event, InformationalResponse | Request)
            await super().stream_send(event)
            return
        if event.stream_id not in self.stream_buffers:
            # The client has reset it, or the connection has ended.
            return
        if isinstance(event, Trailers):
            self._trailers[event.stream_id] = event.headers
            await super().stream_send(EndBody(event.stream_id))
            return
        head = [(b":status", b"%d" % event.status_code), *event.headers, *self.config.response_headers("h2")]
        self._heads[event.stream_id] = head
        self.priority.unblock(event.stream_id)
        await self.has_data.set()

    async def send_task(self) -> None:
        """Send what there is, stream by stream, until the connection is closed."""
        while not self.closed:
            try:
                stream_id = next(self.priority)
            except DeadlockError:
                await self.has_data.wait()
                await self.has_data.clear()
                await self._flush()
            else:
                await self._send_data(stream_id)

    async def _send_data(self, stream_id: int) -> None:
        buffer, head = self.stream_buffers[stream_id], self._heads.pop(stream_id, None)
        try:
            window_bytes = self.connection.local_flow_control_window(stream_id)
            data = await buffer.pop(max(0, min(window_bytes, self.connection.max_outbound_frame_size)))
            # Asked once: the end of a body may come while a piece of it is sent.
            ends = buffer.complete
            trailers = self._trailers.get(stream_id)
            if head is not None:
                proper = self._known_heads.answer(head)
                self.connection.send_headers(stream_id, proper, end_stream=ends and not data and not trailers)
            if data:
                self.connection.send_data(stream_id, data, end_stream=ends and not trailers)
            elif not ends:
                self.priority.block(stream_id)
            elif head is None and not trailers:
                self.connection.end_stream(stream_id)
            if ends and trailers:
                proper = self._known_heads.answer_end(trailers)
                self.connection.send_headers(stream_id, proper, end_stream=True)
            await self._flush()
        except (KeyError, h2.exceptions.ProtocolError):
            # The stream or the connection was closed meanwhile.
            await buffer.close()
            ends = True
        if ends:
            self._trailers.pop(stream_id, None)
            del self.stream_buffers[stream_id]
            self.priority.remove_stream(stream_id)

    def _has_room(self) -> bool:
        """Whether a request may begin. In a stop none does; refused like this, it is safe to send again."""
        return len(self._handlers) < MOST_HANDLERS and not self.context.terminated.is_set()

    async def _reset(self, event: h2.events.StreamReset) -> None:
        await super()._handle_events([event])
        handler = self._handlers.get(event.stream_id or 0)
        if handler is not None:
            handler.scope.cancel()
        self._resets += 1
        if self._resets > FREE_RESETS + self._answered:
            log.warning("a connection was closed: it reset %d streams", self._resets)
            await self._end(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)

    async def _end(self, reason: h2.errors.ErrorCodes) -> None:
        """End the connection, and say why."""
        self.connection.close_connection(reason)
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

    def begin(self, stream_id: int, handler: _OneHandler, work: Callable[[], Awaitable[None]]) -> None:
        """Start a handler. It counts from here on, not from its first turn: a flood comes within one."""
        self._handlers[stream_id] = handler
        self._group.spawn(self._run, stream_id, handler, work)

    async def _run(self, stream_id: int, handler: _OneHandler, work: Callable[[], Awaitable[None]]) -> None:
        with handler.scope as scope:
            try:
                await work()
            finally:
                del self._handlers[stream_id]
                unread_bytes = handler.body.close()
                if unread_bytes:
                    self.connection.acknowledge_received_data(unread_bytes, stream_id)
                    await self.has_data.set()
        if not scope.cancel_called:
            self._answered += 1
        elif self.idle and not self.closed:
            # Hypercorn says so of streams that were answered.
            await self.send(Updated(idle=True))


class _OneHandler:
    """A handler, what it has not read of its body, and the group of tasks as its stream sees it."""

    def __init__(self, streams: Streams, stream_id: int, group: Any) -> None:
        self._streams, self._stream_id, self._group = streams, stream_id, group
        self.scope, self.body = trio.CancelScope(), UnreadBody()

    async def spawn_app(self, app: Any, config: Any, scope: Any, send: Any) -> Any:
        """As `TaskGroup.spawn_app`; the handler counts from here on."""

        async def hand_on(message: Any) -> None:
            self.body.put(message)

        async def receive() -> Any:
            # A request that was reset before its handler began has come whole, and nobody wants its answer.
            await trio.lowlevel.checkpoint_if_cancelled()
            message = await self.body.receive()
            if message.get("body"):
                await self._streams.have_read(self._stream_id, len(message["body"]))
            return message

        async def work() -> None:
            await _handle(app, config, scope, receive, send, trio.to_thread.run_sync, trio.from_thread.run)

        self._streams.begin(self._stream_id, self, work)
        return hand_on

    def spawn(self, function: Callable[..., Any], *arguments: Any) -> None:
        """As `TaskGroup.spawn`."""
        self._group.spawn(function, *arguments)
