"""Who calls the REST API: a person by cookie, a key by bearer token, the operator when there is no sign-in.

Owns the order in which credentials are looked at (contract §6): the cookie session is preferred, the bearer
key is the fallback. What a caller may do is decided per route (`svc/front/api/routes.py`).

Secrets: neither cookies nor tokens are logged or shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from actors.keys import Busy, Grant, Keys
from protocol.refusals import API_UNAUTHORIZED, UNAVAILABLE, Refusal
from protocol.tokens import bearer
from svc.front.auth.client import Client, Surroundings
from svc.front.auth.cookies import Seal, session_secret
from svc.store.accounts.logins import Login, LoginStore


@attrs.frozen
class Person:
    """Somebody signed in through a cookie session."""

    login: Login

    @property
    def label(self) -> str:
        """How the audit names them."""
        return self.login.email_key


@attrs.frozen
class KeyHolder:
    """A program with a bearer key; it acts as `member` within the key's scope."""

    grant: Grant

    @property
    def label(self) -> str:
        """How the audit names it."""
        return f"key:{self.grant.key_id}"


@attrs.frozen
class SingleUser:
    """Whoever calls while authentication is disabled: the owner of everything."""

    label: str = "single-user"


@attrs.frozen
class Nobody:
    """Whoever calls a route that is open to all: their credentials were not looked at."""

    label: str = "nobody"


Caller = Person | KeyHolder | SingleUser | Nobody
SINGLE_USER: Final = SingleUser()
NOBODY: Final = Nobody()


@attrs.frozen
class Callers:
    """Tells who calls. `disabled` is single-user mode."""

    keys: Keys
    logins: LoginStore
    seal: Seal
    disabled: bool = False
    surroundings: Surroundings = attrs.field(factory=Surroundings)

    def place(self, peer: str | None, headers: Mapping[str, str]) -> str:
        """Where a request from `peer` comes from, as limits count."""
        return self.surroundings.client(peer, "", headers).place

    async def who(self, headers: Mapping[str, str], client: Client) -> Caller | Refusal:
        """The caller of a REST request, or why there is none."""
        if self.disabled:
            return SINGLE_USER
        login = await self.login(headers, secure=client.secure)
        if login is not None:
            return Person(login)
        token = bearer(headers.get("authorization"))
        match None if token is None else await self.keys.verify(token, place=client.place):
            case Grant() as grant:
                return KeyHolder(grant)
            case Busy():
                return UNAVAILABLE
            case _:
                return API_UNAUTHORIZED

    async def login(self, headers: Mapping[str, str], *, secure: bool) -> Login | None:
        """The living cookie session of a request, which came over HTTPS where `secure`.

        A cookie that is not ours costs no look-up.
        """
        secret = session_secret(self.seal, headers.get("cookie"), secure=secure)
        return None if secret is None else await self.logins.find(secret)

    async def without_project(self, headers: Mapping[str, str]) -> bool:
        """Whether a request without a bearer token still comes from somebody known, who names no project.

        It decides how a refusal is put, so a cookie of either name will do.
        """
        if "authorization" in headers:
            return False
        if self.disabled:
            return True
        for secure in (True, False):
            if await self.login(headers, secure=secure) is not None:
                return True
        return False
