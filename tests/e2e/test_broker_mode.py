"""Broker mode on a real Kafka: what was acknowledged is stored once, whoever dies in between."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from protocol.spooled import DeadLetter, pack_damaged, pack_letter
from protocol.storage import Letter
from tests.bench.load import fresh, make_template
from tests.chaos.flood import SPANS, Flood, compare, stored
from tests.debian_postgres import DEBIAN, DebianPostgres
from tests.forked import ran
from tests.kafka.broker import BATCHES, DEAD_LETTERS, GROUP, Broker
from tests.service import TRACE_SVC, Service, running, until
from tests.wire import request, span

pytestmark = pytest.mark.alone

#: Rounds of each attack; `make chaos` asks for more.
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))

#: A dead replica is noticed after six seconds, and then there is work to do, beside other work.
TAKEOVER_TIMEOUT_S = 90.0


@pytest.fixture
def topics(kafka: Broker) -> Broker:
    """The broker without any topic of the service."""
    kafka.clear()
    return kafka


def on(broker: Broker, **settings: str) -> dict[str, str]:
    """The settings of a service in broker mode."""
    return {
        "SVC_INGEST_SPOOL_MODE": "kafka",
        "SVC_INGEST_SPOOL_KAFKA_BOOTSTRAP_SERVERS": broker.servers,
        **settings,
    }


def all_stored(flood: Flood, service: Service) -> Counter[bytes]:
    """Until everything acknowledged stands in the database. Returns how often each span does."""

    def there() -> bool:
        return flood.acknowledged <= stored(service.env).keys()

    until(lambda: service.metric("svc_spool_depth_batches") == 0, TAKEOVER_TIMEOUT_S)
    try:
        until(there, TAKEOVER_TIMEOUT_S, every_s=0.5)
    except AssertionError:
        lacking = len(flood.acknowledged - stored(service.env).keys())
        raise AssertionError(f"{lacking} spans lack, ingest says {ingest(service)}") from None
    return stored(service.env)


def ingest(service: Service) -> dict[str, object]:
    details: dict[str, object] = service.health()["components"]["ingest"]["details"]
    return details


def test_kill_9_and_sigterm_in_mid_flood_lose_nothing_acknowledged(topics: Broker, open_folder: Path) -> None:
    data = open_folder / "data"
    with running(data, **on(topics)) as service:
        flood = Flood(service.url, service.write_key)
        with flood:
            flood.until_more(200)
            service.process.kill()
            service.process.wait(10)
            for _ in range(ROUNDS - 1):
                with running(data, **on(topics)) as service:
                    flood.url = service.url
                    flood.until_more(200)
                    service.process.kill()
                    service.process.wait(10)
            with running(data, **on(topics)) as service:
                flood.url = service.url
                flood.until_more(200)
                # Twice, as supervisors do: the second must not cut the drain off.
                service.process.send_signal(signal.SIGTERM)
                service.process.send_signal(signal.SIGTERM)
                assert service.process.wait(30) == 0
            flood.end()
        with running(data, **on(topics)) as service:
            found = all_stored(flood, service)
            compare(flood, found, attack="kill -9 of the service, broker mode", rounds=ROUNDS)
            assert topics.messages(DEAD_LETTERS) == []


def test_positions_are_committed_only_after_the_rows_are_stored(
    topics: Broker, postgres: DebianPostgres, open_folder: Path
) -> None:
    """Drainers hang in the database with batches in hand, the service is killed: all of it comes back."""
    settings = on(topics, SVC_JDBC_URL=postgres.url)
    with (
        running(open_folder / "one", **settings) as service,
        locked(postgres, "span"),
        Flood(service.url, service.write_key) as flood,
    ):
        flood.until_more(400)
        flood.end()
        sent = len(flood.acknowledged) // SPANS
        # Measured anew every two seconds, and positions are committed twice a second.
        until(lambda: ingest(service)["depth"] == sent)
        until(lambda: service.metric("svc_spool_oldest_age_seconds") >= 1)
        assert topics.lag() == sent
        service.process.kill()
        service.process.wait(10)
    with running(open_folder / "two", **settings) as service:
        compare(flood, all_stored(flood, service))
        until(lambda: topics.lag() == 0)


@pytest.mark.release
def test_replicas_share_the_partitions_and_one_takes_over_when_the_other_is_killed(
    topics: Broker, postgres: DebianPostgres, open_folder: Path
) -> None:
    settings = on(topics, SVC_JDBC_URL=postgres.url)
    with (
        running(open_folder / "one", **settings) as one,
        running(open_folder / "two", **settings) as two,
    ):
        until(lambda: shares(topics) == [4, 4], TAKEOVER_TIMEOUT_S)
        flood = Flood(one.url, one.write_key)
        with flood:
            flood.until_more(200)
            # One project lies in one partition; whoever has it stores what both accept.
            until(lambda: stores(one) != stores(two))
            killed, alive = (one, two) if stores(one) else (two, one)
            flood.url = alive.url
            flood.until_more(200)
            killed.process.kill()
            killed.process.wait(10)
            flood.until_more(200)
        compare(flood, all_stored(flood, alive))
        assert shares(topics) == [8]
        assert stores(alive)


@contextmanager
def locked(server: DebianPostgres, table: str) -> Iterator[None]:
    """Nobody else can write the table."""
    url = server.url.removeprefix("jdbc:")
    with subprocess.Popen(
        [DEBIAN[-1] / "psql", "-qAt", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as psql:
        assert psql.stdin is not None
        assert psql.stdout is not None
        psql.stdin.write(f"begin; lock table {table} in access exclusive mode; select 'locked';\n")
        psql.stdin.flush()
        assert psql.stdout.readline() == "locked\n"
        yield
        psql.stdin.close()


def stores(service: Service) -> bool:
    return service.metric("svc_ingest_stored_spans_total") > 0


def shares(broker: Broker) -> list[int]:
    """How many partitions each member of the group has."""
    found = broker.admin.describe_consumer_groups([GROUP])[GROUP].result(10)
    return sorted(len(member.assignment.topic_partitions) for member in found.members)


@pytest.mark.release
def test_a_broker_that_is_away_is_said_and_waited_for_at_the_start_and_later(topics: Broker) -> None:
    topics.stop()
    body = bytes(fresh(make_template(1, SPANS)))
    with running(**on(topics)) as service:
        assert topics.servers in str(ingest(service)["waiting_for"])
        answer = service.send(body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        topics.start()
        with Flood(service.url, service.write_key) as flood:
            flood.until_more(200)
            until(lambda: stores(service))
            topics.stop()
            until(lambda: topics.servers in str(ingest(service).get("waiting_for")))
            assert service.send(body).status_code == 503
            actors = service.health()["components"]["actors"]
            assert (actors["status"], actors["details"]["spool-broker"]["state"]) == ("UP", "waiting")
            assert all(actor["crashes"] == 0 for actor in actors["details"].values())
            topics.start()
            flood.until_more(200)
        until(lambda: "waiting_for" not in ingest(service))
        # A batch that was refused because no answer came may have reached the broker all the same.
        assert set(all_stored(flood, service).values()) == {1}
        said = [line for line in service.log.read_text().splitlines() if "outside.kafka" in line]
        assert len(said) <= 12


def test_a_message_that_is_no_batch_becomes_a_dead_letter_and_does_not_hold_up_the_rest(
    topics: Broker,
) -> None:
    with running(errors_expected=True, **on(topics)) as service:
        producer = Producer({"bootstrap.servers": topics.servers})
        for _ in range(2):
            producer.produce(BATCHES, b"\xff\x00 poison", key=b"1")
        assert producer.flush(10) == 0
        assert service.send(bytes(fresh(make_template(1, SPANS)))).status_code == 200
        service.wait_for_spans(SPANS)
        until(lambda: topics.lag() == 0)
        letters = [DeadLetter.parse(data) for data in topics.messages(DEAD_LETTERS)]
        assert [letter.damaged for letter in letters] == [b"\xff\x00 poison"] * 2
        assert all(letter.reason and letter.buried_us for letter in letters)
        assert ingest(service)["dead_lettered"] == 2
        until(lambda: service.metric("svc_ledger_balance_spans") == 0)
        done = subprocess.run(
            [TRACE_SVC, "doctor"], env=dict(service.env), capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert "1 broker, svc.ingest has 8 partitions" in done.stdout


@pytest.mark.release
def test_letters_in_the_broker_come_home_once_and_are_replayed(topics: Broker) -> None:
    good = request(span("a second chance")).SerializeToString()
    received = datetime(2026, 11, 1, tzinfo=UTC)
    with running(**on(topics)) as service:
        producer = Producer({"bootstrap.servers": topics.servers})
        for letter in (
            pack_letter(Letter(1, "StoreRefused: DataError", good, received, 1), buried_at=received),
            pack_damaged(Letter(0, "no batch", b"\xff", received, 1), buried_at=received),
            b"\xff\x00 not even a letter",
        ):
            producer.produce(DEAD_LETTERS, letter, key=b"1")
        assert producer.flush(10) == 0

        def letters(*words: str) -> subprocess.CompletedProcess[str]:
            done = ran([TRACE_SVC, "dead-letters", *words], env=dict(service.env), timeout_s=60)
            assert done.returncode == 0, done.stderr
            return done

        first = letters("list")
        assert "fetched 3 dead letters" in first.stderr
        assert "StoreRefused: DataError" in first.stdout
        again = letters("list")
        assert again.stdout == first.stdout
        assert "brought" not in again.stderr
        # What is no OTLP stays, with its reason; the span is stored.
        assert "replayed 1 dead letters, 1 spans stored" in letters("replay", "--all").stdout
        assert len(letters("list").stdout.splitlines()) == 3
        service.wait_for_spans(1)


def test_a_batch_that_no_message_can_hold_is_refused_for_good(topics: Broker) -> None:
    """The topic is the operator's, with a limit below that of the door: it stays as it is."""
    topics.make_topic(BATCHES, 2, max_message_bytes="100000")
    noise = random.Random(1).randbytes(300_000).hex()
    with running(**on(topics)) as service:
        large = request(span(attributes={"noise": noise})).SerializeToString()
        assert service.send(large).status_code == 413
        assert service.send(bytes(fresh(make_template(1, SPANS)))).status_code == 200
        service.wait_for_spans(SPANS)
        assert service.metric("svc_spool_refused_never_total") == 1
        assert len(topics.admin.list_topics(timeout=10).topics[BATCHES].partitions) == 2
