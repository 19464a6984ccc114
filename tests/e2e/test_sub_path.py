"""A service under a path of its host, behind a terminator that strips the path and one that does not.

A walk opens every page that a link leads to, and looks at every address that a page holds; what is asked
outside of the path is asked of another application.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest

from svc.config.checks import OWN_SEGMENTS
from svc.web.shell.assets import BUNDLES
from svc.web.shell.page import PROJECT
from svc.web.table import PAGES
from tests.browser.conftest import fill_four_weeks
from tests.examples import at_length
from tests.service import PLAIN, Service, copy_filled, running
from tests.terminator import Terminator, terminated

PATH = "/traces"
EMAIL, PASSWORD = "owner@example.org", "correct horse battery"
#: Pages that a walk opens, and how many where a release is proved.
MOST_PAGES, MOST_AT_LENGTH = 400, 600
#: What pages say that gave up on a figure, and how often one is opened anew then.
SLOW = re.compile("took longer than|Too many traces to compare in time")
RETRIES = 3
#: Pages that are reached by links alone; what modules fetch for them by themselves is in no link.
LINKED = ("/cases/{ref}", "/findings/{id}", "/detectors/{name}", "/traces/{traceId}", "/vitals/{what}")
#: Attributes that hold what somebody typed or sent, or a path as the service itself reads it back.
TYPED = {("input", "value"), ("option", "value"), ("td", "title")}


class Addresses(HTMLParser):
    """What of a page is an address: links, sources, targets of forms, whatever else begins with a slash."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.parts: list[str] = []
        self.rooted: list[str] = []
        self.modules: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if tag == "a" and name == "href":
                self.links.append(value)
            if name.startswith("data-") and value.startswith(PATH):
                self.parts.append(value)
            if tag == "script" and name == "src":
                self.modules.append(value)
            if value.startswith("/") and (tag, name) not in TYPED:
                self.rooted.append(value)


@pytest.fixture(scope="module")
def below() -> Iterator[Service]:
    """One with four weeks that detectors have judged."""
    with (
        copy_filled("four-weeks", fill_four_weeks) as folder,
        running(folder, SVC_BASE_PATH=PATH, SVC_DETECTORS_INTERVAL_SECONDS="3600") as service,
    ):
        yield service


@pytest.fixture(
    params=[
        pytest.param(True, id="stripped"),
        pytest.param(False, id="passed on", marks=pytest.mark.release),
    ]
)
def terminator(request: pytest.FixtureRequest, below: Service) -> Iterator[Terminator]:
    with terminated(below.port, PATH, strips=request.param) as terminator:
        yield terminator


@pytest.fixture
def client(terminator: Terminator) -> Iterator[httpx2.Client]:
    """The owner's browser."""
    with httpx2.Client(follow_redirects=True, timeout=60, **PLAIN) as client:
        sign_in(client, terminator)
        yield client


def sign_in(client: httpx2.Client, terminator: Terminator) -> None:
    """Sign up, or in where that was done."""
    origin = {"origin": "http://" + urlsplit(terminator.url).netloc}
    for form in ("signup", "login"):
        fields = {"email": EMAIL, "password": PASSWORD}
        answer = client.post(f"{terminator.url}/{form}", data=fields, headers=origin)
        if "/orgs/" in str(answer.url):
            break
    assert urlsplit(str(answer.url)).path.startswith(PATH + "/orgs/"), answer.text
    assert {cookie.path for cookie in client.cookies.jar} == {PATH}


def kind(address: str) -> str:
    """What stands for all pages of its kind: the path without ids, the names of its parameters."""
    parts = urlsplit(address)
    names = sorted(re.findall(r"(?:^|&)(\w+)=", parts.query))
    return re.sub(r"/[0-9a-f]{16,}|/[A-Z]+-\d+", "/*", parts.path) + "?" + "&".join(names)


def walked(client: httpx2.Client, *start: str) -> tuple[set[str], set[str], list[str]]:
    """The paths that were opened, the modules they load, and what was wrong with any."""
    each_kind, most_pages = (2, MOST_AT_LENGTH) if at_length() else (1, MOST_PAGES)
    waiting, seen, modules, wrong = list(start), dict[str, int](), set[str](), []
    paths, parts, listed = set[str](), set(start), set(start)
    while waiting and sum(seen.values()) < most_pages:
        address = waiting.pop(0)
        if address not in start and seen.get(kind(address), 0) >= each_kind:
            continue
        seen[kind(address)] = seen.get(kind(address), 0) + 1
        answer = client.get(address)
        for _ in range(RETRIES):
            # On a busy machine a question may take longer than a page waits.
            if answer.status_code != 503 and not SLOW.search(answer.text):
                break
            answer = client.get(address)
        paths.add(urlsplit(address).path)
        # Some pages want parameters, and modules ask for a part with more parameters, or with another method.
        if answer.status_code != 200 and (address not in parts or answer.status_code >= 500):
            wrong.append(f"{address}: {answer.status_code}")
        if "text/html" not in answer.headers["content-type"]:
            continue
        page = Addresses()
        page.feed(answer.text)
        wrong += [f"{address} names {path}" for path in page.rooted if not path.startswith(PATH + "/")]
        modules |= {urljoin(address, path) for path in page.modules}
        parts |= {urljoin(address, part) for part in page.parts}
        for link in page.links + page.parts:
            target = urljoin(address, link).split("#")[0]
            same_host = urlsplit(target).netloc == urlsplit(address).netloc
            if same_host and target not in listed:
                listed.add(target)
                waiting.append(target)
    return paths, modules, wrong


