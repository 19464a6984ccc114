"""The OAuth doors for applications: who we are, registration, tokens, revocation.

Called by the application's table where `SVC_MCP_OAUTH` is on. People are asked on a page of their own
(`svc.web.account.authorize`). Answers are as RFC 8414, RFC 9728, RFC 7591, RFC 6749 and RFC 7009 have them,
outside of the envelope. No cookie is read here, so the pages of anybody may call: applications run in
browsers too.

Secrets: codes, verifiers and tokens are never logged and never quoted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import parse_qsl
from uuid import uuid4

import attrs
import msgspec
from quart import Response, request

from actors.keys import Grant, Keys
from protocol.refusals import TWO_AUTHORIZATIONS
from protocol.storage import Eviction, Outage
from protocol.tokens import OAUTH_PURPOSE
from svc.domain.accounts.oauth import SCOPE, ClientMetadata, WrongClient, client_of
from svc.front.auth.calls import Context, lowered
from svc.front.auth.client import Client, public_address
from svc.front.envelope import json_response, opened, preflight_response
from svc.store.accounts.oauth import OAuthStore
from svc.store.accounts.oauth_ends import EndedGrant
from svc.store.accounts.oauth_tokens import ACCESS_TERM, OAuthTokens, OAuthTokenStore

_FIELDS: Final = 30
_GRANTS: Final = ("authorization_code", "refresh_token")
#: What scripts of pages may send: SDKs name the version of their protocol wherever they ask.
_ALLOWED_HEADERS: Final = "authorization, content-type, mcp-protocol-version"


@attrs.frozen
class _Failure(Exception):
    """An error as OAuth has it."""

    error: str
    description: str
    status: int = 400
    retry_after_s: int | None = None


@attrs.frozen
class OAuthDoor:
    """The handlers of the routes."""

    keys: Keys
    means: Context

    @property
    def routes(self) -> Sequence[tuple[str, str, Callable[[], Awaitable[Response]]]]:
        """Method, path and handler of each."""
        base = self.means.surroundings.base_path
        # A document of what lives under a path is also asked for at the host's root, with the path behind.
        resources = {f"/.well-known/oauth-protected-resource{tail}" for tail in ("", "/mcp", f"{base}/mcp")}
        servers = {f"/.well-known/oauth-authorization-server{tail}" for tail in ("", "/mcp", base)}
        answered = (
            *(("GET", path, self.resource) for path in sorted(resources)),
            *(("GET", path, self.server) for path in sorted(servers)),
            ("GET", "/.well-known/openid-configuration", self.server),
            ("POST", "/oauth/register", self._door(self._register)),
            ("POST", "/oauth/token", self._door(self._token)),
            ("POST", "/oauth/revoke", self._door(self._revoke)),
        )
        return (*answered, *(("OPTIONS", path, _preflight(method)) for method, path, _ in answered))

    async def resource(self) -> Response:
        """What `/mcp` is, and who lets in (RFC 9728)."""
        address = self._address()
        return _public(
            {
                "resource": f"{address}/mcp",
                "authorization_servers": [address],
                "scopes_supported": [SCOPE],
                "bearer_methods_supported": ["header"],
                "resource_name": "Traces",
            }
        )

    async def server(self) -> Response:
        """Where applications register, are let in and get tokens (RFC 8414)."""
        address = self._address()
        return _public(
            {
                "issuer": address,
                "authorization_endpoint": f"{address}/oauth/authorize",
                "token_endpoint": f"{address}/oauth/token",
                "registration_endpoint": f"{address}/oauth/register",
                "revocation_endpoint": f"{address}/oauth/revoke",
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": list(_GRANTS),
                "token_endpoint_auth_methods_supported": ["none"],
                "revocation_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "scopes_supported": [SCOPE],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": True,
            }
        )

    def _door(self, answer: Callable[[], Awaitable[Response]]) -> Callable[[], Awaitable[Response]]:
        async def door() -> Response:
            try:
                if len(request.headers.getlist("authorization")) > 1:
                    raise _Failure("invalid_request", TWO_AUTHORIZATIONS.message)
                response = await answer()
            except _Failure as failure:
                body = {"error": failure.error, "error_description": failure.description}
                response = json_response(body, failure.status)
                if failure.retry_after_s is not None:
                    response.headers["retry-after"] = str(failure.retry_after_s)
            except Outage:
                body = {"error": "temporarily_unavailable", "error_description": "try again in a moment"}
                response = json_response(body, 503)
            response.headers["cache-control"] = "no-store"
            return opened(response)

        return door

    async def _register(self) -> Response:
        wait_s = self.means.applications.register(self._client().place)
        if wait_s is not None:
            raise _Failure("slow_down", "too many registrations from your address", 429, wait_s)
        try:
            metadata = msgspec.json.decode(await _body(), type=ClientMetadata)
            application = client_of(str(uuid4()), metadata)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _Failure("invalid_client_metadata", "the metadata cannot be read") from None
        except WrongClient as error:
            error_code = "invalid_redirect_uri" if error.is_redirect else "invalid_client_metadata"
            raise _Failure(error_code, str(error)) from None
        if not await OAuthStore(self.means.database).register(application):
            raise _Failure("temporarily_unavailable", "too many applications are registered", 503, 3600)
        answer = {
            "client_id": application.id,
            "client_id_issued_at": int(self.means.now().timestamp()),
            "client_name": application.name,
            "redirect_uris": list(application.redirect_uris),
            "grant_types": list(_GRANTS),
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": SCOPE,
        }
        return json_response(answer, 201)

    async def _token(self) -> Response:
        address = self._counted()
        form = await _form()
        resource = form.get("resource", "").rstrip("/")
        match form.get("grant_type"):
            case "authorization_code":
                answer = await self._tokens.redeem(
                    _field(form, "code"),
                    client_id=_field(form, "client_id"),
                    redirect_uri=_field(form, "redirect_uri"),
                    verifier=_field(form, "code_verifier"),
                    resource=resource,
                )
            case "refresh_token":
                answer = await self._tokens.refresh(
                    _field(form, "refresh_token"), client_id=_field(form, "client_id"), resource=resource
                )
            case _:
                raise _Failure("unsupported_grant_type", f"grant_type is one of {', '.join(_GRANTS)}")
        self._evict(answer)
        if not isinstance(answer, OAuthTokens):
            raise _Failure("invalid_grant", "it is unknown, over or used, or it was made for somebody else")
        self.means.applications.succeeded(address)
        return json_response(
            {
                "access_token": answer.access,
                "token_type": "Bearer",
                "expires_in": int(ACCESS_TERM.total_seconds()),
                "refresh_token": answer.refresh,
                "scope": SCOPE,
            }
        )

    async def _revoke(self) -> Response:
        address = self._counted()
        form = await _form()
        token, client_id = _field(form, "token"), _field(form, "client_id")
        grant = await self.keys.verify(token, purposes=(OAUTH_PURPOSE,), place=address)
        if isinstance(grant, Grant):
            # A key that people made is not given back by whoever holds it.
            is_ours = grant.purpose == OAUTH_PURPOSE
            ended_grant = await self._tokens.give_back_access(grant.key_id, client_id) if is_ours else None
        else:
            ended_grant = await self._tokens.give_back(token, client_id)
        self._evict(ended_grant)
        if isinstance(ended_grant, EndedGrant):
            self.means.applications.succeeded(address)
        return json_response({})

    def _counted(self) -> str:
        """The place of whoever asks about a token, which may ask on. Raises `_Failure`."""
        address = self._client().place
        wait_s = self.means.applications.ask(address)
        if wait_s is not None:
            raise _Failure("slow_down", "too many requests from your address came to nothing", 429, wait_s)
        return address

    @property
    def _tokens(self) -> OAuthTokenStore:
        return OAuthTokenStore(self.means.database, self.means.accounts.hashers)

    def _evict(self, ended: object) -> None:
        if isinstance(ended, EndedGrant):
            for key_id in ended.key_ids:
                self.keys.evict(Eviction(key_id=key_id))

    def _address(self) -> str:
        base_path = self.means.surroundings.base_path
        return public_address(self.means.landing, base_path, lowered(request.headers), self._client())

    def _client(self) -> Client:
        headers = lowered(request.headers)
        return self.means.surroundings.client(request.remote_addr, request.scheme, headers)


def _public(document: Mapping[str, Any]) -> Response:
    """A document that any page may read: it says the same to everybody."""
    response = json_response(document)
    response.headers["cache-control"] = "no-cache"
    return opened(response)


def _preflight(method: str) -> Callable[[], Awaitable[Response]]:
    """What answers browsers before a page of another origin sends something."""

    async def preflight() -> Response:
        return preflight_response(method, _ALLOWED_HEADERS)

    return preflight


async def _body() -> bytes:
    return cast(bytes, await request.get_data(cache=False))


async def _form() -> dict[str, str]:
    """The fields of a form. Raises `_Failure`, also for one that is there twice."""
    try:
        pairs = parse_qsl((await _body()).decode(), keep_blank_values=True, max_num_fields=_FIELDS)
    except (ValueError, UnicodeDecodeError):
        raise _Failure("invalid_request", "the form cannot be read") from None
    form = dict(pairs)
    if len(form) < len(pairs):
        raise _Failure("invalid_request", "a field is there twice")
    return form


def _field(form: Mapping[str, str], name: str) -> str:
    text = form.get(name, "")
    if not text or "\x00" in text:
        raise _Failure("invalid_request", f"{name} is missing")
    return text
