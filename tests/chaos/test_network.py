"""The network between any two parts fails, and the clock jumps: what was acknowledged is stored once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.flood import Flood, compare, stored
from tests.chaos.link import Link
from tests.chaos.test_disk_mode import DISK, ROUNDS, at_rest
from tests.conftest import missing
from tests.debian_postgres import DebianPostgres
from tests.e2e.test_broker_mode import all_stored, on
from tests.kafka.broker import Broker
from tests.service import running

pytestmark = [pytest.mark.alone, pytest.mark.release]


def fail_under(flood: Flood, link: Link) -> None:
    """Let the network fail again and again, and the flood go on each time."""
    dice = random.Random(20261128)
    for _ in range(ROUNDS):
        flood.until_more(100)
        link.fail(dice)
    flood.until_more(100)


def test_a_network_that_fails_before_the_database_costs_nothing_acknowledged(
    postgres: DebianPostgres, open_folder: Path
) -> None:
    with Link(postgres.port) as link:
        url = postgres.url.replace(f":{postgres.port}/", f":{link.port}/")
        with running(open_folder / "data", SVC_JDBC_URL=url, **DISK) as service:
            with Flood(service.url, service.write_key) as flood:
                fail_under(flood, link)
            at_rest(service)
            compare(flood, stored(service.env), attack="network before the database", rounds=ROUNDS)


def test_a_network_that_fails_before_the_service_costs_nothing_acknowledged(open_folder: Path) -> None:
    with (
        running(open_folder / "data", **DISK) as service,
        Link(int(service.url.rpartition(":")[2])) as link,
    ):
        with Flood(f"http://127.0.0.1:{link.port}", service.write_key) as flood:
            fail_under(flood, link)
        at_rest(service)
        compare(flood, stored(service.env), attack="network before the service", rounds=ROUNDS)


def test_a_network_that_fails_before_the_broker_costs_nothing_acknowledged(
    kafka: Broker, open_folder: Path
) -> None:
    kafka.clear()
    with kafka.linked() as link:
        settings = on(kafka, SVC_INGEST_SPOOL_KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{link.port}")
        with running(open_folder / "data", **settings) as service:
            with Flood(service.url, service.write_key) as flood:
                fail_under(flood, link)
            found = all_stored(flood, service)
            # What the broker took without being able to say so is stored, once, and returned all the same.
            flood.maybe |= flood.returned
            compare(flood, found, attack="network before the broker", rounds=ROUNDS)


def test_a_clock_that_jumps_costs_nothing_acknowledged(open_folder: Path) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        missing("libfaketime")
    dice, ahead = random.Random(20261128), open_folder / "ahead"
    ahead.write_text("+0")
    ahead.chmod(0o644)
    faked = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(ahead),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with running(open_folder / "data", **DISK, **faked) as service:
        with Flood(service.url, service.write_key) as flood:
            for _ in range(ROUNDS):
                flood.until_more(100)
                written = open_folder / "next"
                # From an hour back to two days ahead, in one step.
                written.write_text(f"{dice.choice((-3600, -60, 0, 60, 3600, 86_400, 172_800)):+d}")
                written.chmod(0o644)
                written.replace(ahead)
            flood.until_more(100)
        at_rest(service)
        compare(flood, stored(service.env), attack="clock that jumps", rounds=ROUNDS)
