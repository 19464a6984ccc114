"""Retention and sealing of the real service: the sweeper sweeps, the commands work beside it."""

from __future__ import annotations

import subprocess
import time
from base64 import b64encode
from pathlib import Path

import httpx2
import pytest
import trio

from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Connection
from tests.forked import ran
from tests.service import PLAIN, TRACE_SVC, Service, running, until
from tests.wire import request, span

DAY_NS = 86_400 * 10**9
PASSWORD = "correct horse battery"


def send_old_and_new(service: Service) -> None:
    """One span of today, and one of a hundred days ago, as an import of old data brings."""
    now = int(time.time()) * 10**9
    for trace_id, start in ((b"n" * 16, now), (b"o" * 16, now - 100 * DAY_NS)):
        body = request(span(trace_id=trace_id, start_ns=start, end_ns=start + 10**9, name="x"))
        assert service.send(body.SerializeToString()).status_code == 200


def settled(service: Service) -> bool:
    return service.metric("svc_traces_settled_total") >= 2


def run_sweep(service: Service, *options: str) -> subprocess.CompletedProcess[str]:
    return ran([TRACE_SVC, "retention", "run", *options], env=dict(service.env), timeout_s=90)


def test_expired_spans_go_by_command_and_by_the_sweeper(open_folder: Path) -> None:
    # A day has a partition of its own while the longest term in force reaches it.
    with running(
        open_folder / "data", SVC_RETENTION_ENABLED="false", SVC_RETENTION_TRACE_TTL_DAYS="200"
    ) as service:
        send_old_and_new(service)
        service.wait_for_spans(2)
        until(lambda: settled(service))
    with running(open_folder / "data", SVC_RETENTION_ENABLED="false") as service:
        assert service.health()["components"]["retention"]["details"]["enabled"] is False
        assert "retention-sweeper" not in service.health()["components"]["actors"]["details"]
        shown = service.command("retention", "show")
        assert "sweep: off" in shown
        assert "default/default: traces 90 days (default), detections 90 days (default)" in shown
        refused = run_sweep(service)
        assert refused.returncode == 1
        assert "SVC_RETENTION_ENABLED is false: nothing was deleted" in refused.stderr
        assert refused.stdout == ""
        assert service.ask("count", {"dataset": "spans"}) == {"count": 2}
        forced = run_sweep(service, "--force")
        assert forced.returncode == 0
        assert "SVC_RETENTION_ENABLED is false, overridden by --force" in forced.stderr
        freed = forced.stdout
        assert "span: 1 whole days" in freed
        assert "B of disk space freed" in freed
        assert service.ask("count", {"dataset": "spans"}) == {"count": 1}
        assert "no whole day had expired" in service.command("retention", "run", "--force")
        send_old_and_new(service)
        service.wait_for_spans(3)
        key = service.query_key
    with running(open_folder / "data") as again:
        until(lambda: again.metric("svc_retention_sweeps_total") >= 1)
        assert again.ask("count", {"dataset": "spans"}, key) == {"count": 2}
        details = again.health()["components"]["retention"]["details"]
        assert details["enabled"] is True
        # The day is gone, so what came late for it lay in no regular day.
        assert details["last_freed"]["span_rows"] == 1


@pytest.mark.release
def test_the_sealing_key_is_changed_beside_the_service_without_losing_a_value(open_folder: Path) -> None:
    old, new = (b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    with running(open_folder / "data", SVC_SECRET_KEY=old) as service:
        client = httpx2.Client(base_url=service.url, headers={"Origin": service.url}, timeout=30)
        with client:
            body = {"email": "owner@example.org", "password": PASSWORD}
            assert client.post("/auth/signup", json=body).status_code == 201
            integration = {"kind": "git", "provider": "github", "name": "code", "secret": "planted-0815"}
            assert client.post("/api/orgs/default/integrations", json=integration).status_code == 201
    with running(open_folder / "data", SVC_SECRET_KEY=new, SVC_SECRET_KEY_PREVIOUS=old) as service:
        assert "earlier   git 'code'" in service.command("secrets", "list")
        assert "1 of 1 encrypted again" in service.command("secrets", "rotate")
        assert "planted-0815" not in service.log.read_text()
        assert "0 of 1 encrypted again" in service.command("secrets", "rotate")


@pytest.mark.release
def test_a_sweeper_that_cannot_work_is_shown_and_tried_again_and_nobody_else_notices(
    open_folder: Path,
) -> None:
    async def rename(service: Service, old: str, new: str) -> None:
        async def work(connection: Connection) -> None:
            await connection.execute(f"alter table {old} rename to {new}")

        async with open_store(read_settings(service.env), as_it_is=True) as store:
            await store.database.run(work)

    with running(open_folder / "data", SVC_RETENTION_ENABLED="false") as service:
        trio.run(rename, service, "kept_trace", "hidden")
    with running(open_folder / "data", errors_expected=True) as service:

        def sweeper() -> dict[str, object]:
            found: dict[str, object] = service.health()["components"]["actors"]["details"][
                "retention-sweeper"
            ]
            return found

        until(lambda: sweeper()["state"] == "failed" and int(str(sweeper()["crashes"])) >= 2)
        assert "kept_trace" in str(sweeper()["last_error"])
        assert service.metric('svc_actor_crashes_total{actor="retention-sweeper"}') >= 2
        assert service.health()["components"]["actors"]["status"] == "UP"
        ready = httpx2.get(f"{service.url}/actuator/health/readiness", timeout=30, **PLAIN)
        assert ready.status_code == 200
        send_old_and_new(service)
        service.wait_for_spans(2)
        trio.run(rename, service, "hidden", "kept_trace")
        until(lambda: sweeper()["state"] == "running")
        assert service.metric("svc_retention_sweeps_total") >= 1
