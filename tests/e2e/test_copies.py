"""Two copies of the service on one database, behind a balancer: one is killed in mid-flood."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.balancer import balanced
from tests.chaos.flood import Flood, compare, stored
from tests.debian_postgres import DebianPostgres
from tests.service import Service, running, until

pytestmark = [pytest.mark.alone, pytest.mark.release]

#: A lease holds for thirty seconds, and is looked at every ten.
TAKEOVER_TIMEOUT_S = 60.0


def leads(service: Service) -> bool:
    """Whether this copy has said that it has a duty."""
    return 'event="this copy has the duty of heartbeat"' in service.log.read_text()


def test_two_copies_behind_a_balancer_lose_nothing_acknowledged_when_one_is_killed(
    postgres: DebianPostgres, open_folder: Path
) -> None:
    settings: dict[str, Any] = {
        "SVC_JDBC_URL": postgres.url,
        "SVC_INGEST_SPOOL_MODE": "disk",
        "SVC_INGEST_DECODERS": "0",
    }
    with ExitStack() as copies:
        one = copies.enter_context(running(open_folder / "one", **settings))
        until(lambda: leads(one), TAKEOVER_TIMEOUT_S)
        two = copies.enter_context(running(open_folder / "two", **settings))
        front = copies.enter_context(balanced([one.port, two.port]))
        flood = Flood(f"http://127.0.0.1:{front}", one.write_key, threads=4)
        with flood:
            flood.until_more(400)
            assert all(copy.metric("svc_ingest_accepted_spans_total") > 0 for copy in (one, two))
            assert not leads(two)
            one.process.kill()
            one.process.wait(10)
            flood.until_more(400)
            until(lambda: leads(two), TAKEOVER_TIMEOUT_S)
        # What the dead one had acknowledged lies in its folder, which is started again.
        again = copies.enter_context(running(open_folder / "one", **settings))
        for copy in (again, two):
            until(lambda copy=copy: copy.health()["components"]["ingest"]["details"]["depth"] == 0)
        compare(flood, stored(two.env))
        said = two.command("doctor")
        assert "notifications between copies arrive" in said
