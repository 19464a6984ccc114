"""The machinery behind the table of routes: who calls, what they may, what they sent, and the envelope.

Owns the order of checks of every REST request: credential 401, what keys may never do 403, the origin rule
403, organization and project 404, permission 403, body and query 400, then the handler. Every credential
check refuses before any work runs (spec).

Secrets: bodies hold passwords and are never logged; a body that cannot be read is described by its fault.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar, cast

import attrs
import msgspec
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers

from actors.keys import Keys
from protocol.refusals import (
    API_KEY_READS,
    API_KEY_SCOPE,
    API_UNAUTHORIZED,
    BAD_REQUEST,
    FORBIDDEN,
    FOREIGN_ORIGIN,
    NO_SUCH_ORG,
    NO_SUCH_PROJECT,
    Refusal,
    Refused,
)
from protocol.rest.query import read_body
from svc.config.table import Settings
from svc.domain.access import KEY_ROLE, Permission, Role, key_reaches, may
from svc.front.auth.callers import NOBODY, Caller, Callers, KeyHolder, Nobody, Person, SingleUser
from svc.front.auth.client import Client, Surroundings
from svc.front.auth.cookies import Seal
from svc.front.auth.limits import Limit
from svc.front.envelope import refusal_response, success_response
from svc.outside.oidc import IdentityProvider
from svc.store.accounts.accounts import AccountStore
from svc.store.accounts.orgs import OrgStore
from svc.store.accounts.projects import Org, Project
from svc.store.postgres.database import Database

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

#: Path prefixes of the contract, `{o}` and `{p}`.
ORG: Final = "/api/orgs/{orgSlug}"
PROJECT: Final = ORG + "/projects/{projectSlug}"

B = TypeVar("B", covariant=True)


@attrs.frozen
class Means:
    """What handlers call inwards."""

    database: Database
    settings: Settings
    now: Callable[[], datetime]
    keys: Keys
    callers: Callers
    accounts: AccountStore
    surroundings: Surroundings
    #: Tries at passwords: by client address, and by account.
    by_address: Limit
    by_account: Limit
    #: The external identity provider, if there is one; what seals its cookie; where people land after it.
    sso: IdentityProvider | None
    sso_seal: Seal
    landing: str


@attrs.frozen
class Call(Generic[B]):
    """One request that may run: who calls, for which organization and project, with what."""

    means: Means
    route: Route
    caller: Caller
    client: Client
    headers: Mapping[str, str]
    path: Mapping[str, str]
    body: B
    query: Any = None
    maybe_org: Org | None = None
    maybe_project: Project | None = None
    role: Role | None = None

    @property
    def org(self) -> Org:
        """The organization of the path."""
        assert self.maybe_org is not None, "the path names no organization"
        return self.maybe_org

    @property
    def project(self) -> Project:
        """The project of the path."""
        assert self.maybe_project is not None, "the path names no project"
        return self.maybe_project

    @property
    def person(self) -> Person:
        """The caller of a SIGNED_IN route; in single-user mode there is none and the call is refused."""
        if not isinstance(self.caller, Person):
            raise Refused(API_UNAUTHORIZED.saying("there are no accounts while authentication is disabled"))
        return self.caller


@attrs.frozen
class Reply:
    """An answer that is more than its data: another status, cookies, or a redirect (which has no data).

    The data may be a refusal, when it has to go with a cookie.
    """

    data: Any = None
    status: int | None = None
    cookies: tuple[str, ...] = ()
    location: str | None = None


Handler = Callable[[Call[Any]], Awaitable[Any]]


@attrs.frozen
class Route:
    """One row of the table. `keys` is what a bearer key is told where no key may call, whatever its scope."""

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
        found = {self.status, 403, 503, *(refusal.status for refusal in self.refusals)}
        if self.permission != "PUBLIC":
            found |= {401}
        if self.placeholders:
            found |= {400, 404}
        if self.body is not None or self.query is not None:
            found |= {400}
        if self.body is not None:
            found |= {413}
        return sorted(found)


@attrs.frozen
class Api:
    """Serves the table."""

    means: Means
    routes: tuple[Route, ...]

    def register(self, app: QuartTrio) -> None:
        """Put every route into the application."""
        for route in self.routes:
            app.add_url_rule(
                re.sub(r"{(\w+)}", r"<\1>", route.path),
                route.name,
                self._view(route),
                methods=[route.method],
                provide_automatic_options=False,
            )

    def _view(self, route: Route) -> Callable[..., Awaitable[Response]]:
        async def view(**path: str) -> Response:
            answer = await self._answer(route, path)
            if isinstance(answer, Refusal):
                return refusal_response(answer)
            reply = answer if isinstance(answer, Reply) else Reply(answer)
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
        call = await self._permitted(route, path, headers)
        if isinstance(call, Refusal):
            return call
        if route.body is not None:
            raw = cast(bytes, await request.get_data(cache=False))
            call = attrs.evolve(call, body=read_body(raw, route.body))
        if route.query is not None:
            call = attrs.evolve(call, query=_read_query(route.query, request.args.to_dict()))
        return await route.handler(call)

    async def _permitted(
        self, route: Route, path: dict[str, str], headers: Mapping[str, str]
    ) -> Call[Any] | Refusal:
        means = self.means
        client = means.surroundings.client(request.remote_addr, request.scheme, headers)
        if means.callers.disabled and (
            means.surroundings.is_foreign(headers) or not means.surroundings.names_us(headers)
        ):
            # Nothing but the origin tells the operator from a page that the operator's browser shows.
            return FOREIGN_ORIGIN
        if route.permission == "PUBLIC":
            if not route.reads and means.surroundings.is_foreign(headers):
                return FOREIGN_ORIGIN
            return Call(means, route, NOBODY, client, headers, path, None)
        caller = await means.callers.who(headers)
        if isinstance(caller, Refusal):
            return caller
        if isinstance(caller, KeyHolder):
            refusal = _refuse_key(route, caller)
            if refusal is not None:
                return refusal
        if isinstance(caller, Person) and not route.reads and not means.surroundings.is_ours(headers):
            return FOREIGN_ORIGIN
        call = Call(means, route, caller, client, headers, path, None)
        return await self._placed(call) if "orgSlug" in path else call

    async def _placed(self, call: Call[Any]) -> Call[Any] | Refusal:
        """The call with its organization and project, if the caller has the permission there."""
        permission = call.route.permission
        if permission == "PUBLIC" or permission == "SIGNED_IN":
            raise AssertionError("a route of an organization names a permission")
        account_id = call.caller.login.account_id if isinstance(call.caller, Person) else None
        found = await OrgStore(call.means.database).place(
            call.path["orgSlug"], call.path.get("projectSlug"), account_id
        )
        if found is None:
            return NO_SUCH_ORG
        match call.caller:
            case Person():
                role = found.role
            case KeyHolder(grant):
                role = KEY_ROLE if grant.project_id in found.project_ids else None
            case SingleUser():
                role = "owner"
            case Nobody():
                role = None
        if role is None:
            # To somebody who does not belong here it does not exist.
            return NO_SUCH_ORG
        if "projectSlug" in call.path:
            if found.project is None:
                return NO_SUCH_PROJECT
            if isinstance(call.caller, KeyHolder) and call.caller.grant.project_id != found.project.id:
                return NO_SUCH_PROJECT
        if not may(role, permission):
            return FORBIDDEN.saying(_NEEDS[permission])
        return attrs.evolve(call, maybe_org=found.org, maybe_project=found.project, role=role)


_NEEDS: Final = {
    "ORG_VIEW": "this needs a role in the organization",
    "ORG_MANAGE": "this needs the role member, admin or owner",
    "ORG_ADMIN": "this needs the role admin or owner",
}


def lowered(headers: Headers) -> dict[str, str]:
    """Header names in lower case; of several of a name the last counts, cookies are joined."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        name = name.lower()
        found[name] = f"{found[name]}; {value}" if name == "cookie" and name in found else value
    return found


def _refuse_key(route: Route, caller: KeyHolder) -> Refusal | None:
    """Why a key may not call a route at all, before its role is asked."""
    if route.keys is not None:
        return route.keys
    if route.permission == "SIGNED_IN":
        return API_UNAUTHORIZED
    scope = caller.grant.scope
    if key_reaches(scope, reads=route.reads, own_project="projectSlug" in route.placeholders):
        return None
    return API_KEY_SCOPE if scope == "write" else API_KEY_READS


def _read_query(type_: type[msgspec.Struct], given: dict[str, str]) -> msgspec.Struct:
    """The query parameters as their class. Raises `Refused`; parameters that nobody knows are refused too."""
    try:
        return msgspec.convert(given, type_, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(BAD_REQUEST.saying(f"the query cannot be read: {error}"[:500])) from None
