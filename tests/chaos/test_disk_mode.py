"""Disk mode under attack: what was acknowledged is stored once, whatever dies in between."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.flood import SPANS, Flood, compare, stored
from tests.service import Service, running, until
from tests.small_disk import small_disk

pytestmark = pytest.mark.alone

#: Rounds of each attack; `make chaos` asks for the full number.
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "3"))
#: The wait before a server that dies again and again is started doubles up to half a minute.
DATABASE_ROUNDS = min(ROUNDS, 20)

DISK = {"SVC_INGEST_SPOOL_MODE": "disk"}


#: The slowest that a backlog may go away, in spans a second. Twenty kills may leave all of a flood waiting.
CATCHING_UP: Final = 1000


def at_rest(service: Service) -> None:
    """Everything written, and the ledger adds up."""
    waiting = service.metric("svc_spool_depth_batches") * SPANS
    until(lambda: service.metric("svc_spool_depth_batches") == 0, timeout_s=60 + waiting / CATCHING_UP)
    until(lambda: service.metric("svc_ledger_balance_spans") == 0)


def postmaster(service: Service) -> int | None:
    """The embedded server's process while the database answers, else None."""
    database = service.health()["components"]["db"]
    pid: int | None = database["details"]["embedded"]["pid"] if database["status"] == "UP" else None
    return pid


def test_kill_9_at_a_random_moment_loses_nothing_acknowledged(open_folder: Path) -> None:
    dice = random.Random(20261120)
    data = open_folder / "data"
    with running(data, **DISK) as service:
        flood = Flood(service.url, service.write_key)
    with flood:
        for _ in range(ROUNDS):
            with running(data, **DISK) as service:
                flood.url = service.url
                flood.until_more()
                # How long it lives under load is the dice's, not the test's.
                until(lambda: dice.random() < 0.05, every_s=0.05)
                service.process.kill()
                service.process.wait(10)
        with running(data, **DISK) as service:
            flood.url = service.url
            flood.until_more()
            flood.end()
            at_rest(service)
            compare(flood, stored(service.env), attack="kill -9 of the service, disk mode", rounds=ROUNDS)


def test_kill_9_of_the_database_loses_nothing_acknowledged() -> None:
    with running(**DISK) as service:
        with Flood(service.url, service.write_key) as flood:
            for _ in range(DATABASE_ROUNDS):
                flood.until_more(100)
                pid = postmaster(service)
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                # The old one's backends may still answer for a moment: up again is another process.
                until(lambda pid=pid: postmaster(service) not in (pid, None), timeout_s=60)  # type: ignore[misc]
        at_rest(service)
        compare(flood, stored(service.env), attack="kill -9 of the database", rounds=DATABASE_ROUNDS)


@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_kill_9_of_a_decoder_process_loses_nothing_acknowledged(mode: str) -> None:
    with running(SVC_INGEST_SPOOL_MODE=mode, SVC_INGEST_DECODERS="1") as service:
        with Flood(service.url, service.write_key) as flood:
            for _ in range(ROUNDS):
                flood.until_more(100)
                (pid,) = service.decoders()
                os.kill(pid, signal.SIGKILL)
                until(lambda pid=pid: service.decoders() not in ([pid], []))  # type: ignore[misc]
        at_rest(service)
        compare(flood, stored(service.env), attack=f"kill -9 of a decoder, {mode} mode", rounds=ROUNDS)


def test_a_service_killed_with_9_leaves_no_decoder_process_behind(open_folder: Path) -> None:
    with running(open_folder / "data", SVC_INGEST_DECODERS="2") as service:
        with Flood(service.url, service.write_key):
            # The second begins when there is more than the first can take.
            until(lambda: len(service.decoders()) == 2, timeout_s=60)
            decoders = service.decoders()
            service.process.kill()
            service.process.wait(10)
        until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in decoders))


def test_sigterm_in_mid_flood_stores_everything_acknowledged(open_folder: Path) -> None:
    with running(open_folder / "data", **DISK) as service:
        with Flood(service.url, service.write_key) as flood:
            until(lambda: len(flood.acknowledged) > 300)
            assert service.stop() == 0
        compare(flood, stored(service.env), attack="SIGTERM under load")


def test_a_disk_that_fills_up_answers_503_and_goes_on_when_there_is_room(open_folder: Path) -> None:
    spool = open_folder / "data" / "spool"
    with running(open_folder / "data", **DISK) as service:
        # The data folder is the service's to make; the small disk goes below it for a second run.
        key = service.write_key
    with (
        small_disk(spool, "160m", mode="700"),
        running(open_folder / "data", **DISK) as service,
        Flood(service.url, key) as flood,
    ):
        until(lambda: len(flood.acknowledged) > 100)
        ballast = spool / "ballast"
        ballast.write_bytes(bytes(100 * 1024 * 1024))
        until(lambda: flood.refused > 3)
        ballast.unlink()
        flood.until_more(100)
        flood.end()
        at_rest(service)
        compare(flood, stored(service.env), attack="disk that fills up")


def test_memory_mode_loses_at_most_what_was_in_the_buffer_when_it_is_killed(open_folder: Path) -> None:
    with running(open_folder / "data") as service:
        with Flood(service.url, service.write_key) as flood:
            until(lambda: service.metric("svc_ingest_stored_spans_total") > 0)
            flood.until_more(300)
            waiting = service.metric("svc_spool_bytes")
            stored_before = service.metric("svc_ingest_stored_spans_total")
            service.process.kill()
            service.process.wait(10)
        found = stored(service.env)
        lost = len(flood.acknowledged - found.keys())
        print(f"lost {lost} of {len(flood.acknowledged)} acknowledged spans; {waiting:.0f} bytes waited")
        # Everything that was not in the buffer is there, once.
        assert all(count == 1 for count in found.values())
        assert len(found) >= stored_before > 0
