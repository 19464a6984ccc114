"""A stand-in of a host of microVMs: machines are folders, programs run as processes of this machine.

It answers the calls of E2B's interface as far as its own library makes them for a sandbox, over HTTP/1.1: the
host's (`/v2/sandboxes`, `/sandboxes/{id}`) and a machine's (`/files`, `/process.Process/Start`, `/health`),
which is told by its header. Nothing of a network is taken away here; what was asked for is written down.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import attrs

from tests.answering import answering

KEY = "e2b_0123456789"


@attrs.define(eq=False)
class Box:
    """One machine."""

    id: str
    folder: Path
    token: str
    asked: dict[str, Any]
    processes: list[subprocess.Popen[bytes]] = attrs.field(factory=list)

    def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


@attrs.define(eq=False)
class StandInHost:
    """A running stand-in. `fail` may answer in its place: a status, or bytes that are sent as they are."""

    url: str
    boxes: dict[str, Box] = attrs.field(factory=dict)
    #: Method, path and headers of every request, with its body.
    heard: list[tuple[str, str, dict[str, str], bytes]] = attrs.field(factory=list)
    fail: Callable[[str, str], int | bytes | None] = attrs.field(default=lambda method, path: None)
    #: Machines on a page of the list.
    page: int = 100
    #: As many as ever were there at once.
    most: int = 0
    made: int = 0

    def bodies(self, path: str) -> list[Any]:
        """The JSON bodies of requests to a path."""
        return [json.loads(body) for _, at, _, body in self.heard if at == path and body]


@contextmanager
def standin_host() -> Iterator[StandInHost]:
    """A host without machines."""
    made: StandInHost

    class Handler(_Handler):
        @property
        def host(self) -> StandInHost:
            return made

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = StandInHost(f"http://127.0.0.1:{server.server_port}")
    try:
        with answering(server):
            yield made
    finally:
        for box in made.boxes.values():
            box.end()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def host(self) -> StandInHost:
        raise NotImplementedError

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        headers = {name.lower(): text for name, text in self.headers.items()}
        self.host.heard.append((method, parts.path, headers, body))
        instead = self.host.fail(method, parts.path)
        if isinstance(instead, bytes):
            self.close_connection = True
            self.wfile.write(instead)
            return
        if instead is not None:
            self._say(instead, {"code": instead, "message": "told to"})
            return
        try:
            self._route(method, parts.path, dict(parse_qsl(parts.query)), headers, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _say(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        if status != 204:
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _route(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> None:
        if path.startswith(("/v2/sandboxes", "/sandboxes")):
            if headers.get("x-api-key") != KEY:
                self._say(401, {"code": 401, "message": "no such key"})
            elif method == "POST":
                self._begin(json.loads(body))
            elif method == "GET":
                self._list(query)
            else:
                box = self.host.boxes.pop(path.rpartition("/")[2], None)
                if box is not None:
                    box.end()
                self._say(
                    404 if box is None else 204, {"code": 404, "message": "gone"} if box is None else None
                )
            return
        box = self.host.boxes.get(headers.get("e2b-sandbox-id", ""))
        if box is None or headers.get("e2b-sandbox-port") != "49983":
            self._say(502, {"message": "The sandbox was not found", "code": 502})
        elif headers.get("x-access-token") != box.token:
            self._say(401, {"code": "unauthenticated", "message": "no such token"})
        elif path == "/health":
            self._say(204)
        elif path == "/files":
            self._file(method, box, query, headers, body)
        elif path == "/process.Process/Start":
            self._start(box, headers, body)
        else:
            self._say(404, {"code": "unimplemented", "message": path})

    def _begin(self, asked: dict[str, Any]) -> None:
        host = self.host
        host.made += 1
        box = Box(f"box{host.made}", Path(tempfile.mkdtemp(prefix="microvm-")), f"token-{host.made}", asked)
        programs = box.folder / "bin"
        programs.mkdir()
        (programs / "python3").symlink_to(sys.executable)
        (programs / "chown").symlink_to(shutil.which("true") or "/bin/true")
        host.boxes[box.id] = box
        host.most = max(host.most, len(host.boxes))
        self._say(
            201,
            {
                "templateID": asked["templateID"],
                "sandboxID": box.id,
                "clientID": "client",
                "envdVersion": "0.5.0",
                "envdAccessToken": box.token,
                "domain": None,
            },
        )

    def _list(self, query: dict[str, str]) -> None:
        wanted = {unquote(k): unquote(v[0]) for k, v in parse_qs(query.get("metadata", "")).items()}
        rows = [
            {
                "templateID": box.asked["templateID"],
                "sandboxID": box.id,
                "clientID": "client",
                "startedAt": "2026-11-20T12:00:00Z",
                "endAt": "2026-11-20T12:10:00Z",
                "cpuCount": 2,
                "memoryMB": 512,
                "diskSizeMB": 1024,
                "state": "running",
                "envdVersion": "0.5.0",
                "metadata": box.asked.get("metadata", {}),
            }
            for box in self.host.boxes.values()
            if wanted.items() <= box.asked.get("metadata", {}).items()
        ]
        begin = int(query.get("nextToken", "0"))
        end = begin + self.host.page
        more = {"x_next_token": str(end)} if end < len(rows) else {}
        self._say(200, rows[begin:end], **more)

    def _file(
        self, method: str, box: Box, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> None:
        where = Path(_within(box, query["path"]))
        if method == "GET":
            self._say(200, where.read_bytes())
            return
        whole = f"content-type: {headers['content-type']}\r\n\r\n".encode() + body
        parts: Any = BytesParser().parsebytes(whole).get_payload()
        (part,) = parts
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(part.get_payload(decode=True))
        self._say(200, [{"name": where.name, "type": "file", "path": query["path"]}])

    def _start(self, box: Box, headers: dict[str, str], body: bytes) -> None:
        assert headers["content-type"] == "application/connect+json"
        asked = json.loads(body[5:])["process"]
        process = subprocess.Popen(
            [_within(box, one) for one in (asked["cmd"], *asked.get("args", ()))],
            cwd=_within(box, asked.get("cwd") or "/"),
            env={
                "PATH": f"{box.folder}/bin:/usr/bin:/bin",
                "HOME": str(box.folder),
                **(asked.get("envs") or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        box.processes.append(process)
        assert process.stdout is not None
        self.send_response(200)
        self.send_header("content-type", "application/connect+json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._frame({"event": {"start": {"pid": process.pid}}})
        with process.stdout:
            while said := os.read(process.stdout.fileno(), 32_768):
                self._frame({"event": {"data": {"stdout": base64.b64encode(said).decode()}}})
        code = process.wait()
        if box.id not in self.host.boxes:
            # The machine is gone, and its connections with it.
            self.close_connection = True
            return
        # What is nothing is left out, as protobuf's JSON has it.
        end = {"exited": True, "status": f"exit status {code}"} | ({"exitCode": code} if code > 0 else {})
        self._frame({"event": {"end": end if code >= 0 else {"exitCode": -1, "status": "signal: killed"}}})
        self._frame({}, flags=2)
        self.wfile.write(b"0\r\n\r\n")

    def _frame(self, said: Any, flags: int = 0) -> None:
        data = json.dumps(said).encode()
        whole = bytes([flags]) + len(data).to_bytes(4, "big") + data
        self.wfile.write(f"{len(whole):x}\r\n".encode() + whole + b"\r\n")


def _within(box: Box, text: str) -> str:
    """A path of a machine, as it is here."""
    return re.sub(r"(?<![\w.])/work(?![\w-])", f"{box.folder}/work", text)
