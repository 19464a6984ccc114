"""Somebody with a browser, as the server sees them: forms, cookies, pages as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import attrs
from quart.typing import TestClientProtocol

from tests.front.people import PASSWORD, Replica

BASE = "/orgs/default/projects/default"
#: What keeps its line breaks, the tags, and a line break with what it stands beside.
_LAYOUT = re.compile(r"(<(pre|textarea)\b.*?</\2>)|\s*\n\s*(?=</)|(<(?!input|img|br)[^/][^>]*>)\n", re.S)


def as_shown(html: str) -> str:
    """A page or a part without the line breaks that only lay its template out."""
    folded = _LAYOUT.sub(lambda found: found[1] or (found[3] or "").replace("\n", " "), html)
    kept = re.split(r"(<(?:pre|textarea)\b.*?</(?:pre|textarea)>)", folded, flags=re.S)
    return "".join(
        piece if number % 2 else re.sub(r" *\n *", " ", piece) for number, piece in enumerate(kept)
    )


@attrs.frozen
class Seen:
    """What came back."""

    status: int
    text: str
    headers: Any
    body: bytes = b""

    @property
    def location(self) -> str:
        """Where a redirect leads."""
        return str(self.headers["location"])


@attrs.define(eq=False)
class Visitor:
    """Keeps cookies, sends `Origin` with forms as browsers do."""

    client: TestClientProtocol
    cookies: dict[str, str] = attrs.field(factory=dict)
    origin: str | None = "http://localhost"

    @classmethod
    def of(cls, replica: Replica) -> Visitor:
        """Somebody new."""
        return cls(replica.app.test_client(use_cookies=False))

    async def _open(self, path: str, method: str, data: bytes | None, headers: dict[str, str]) -> Seen:
        sent = {"Host": "localhost", **headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        response = await self.client.open(
            path, method=method, headers=sent, data=data, scope_base={"client": ("192.0.2.7", 1)}
        )
        for cookie in response.headers.getlist("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
            if not value:
                del self.cookies[name]
        raw = await response.get_data(as_text=False)
        text = "" if response.headers.get("content-encoding") else raw.decode(errors="replace")
        text = as_shown(text) if response.headers.get("content-type", "").startswith("text/html") else text
        return Seen(response.status_code, text, response.headers, raw)

    async def open(self, path: str, method: str, **headers: str) -> Seen:
        """Ask for a page by any method, from a page of ours."""
        sent = {"Origin": self.origin or "", **{name.replace("_", "-"): v for name, v in headers.items()}}
        return await self._open(path, method, None, sent)

    async def get(self, path: str, **headers: str) -> Seen:
        """Open a page."""
        return await self._open(path, "GET", None, {name.replace("_", "-"): v for name, v in headers.items()})

    async def post(
        self, path: str, form: Mapping[str, str | list[str]] | None = None, **headers: str
    ) -> Seen:
        """Send a form."""
        sent = {name.replace("_", "-"): v for name, v in headers.items()}
        sent["Content-Type"] = "application/x-www-form-urlencoded"
        if self.origin is not None:
            sent["Origin"] = self.origin
        return await self._open(path, "POST", urlencode(form or {}, doseq=True).encode(), sent)

    async def sign_up(self, email: str = "owner@example.org", **more: str) -> Seen:
        """Make an account by the form."""
        return await self.post("/signup", {"email": email, "password": PASSWORD, **more})
