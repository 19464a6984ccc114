"""A client of the Docker Engine API over its socket: what a sandbox needs of it and no more.

The container backend uses it. No SDK: a dozen calls. Never builds an image, never mounts a path of the host.

Danger: whoever speaks to this socket owns the machine. Nothing that a model or a trace says becomes a part
of a path or a setting here; names are made of run ids.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

import attrs
import httpcore2
import msgspec
import trio

TIMEOUT_S: Final = 30.0
ANSWER_BYTES: Final = 4 * 1024 * 1024
VERSION: Final = "v1.41"


class EngineAway(Exception):
    """The engine does not answer; the text is for the operator."""


@attrs.frozen
class EngineAnswer:
    """An answer of the container engine."""

    status: int
    body: bytes = attrs.field(repr=False)

    def read(self) -> Any:
        """The body as JSON. Raises `EngineAway` for what is none."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            raise EngineAway("the engine's answer cannot be read") from None


def pull_query(image: str) -> dict[str, str]:
    """What names an image to the engine: `host:port/name:tag`, `name@sha256:…`, or less of it.

    Without a tag and a digest the engine would fetch every tag there is.
    """
    name, _, digest = image.partition("@")
    path, slash, base_name = name.rpartition("/")
    base_name, _, tag = base_name.partition(":")
    return {"fromImage": f"{path}{slash}{base_name}", "tag": digest or tag or "latest"}


class ExecRefused(Exception):
    """The engine did not begin a process; the text is for the operator."""


@attrs.frozen
class Engine:
    """The engine behind a socket."""

    socket: str

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> EngineAnswer:
        """One call. `raw` is a tar archive. Raises `EngineAway`."""
        async with self._request(method, path, body, query, raw, timeout_s) as response:
            content = bytearray()
            async with aclosing(response.aiter_stream()) as pieces:
                async for piece in pieces:
                    content += piece
                    if len(content) > ANSWER_BYTES:
                        # What pulls an image tells of each layer; its end is what counts.
                        del content[:-ANSWER_BYTES]
            return EngineAnswer(response.status, bytes(content))

    async def output(self, path: str, body: Any, most: int, *, timeout_s: float) -> tuple[bytes, bool]:
        """What a framed stream of an exec says, up to a bound, and whether there was more.

        Raises `EngineAway`, `ExecRefused`, and `TooSlowError` when its time is over.
        """
        frames = bytearray()
        out = bytearray()
        cut = False
        with trio.fail_after(timeout_s):
            async with (
                self._request("POST", path, body, None, None, None) as response,
                aclosing(response.aiter_stream()) as pieces,
            ):
                if response.status >= 400:
                    raise ExecRefused(f"the engine answers {response.status}")
                async for piece in pieces:
                    frames += piece
                    while len(frames) >= 8:
                        size = int.from_bytes(frames[4:8], "big")
                        if len(frames) < 8 + size:
                            break
                        out += frames[8 : 8 + size][: max(0, most - len(out))]
                        cut = cut or len(out) >= most
                        del frames[: 8 + size]
        return bytes(out), cut

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, str] | None,
        raw: bytes | None,
        timeout_s: float | None,
    ) -> AsyncIterator[httpcore2.Response]:
        url = f"http://engine/{VERSION}{quote(path, safe='/')}" + (f"?{urlencode(query)}" if query else "")
        content = raw if raw is not None else b"" if body is None else msgspec.json.encode(body)
        kind = "application/x-tar" if raw is not None else "application/json"
        headers = {"host": "engine", "content-type": kind, "content-length": str(len(content))}
        try:
            with trio.CancelScope() as scope:
                if timeout_s is not None:
                    scope.deadline = trio.current_time() + timeout_s
                async with (
                    httpcore2.AsyncConnectionPool(uds=self.socket, max_connections=1) as pool,
                    pool.stream(method, url, headers=list(headers.items()), content=content) as response,
                ):
                    yield response
            if scope.cancelled_caught:
                raise EngineAway(f"the engine gave no answer within {timeout_s:g} s")
        except (
            httpcore2.NetworkError,
            httpcore2.TimeoutException,
            httpcore2.ProtocolError,
            OSError,
        ) as error:
            raise EngineAway(f"the container engine cannot be reached ({type(error).__name__})") from None
