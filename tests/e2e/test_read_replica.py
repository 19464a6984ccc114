"""Spans and traces read from a real streaming replica, and from the primary when it is late or gone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.bench.load import fresh, make_template
from tests.debian_postgres import DEBIAN, DebianPostgres
from tests.forked import ran
from tests.service import PLAIN, TRACE_SVC, Service, environment, running, until

pytestmark = [pytest.mark.alone, pytest.mark.release]

PROJECT = "/orgs/default/projects/default"


@pytest.fixture
def pair(open_folder: Path) -> Iterator[tuple[DebianPostgres, DebianPostgres]]:
    """A primary, and a replica that follows it."""
    servers = [DebianPostgres(open_folder / "primary")]
    try:
        servers.append(DebianPostgres(open_folder / "replica", follows=servers[0]))
        yield servers[0], servers[1]
    finally:
        for server in servers:
            if (server.folder / "data/postmaster.pid").exists():
                server.stop()


def state(service: Service) -> str:
    """What is known of the replica."""
    return str(service.health()["components"]["replica"]["details"]["state"])


def by(service: Service, server: str) -> float:
    """How many reads a server has done."""
    return service.metric(f'svc_history_reads_total{{server="{server}"}}'.replace("{", r"\{"))


def count(service: Service) -> int:
    return int(service.ask("count", {"dataset": "spans"})["count"])


def sent(service: Service) -> None:
    assert service.send(bytes(fresh(make_template(1, 10)))).status_code == 200


@contextmanager
def frozen(replica: DebianPostgres) -> Iterator[None]:
    """The replica hears, and does not replay."""
    told(replica, "select pg_wal_replay_pause()")
    try:
        yield
    finally:
        told(replica, "select pg_wal_replay_resume()")


def told(server: DebianPostgres, sql: str) -> None:
    url = f"postgresql://owner:secret%20of%20the%20test@127.0.0.1:{server.port}/postgres"
    subprocess.run([DEBIAN[-1] / "psql", "-q", "-c", sql, url], check=True, timeout=30, capture_output=True)


def test_reads_go_to_a_replica_while_it_is_near_and_never_what_people_write(
    pair: tuple[DebianPostgres, DebianPostgres], open_folder: Path
) -> None:
    primary, replica = pair
    settings: dict[str, Any] = {
        "SVC_JDBC_URL": primary.url,
        "SVC_READ_URL": replica.url,
        "SVC_READ_MAX_LAG_SECONDS": "3",
    }
    with (
        running(open_folder / "data", SVC_INGEST_DECODERS="0", **settings) as service,
        httpx2.Client(base_url=service.url, timeout=30, **PLAIN) as person,
    ):
        until(lambda: state(service) == "near")
        form = {"email": "owner@example.org", "password": "correct horse battery"}
        assert person.post("/signup", data=form, headers={"Origin": service.url}).status_code == 303
        sent(service)
        service.wait_for_spans(10)
        admin = service.command("keys", "create", "--scope", "admin", "--name", "admin").strip()
        for read in (
            lambda: service.ask("facets", {"dataset": "spans", "field": "kind"}),
            lambda: called(service, admin, "list_traces"),
            lambda: opened(person, f"{PROJECT}/traces"),
            lambda: opened(person, f"{PROJECT}/sessions"),
        ):
            before = by(service, "replica")
            read()
            assert by(service, "replica") > before
        said = service.command("doctor")
        assert "follows another server" in said

        with frozen(replica):
            # What people write is there at once, whatever the replica knows: a key, and its page.
            name = "made while it stood still"
            service.command("keys", "create", "--scope", "query", "--name", name)
            reads = [by(service, "replica"), by(service, "primary")]
            assert name in opened(person, f"{PROJECT}/settings/keys")
            assert [by(service, "replica"), by(service, "primary")] == reads
            # What comes in is seen when the bound is passed, at the latest.
            sent(service)
            until(lambda: count(service) == 20)
            assert state(service) == "late"
            details = service.health()["components"]["replica"]["details"]
            assert details["lag_ms"] > details["max_lag_ms"] == 3000
            assert service.metric("svc_replica_asked") == 0
            assert service.metric("svc_replica_lag_seconds") > 3
        until(lambda: state(service) == "near")
        assert count(service) == 20

        # It goes away and comes back: no question fails.
        replica.stop()
        for _ in range(20):
            assert count(service) == 20
            opened(person, f"{PROJECT}/traces")
        assert service.health()["status"] == "UP"
        until(lambda: state(service) == "away")
        replica.start()
        until(lambda: state(service) == "near")
        before_s = by(service, "replica")
        assert count(service) == 20
        assert by(service, "replica") > before_s


def called(service: Service, key: str, tool: str) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx2.post(f"{service.url}/mcp", json=body, headers=headers, timeout=30, **PLAIN)
    assert '"isError":false' in answer.text
    return answer.json()


def opened(person: httpx2.Client, path: str) -> str:
    page = person.get(path)
    assert page.status_code == 200
    return page.text


def test_a_replica_without_a_served_primary_refuses_the_boot(tmp_path: Path) -> None:
    env = environment(tmp_path, SVC_READ_URL="postgresql://replica/db")
    done = ran([TRACE_SVC, "serve"], env=env, timeout_s=30)
    assert done.returncode == 1
    assert "SVC_READ_URL names a replica, and the embedded database has none" in done.stderr
