"""A service under a path of its host behind a real nginx, configured as the page of installation says.

The proxy ends TLS and forwards plain HTTP, with the path and without it.
"""

from __future__ import annotations

import base64
import gzip
import os
import re
import secrets
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from svc.web.table import PAGES
from tests.browser.conftest import fill_four_weeks
from tests.certificates import pair_for, trusting
from tests.conftest import missing
from tests.e2e.test_sub_path import EMAIL, PASSWORD, PATH, walked
from tests.service import Service, copy_filled, free_port, running, until
from tests.wire import request, span

pytestmark = pytest.mark.release

DOMAIN = "traces.example.org"
DOCUMENTED = re.compile(r"```nginx\n(.*?)```", re.DOTALL)
CONFIGURATION = """
daemon off;
{account}
worker_processes 1;
error_log stderr;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    server {{
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {folder}/tls.crt;
        ssl_certificate_key {folder}/tls.key;
        {location}
        location / {{ return 418; }}
    }}
}}
"""


@pytest.fixture(scope="module")
def below() -> Iterator[Service]:
    """One with four weeks, behind a proxy that ends TLS."""
    with (
        copy_filled("four-weeks", fill_four_weeks) as folder,
        running(
            folder,
            SVC_BASE_PATH=PATH,
            SITE_DOMAIN=DOMAIN,
            TLS_MODE="upstream",
            TRUSTED_PROXIES="127.0.0.1/32",
            SVC_SECRET_KEY=base64.b64encode(secrets.token_bytes(32)).decode(),
            SVC_AUTH_COOKIE_PASSWORD=secrets.token_hex(32),
            SVC_DETECTORS_INTERVAL_SECONDS="3600",
        ) as service,
    ):
        yield service


@contextmanager
def nginx(folder: Path, service_port: int, *, strips: bool) -> Iterator[str]:
    """The address of the service behind it."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        missing("nginx")
    page = Path(__file__).parents[2] / "deploy" / "README.md"
    (location,) = DOCUMENTED.findall(page.read_text())
    assert "http://127.0.0.1:8000;" in location
    target = f"http://127.0.0.1:{service_port}{'/' if strips else ''};"
    pair, port = pair_for(DOMAIN), free_port()
    (folder / "tls.crt").write_bytes(pair.chain)
    (folder / "tls.key").write_bytes(pair.key)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(
            # Its workers keep bodies in our folder.
            account="user root;" if os.geteuid() == 0 else "",
            folder=folder,
            port=port,
            location=location.replace("http://127.0.0.1:8000;", target),
        )
    )
    process = subprocess.Popen([program, "-p", str(folder), "-c", str(configuration)])
    try:
        until(lambda: _answers(port, process))
        yield f"https://127.0.0.1:{port}{PATH}"
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "nginx takes its configuration"
    with httpx2.Client(verify=context(), trust_env=False) as client:
        try:
            return client.get(f"https://127.0.0.1:{port}/").status_code == 418
        except httpx2.TransportError:
            return False


def context() -> ssl.SSLContext:
    """Trusts the authority of tests; the name is asked for by the header alone, for no resolver has it."""
    trusted = trusting()
    trusted.check_hostname = False
    return trusted


@pytest.fixture(params=[pytest.param(False, id="passed on"), pytest.param(True, id="stripped")])
def url(request: pytest.FixtureRequest, below: Service, tmp_path: Path) -> Iterator[str]:
    with nginx(tmp_path, below.port, strips=request.param) as url:
        yield url


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    headers = {"Host": DOMAIN, "Origin": f"https://{DOMAIN}"}
    with httpx2.Client(
        headers=headers, verify=context(), follow_redirects=True, timeout=60, trust_env=False
    ) as client:
        yield client


def test_pages_cookies_and_redirects_stay_below_the_path_and_under_tls(
    url: str, client: httpx2.Client
) -> None:
    for form in ("signup", "login"):
        answer = client.post(f"{url}/{form}", data={"email": EMAIL, "password": PASSWORD})
        if "/orgs/" in str(answer.url):
            break
    assert f"{PATH}/orgs/" in str(answer.url), answer.text
    assert {cookie.path for cookie in client.cookies.jar} == {PATH}
    # What a browser is to remember of a list's columns and the like is nobody's secret.
    assert {cookie.secure for cookie in client.cookies.jar if "session" in cookie.name} == {True}
    pages = [page.path for page in PAGES if page.method == "GET" and page.path.count("{") <= 2]
    starts = [url + path.format(orgSlug="default", projectSlug="default") for path in pages]
    paths, modules, wrong = walked(client, *starts)
    assert wrong == []
    assert len(paths) >= len(pages)
    for module in modules:
        assert client.get(module).status_code == 200
    connect = client.get(f"{url}/orgs/default/projects/default/connect?with=environment").text
    assert f"https://{DOMAIN}{PATH}" in connect


def test_programs_reach_their_endpoints_with_bodies_of_any_kind(
    url: str, client: httpx2.Client, below: Service
) -> None:
    write = {"authorization": f"Bearer {below.write_key}", "content-type": "application/x-protobuf"}
    texts = ({"input.value": secrets.token_hex(1_000_000)} for _ in range(12))
    large = request(*(span(name="large", attributes=text) for text in texts)).SerializeToString()
    small = request(span(name="small")).SerializeToString()
    assert client.post(f"{url}/v1/traces", content=large, headers=write).status_code == 200
    packed = gzip.compress(small)
    chunks = (packed[at : at + 10] for at in range(0, len(packed), 10))
    answer = client.post(f"{url}/v1/traces", content=chunks, headers=write | {"content-encoding": "gzip"})
    assert answer.status_code == 200
    admin = below.command("keys", "create", "--scope", "admin", "--name", "agent").strip()
    answer = client.post(
        f"{url}/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        headers={"authorization": f"Bearer {admin}"},
    )
    assert "list_traces" in {tool["name"] for tool in answer.json()["result"]["tools"]}
    assert client.get(f"{url}/openapi.json").json()["servers"] == [{"url": PATH}]


def test_what_the_path_is_not_is_another_application(url: str, client: httpx2.Client) -> None:
    assert client.get(url.removesuffix(PATH) + "/orgs/default").status_code == 418
