"""`POST /mcp`: MCP over Streamable HTTP (2025-06-18 and 2026-07-28), JSON answers only, straight on ASGI.

Order of checks: 404 when authentication is disabled, `Origin` 403, method 405, two credentials 400, 401 and
403 by the key, body, protocol version 400. No session id is issued and one that is sent is ignored. Bearer
only; cookies are never looked at. JSON-RPC errors travel on HTTP 200, those of 2026-07-28
(`svc.front.mcp.stateless`) on their own.

Secrets: neither arguments nor answers are logged; they hold payloads.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from actors.keys import Grant, Keys
from protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    OVER_BUDGET,
    PROTOCOL_VERSION,
    Fault,
    Message,
    Notification,
    Request,
    failure,
    read_messages,
    success,
)
from protocol.refusals import (
    BATCH_FULL,
    BATCH_TOO_SLOW,
    BODY_TIMEOUT,
    MCP_SCOPE,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    PAYLOAD_TOO_LARGE,
    TWO_AUTHORIZATIONS,
    Refusal,
)
from protocol.tokens import MCP_PURPOSE, OAUTH_PURPOSE, Scope
from svc.front.auth.bearer import authorize
from svc.front.auth.client import Client, Surroundings, public_address
from svc.front.concurrency import ConcurrencyLimiter
from svc.front.mcp.methods import RUN_PURPOSES, Methods
from svc.front.mcp.reads import Reads
from svc.front.mcp.stateless import VERSION, Stateless, initializes, misfit, speaks, status_of
from svc.front.server.door import AsgiScope, Body, Receive, Send, has_two_authorizations, refuse, respond
from svc.store.reads.payloads import ROOM_BYTES, Opening

log = logging.getLogger(__name__)

#: What may stand in `MCP-Protocol-Version` of those with a handshake. An unknown one is 400, and its clients
#: fall back to `initialize`.
KNOWN_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", PROTOCOL_VERSION, "2025-11-25"})
#: Where applications learn how to be let in (`svc.front.oauth`).
RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource/mcp"
MAX_BODY_BYTES: Final = 1024 * 1024
BODY_TIMEOUT_S: Final = 60.0

MIB: Final = 1024 * 1024
#: What the answers of a batch may weigh together (contract §5), and how long they may take.
BATCH_BYTES: Final = 16 * MIB
BATCH_TIMEOUT_S: Final = 60.0
#: A member of a batch is not begun with less room.
LEAST_ROOM_BYTES: Final = MIB // 2

_SCOPES: Final[tuple[Scope, ...]] = ("admin",)
#: Keys that are good for this door alone open it, and those of runs open a part of it.
_PURPOSES: Final = RUN_PURPOSES | {MCP_PURPOSE, OAUTH_PURPOSE}
_JSON: Final = b"application/json"
_CHALLENGE: Final = b'Bearer realm="svc-mcp"'


@attrs.frozen
class _Reply:
    """An answer on its way out; an empty body goes without a content type."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


