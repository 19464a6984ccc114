"""A database that fails over under a flood: what was acknowledged is stored once, however the primary goes.

`make chaos` prints how long each failover took: until another member could be written to, and from then until
the service stored spans again. The figures judge nothing here; `deploy/operating.md` has those of one run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.chaos.flood import Flood, compare, stored
from tests.kafka.broker import DEAD_LETTERS, Broker
from tests.patroni import START_TIMEOUT_S, Cluster, Member, running_cluster
from tests.service import Service, running, until

pytestmark = [pytest.mark.alone, pytest.mark.release]

#: Rounds of each way; `make chaos` asks for more.
ROUNDS = max(1, int(os.environ.get("CHAOS_ROUNDS", "3")) // 10)

#: Three databases, etcd, perhaps a broker, the service and the flood share two cores.
PATIENCE_S = 300.0


@attrs.frozen
class Failover:
    """What is needed to have the primary go and to see what comes of it."""

    cluster: Cluster
    service: Service
    flood: Flood
    say: Callable[[str], None]

    def database(self) -> str:
        """Its status in health."""
        status: str = self.service.health()["components"]["db"]["status"]
        return status

    def spans(self) -> float:
        """How many are stored."""
        return self.service.metric("svc_ingest_stored_spans_total")

    def of(self, way: str, go: Callable[[Member], None], *, down: bool = True) -> Member:
        """Have the primary go in the midst of the flood, until spans are stored again. Returns who it was."""
        before = self.spans()
        until(lambda: self.spans() > before, PATIENCE_S, every_s=0.1)
        primary = self.cluster.primary()
        assert primary is not None
        began_s = time.monotonic()
        go(primary)
        if down:
            until(lambda: self.database() == "DOWN", PATIENCE_S, every_s=0.1)
        self.cluster.wait_for_successor(primary)
        writable_s = time.monotonic()
        before = self.spans()
        until(lambda: self.spans() > before, PATIENCE_S, every_s=0.1)
        stored_s = time.monotonic()
        until(lambda: self.database() == "UP", PATIENCE_S, every_s=0.1)
        self.say(
            f"{way}: another primary after {writable_s - began_s:.1f} s,"
            f" spans stored {stored_s - writable_s:.1f} s later"
        )
        self.flood.until_more(300)
        return primary

    def whole_again(self) -> None:
        """All three members are back."""
        until(self.cluster.whole, START_TIMEOUT_S, every_s=0.5)


@pytest.mark.parametrize("mode", ["disk", "kafka"])
def test_no_failover_loses_or_doubles_what_was_acknowledged(
    mode: str, open_folder: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{mode}, {text}")

    settings: Any = {"SVC_INGEST_SPOOL_MODE": mode}
    broker: Broker | None = None
    if mode == "kafka":
        broker = request.getfixturevalue("kafka")
        assert isinstance(broker, Broker)
        broker.clear()
        settings["SVC_INGEST_SPOOL_KAFKA_BOOTSTRAP_SERVERS"] = broker.servers
    with (
        running_cluster(open_folder / "cluster") as cluster,
        running(open_folder / "data", SVC_JDBC_URL=cluster.url, **settings) as service,
    ):
        with Flood(service.url, service.write_key, threads=1) as flood:
            failover = Failover(cluster, service, flood, say)
            for _ in range(ROUNDS):
                cluster.start_member(failover.of("killed", cluster.kill))
                failover.whole_again()
                frozen = failover.of("frozen", lambda primary: primary.signal(signal.SIGSTOP))
                # It takes itself for the primary until its Patroni has looked.
                frozen.signal(signal.SIGCONT)
                failover.whole_again()
                failover.of("switched over", cluster.switch_over, down=False)
                failover.whole_again()
        until(lambda: service.metric("svc_spool_depth_batches") == 0, 2 * PATIENCE_S)
        until(lambda: flood.acknowledged <= stored(service.env).keys(), PATIENCE_S, every_s=1.0)
        compare(flood, stored(service.env), attack="failover of a cluster", rounds=ROUNDS)
        say(f"{len(flood.acknowledged)} acknowledged spans, all of them stored once")
        assert service.metric("svc_ingest_dead_lettered_spans_total") == 0
        assert broker is None or broker.messages(DEAD_LETTERS) == []
        actors = service.health()["components"]["actors"]["details"]
        assert {actor["crashes"] for actor in actors.values()} == {0}
        # A command finds the primary as well.
        assert "rows in" in service.command("backup", str(open_folder / "backups"))
