"""The tools with which others check and connect MCP servers: Inspector, mcp-remote, the conformance suite.

The conformance suite has sign-in for clients alone (0.1.16), so that of a server is what the clients of
test_oauth and these two do. Its scenarios for servers speak without a key: a door in between adds one.
"""

from __future__ import annotations

import json
import queue
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest

from svc.front.mcp.prompts import PROMPTS
from svc.front.mcp.tools import TOOLS
from tests.e2e.environments import node_with
from tests.e2e.hostile import minted
from tests.e2e.test_oauth import EMAIL, PASSWORD, call
from tests.service import PLAIN, Service, running

pytestmark = pytest.mark.release

FOLDER: Final = Path(__file__).parent / "mcp_tools"
MODULES: Final = FOLDER / "node_modules"
TIMEOUT_S: Final = 120
#: What of the suite is asked of every server. The others want what is optional, or tools made for tests.
SCENARIOS: Final = (
    "server-initialize", "ping", "tools-list", "prompts-list", "resources-list", "dns-rebinding-protection",
)  # fmt: skip


@pytest.fixture(scope="module")
def node() -> str:
    """The Node.js of the lock file, with its packages beside it."""
    node_with(FOLDER, "node")
    return str(MODULES / "node" / "bin" / "node")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service with sign-in and somebody who has an account."""
    with running(SVC_MCP_OAUTH="true") as service:
        account = {"email": EMAIL, "password": PASSWORD}
        made = call(service, "POST", "/auth/signup", json=account, headers={"Origin": service.url})
        assert made.status_code == 201
        yield service


def consented(service: Service, address: str) -> str:
    """Sign in and consent as a person does at the address; where the browser is sent then."""
    with httpx2.Client(base_url=service.url, headers={"Origin": service.url}, timeout=60, **PLAIN) as browser:
        login = urljoin(service.url, browser.get(address).headers["location"])
        back = parse_qs(urlsplit(login).query)["next"][0]
        led = browser.post("/login", data={"email": EMAIL, "password": PASSWORD, "next": back})
        page = browser.get(led.headers["location"]).text
        hidden = re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', page)
        project = re.search('name="project" value="([^"]*)"', page)
        assert project is not None
        form = {name: unescape(value) for name, value in hidden} | {"project": project[1], "answer": "allow"}
        sent: str = browser.post("/oauth/authorize", data=form).headers["location"]
        return sent


def lines_of(stream: IO[str]) -> queue.Queue[str | None]:
    """Its lines as they come, None at its end."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


@contextmanager
def signed_in(service: Service, command: list[str], home: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, after it has asked for a browser and somebody has consented there."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "MCP_REMOTE_CONFIG_DIR": str(home),
        # Inspector asks for a browser only where it thinks that somebody looks.
        "MCP_AUTO_OPEN_ENABLED": "true",
    }
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as program:
        try:
            assert program.stderr is not None
            told, said = lines_of(program.stderr), ""
            address = None
            while address is None:
                line = told.get(timeout=TIMEOUT_S)
                assert line is not None, said
                said += line
                address = re.search(rf"{re.escape(service.url)}/oauth/authorize\?\S+", line)
            came_back = httpx2.get(consented(service, address[0]), timeout=TIMEOUT_S, **PLAIN)
            assert came_back.status_code == 200
            yield program
        finally:
            program.kill()


@contextmanager
def with_a_key(service: Service) -> Iterator[str]:
    """The address of a door that adds a key to whatever it passes on to the service."""
    key = minted(service, "admin")
    own = urlsplit(service.url).netloc

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def passed_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            here = f"127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            headers = {
                name: value.replace(here, own)
                for name, value in self.headers.items()
                if name.lower() not in ("content-length", "connection")
            }
            answer = httpx2.request(
                self.command,
                service.url + self.path,
                content=body,
                headers={**headers, "Authorization": f"Bearer {key}"},
                timeout=60,
                **PLAIN,
            )
            self.send_response(answer.status_code)
            if kind := answer.headers.get("content-type"):
                self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_DELETE = passed_on

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{door.server_port}/mcp"
        door.shutdown()


def test_inspector_lists_and_calls_with_a_key_and_finds_no_fault_in_a_schema(
    node: str, service: Service
) -> None:
    key = minted(service, "admin")

    def inspected(*how: str) -> Any:
        command = [node, MODULES / ".bin" / "mcp-inspector", "--cli", f"{service.url}/mcp"]
        header = ["--header", f"Authorization: Bearer {key}"]
        for era in ("legacy", "modern"):
            done = subprocess.run(
                [*command, *header, "--protocol-era", era, "--format", "json", "--method", *how],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            assert done.returncode == 0, (era, done.stderr)
            yield json.loads(done.stdout)["result"]

    for answer in inspected("tools/list", "--strict"):
        assert [tool["name"] for tool in answer["tools"]] == [tool.name for tool in TOOLS]
    for answer in inspected("prompts/list"):
        assert [prompt["name"] for prompt in answer["prompts"]] == list(PROMPTS)
    for answer in inspected("tools/call", "--tool-name", "get_project"):
        assert answer["structuredContent"]["slug"] == "default"


def test_inspector_signs_in(node: str, service: Service, tmp_path: Path) -> None:
    command = [node, str(MODULES / ".bin" / "mcp-inspector"), "--cli", f"{service.url}/mcp"]
    with signed_in(service, [*command, "--format", "json", "--method", "tools/list"], tmp_path) as program:
        assert program.stdout is not None
        answer = json.loads(program.stdout.read())
        assert program.wait(TIMEOUT_S) == 0
        assert len(answer["result"]["tools"]) == len(TOOLS)


def test_mcp_remote_signs_in_and_passes_calls_on(node: str, service: Service, tmp_path: Path) -> None:
    command = [node, str(MODULES / ".bin" / "mcp-remote"), f"{service.url}/mcp"]
    start = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    with signed_in(service, command, tmp_path) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        answers = lines_of(program.stdout)
        for number, (method, params) in enumerate((("initialize", start), ("tools/list", {}))):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            program.stdin.write(json.dumps(message) + "\n")
            program.stdin.flush()
            line = answers.get(timeout=TIMEOUT_S)
            assert line is not None
            answer = json.loads(line)
            assert answer["id"] == number
        assert len(answer["result"]["tools"]) == len(TOOLS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_of_the_conformance_suite_passes(node: str, service: Service, scenario: str) -> None:
    suite = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with with_a_key(service) as address:
        done = subprocess.run(
            [node, str(suite), "server", "--url", address, "--scenario", scenario],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout[:2_000] + done.stderr[:2_000]
