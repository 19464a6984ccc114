"""The border of a service that lives under a path of its host, as `SVC_BASE_PATH` names it.

Owns the translation of heads: inside, the service lives at the root, and nobody behind the door knows of the
path. `Door` asks it first; pages have their links translated by `svc.web.shell.render`, and whoever writes a
whole address (`svc.application.addresses`) adds the path to its origin. Reads no body.

A terminator may hand the path on or take it off: what comes with it loses it here, and what comes without it
is taken as it is, so that health is found where it always was.

Cookies: under a path none may bear `__Host-`, which promises every path. Browsers then get them as
`__Secure-` and for this path, so that no other application of the host is sent them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import attrs

_COOKIE_PATH: Final = re.compile(rb"(; Path=)/([^;]*)")
_EVERY_PATH: Final = b"__Host-"
_THIS_PATH: Final = b"__Secure-"


@attrs.frozen
class SubPath:
    """Translates between browsers, which see the path, and the service, which does not."""

    path: str

    def inward(self, scope: dict[str, Any]) -> dict[str, Any]:
        """The request as the service sees it."""
        changes: dict[str, Any] = {"headers": [self._cookies(*header) for header in scope["headers"]]}
        path: str = scope["path"]
        if path == self.path or path.startswith(self.path + "/"):
            changes["path"] = path.removeprefix(self.path) or "/"
            raw, prefix = scope.get("raw_path") or b"", self.path.encode()
            # A client may have quoted more than it had to.
            short = raw.removeprefix(prefix) if raw.startswith(prefix) else quote(changes["path"]).encode()
            changes["raw_path"] = short or b"/"
        return {**scope, **changes}

    def outward(
        self, send: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> Callable[[dict[str, Any]], Awaitable[None]]:
        """What sends an answer as browsers must see it."""

        async def sent(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [self._header(*header) for header in message["headers"]]}
            await send(message)

        return sent

    def _header(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        match name.lower():
            case b"location" if value.startswith(b"/") and not value.startswith(b"//"):
                return name, self.path.encode() + value
            case b"set-cookie":
                if value.startswith(_EVERY_PATH):
                    value = _THIS_PATH + value.removeprefix(_EVERY_PATH)
                return name, _COOKIE_PATH.sub(self._cookie_path, value, count=1)
            case _:
                return name, value

    def _cookie_path(self, match: re.Match[bytes]) -> bytes:
        return match[1] + self.path.encode() + (b"/" + match[2] if match[2] else b"")

    def _cookies(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        if name.lower() != b"cookie":
            return name, value
        pairs = [pair.strip() for pair in value.split(b";")]
        # One that promises every path is not ours; its name inside is of one that we gave.
        ours = [pair for pair in pairs if not pair.startswith(_EVERY_PATH)]
        translated = [
            _EVERY_PATH + pair.removeprefix(_THIS_PATH) if pair.startswith(_THIS_PATH) else pair
            for pair in ours
        ]
        return name, b"; ".join(translated)
