"""`POST /v1/traces`: OTLP over HTTP, straight on ASGI because it is the one hot route; `/v1/logs` and
`/v1/metrics` by the same way where they are accepted.

Order of checks (contract §2): transport 404, method 405, two credentials 400, 401, 403, pressure 503, media
type 415, size 413, room 503, decode 400, per-span checks, offer. Success is answered in the request's own
encoding.

Cancellation: a client that hangs up cancels this handler. Between `Intake.take` and the answer nothing is
awaited but the answer itself, so an accepted batch stays accepted whether or not the client hears of it.
"""

from __future__ import annotations

import io
from typing import Final

import attrs
import trio

from actors.keys import Keys
from actors.spool.memory import Reservation
from protocol import rpc
from protocol.inflate import ENCODINGS
from protocol.otlp.admission import Form
from protocol.otlp.screen import Screening
from protocol.refusals import (
    BODY_TIMEOUT,
    INGEST_DISABLED,
    INGEST_NO_PROJECT,
    INGEST_SCOPE,
    METHOD_NOT_ALLOWED,
    NO_TENANT,
    PAYLOAD_TOO_LARGE,
    TWO_AUTHORIZATIONS,
    UNSUPPORTED_MEDIA_TYPE,
    Refusal,
)
from svc.front.auth.bearer import authorize
from svc.front.auth.callers import Callers
from svc.front.otlp.intake import Held, Intake, Large
from svc.front.otlp.signals import Signal, success
from svc.front.server.door import AsgiScope, Body, Receive, Send, has_two_authorizations, refuse, respond

_FORMS: Final[dict[str, Form]] = {"application/x-protobuf": "protobuf", "application/json": "json"}

#: Longest silence while a body arrives, and longest time for all of it.
BODY_TIMEOUT_S: Final = 60.0


@attrs.frozen
class OtlpHttp:
    """The handler of the route."""

    intake: Intake
    keys: Keys
    enabled: bool
    callers: Callers
    signal: Signal = "traces"

    def by_path(self) -> dict[str, OtlpHttp]:
        """A handler for each signal that is accepted, by its path."""
        signals: tuple[Signal, ...] = ("traces", *(self.intake.others if self.enabled else ()))
        return {f"/v1/{signal}": attrs.evolve(self, signal=signal) for signal in signals}

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = Body(receive)
        answer = await self._answer(scope, body)
        if isinstance(answer, Refusal):
            # A client that never ends its body loses its connection; any other can go on using it.
            drained = await body.drain()
            allow = [(b"allow", b"POST")] if answer.status == 405 else []
            content = (PROTOBUF.encode(), status_of(answer)) if _wants_status(_headers(scope)) else None
            await refuse(send, answer, close=not drained, headers=allow, content=content)
            return
        screening, form = answer
        content_type = b"application/json" if form == "json" else b"application/x-protobuf"
        await respond(send, 200, content_type, success(screening, form, self.signal))

    async def _answer(self, scope: AsgiScope, body: Body) -> tuple[Screening, Form] | Refusal:
        headers = _headers(scope)
        if not self.enabled:
            return INGEST_DISABLED
        if scope["method"] != "POST":
            return METHOD_NOT_ALLOWED
        if has_two_authorizations(scope):
            return self.intake.tally.refuse(TWO_AUTHORIZATIONS)
        came_from = self.callers.place((scope.get("client") or (None,))[0], headers)
        authorization = headers.get("authorization")
        grant = await authorize(self.keys, authorization, ("write", "admin"), INGEST_SCOPE, place=came_from)
        if grant is NO_TENANT and await self.callers.without_project(headers):
            grant = INGEST_NO_PROJECT
        if isinstance(grant, Refusal):
            return self.intake.tally.refuse(grant)
        pressure = self.intake.pressure()
        if pressure is not None:
            return pressure
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = headers.get("content-encoding", "").strip().lower() or "identity"
        form = _FORMS.get(media_type)
        if form is None or encoding not in ENCODINGS:
            return self.intake.tally.refuse(_unsupported(media_type, encoding, form is None))
        with self.intake.spool.reservation() as room:
            encoded = await self._read(headers, body, room)
            if isinstance(encoded, Refusal):
                return self.intake.tally.refuse(encoded)
            taking = self.intake.take(grant, encoded, encoding, form, room, self.signal)
            if isinstance(taking, Held | Large):
                taking = await self.intake.settled(taking)
        return taking if isinstance(taking, Refusal) else (taking.screening, form)

    async def _read(self, headers: dict[str, str], body: Body, room: Reservation) -> bytes | Refusal:
        """The whole body, as sent. Never holds more than the limit, nor more than there is room for."""
        length = headers.get("content-length", "")
        declared = int(length) if length.isdecimal() else 0
        if declared > self.intake.max_body_bytes:
            return PAYLOAD_TOO_LARGE
        if declared and (refusal := self.intake.hold(room, declared)):
            return refusal
        # BytesIO grows in place and hands its buffer over uncopied, where joining a list would need it twice.
        buffer = io.BytesIO()
        size = 0
        with trio.move_on_after(BODY_TIMEOUT_S):
            while (chunk := await body.chunk()) is not None:
                size += len(chunk)
                if size > self.intake.max_body_bytes:
                    return PAYLOAD_TOO_LARGE
                if size > declared and (refusal := self.intake.hold(room, size)):
                    return refusal
                buffer.write(chunk)
            return buffer.getvalue()
        return BODY_TIMEOUT


def _headers(scope: AsgiScope) -> dict[str, str]:
    return {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}


#: The codes of `google.rpc.Status` that OTLP's retry rules are written in.
_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 12, 405: 12, 408: 4, 413: 8, 415: 3, 429: 8, 503: 14}
#: The codes of other statuses: `INVALID_ARGUMENT` below 500, where the request is at fault, else `INTERNAL`.
_CLIENT_FAULT: Final = 3
_SERVER_FAULT: Final = 13
PROTOBUF: Final = "application/x-protobuf"


def _wants_status(headers: dict[str, str]) -> bool:
    """Whether a client asks for errors in protobuf and would not rather have JSON."""
    accepted = headers.get("accept", "").lower()
    return PROTOBUF in accepted and "json" not in accepted


def status_of(refusal: Refusal) -> bytes:
    """The refusal as `google.rpc.Status`, as OTLP/HTTP has it."""
    wait_s = refusal.retry_after_s
    details = [] if wait_s is None else [rpc.as_any(rpc.retry_after(wait_s))]
    code = _CODES.get(refusal.status, _CLIENT_FAULT if refusal.status < 500 else _SERVER_FAULT)
    return bytes(rpc.Status(code=code, message=refusal.message, details=details))


def _unsupported(media_type: str, encoding: str, is_type: bool) -> Refusal:
    if is_type:
        return UNSUPPORTED_MEDIA_TYPE.saying(
            f"content type {media_type[:100]!r} is not one of {', '.join(sorted(_FORMS))}"
        )
    return UNSUPPORTED_MEDIA_TYPE.saying(
        f"content encoding {encoding[:100]!r} is not one of {', '.join(sorted(ENCODINGS))}"
    )