def pattern_of(page: str) -> str:
    """The addresses of a page below the path."""
    return re.sub(r"{\w+}", "[^/]+", PATH + page)


@pytest.mark.release
def test_no_link_form_or_module_of_any_page_leaves_the_path(
    terminator: Terminator, client: httpx2.Client
) -> None:
    pages = [page.path for page in PAGES if page.method == "GET"]
    named = [path.format(orgSlug="default", projectSlug="default") for path in pages if path.count("{") <= 2]
    starts = [terminator.url + path for path in named]
    paths, modules, wrong = walked(client, *starts)
    assert wrong == []
    opened = {path for path in pages if any(re.fullmatch(pattern_of(path), seen) for seen in paths)}
    assert opened >= {path for path in pages if path.count("{") <= 2} | {PROJECT + path for path in LINKED}
    # The one file of a page holds all of its modules, and loads no other.
    assert {urlsplit(module).path.rpartition("/")[2] for module in modules} == BUNDLES.keys()
    for module in modules:
        answer = client.get(module)
        assert answer.status_code == 200, module
        assert not re.search(r"^import\b|\bimport\(", answer.text, re.MULTILINE)
    assert terminator.strayed == []


def test_a_link_that_leaves_the_path_is_noticed(below: Service) -> None:
    page = Addresses()
    page.feed('<a href="/orgs/x"><form action="/login"><div data-load="/orgs/y"></div>')
    assert page.rooted == ["/orgs/x", "/login", "/orgs/y"]
    with terminated(below.port, PATH, strips=True) as terminator:
        httpx2.get(terminator.url.removesuffix(PATH) + "/orgs/x", **PLAIN)
        assert terminator.strayed == ["/orgs/x"]


def test_the_printed_address_and_the_lines_to_copy_hold_the_path(
    terminator: Terminator, client: httpx2.Client, below: Service
) -> None:
    assert below.url == f"http://127.0.0.1:{below.port}{PATH}"
    connect = client.get(f"{terminator.url}/orgs/default/projects/default/connect?with=environment").text
    assert f"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=<mark>{terminator.url}</mark>/v1/traces" in connect
    assert f"<code>{terminator.url}/v1/traces</code>" in connect
    tools = client.get(f"{terminator.url}/orgs/default/projects/default/settings/mcp").text
    assert f"{terminator.url}/mcp" in tools
    # Whoever is not signed in is sent to the form and back.
    stranger = httpx2.get(f"{terminator.url}/orgs/default/projects/default/traces?errors=1", **PLAIN)
    assert stranger.headers["location"].startswith(f"{PATH}/login?next=/orgs/default/")


def test_programs_reach_every_endpoint_below_the_path(terminator: Terminator, below: Service) -> None:
    sent = httpx2.post(
        f"{terminator.url}/v1/traces",
        content=b"",
        headers={"authorization": f"Bearer {below.write_key}", "content-type": "application/x-protobuf"},
        **PLAIN,
    )
    assert sent.status_code == 200
    query = {"authorization": f"Bearer {below.query_key}"}
    counted = httpx2.post(
        f"{terminator.url}/v1/query/count", json={"dataset": "spans"}, headers=query, **PLAIN
    )
    assert counted.json()["data"]["count"] > 0
    assert httpx2.get(f"{terminator.url}/api/orgs", **PLAIN).status_code in (401, 404)
    described = httpx2.get(f"{terminator.url}/openapi.json", **PLAIN).json()
    assert described["servers"] == [{"url": PATH}]
    # Health is where probes always looked, and below the path.
    for base in (terminator.url, f"http://127.0.0.1:{below.port}"):
        assert httpx2.get(f"{base}/actuator/health/readiness", **PLAIN).status_code == 200
    admin = below.command("keys", "create", "--scope", "admin", "--name", "agent").strip()
    answer = httpx2.post(
        f"{terminator.url}/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        headers={"authorization": f"Bearer {admin}"},
        timeout=30,
        **PLAIN,
    )
    assert "list_traces" in {tool["name"] for tool in answer.json()["result"]["tools"]}


def test_no_path_of_the_service_may_be_its_sub_path(below: Service) -> None:
    served = httpx2.get(f"{below.url}/openapi.json", **PLAIN).json()["paths"]
    assert {path.split("/")[1] for path in served} <= OWN_SEGMENTS
