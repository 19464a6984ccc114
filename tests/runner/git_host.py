"""A Git host over TLS: git's own server behind a small door, with a repository that nobody should trust."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from tests.answering import answering
from tests.certificates import mount, pair_for, root_pem

USER, SECRET = "x-access-token", "ghp_of-the-git-host-0123456789"


@attrs.define(eq=False)
class GitHost:
    """A running host. `moved` leads every request there; `gate` holds them until it is set."""

    url: str
    root: Path
    moved: str | None = None
    gate: threading.Event | None = None
    #: What was asked, and by whom.
    heard: list[tuple[str, str | None]] = attrs.field(factory=list)

    def clone_url(self, name: str = "shop") -> str:
        return f"{self.url}/{name}"


def git(folder: Path, *arguments: str, at: str = "2026-11-01T12:00:00+00:00", given: bytes = b"") -> str:
    """Run git as the author of the repository."""
    who = {"GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "a@example.com"}
    who |= {"GIT_COMMITTER_NAME": "ann", "GIT_COMMITTER_EMAIL": "a@example.com"}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *arguments],
        cwd=folder,
        env={**env, **who, "GIT_CONFIG_GLOBAL": "/dev/null"},
        input=given,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def committed(folder: Path, subject: str, at: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", subject, at=at)
    return git(folder, "rev-parse", "HEAD")


def shop(root: Path) -> list[str]:
    """A repository of three commits; its commits, oldest first."""
    folder = root / "shop"
    (folder / "app").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "app" / "tools.py").write_text("def lookup_order(order):\n    return carrier(order)\n")
    (folder / "README.md").write_text("# Shop\n")
    made = [committed(folder, "Begin", "2026-11-01T12:00:00+00:00")]
    (folder / "app" / "tools.py").write_text(
        "QUOTA = 100\n\n\ndef lookup_order(order):\n    return carrier(order, quota=QUOTA)\n"
    )
    made.append(committed(folder, "Bound what we ask the carrier", "2026-11-18T09:00:00+00:00"))
    # What nobody should trust.
    (folder / "passwd").symlink_to("/etc/passwd")
    (folder / "app" / "up").symlink_to("../../..")
    (folder / "huge.bin").write_bytes(os.urandom(2 * 1024 * 1024))
    (folder / "binary").write_bytes(b"\0\1\2QUOTA")
    (folder / "odd\x1b[2J name").write_text("QUOTA\x1b[2J of another\n")
    (folder / "long.txt").write_text("".join(f"line {n} {'x' * 90}\n" for n in range(1, 2_001)))
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    touch = f"touch {root / 'touched'}"
    (folder / ".gitmodules").write_text(f'[submodule "sub"]\n\tpath = sub\n\turl = "ext::sh -c {touch}"\n')
    git(folder, "add", "-A")
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{made[0]},sub")
    git(folder, "commit", "--quiet", "-m", "Add \x1b[31modd things", at="2026-11-19T09:00:00+00:00")
    made.append(git(folder, "rev-parse", "HEAD"))
    git(folder, "config", "uploadpack.allowFilter", "true")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    return made


def large(root: Path) -> None:
    """A repository of 5 MB that do not compress."""
    folder = root / "large"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for number in range(6):
        (folder / f"{number}").write_bytes(os.urandom(900 * 1024))
    committed(folder, "Much", "2026-11-01T12:00:00+00:00")


@contextmanager
def git_host(root: Path) -> Iterator[GitHost]:
    """A host of the repositories below a folder, for whoever brings the credential."""
    made: GitHost
    certificates = root / "certificates"
    mount(certificates, pair_for("localhost"))
    (root / "trusted.pem").write_bytes(root_pem())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, *_: Any) -> None:
            pass

        def _serve(self) -> None:
            made.heard.append((self.path, self.headers.get("authorization")))
            if made.gate is not None:
                made.gate.wait(60)
            if made.moved is not None:
                self._say(302, location=made.moved + self.path)
            elif self.headers.get("authorization") != _basic() and "/public" not in self.path:
                self._say(401, www_authenticate='Basic realm="git"')
            else:
                self._cgi()

        def _say(self, status: int, **headers: str) -> None:
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name.replace("_", "-"), text)
            self.send_header("content-length", "0")
            self.end_headers()

        def _cgi(self) -> None:
            parts = urlsplit(self.path)
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("content-type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            }
            body = self._body()
            said = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True).stdout
            head, _, content = said.partition(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
            try:
                self.send_response(int(lines.pop("Status", "200").split()[0]))
                for name, text in lines.items():
                    self.send_header(name, text)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                # Whoever asked was ended.
                self.close_connection = True

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Whoever asked was ended while its answer was written."""

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    made = GitHost(f"https://localhost:{server.server_port}", root)
    with answering(server):
        yield made


def _basic() -> str:
    return "Basic " + base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