@attrs.frozen
class Mcp:
    """The handler of the route. `surroundings` knows which pages may call."""

    keys: Keys
    reads: Reads
    concurrency: ConcurrencyLimiter
    enabled: bool = True
    surroundings: Surroundings = attrs.field(factory=Surroundings)
    #: Where people land, blank for wherever they came; whether applications may connect by OAuth.
    landing: str = ""
    oauth: bool = False

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = Body(receive)
        answer = await self._answer(scope, body)
        # A client that never ends its body loses its connection; any other can go on using it.
        body_ended = await body.drain()
        if isinstance(answer, Refusal) and answer.status in (404, 405):
            allow = [(b"allow", b"POST")] if answer.status == 405 else []
            await refuse(send, answer, close=not body_ended, headers=allow)
            return
        if isinstance(answer, Refusal):
            # Too large, too slow, or no time to look at the key: whoever asked reads JSON-RPC.
            wait = () if answer.retry_after_s is None else ((b"retry-after", b"%d" % answer.retry_after_s),)
            answer = _error(answer.status, answer.message, *wait)
        if not answer.body:
            await _respond_empty(send, answer.status)
            return
        close = [] if body_ended else [(b"connection", b"close")]
        await respond(send, answer.status, _JSON, answer.body, [*answer.headers, *close])

    async def _answer(self, scope: AsgiScope, body: Body) -> _Reply | Refusal:
        headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}
        if not self.enabled:
            return NOT_FOUND
        peer = (scope.get("client") or (None,))[0]
        client = self.surroundings.client(peer, scope.get("scheme", "http"), headers)
        if not self.surroundings.may_hold_key(headers, client):
            return _error(403, "this Origin may not use the endpoint")
        if scope["method"] != "POST":
            return METHOD_NOT_ALLOWED
        if has_two_authorizations(scope):
            return TWO_AUTHORIZATIONS
        authorization = headers.get("authorization")
        grant = await authorize(
            self.keys, authorization, _SCOPES, MCP_SCOPE, purposes=_PURPOSES, place=client.place
        )
        if isinstance(grant, Refusal):
            return self._credential(grant, headers, client)
        raw = await _read(headers, body)
        if isinstance(raw, Refusal):
            return raw
        messages = read_messages(raw)
        if self.reads.extensions and speaks(headers, messages, KNOWN_VERSIONS):
            sent = [name.decode("latin1").lower() for name, _value in scope["headers"]]
            return await self._stateless(grant, messages, headers, sent)
        version = headers.get("mcp-protocol-version")
        if version is not None and version not in KNOWN_VERSIONS and not initializes(messages):
            return _error(
                400,
                f"unsupported MCP-Protocol-Version {version[:40]!r}; this server speaks {PROTOCOL_VERSION}",
            )
        if isinstance(messages, list):
            answers = await self._batch(grant, messages)
            return _Reply(200, b"[" + b",".join(answers) + b"]") if answers else _Reply(204)
        answer = await self._one(grant, messages, ROOM_BYTES, Opening())
        return _Reply(204) if answer is None else _Reply(200, answer)

    async def _stateless(
        self, grant: Grant, messages: Message | list[Message], headers: Mapping[str, str], sent: Sequence[str]
    ) -> _Reply:
        """The answer to a body of 2026-07-28, which is one message."""
        match messages:
            case Request():
                misfitting = misfit(messages, headers, sent)
                methods = Stateless(self._methods)
                result = misfitting or await _guarded(
                    methods.answer(grant, messages, ROOM_BYTES, Opening()), messages
                )
                if not isinstance(result, Fault):
                    return _Reply(200, success(messages.id, result))
                fault = attrs.evolve(result, id=messages.id)
            case Notification():
                return _Reply(202)
            case Fault():
                fault = messages
            case list():
                fault = Fault(INVALID_REQUEST, f"{VERSION} takes one message at a time, not an array")
        return _Reply(status_of(fault), failure(fault, null_id=False))

    @property
    def _methods(self) -> Methods:
        return Methods(self.reads, self.concurrency)

    def _credential(self, refusal: Refusal, headers: Mapping[str, str], client: Client) -> _Reply | Refusal:
        match refusal.status:
            case 401:
                challenge = _CHALLENGE
                if self.oauth:
                    address = public_address(self.landing, self.surroundings.base_path, headers, client)
                    where = f', resource_metadata="{address}{RESOURCE_METADATA}"'
                    challenge += where.encode("latin1")
                return _error(401, "unauthorized", (b"www-authenticate", challenge))
            case 403:
                return _error(403, refusal.message)
            case _:
                return refusal

    async def _batch(self, grant: Grant, messages: list[Message]) -> list[bytes]:
        """The responses to the messages of a batch, one after the other, within one room and one time."""
        answers: list[bytes] = []
        room_left, opening = BATCH_BYTES, Opening()
        deadline = trio.current_time() + BATCH_TIMEOUT_S
        for message in messages:
            answer: bytes | None = None
            if room_left < LEAST_ROOM_BYTES:
                answer = _over(message, BATCH_FULL.format(most_mib=BATCH_BYTES // MIB))
            else:
                with trio.move_on_at(deadline) as time_left:
                    answer = await self._one(grant, message, min(ROOM_BYTES, room_left), opening)
                if time_left.cancelled_caught:
                    answer = _over(message, BATCH_TOO_SLOW.format(seconds=round(BATCH_TIMEOUT_S)))
            if answer is not None:
                answers.append(answer)
                room_left -= len(answer)
        return answers

    async def _one(self, grant: Grant, message: Message, room_bytes: int, opening: Opening) -> bytes | None:
        """The response to one message, at most about `room_bytes` long; None when it wants none."""
        match message:
            case Notification():
                return None
            case Fault():
                return failure(message)
            case Request():
                result = await _guarded(self._methods.answer(grant, message, room_bytes, opening), message)
                if isinstance(result, Fault):
                    return failure(attrs.evolve(result, id=message.id))
                return success(message.id, result)


async def _guarded(answering: Awaitable[Any], request: Request) -> Any:
    """What a method answers; a bug is logged and told as no more than one."""
    try:
        return await answering
    except Exception:
        log.exception("an MCP request failed: %s", request.method[:60])
        return Fault(INTERNAL_ERROR, "something went wrong on our side; the log names it")


async def _read(headers: dict[str, str], body: Body) -> bytes | Refusal:
    """The whole body, at most `MAX_BODY_BYTES`."""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        return PAYLOAD_TOO_LARGE
    chunks: list[bytes] = []
    size = 0
    with trio.move_on_after(BODY_TIMEOUT_S):
        while (chunk := await body.chunk()) is not None:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                return PAYLOAD_TOO_LARGE
            chunks.append(chunk)
        return b"".join(chunks)
    return BODY_TIMEOUT


def _error(status: int, message: str, *headers: tuple[bytes, bytes]) -> _Reply:
    return _Reply(status, failure(Fault(INVALID_REQUEST, message)), headers)


async def _respond_empty(send: Send, status: int) -> None:
    headers = [] if status == 204 else [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _over(message: Message, text: str) -> bytes | None:
    """What a member of a batch is told that has no room or no time left."""
    return failure(Fault(OVER_BUDGET, text, message.id)) if isinstance(message, Request) else None
