"""The REST API in this process: a fresh database, a running key cache, and browsers that keep cookies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cache
from typing import Any

import attrs
import trio
from quart.typing import TestClientProtocol

from actors.keys import MAILBOX_BOUND, KeyCache, Keys, RevocationListener, Verdicts, Verify
from actors.supervision import Vitals
from protocol.storage import Eviction, Written
from svc.config.table import read_settings
from svc.domain.pricing.prices import PriceBook
from svc.front.api.routes import Api
from svc.front.api.table import ROUTES
from svc.front.app import App
from svc.front.auth.calls import Context
from svc.front.metrics import Metrics
from svc.front.ports import ClientDocuments, Replays, RunnerPresence
from svc.runtime.clock import now
from svc.store.accounts.accounts import AccountStore
from svc.store.accounts.keys import PostgresKeyStore, matches
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from svc.web.account.kept_form import signed_out
from svc.web.shell.assets import Assets
from svc.web.shell.process_view import DemoState, OwnerLink, ProcessView, Rate
from svc.web.shell.render import Renderer
from svc.web.shell.site import Site
from svc.web.table import PAGES
from svc.wiring import people

ORIGIN = "http://localhost"
ORG = "/api/orgs/default"
PROJECT = ORG + "/projects/default"
PASSWORD = "correct horse battery"


@attrs.frozen
class Answer:
    """A response, read."""

    status: int
    body: Any
    headers: Any

    @property
    def data(self) -> Any:
        """The data of a success."""
        assert self.body["ok"] is True, self.body
        return self.body["data"]

    @property
    def refused(self) -> tuple[int, str, str]:
        """Status, code and message of a refusal."""
        assert self.body["ok"] is False, self.body
        return self.status, self.body["error"]["code"], self.body["error"]["message"]


@attrs.define(eq=False)
class Browser:
    """A client that keeps its session cookie and, like a browser on a page of ours, sends its `Origin`."""

    client: TestClientProtocol
    cookie: str | None = None
    origin: str | None = ORIGIN
    key: str | None = None
    peer: str = "192.0.2.1"
    #: The name that the cookie came under: another one over HTTPS.
    cookie_name: str = "svc_session"

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; a body that is not bytes goes as JSON."""
        sent = {} if self.origin is None else {"Origin": self.origin}
        if self.cookie is not None:
            sent["Cookie"] = f"{self.cookie_name}={self.cookie}"
        if self.key is not None:
            sent["Authorization"] = f"Bearer {self.key}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        how = {"data": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        response = await self.client.open(
            path,
            method=method,
            headers=sent,
            scope_base={"client": (self.peer, 1234)},
            **how,  # type: ignore[arg-type]
        )
        for cookie in response.headers.getlist("set-cookie"):
            name, _, rest = cookie.partition("=")
            if name.endswith("svc_session"):
                self.cookie_name, self.cookie = name, rest.partition(";")[0] or None
        read = await response.get_json() if response.content_type == "application/json" else None
        return Answer(response.status_code, read, response.headers)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("POST", path, body, **headers)

    async def put(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("PUT", path, body, **headers)

    async def patch(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("PATCH", path, body, **headers)

    async def delete(self, path: str, **headers: str) -> Answer:
        return await self.call("DELETE", path, **headers)

    async def sign_up(self, email: str, password: str = PASSWORD, **more: Any) -> Answer:
        return await self.post("/auth/signup", {"email": email, "password": password, **more})

    async def sign_in(self, email: str, password: str = PASSWORD) -> Answer:
        return await self.post("/auth/login", {"email": email, "password": password})


class Hearing(Verdicts):
    """Verdicts that say when they heard of an eviction."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = trio.Event()

    def evict(self, notice: Eviction) -> None:
        super().evict(notice)
        self.changed.set()
        self.changed = trio.Event()


@attrs.define(eq=False)
class Replica:
    """One process's worth of REST API."""

    database: Database
    means: Context
    verdicts: Hearing
    app: Any
    hashed: list[str]

    def browser(self, **known: Any) -> Browser:
        """Somebody new."""
        return Browser(self.app.test_client(use_cookies=False), **known)

    async def owner(self) -> Browser:
        """The first account, signed in."""
        browser = self.browser()
        assert (await browser.sign_up("owner@example.org")).status == 201
        return browser

    async def member(self, email: str, role: str, owner: Browser) -> Browser:
        """An account that was invited as something, signed in."""
        invited = await owner.post(ORG + "/invitations", {"email": email, "role": role})
        assert invited.status == 201, invited.body
        browser = self.browser()
        assert (await browser.sign_up(email, invitation=invited.data["secret"])).status == 201
        return browser

    async def token(self, scope: str, project_id: int | None = None) -> str:
        """A key made beside the API."""
        return (await self.minted(scope, project_id)).plaintext

    async def minted(self, scope: Any, project_id: int | None = None) -> Any:
        """A key made beside the API, and its row."""
        from svc.store.accounts.projects import ProjectStore

        project = project_id or (await ProjectStore(self.database).make_default()).id
        return await PostgresKeyStore(self.database).create(project, scope, scope, actor="tests")


class NoDemo:
    """A demo that is only counted."""

    started = 0

    def state(self) -> DemoState:
        return "running" if self.started else "idle"

    async def start(self) -> None:
        self.started += 1


class NoProcess:
    """A process that is well and stores nothing; what is asked of it is kept."""

    broker = False

    def __init__(self) -> None:
        self.gone_spans = 0
        self.written: list[Any] = []
        self.report: dict[str, Any] = HEALTHY

    async def health(self) -> dict[str, Any]:
        return self.report

    def until_queryable(self) -> tuple[int, float | None, float | None]:
        return 0, None, None

    def well(self) -> bool:
        return True

    def buried(self) -> int:
        return 0

    def disk_free(self) -> int | None:
        return None

    async def write(self, batch: Any) -> Any:
        self.written.append(batch)
        return Written(batch.spans, 0)

    def unburied(self, spans: int) -> None:
        self.gone_spans += spans

    async def bring_home(self) -> int:
        return 0


HEALTHY: dict[str, Any] = {
    "status": "UP",
    "components": {
        "ingest": {
            "status": "UP",
            "details": {
                "mode": "memory", "depth": 0, "bytes": 0, "max_bytes": 1 << 27, "oldest_age_ms": 0,
                "dead_lettered": 0, "drainers": 1, "drainers_alive": 1, "drainer_alive": True,
                "ledger": {
                    "received": 0, "recovered": 0, "rejected": 0, "stored": 0, "duplicates": 0,
                    "waiting": 0, "dead_lettered": 0, "balance": 0,
                },
            },
        },
        "db": {"status": "UP", "details": {"pools": {"admission": {"size": 1, "idle": 1, "max": 5}}}},
        "actors": {"status": "UP", "details": {"key-cache": {"state": "running", "crashes": 0}}},
        "retention": {"status": "UP", "details": {"enabled": True}},
    },
}  # fmt: skip


def process_view(**known: Any) -> ProcessView:
    """What pages read of a process, where there is none: nothing comes in, nothing is refused."""

    async def send(_project_id: int, _body: bytes) -> str | None:
        return None

    plain: dict[str, Any] = {
        "rate": Rate(lambda: 0, lambda: 0.0),
        "refused": lambda: [],
        "quotas": lambda _project_id: [],
        "owner_link": OwnerLink(now),
        "send": send,
        "demo": NoDemo(),
        "prices": PriceBook(),
        "grpc_port": None,
        "version": "0",
        "process": NoProcess(),
        "sign_on": None,
    }
    return ProcessView(**{**plain, **known})


@cache
def renderer() -> Renderer:
    """One for all tests of a process, so that templates are compiled once."""
    return Renderer(Assets.read())


@asynccontextmanager
async def replica(
    database: Database,
    *,
    cost: int = 4,
    clock: Callable[[], datetime] = now,
    known: ProcessView | None = None,
    replays: Replays | None = None,
    runner: RunnerPresence | None = None,
    documents: ClientDocuments | None = None,
    **settings: str,
) -> AsyncIterator[Replica]:
    """A REST API on a database; limits are off and passwords cheap to hash unless the test sets them."""
    env = {"SVC_AUTH_TRIES_PER_ADDRESS": "0", "SVC_AUTH_TRIES_PER_ACCOUNT": "0", **settings}
    env.setdefault("SVC_AUTH_TRIES_PER_ACCOUNT_ANYWHERE", "0")
    verdicts = Hearing()
    send, receive = trio.open_memory_channel[Verify](MAILBOX_BOUND)
    keys = Keys(verdicts, send)
    hashers = trio.CapacityLimiter(2)
    replays = replays or NoProcess()
    means = people.means(read_settings(env), database, database, keys, hashers, clock, replays, runner=runner)
    means = attrs.evolve(means, accounts=AccountStore(database, hashers, cost))
    if documents is not None:
        means = attrs.evolve(means, client_documents=documents)
    hashed: list[str] = []

    def counted(token: str, secret_hash: bytes) -> bool:
        hashed.append(token)
        return matches(token, secret_hash)

    cache = KeyCache(
        verdicts=verdicts,
        mailbox=receive,
        store=PostgresKeyStore(database),
        matches=counted,
        now=now,
        vitals=Vitals("key-cache"),
        hashers=hashers,
    )
    listener = RevocationListener(
        verdicts=verdicts, store=PostgresKeyStore(database), vitals=Vitals("key-news")
    )
    pages = Site(means, known or process_view(), PAGES, renderer(), signed_out)
    app = App(keys, QueryStore(database), None, Metrics(), Api(means, ROUTES), pages).build()  # type: ignore[arg-type] # no health here
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: cache.run(task_status=task_status))
        await nursery.start(lambda task_status: listener.run(task_status=task_status))
        yield Replica(database, means, verdicts, app, hashed)
        nursery.cancel_scope.cancel()
