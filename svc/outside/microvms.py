"""A client of a host of microVMs (E2B's calls): begin one, give it files, run a program in it, end it.

The hosted sandboxes use it. No SDK: five calls over JSON. Knows nothing of runs.

Danger: a machine that ran a stranger's script may answer anything, in any length. Frames are bounded, what
cannot be read is the machine's death, and its address is built from checked names.

Secrets: the host's key goes to the host alone, a machine's token to that machine alone.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

import attrs
import msgspec
import trio

from svc.outside.http import HttpAnswer, HttpClient, Unreached

TIMEOUT_S: Final = 30.0
PROBE_S: Final = 5.0
ANSWER_BYTES: Final = 4 * 1024 * 1024
#: A frame of a stream, and all of one.
FRAME_BYTES: Final = 1024 * 1024
STREAM_BYTES: Final = 64 * 1024 * 1024
#: The port of the agent inside a machine.
PORT: Final = 49_983
#: Machines on a page of the list, and pages that are read.
PAGE: Final = 100
PAGES: Final = 10

_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,80}", re.ASCII)
_DOMAIN: Final = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*(?::\d{1,5})?", re.ASCII)
_END: Final = 0x02
_COMPRESSED: Final = 0x01


class HostAway(Exception):
    """The host does not give what it is asked for; the text is for the operator."""


class MachineDied(Exception):
    """The machine is gone, or answers as none does."""


@attrs.frozen
class ListedMachine:
    """One that is there, and what was noted of it."""

    id: str
    notes: Mapping[str, str]


@attrs.frozen
class Machine:
    """One that was begun; `token` opens it."""

    id: str
    url: str
    token: str | None = attrs.field(repr=False)


@attrs.frozen
class ProgramEnd:
    """What a program said, up to the bound, and its exit code; negative: a signal ended it."""

    exit_code: int
    out: bytes
    cut: bool


@attrs.frozen
class MicroVmHost:
    """The host. `machines_url` is where every machine is reached, where that is not a name below the host's
    domain.
    """

    url: str
    key: str = attrs.field(repr=False)
    machines_url: str | None = None

    async def begin(self, template: str, seconds: int, notes: Mapping[str, str]) -> Machine:
        """A machine without a network, which the host ends after so many seconds. Raises `HostAway`."""
        request = {
            "templateID": template,
            "timeout": seconds,
            "allow_internet_access": False,
            "metadata": dict(notes),
        }
        # Asked for twice it is begun once.
        response = await self._ask("POST", "/v2/sandboxes", request, **{"idempotency-key": str(uuid4())})
        if response.status != 201:
            raise HostAway(f"the host of microVMs answers {response.status}")
        fields = _json(response)
        id_, domain = str(fields.get("sandboxID", "")), fields.get("domain") or self._domain()
        if not _NAME.fullmatch(id_) or not _DOMAIN.fullmatch(str(domain)):
            raise HostAway("the host of microVMs names a machine that cannot be asked")
        token = fields.get("envdAccessToken")
        url = self.machines_url or f"https://{PORT}-{id_}.{domain}"
        return Machine(id_, url.rstrip("/"), None if token is None else str(token))

    async def listed(self, notes: Mapping[str, str]) -> Sequence[ListedMachine]:
        """Those with these notes. Raises `HostAway`."""
        machines: list[ListedMachine] = []
        metadata = urlencode({quote(name): quote(value) for name, value in notes.items()})
        query = {"metadata": metadata, "state": "running,paused", "limit": str(PAGE)}
        for _ in range(PAGES):
            response = await self._ask("GET", f"/v2/sandboxes?{urlencode(query)}")
            rows = _json(response) if response.status == 200 else None
            if not isinstance(rows, list):
                raise HostAway(f"the host of microVMs answers {response.status}")
            for row in rows:
                id_, labels = str(row.get("sandboxID", "")), row.get("metadata") or {}
                if _NAME.fullmatch(id_):
                    machines.append(ListedMachine(id_, {str(k): str(v) for k, v in labels.items()}))
            if not (next_token := response.headers.get("x-next-token")):
                break
            query["nextToken"] = next_token
        return machines

    async def end(self, id_: str) -> None:
        """End one; nothing where there is none. Raises `HostAway`."""
        response = await self._ask("DELETE", f"/sandboxes/{id_}")
        if response.status not in (200, 204, 404):
            raise HostAway(f"the host of microVMs answers {response.status}")

    async def put(self, machine: Machine, path: str, data: bytes, user: str) -> None:
        """A file, with the folders above it. Raises `HostAway` and `MachineDied`."""
        border = uuid4().hex
        body = (
            f'--{border}\r\ncontent-disposition: form-data; name="file"; filename="file"\r\n'
            "content-type: application/octet-stream\r\n\r\n"
        ).encode()
        query = urlencode({"path": path, "username": user})
        headers = {**_opening(machine, user), "content-type": f"multipart/form-data; boundary={border}"}
        try:
            response = await HttpClient(timeout_s=TIMEOUT_S).ask(
                "POST",
                f"{machine.url}/files?{query}",
                headers=headers,
                body=body + data + f"\r\n--{border}--\r\n".encode(),
            )
        except Unreached as away:
            raise HostAway(f"a microVM {away}") from None
        if response.status != 200:
            raise MachineDied

    async def run(
        self, machine: Machine, program: Sequence[str], folder: str, user: str, most: int, *, timeout_s: float
    ) -> ProgramEnd:
        """A program to its end. Raises `HostAway`, `MachineDied`, `TooSlowError` after its time."""
        command: dict[str, Any] = {"cmd": program[0], "args": list(program[1:]), "cwd": folder, "envs": {}}
        message = msgspec.json.encode({"process": command, "stdin": False})
        headers = {
            **_opening(machine, user),
            "content-type": "application/connect+json",
            "connect-protocol-version": "1",
            "connect-timeout-ms": str(round(timeout_s * 1000)),
        }
        output = _Heard(most)
        try:
            with trio.fail_after(timeout_s):
                async with HttpClient(timeout_s=TIMEOUT_S).stream(
                    "POST",
                    f"{machine.url}/process.Process/Start",
                    headers=headers,
                    body=b"\0" + len(message).to_bytes(4, "big") + message,
                ) as (status, pieces):
                    if status != 200:
                        raise MachineDied
                    async for piece in pieces:
                        output.feed(piece)
        except Unreached as away:
            # A machine that was ended drops its connections; its host tells it from one that is away.
            await self._probe(machine)
            raise HostAway(f"a microVM {away}") from None
        return output.said()

    async def _probe(self, machine: Machine) -> None:
        """Raises `MachineDied` where the host says that there is no such machine."""
        try:
            response = await HttpClient(timeout_s=PROBE_S).ask(
                "GET", f"{machine.url}/health", headers=_opening(machine, "root"), read=False
            )
        except Unreached:
            return
        if response.status in (404, 502):
            raise MachineDied

    def _domain(self) -> str:
        return urlsplit(self.url).netloc.removeprefix("api.")

    async def _ask(self, method: str, path: str, body: Any = None, **headers: str) -> HttpAnswer:
        http = HttpClient(timeout_s=TIMEOUT_S, answer_bytes=ANSWER_BYTES)
        all_headers = {"x-api-key": self.key, "content-type": "application/json", **headers}
        content = b"" if body is None else msgspec.json.encode(body)
        try:
            return await http.ask(method, self.url.rstrip("/") + path, headers=all_headers, body=content)
        except Unreached as away:
            raise HostAway(f"the host of microVMs {away}") from None


def _json(response: HttpAnswer) -> Any:
    try:
        return msgspec.json.decode(response.body)
    except (msgspec.DecodeError, RecursionError):
        raise HostAway("the host of microVMs cannot be understood") from None


def _opening(machine: Machine, user: str) -> dict[str, str]:
    """Which machine is meant, as whom, and what opens it."""
    headers = {
        "e2b-sandbox-id": machine.id,
        "e2b-sandbox-port": str(PORT),
        "authorization": "Basic " + b64encode(f"{user}:".encode()).decode(),
    }
    return headers if machine.token is None else {**headers, "x-access-token": machine.token}


@attrs.define(eq=False)
class _Heard:
    """The frames of a program's stream as they come. Raises `MachineDied`."""

    most: int
    out: bytearray = attrs.field(factory=bytearray)
    cut: bool = False
    exit_code: int | None = None
    _frames: bytearray = attrs.field(factory=bytearray)
    _bytes: int = 0

    def feed(self, piece: bytes) -> None:
        self._frames += piece
        self._bytes += len(piece)
        if self._bytes > STREAM_BYTES:
            raise MachineDied
        while len(self._frames) >= 5:
            flags, size = self._frames[0], int.from_bytes(self._frames[1:5], "big")
            if size > FRAME_BYTES or flags & _COMPRESSED:
                raise MachineDied
            if len(self._frames) < 5 + size:
                return
            self._take(flags, bytes(self._frames[5 : 5 + size]))
            del self._frames[: 5 + size]

    def _take(self, flags: int, frame: bytes) -> None:
        try:
            message = msgspec.json.decode(frame)
            if flags & _END:
                # An error of the stream: the program's own end came before it.
                if message.get("error") and self.exit_code is None:
                    raise MachineDied
                return
            event = message.get("event") or {}
            for name in ("stdout", "stderr"):
                if (chunk := (event.get("data") or {}).get(name)) is not None:
                    data = b64decode(chunk, validate=True)
                    room = self.most - len(self.out)
                    self.out += data[: max(0, room)]
                    self.cut = self.cut or len(data) > room
            if (end := event.get("end")) is not None:
                self.exit_code = int(end.get("exitCode", 0)) if end.get("exited", False) else -1
        except (msgspec.DecodeError, RecursionError, AttributeError, TypeError, ValueError, NotBase64):
            raise MachineDied from None

    def said(self) -> ProgramEnd:
        """What was heard, once the stream is over."""
        if self.exit_code is None:
            raise MachineDied
        return ProgramEnd(self.exit_code, bytes(self.out), self.cut)
