"""The client on a real Kafka: topics, answers, positions, sharing, holding back, the backlog, outages."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta

import attrs
import pytest
import trio
from confluent_kafka import KafkaException

from protocol.broker import Arrival, Backlog, Published
from protocol.storage import Outage
from svc.outside.kafka import topics
from svc.outside.kafka.brokers import CLOSE_TIMEOUT_S, Link, opened
from svc.outside.kafka.cluster import Kafka
from svc.outside.kafka.rewinding import GroupInUse, rewind
from svc.outside.kafka.security import Security
from svc.outside.kafka.topics import described
from tests.chaos import link as chaos
from tests.kafka.broker import PASSWORD, Broker, unique
from tests.service import free_port

TIMEOUT_S = 60.0


class Notes:
    """An inbox that writes down what it is told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.is_back = False
        self.partitions: set[int] = set()
        self.arrivals: list[Arrival] = []
        self.backlog = Backlog(-1)

    def away(self, reason: str) -> None:
        self.reasons.append(reason)
        self.is_back = False

    def back(self) -> None:
        self.is_back = True

    def assigned(self, partitions: Sequence[int]) -> None:
        self.partitions |= set(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        self.partitions -= set(partitions)

    def arrived(self, messages: Sequence[Arrival]) -> None:
        assert {message.partition for message in messages} <= self.partitions
        self.arrivals += messages

    def measured(self, backlog: Backlog) -> None:
        self.backlog = backlog

    @property
    def values(self) -> list[bytes]:
        return [message.value for message in self.arrivals]


async def until(condition: Callable[[], bool]) -> None:
    """What is waited for happens in the client's threads and in the broker."""
    with trio.fail_after(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - nothing there would set an event
            await trio.sleep(0.02)


@pytest.fixture
def ours(kafka: Broker) -> Kafka:
    """Topics and a group that nobody else has."""
    name = unique("test")
    return Kafka(kafka.servers, batches=name, dead_letters=f"{name}-dead", group=name, survey_every_s=0.2)


@asynccontextmanager
async def linked(kafka: Kafka, notes: Notes | None = None) -> AsyncIterator[tuple[Link, Notes]]:
    """A link that has its partitions."""
    notes = notes or Notes()
    async with opened(kafka, notes) as link:
        await until(lambda: notes.is_back and bool(notes.partitions))
        yield link, notes


@asynccontextmanager
async def apart(network: chaos.Link) -> AsyncIterator[chaos.Link]:
    """The network, begun and ended from another thread, as its verbs are said from one."""
    await trio.to_thread.run_sync(network.__enter__)
    try:
        yield network
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(network.__exit__, None, None, None)


async def published(link: Link, *values: bytes, key: bytes = b"1") -> list[Published]:
    answers: list[Published] = []
    for value in values:
        link.publish("batches", key, value, answers.append)
    await until(lambda: len(answers) == len(values))
    return answers


async def test_missing_topics_are_made_and_others_are_left_as_they_are(ours: Kafka, kafka: Broker) -> None:
    assert described(ours).endswith(f", {ours.batches} will be made, {ours.dead_letters} will be made")
    kafka.make_topic(ours.dead_letters, 3)
    async with linked(ours) as (_, notes):
        assert notes.partitions == set(range(8))
        assert f"{ours.batches} has 8 partitions" in described(ours)
        assert f"{ours.dead_letters} has 3 partitions" in described(ours)


async def test_an_accepted_message_arrives_as_it_was_and_a_key_stays_in_one_partition(ours: Kafka) -> None:
    values = [random.Random(n).randbytes(n * 1000) for n in range(1, 21)]
    async with linked(ours) as (link, notes):
        assert await published(link, *values) == ["accepted"] * 20
        await until(lambda: len(notes.arrivals) == 20)
        assert notes.values == values
        assert len({message.partition for message in notes.arrivals}) == 1


async def test_a_message_above_the_limit_never_fits_and_a_request_of_many_does(
    ours: Kafka, kafka: Broker
) -> None:
    kafka.make_topic(ours.batches, 1, max_message_bytes="300000")
    noise = random.Random(1).randbytes
    async with linked(ours) as (link, _):
        assert await published(link, noise(300_000), noise(299_000)) == ["never", "accepted"]
        assert await published(link, *(noise(90_000) for _ in range(20))) == ["accepted"] * 20


async def test_the_next_link_goes_on_at_the_committed_position(ours: Kafka) -> None:
    async with linked(ours) as (link, notes):
        await published(link, b"a", b"b", b"c")
        await until(lambda: notes.values == [b"a", b"b", b"c"])
        link.commit(notes.arrivals[0].partition, notes.arrivals[1].offset)
    async with linked(ours) as (_, notes):
        await until(lambda: len(notes.arrivals) >= 2)
        assert notes.values == [b"b", b"c"]


async def test_a_position_behind_the_end_hides_nothing_and_gives_way_to_ours(
    ours: Kafka, kafka: Broker
) -> None:
    kafka.make_topic(ours.batches, 1)
    kafka.commit(ours.batches, ours.group, 1000)
    async with linked(ours) as (link, notes):
        await published(link, b"a", b"b", b"c")
        await until(lambda: notes.values == [b"a", b"b", b"c"])
        await until(lambda: notes.backlog.messages == 3)
        link.commit(0, 2)
        await until(lambda: kafka.lag(ours.batches, ours.group) == 1)
    async with linked(ours) as (_, notes):
        await until(lambda: bool(notes.arrivals))
        assert notes.values == [b"c"]


async def test_what_was_published_before_leaving_is_delivered(ours: Kafka) -> None:
    answers: list[Published] = []
    async with linked(ours) as (link, _):
        for number in range(50):
            link.publish("batches", str(number).encode(), b"x" * 10_000, answers.append)
    assert answers == ["accepted"] * 50
    link.publish("batches", b"1", b"late", answers.append)
    assert answers[50:] == ["full"]


async def test_two_links_share_the_partitions_and_the_one_that_leaves_hands_over(ours: Kafka) -> None:
    async with linked(ours) as (stays, first):
        async with linked(ours) as (_, second):
            await until(lambda: (len(first.partitions), len(second.partitions)) == (4, 4))
            assert not first.partitions & second.partitions
            for number in range(40):
                await published(stays, b"shared", key=str(number).encode())
            await until(lambda: len(first.arrivals) + len(second.arrivals) == 40)
            assert first.arrivals
            assert second.arrivals
        began_s = time.monotonic()
        await until(lambda: len(first.partitions) == 8)
        assert time.monotonic() - began_s < 4, "it left without saying so"


async def test_a_position_in_a_partition_that_was_given_away_is_not_committed(
    ours: Kafka, kafka: Broker
) -> None:
    async with linked(ours) as (gives, first), linked(ours) as (_, second):
        await until(lambda: (len(first.partitions), len(second.partitions)) == (4, 4))
        given, kept = min(second.partitions), min(first.partitions)
        gives.commit(given, 7)
        gives.commit(kept, 7)
        await until(lambda: kafka.committed(ours.batches, ours.group, kept) == 7)
        assert kafka.committed(ours.batches, ours.group, given) < 0


async def test_a_paused_link_takes_nothing_and_goes_on_without_loss_or_repetition(ours: Kafka) -> None:
    async with linked(ours) as (link, notes):
        await published(link, b"0")
        await until(lambda: len(notes.arrivals) == 1)
        link.pause()
        await until(lambda: link._held == notes.partitions)
        await published(link, *(str(number).encode() for number in range(1, 30)))
        await until(lambda: notes.backlog.messages == 30)
        assert len(notes.arrivals) == 1
        link.resume()
        await until(lambda: len(notes.arrivals) >= 30)
        assert notes.values == [str(number).encode() for number in range(30)]


async def test_the_backlog_is_what_nobody_has_finished_and_dates_the_oldest(ours: Kafka) -> None:
    async with linked(ours) as (link, notes):
        await until(lambda: notes.backlog == Backlog(0, None))
        began_s = time.time()
        await published(link, b"a", b"b", key=b"1")
        await published(link, b"c", key=b"2")
        await until(lambda: notes.backlog.messages == 3)
        first_s = notes.backlog.oldest_s
        assert first_s is not None
        assert -0.1 <= first_s - began_s <= TIMEOUT_S
        await until(lambda: len(notes.arrivals) == 3)
        oldest = next(message for message in notes.arrivals if message.value == b"a")
        link.commit(oldest.partition, oldest.offset + 1)
        await until(lambda: notes.backlog.messages == 2)
        assert notes.backlog.oldest_s is not None
        assert notes.backlog.oldest_s >= first_s
        for message in notes.arrivals:
            if message.value != b"a":
                link.commit(message.partition, message.offset + 1)
        await until(lambda: notes.backlog == Backlog(0, None))


async def test_a_broker_that_is_not_there_is_said_and_leaving_takes_no_longer_for_it() -> None:
    nowhere, notes = Kafka(f"127.0.0.1:{free_port()}"), Notes()
    answers: list[Published] = []
    async with opened(nowhere, notes) as link:
        link.publish("batches", b"1", b"x", answers.append)
        assert answers == ["full"]
        await until(lambda: bool(notes.reasons))
        assert nowhere.servers in notes.reasons[0]
        began_s = time.monotonic()
    assert time.monotonic() - began_s < CLOSE_TIMEOUT_S
    with pytest.raises(Outage):
        described(nowhere)


async def test_connections_that_a_network_forgot_are_made_anew(ours: Kafka, kafka: Broker) -> None:
    """As behind a router that lost its state: nothing comes back, and nobody is told."""
    async with (
        apart(kafka.linked()) as network,
        linked(attrs.evolve(ours, servers=f"127.0.0.1:{network.port}")) as (link, notes),
    ):
        await trio.to_thread.run_sync(network.forget)
        # A message that nobody takes is given back after six seconds, a connection given up as soon.
        with trio.fail_after(2 * TIMEOUT_S):
            while await published(link, b"again") != ["accepted"]:
                await until(lambda: notes.is_back)


def test_an_answer_that_does_not_come_is_an_outage_and_no_crash() -> None:
    with pytest.raises(KafkaException, match="Timed out"):
        topics._answer(Future(), 0.01)


async def test_more_copies_than_there_are_brokers_is_an_outage_that_names_the_reason(ours: Kafka) -> None:
    notes = Notes()
    async with opened(attrs.evolve(ours, replication_factor=9), notes):
        await until(lambda: bool(notes.reasons))
    assert "eplication factor" in notes.reasons[0]
    assert not notes.is_back


async def test_a_bug_in_the_inbox_ends_the_link_and_not_the_process(ours: Kafka) -> None:
    class Broken(Notes):
        def assigned(self, partitions: Sequence[int]) -> None:
            raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with opened(ours, Broken()):
            await trio.sleep(TIMEOUT_S)


def secured(ours: Kafka, kafka: Broker, **changes: str | None) -> Kafka:
    """As `ours`, over TLS with name and password."""
    server, root = kafka.secured()
    security = Security("SASL_SSL", user="svc", password=PASSWORD, ca_file=str(root))
    return attrs.evolve(ours, servers=server, security=attrs.evolve(security, **changes))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
async def test_a_broker_that_wants_tls_and_a_password_is_spoken_to_by_either_mechanism(
    ours: Kafka, kafka: Broker, mechanism: str
) -> None:
    async with linked(secured(ours, kafka, mechanism=mechanism)) as (link, notes):
        assert await published(link, b"secret") == ["accepted"]
        await until(lambda: notes.values == [b"secret"])
    assert described(ours)


@pytest.mark.parametrize(
    ("wrong", "said"), [({"password": "wrong"}, "uthentication"), ({"ca_file": None}, "certificate")]
)
async def test_a_wrong_password_or_certificate_is_an_outage_and_no_password_is_told(
    ours: Kafka, kafka: Broker, caplog: pytest.LogCaptureFixture, wrong: dict[str, str | None], said: str
) -> None:
    notes, other = Notes(), secured(ours, kafka, **wrong)
    with pytest.raises(Outage):
        await trio.to_thread.run_sync(described, other)
    async with opened(other, notes):
        await until(lambda: bool(notes.reasons))
    assert said in caplog.text
    assert PASSWORD not in caplog.text + repr(other) + "".join(notes.reasons)


async def test_a_group_that_is_set_back_reads_again_what_came_since_and_skips_nothing(ours: Kafka) -> None:
    async with linked(ours) as (link, notes):
        await published(link, b"a", b"b", key=b"1")
        await until(lambda: len(notes.arrivals) == 2)
        # Messages are dated to the millisecond.
        came = datetime.now(UTC)
        await until(lambda: datetime.now(UTC) - came > timedelta(milliseconds=5))
        middle = datetime.now(UTC)
        await until(lambda: datetime.now(UTC) - middle > timedelta(milliseconds=5))
        await published(link, b"c", key=b"1")
        await until(lambda: len(notes.arrivals) == 3)
        link.commit(notes.arrivals[0].partition, notes.arrivals[2].offset + 1)
    told: list[str] = []
    assert await trio.to_thread.run_sync(rewind, ours, middle, told.append) == 1
    # Later than what is committed now: nothing is skipped.
    assert await trio.to_thread.run_sync(rewind, ours, datetime.now(UTC), told.append) == 1
    assert told == []
    async with linked(ours) as (_, notes):
        await until(lambda: notes.values == [b"c"])
    nobody = Kafka(f"127.0.0.1:{free_port()}")
    with pytest.raises(Outage):
        await trio.to_thread.run_sync(rewind, nobody, middle, told.append)


#: A member of a group that says when it is one.
MEMBER = """
import sys
from confluent_kafka import Consumer
servers, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "session.timeout.ms": 6000})
consumer.subscribe([topic], on_assign=lambda *_: print("joined", flush=True))
while True:
    consumer.poll(0.2)
"""


@contextmanager
def member(kafka: Kafka) -> Iterator[subprocess.Popen[str]]:
    """A process that has joined the group, and is killed at the end."""
    words = [sys.executable, "-c", MEMBER, kafka.servers, kafka.group, kafka.batches]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "joined\n"
            yield process
        finally:
            process.kill()


async def test_a_member_that_was_killed_is_waited_for_and_the_wait_is_told(ours: Kafka) -> None:
    async with linked(ours) as (link, notes):
        await published(link, b"a", key=b"1")
        await until(lambda: len(notes.arrivals) == 1)
        link.commit(notes.arrivals[0].partition, notes.arrivals[0].offset + 1)
    with member(ours) as process:
        process.kill()
    told: list[str] = []
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    assert await trio.to_thread.run_sync(rewind, ours, long_ago, told.append) == 1
    assert told
    assert f"the group {ours.group} has a member, perhaps of a service that was killed" in told[0]


async def test_a_member_that_lives_ends_the_wait_with_what_to_do(
    ours: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked(ours) as (link, notes):
        await published(link, b"a", key=b"1")
        await until(lambda: len(notes.arrivals) == 1)
        link.commit(notes.arrivals[0].partition, notes.arrivals[0].offset + 1)
    monkeypatch.setattr("svc.outside.kafka.rewinding.MEMBER_PATIENCE_S", 0.0)
    with member(ours), pytest.raises(GroupInUse, match="stop every service that reads it"):
        await trio.to_thread.run_sync(rewind, ours, datetime.now(UTC) - timedelta(hours=1), print)
