"""The cloud's own credentials: from the environment, from a container's endpoint, from the machine's
metadata.

Asked in this order. What comes from an endpoint is kept until five minutes before its end.

Danger: these endpoints are the addresses that integrations may never reach. Only the operator's environment
names them, and nothing that a request of a run says is part of what is asked here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from svc.outside.http import HttpClient, Unreached
from svc.outside.models.sigv4 import KeyPair

_CONTAINER: Final = "http://169.254.170.2"
_METADATA: Final = "http://169.254.169.254"
_EARLY: Final = timedelta(minutes=5)
TIMEOUT_S: Final = 2.0


@attrs.define(eq=False)
class CloudKeys:
    """The keys of this machine. `metadata_url` is where a machine is told of itself."""

    access_key: str | None = None
    secret_key: str | None = attrs.field(default=None, repr=False)
    session_token: str | None = attrs.field(default=None, repr=False)
    container_path: str | None = None
    container_url: str | None = None
    container_token: str | None = attrs.field(default=None, repr=False)
    metadata_url: str = _METADATA
    http: HttpClient = attrs.field(factory=lambda: HttpClient(timeout_s=TIMEOUT_S))
    _kept: KeyPair | None = None

    async def find(self, now: Callable[[], datetime]) -> KeyPair | None:
        """The keys, or None where the machine has none."""
        if self.access_key and self.secret_key:
            return KeyPair(self.access_key, self.secret_key, self.session_token)
        if self._kept is not None and (self._kept.until is None or self._kept.until - _EARLY > now()):
            return self._kept
        try:
            self._kept = await self._container() or await self._machine()
        except (Unreached, ValueError, KeyError, TypeError, msgspec.DecodeError):
            self._kept = None
        return self._kept

    async def _container(self) -> KeyPair | None:
        url = self.container_url or (
            None if self.container_path is None else _CONTAINER + self.container_path
        )
        if url is None:
            return None
        headers = {} if self.container_token is None else {"authorization": self.container_token}
        return _keys(await self._get(url, headers))

    async def _machine(self) -> KeyPair | None:
        ticket = await self.http.ask(
            "PUT",
            f"{self.metadata_url}/latest/api/token",
            headers={"x-aws-ec2-metadata-token-ttl-seconds": "300"},
        )
        if ticket.status != 200:
            return None
        headers = {"x-aws-ec2-metadata-token": ticket.body.decode("ascii")}
        roles = f"{self.metadata_url}/latest/meta-data/iam/security-credentials/"
        answer = await self.http.ask("GET", roles, headers=headers)
        role = answer.body.decode("ascii").strip().partition("\n")[0]
        if answer.status != 200 or not role:
            return None
        return _keys(await self._get(roles + role, headers))

    async def _get(self, url: str, headers: dict[str, str]) -> Any:
        answer = await self.http.ask("GET", url, headers=headers)
        if answer.status != 200:
            raise Unreached(f"answers {answer.status}")
        return msgspec.json.decode(answer.body)


def _keys(document: Any) -> KeyPair:
    expires_at = datetime.fromisoformat(document["Expiration"]) if document.get("Expiration") else None
    access_key, secret_key, token = (
        document["AccessKeyId"],
        document["SecretAccessKey"],
        document.get("Token"),
    )
    if not (isinstance(access_key, str) and isinstance(secret_key, str) and isinstance(token, str | None)):
        raise ValueError
    return KeyPair(access_key, secret_key, token, expires_at)
