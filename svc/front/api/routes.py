"""The machinery behind the table of routes: what is sent, how it is answered, and the envelope.

Owns the order of every REST request: the checks of `svc.front.auth.calls`, then body and query 400, then the
handler.

Secrets: bodies hold passwords and are never logged; a body that cannot be read is described by its fault.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, cast

import attrs
import msgspec
from quart import Response, request
from quart_trio import QuartTrio

from protocol.refusals import BAD_REQUEST, Refusal, Refused
from protocol.rest.query import read_body
from protocol.validation import validation_text
from svc.domain.accounts.access import Permission
from svc.front.auth.callers import KeyHolder, Nobody, Person, SingleUser
from svc.front.auth.calls import Call, Context, Rule, admit, lowered
from svc.front.envelope import refusal_response, success_response

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

#: Path prefixes of the contract, `{o}` and `{p}`.
ORG: Final = "/api/orgs/{orgSlug}"
PROJECT: Final = ORG + "/projects/{projectSlug}"

#: What bodies of questions and settings may weigh; ingest has its own limit.
MAX_BODY_BYTES: Final = 1024 * 1024


@attrs.frozen
class ApiReply:
    """An answer that is more than its data: another status, cookies, or a redirect (which has no data).

    The data may be a refusal, when it has to go with a cookie.
    """

    data: Any = None
    status: int | None = None
    cookies: tuple[str, ...] = ()
    location: str | None = None


@attrs.frozen
class ApiStream:
    """An answer that is sent piece by piece: JSON bytes, its envelope included, within so many seconds."""

    pieces: AsyncIterator[bytes]
    timeout_s: float


Handler = Callable[[Call[Any]], Awaitable[Any]]


@attrs.frozen
class Route:
    """One row of the table.

    `keys` is what a bearer key is told where no key may call, whatever its scope. `body_bytes` bounds its
    body.
    """

    method: Method
    path: str
    permission: Permission
    handler: Handler
    data: Any
    body: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    status: int = 200
    refusals: tuple[Refusal, ...] = ()
    keys: Refusal | None = None
    body_bytes: int = MAX_BODY_BYTES

    @property
    def name(self) -> str:
        """A name of its own, for the router and the documentation."""
        words = re.findall(r"[A-Za-z0-9]+", self.path)
        return "_".join([self.method.lower(), *words])

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET"

    @property
    def rule(self) -> Rule:
        """What it asks of its caller."""
        return Rule(self.permission, self.reads, self.keys)

    @property
    def placeholders(self) -> list[str]:
        """The names in the path, in order."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def summary(self) -> str:
        """What it does, for users: the first line of the handler's docstring."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]

    def statuses(self) -> list[int]:
        """Every status that it may answer."""
        # 403: permissions and the origin rule, which in single-user mode holds for reading too.
        statuses = {self.status, 403, 503, *(refusal.status for refusal in self.refusals)}
        if self.permission != "PUBLIC":
            statuses |= {401}
        if self.placeholders:
            statuses |= {400, 404}
        if self.body is not None or self.query is not None:
            statuses |= {400}
        if self.body is not None:
            statuses |= {413}
        return sorted(statuses)


@attrs.frozen
class Api:
    """Serves the table."""

    means: Context
    routes: tuple[Route, ...]

    def body_bytes(self, method: str, path: str) -> int:
        """How large the body of a request may be, by its method and path."""
        for route in self.routes:
            if route.body_bytes != MAX_BODY_BYTES and route.method == method and _fits(route.path, path):
                return route.body_bytes
        return MAX_BODY_BYTES

    def register(self, app: QuartTrio) -> None:
        """Put every route into the application."""
        for route in self.routes:
            app.add_url_rule(
                re.sub(r"{(\w+)}", r"<\1>", route.path),
                route.name,
                self._view(route),
                methods=[route.method],
            )

    def _view(self, route: Route) -> Callable[..., Awaitable[Response]]:
        async def view(**path: str) -> Response:
            answer = await self._answer(route, path)
            if isinstance(answer, Refusal):
                return refusal_response(answer)
            if isinstance(answer, ApiStream):
                return _streamed(answer)
            reply = answer if isinstance(answer, ApiReply) else ApiReply(answer)
            if isinstance(reply.data, Refusal):
                response = refusal_response(reply.data)
            elif reply.location is not None:
                response = Response(b"", status=reply.status or 303, headers={"location": reply.location})
            else:
                response = success_response(reply.data, reply.status or route.status)
            for cookie in reply.cookies:
                response.headers.add("set-cookie", cookie)
            # Answers are for one caller and one moment.
            response.headers["cache-control"] = "no-store"
            return response

        return view

    async def _answer(self, route: Route, path: dict[str, str]) -> Any:
        headers = lowered(request.headers)
        client = self.means.surroundings.client(request.remote_addr, request.scheme, headers)
        call: Call[Any] | Refusal = await admit(self.means, route.rule, client, headers, path)
        if isinstance(call, Refusal):
            return call
        if route.body is not None:
            raw = cast(bytes, await request.get_data(cache=False))
            call = attrs.evolve(call, body=read_body(raw, route.body))
        if route.query is not None:
            call = attrs.evolve(call, query=_read_query(route.query, request.args.to_dict()))
        match call.caller:
            case Nobody():
                # They are limited by their attempts.
                return await route.handler(call)
            case KeyHolder(grant):
                slot = self.means.concurrency.slot(grant.key_id)
            case Person() | SingleUser() as caller:
                slot = self.means.concurrency.slot(f"person:{caller.label}", "this person")
        async with slot:
            return await route.handler(call)


def _streamed(answer: ApiStream) -> Response:
    response = Response(answer.pieces, content_type="application/json")
    response.timeout = answer.timeout_s
    response.headers["cache-control"] = "no-store"
    return response


def _fits(pattern: str, path: str) -> bool:
    names, segments = pattern.split("/"), path.split("/")
    return len(names) == len(segments) and all(
        name.startswith("{") or name == segment for name, segment in zip(names, segments, strict=True)
    )


def _read_query(type_: type[msgspec.Struct], fields: dict[str, str]) -> msgspec.Struct:
    """The query parameters as their class. Raises `Refused`; parameters that nobody knows are refused too."""
    try:
        return msgspec.convert(fields, type_, strict=False)
    except msgspec.ValidationError as error:
        text = validation_text(error, type_)
        raise Refused(BAD_REQUEST.saying(f"the query cannot be read: {text}"[:500])) from None
