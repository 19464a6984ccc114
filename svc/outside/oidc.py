"""An external OpenID Connect provider: where to send a browser, and who came back.

Owns the conversation with the provider (OpenID Connect Core 1.0, authorization code flow, with PKCE after
RFC 7636): its metadata and keys, remembered for a while; the exchange of a code; the checks of an ID token.
It does not know what an account is. Signatures and claims are checked by joserfc.

Secrets: the client secret, codes, verifiers and tokens go to the provider alone; no error quotes one.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import attrs
import msgspec
import trio
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from protocol.sign_on import Attempt, Identity, SsoFailed
from protocol.storage import Outage
from svc.outside.http import HttpAnswer, HttpClient, Unreached

#: How long the provider's metadata and keys are believed.
BELIEVED_S: Final = 600.0
#: How far the provider's clock and ours may be apart.
LEEWAY_S: Final = 60
#: Asymmetric only: with a shared secret whoever holds the secret could sign in as anybody.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
MAX_ANSWER_BYTES: Final = 1024 * 1024

Ask = Callable[..., Awaitable[HttpAnswer]]


@attrs.frozen
class _Metadata:
    issuer: str
    authorization: str
    token: str
    userinfo: str | None
    keys_uri: str
    posts_secret: bool


@attrs.define(eq=False)
class IdentityProvider:
    """One provider. `now` is the wall clock, `ask` how it is spoken to."""

    issuer_url: str
    client_id: str
    client_secret: str = attrs.field(repr=False)
    redirect_uri: str
    now: Callable[[], datetime]
    ask: Ask = HttpClient(answer_bytes=MAX_ANSWER_BYTES).ask
    _metadata: tuple[_Metadata, float] | None = None
    _keys: tuple[KeySet, float] | None = None

    async def authorization_url(self, attempt: Attempt) -> str:
        """Where to send the browser. Raises `Outage`, and `SsoFailed` for a provider that is another."""
        metadata = await self._fresh_metadata()
        challenge = urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": "openid email",
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if urlsplit(metadata.authorization).query else "?"
        return metadata.authorization + separator + urlencode(query)

    async def identity(self, attempt: Attempt, code: str) -> Identity:
        """Who came back with a code. Raises `Outage` and `SsoFailed`."""
        metadata = await self._fresh_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        answer = await self._exchange(metadata, form)
        token, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(token, str):
            raise SsoFailed("the identity provider sent no ID token")
        claims = await self._checked(metadata, attempt, token)
        if claims.get("email") is None and metadata.userinfo is not None and isinstance(access, str):
            userinfo = await self._request(
                "GET", metadata.userinfo, None, {"authorization": f"Bearer {access}"}
            )
            # It speaks of the same person, or it does not count (OpenID Connect Core §5.3.2).
            if userinfo.get("sub") == claims["sub"]:
                claims = {
                    **claims,
                    "email": userinfo.get("email"),
                    "email_verified": userinfo.get("email_verified"),
                }
        email = claims.get("email")
        return Identity(
            metadata.issuer,
            claims["sub"],
            email if isinstance(email, str) else None,
            claims.get("email_verified") in (True, "true"),
        )

    async def _fresh_metadata(self) -> _Metadata:
        if self._metadata is not None and self._metadata[1] > trio.current_time():
            return self._metadata[0]
        document = await self._request(
            "GET", self.issuer_url.rstrip("/") + "/.well-known/openid-configuration"
        )
        # The issuer must be the one that was asked (OpenID Connect Discovery §4.3).
        if str(document.get("issuer", "")).rstrip("/") != self.issuer_url.rstrip("/"):
            raise SsoFailed("the identity provider names another issuer than SSO_ISSUER_URL")
        methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        metadata = _Metadata(
            document["issuer"],
            self._endpoint(document, "authorization_endpoint"),
            self._endpoint(document, "token_endpoint"),
            self._endpoint(document, "userinfo_endpoint") if document.get("userinfo_endpoint") else None,
            self._endpoint(document, "jwks_uri"),
            "client_secret_basic" not in methods and "client_secret_post" in methods,
        )
        self._metadata = (metadata, trio.current_time() + BELIEVED_S)
        return metadata

    def _endpoint(self, document: dict[str, Any], name: str) -> str:
        url = document.get(name)
        if not isinstance(url, str) or urlsplit(url).scheme not in (
            "https",
            urlsplit(self.issuer_url).scheme,
        ):
            raise SsoFailed(f"the identity provider names no usable {name}")
        return url

    async def _exchange(self, metadata: _Metadata, form: dict[str, str]) -> dict[str, Any]:
        if metadata.posts_secret:
            form = {**form, "client_id": self.client_id, "client_secret": self.client_secret}
            return await self._request("POST", metadata.token, form)
        # RFC 6749 §2.3.1: both are form-encoded before they are joined.
        pair = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}"
        headers = {"authorization": "Basic " + b64encode(pair.encode()).decode()}
        return await self._request("POST", metadata.token, form, headers)

    async def _checked(self, metadata: _Metadata, attempt: Attempt, token: str) -> dict[str, Any]:
        """The claims of an ID token that passes every check of OpenID Connect Core §3.1.3.7."""
        for fresh in (False, True):
            try:
                claims = jwt.decode(token, await self._key_set(metadata, fresh), algorithms=ALGORITHMS).claims
                break
            except (JoseError, ValueError):
                # The provider may have changed its keys since we asked; ask once more.
                if fresh:
                    raise SsoFailed("the ID token is not signed by the identity provider") from None
        registry = jwt.JWTClaimsRegistry(
            now=int(self.now().timestamp()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": metadata.issuer},
            sub={"essential": True},
            aud={"essential": True, "value": self.client_id},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True},
        )
        try:
            registry.validate(claims)
        except JoseError as error:
            raise SsoFailed(f"the ID token does not hold ({error.error})") from None
        audience = claims["aud"]
        several = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if several else self.client_id) != self.client_id:
            raise SsoFailed("the ID token was made for another client")
        if not isinstance(claims["sub"], str) or not claims["sub"] or not isinstance(claims["nonce"], str):
            raise SsoFailed("the ID token names nobody")
        if not compare_digest(claims["nonce"].encode(), attempt.nonce.encode()):
            raise SsoFailed("the ID token answers another sign-in")
        return dict(claims)

    async def _key_set(self, metadata: _Metadata, fresh: bool) -> KeySet:
        if not fresh and self._keys is not None and self._keys[1] > trio.current_time():
            return self._keys[0]
        document: Any = await self._request("GET", metadata.keys_uri)
        keys = KeySet.import_key_set(document)
        self._keys = (keys, trio.current_time() + BELIEVED_S)
        return keys

    async def _request(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One JSON answer. Raises `Outage` when there is none, `SsoFailed` when it is a refusal."""
        all_headers = {"accept": "application/json", **(headers or {})}
        body = b""
        if form is not None:
            all_headers["content-type"], body = "application/x-www-form-urlencoded", urlencode(form).encode()
        try:
            answer = await self.ask(method, url, headers=all_headers, body=body)
        except Unreached as unreached:
            raise Outage(f"the identity provider: {unreached}") from None
        if answer.status >= 500:
            raise Outage(f"the identity provider answers {answer.status}")
        try:
            document = msgspec.json.decode(answer.body)
        except ValueError:
            document = None
        if answer.status != 200:
            code = document.get("error") if isinstance(document, dict) else None
            cause = code if code in _OAUTH_ERRORS else answer.status
            raise SsoFailed(f"the identity provider refuses ({cause})")
        if not isinstance(document, dict):
            raise SsoFailed("the identity provider's answer cannot be read")
        return document


#: RFC 6749 §5.2; anything else that a provider says is not repeated.
_OAUTH_ERRORS: Final = frozenset(
    {"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
     "invalid_scope"}
)  # fmt: skip
