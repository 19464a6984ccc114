"""Our topics in a Kafka-API broker: making them, looking whether they are there, measuring what waits.

Owns a consumer without a group membership, for questions only, and an admin client. Everything blocks, with a
deadline each, and raises `KafkaException`; threads of `svc.outside.kafka.brokers` and of the doctor call it.

An existing topic is left as it is, with its own number of partitions and its own largest message.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs leave two names out
    AdminClient,
    ConfigResource,
    NewTopic,
)

from protocol.broker import Backlog
from protocol.storage import Outage
from svc.outside.kafka.cluster import Kafka
from svc.outside.kafka.log import BoundedLog

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 2.0
#: Making a topic waits until it is everywhere.
MAKE_TIMEOUT_S: Final = 10.0
MAKE_PAUSE_S: Final = 0.1
#: Dead letters are few, and somebody has to look at them: they are kept until somebody deletes them.
FOR_EVER: Final = "-1"

T = TypeVar("T")


@attrs.frozen
class Survey:
    """What is there: partitions of the batches, and the largest message of each topic in bytes."""

    partitions: tuple[int, ...]
    limits: Mapping[str, int]


class Topics:
    """Questions about our topics. One thread at a time."""

    def __init__(self, kafka: Kafka, settings: Callable[..., dict[str, Any]]) -> None:
        self._kafka = kafka
        self._admin = AdminClient(settings())
        self._asker = Consumer(
            settings(
                group_id=kafka.group,
                enable_auto_commit=False,
                allow_auto_create_topics=False,
                # It reads single messages to see how old they are.
                max_partition_fetch_bytes=1,
                queued_min_messages=1,
                fetch_queue_backoff_ms=20,
                fetch_wait_max_ms=100,
                fetch_max_bytes=kafka.message_bytes,
                receive_message_max_bytes=2 * kafka.message_bytes,
            )
        )
        #: Partition and position of the messages whose time is known, Unix seconds.
        self._times: dict[tuple[int, int], float] = {}

    def close(self) -> None:
        """Let go of the connections."""
        self._asker.close()

    def ensure(self) -> Survey:
        """Make the topics that are missing and say what is there."""
        names = (self._kafka.batches, self._kafka.dead_letters)
        missing = [name for name in names if self.partitions(name) is None]
        if missing:
            self._make(missing)
        deadline_s = time.monotonic() + MAKE_TIMEOUT_S
        while any(self.partitions(name) is None for name in names):
            if time.monotonic() > deadline_s:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "the topics do not appear"))
            time.sleep(MAKE_PAUSE_S)
        partitions = self.partitions(self._kafka.batches)
        return Survey(partitions or (), {name: self._limit(name) for name in names})

    def probe(self) -> None:
        """Whether the brokers answer and the topic of the batches is still there."""
        if self.partitions(self._kafka.batches) is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "the topic is gone"))

    def described(self) -> str:
        """Brokers and topics in a sentence; nothing is made."""
        brokers = len(self._asker.list_topics(self._kafka.batches, timeout=TIMEOUT_S).brokers)
        parts = [f"{brokers} broker{'s' if brokers > 1 else ''}"]
        for name in (self._kafka.batches, self._kafka.dead_letters):
            numbers = self.partitions(name)
            parts.append(f"{name} {'will be made' if numbers is None else f'has {len(numbers)} partitions'}")
        return ", ".join(parts)

    def partitions(self, name: str) -> tuple[int, ...] | None:
        """The partitions of a topic, None when there is no such topic."""
        metadata = self._asker.list_topics(name, timeout=TIMEOUT_S).topics[name]
        if metadata.error is None:
            return tuple(sorted(metadata.partitions))
        if metadata.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return None
        raise KafkaException(metadata.error)

    def backlog(self, partitions: Iterable[int], stored: Mapping[int, int]) -> Backlog:
        """What no replica has finished. `stored` holds our positions that may not be committed yet."""
        topic_partitions = [TopicPartition(self._kafka.batches, number) for number in partitions]
        heads: dict[int, int] = {}
        messages = 0
        for partition in self._asker.committed(topic_partitions, timeout=TIMEOUT_S):
            if partition.error is not None:
                raise KafkaException(partition.error)
            low, high = self._asker.get_watermark_offsets(partition, timeout=TIMEOUT_S)
            # A position behind the end is of an older topic of that name.
            position = max(partition.offset, low) if partition.offset <= high else low
            own_position = stored.get(partition.partition, position)
            if position < own_position <= high:
                position = own_position
            if position < high:
                messages += high - position
                heads[partition.partition] = position
        return Backlog(messages, self._oldest_s(heads))

    def _oldest_s(self, heads: Mapping[int, int]) -> float | None:
        """The time of the oldest of these messages; those that were not asked before are read."""
        self._times = {head: time_s for head, time_s in self._times.items() if head in heads.items()}
        unknown = [head for head in heads.items() if head not in self._times]
        if unknown:
            self._asker.assign([TopicPartition(self._kafka.batches, *head) for head in unknown])
            try:
                for _ in unknown:
                    message = self._asker.poll(TIMEOUT_S)
                    if message is None:
                        break
                    if message.error() is None:
                        partition, offset = message.partition(), message.offset()
                        assert partition is not None
                        assert offset is not None
                        self._times[partition, offset] = message.timestamp()[1] / 1000
            finally:
                self._asker.unassign()
        return min(self._times.values(), default=None)

    def _make(self, names: Iterable[str]) -> None:
        replicas = self._kafka.replication_factor
        common = {
            "max.message.bytes": str(self._kafka.message_bytes),
            "min.insync.replicas": "2" if replicas > 1 else "1",
        }
        special = {self._kafka.dead_letters: {"retention.ms": FOR_EVER}}
        new_topics = [
            NewTopic(name, self._kafka.partitions, replicas, config={**common, **special.get(name, {})})
            for name in names
        ]
        for future in self._admin.create_topics(new_topics, request_timeout=MAKE_TIMEOUT_S).values():
            try:
                _answer(future, MAKE_TIMEOUT_S)
            except KafkaException as failure:
                # Another replica was faster.
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _limit(self, name: str) -> int:
        """The largest message that a topic takes; ours at most, which the producer is set to."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        futures = self._admin.describe_configs([resource], request_timeout=TIMEOUT_S)
        limit = _answer(futures[resource], TIMEOUT_S)["max.message.bytes"].value
        return min(int(limit), self._kafka.message_bytes)


def _answer(future: Future[T], timeout_s: float) -> T:
    """What the brokers answer. Raises `KafkaException`, also where they do not answer in time."""
    try:
        return future.result(timeout_s)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def described(kafka: Kafka) -> str:
    """Brokers and topics in a sentence, for the operator. Blocks; raises `Outage`."""
    topics = Topics(kafka, partial(kafka.client_settings, BoundedLog(log)))
    try:
        return topics.described()
    except KafkaException as failure:
        raise Outage(failure.args[0].str()) from failure
    finally:
        topics.close()
