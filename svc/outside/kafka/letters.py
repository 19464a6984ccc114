"""Bringing dead letters home from a Kafka-API broker.

`collect` reads the topic of dead letters from where the last collection ended and hands the messages over in
chunks; a chunk's positions are committed after it was taken, so that a crash between the two hands it over
again and loses none. Called by the command line; blocks only in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import trio
from confluent_kafka import Consumer, KafkaException, TopicPartition

from protocol.storage import Outage
from svc.outside.kafka.cluster import Kafka
from svc.outside.kafka.log import BoundedLog
from svc.outside.kafka.topics import TIMEOUT_S

T = TypeVar("T")

log = logging.getLogger(__name__)

CHUNK: Final = 100
READ_TIMEOUT_S: Final = 10.0
#: Its positions are those up to which letters were brought home.
GROUP: Final = "svc.dead-letters"


async def collect(kafka: Kafka, take: Callable[[Sequence[bytes]], Awaitable[None]]) -> int:
    """Hand over every message that was not handed over before. Returns how many. Raises `Outage`."""
    reader = _Reader(kafka)
    messages = 0
    try:
        for partition in await _in_thread(reader.partitions):
            while chunk := await _in_thread(partial(reader.read, partition)):
                await take(chunk)
                await _in_thread(reader.commit)
                messages += len(chunk)
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(TIMEOUT_S):
            await _in_thread(reader.close)
    return messages


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await trio.to_thread.run_sync(work)
    except KafkaException as failure:
        raise Outage(f"the broker does not give its dead letters: {failure.args[0].str()}") from failure


class _Reader:
    """One partition after the other, from the committed position to the end. One thread at a time."""

    def __init__(self, kafka: Kafka) -> None:
        self._topic = kafka.dead_letters
        self._consumer = Consumer(
            kafka.client_settings(
                BoundedLog(log),
                group_id=GROUP,
                enable_auto_commit=False,
                allow_auto_create_topics=False,
                fetch_max_bytes=kafka.message_bytes,
                receive_message_max_bytes=2 * kafka.message_bytes,
            )
        )
        self._assigned: int | None = None
        self._position = 0

    def partitions(self) -> list[int]:
        """The partitions of the topic; none when there is no topic yet."""
        topics = self._consumer.list_topics(self._topic, timeout=TIMEOUT_S).topics
        return [] if topics[self._topic].error is not None else sorted(topics[self._topic].partitions)

    def read(self, partition: int) -> list[bytes]:
        """The next messages, at most a chunk; none at the end."""
        if self._assigned != partition:
            self._assign(partition)
        low, high = self._consumer.get_watermark_offsets(
            TopicPartition(self._topic, partition), timeout=TIMEOUT_S, cached=False
        )
        self._position = max(self._position, low)
        chunk: list[bytes] = []
        while self._position < high and len(chunk) < CHUNK:
            message = self._consumer.poll(READ_TIMEOUT_S)
            if message is None:
                break
            if (error := message.error()) is not None:
                raise KafkaException(error)
            chunk.append(message.value() or b"")
            self._position = (message.offset() or 0) + 1
        return chunk

    def _assign(self, partition: int) -> None:
        partitions = [TopicPartition(self._topic, partition)]
        (committed,) = self._consumer.committed(partitions, timeout=TIMEOUT_S)
        self._position = max(committed.offset, 0)
        self._consumer.assign([TopicPartition(self._topic, partition, self._position)])
        self._assigned = partition

    def commit(self) -> None:
        """Commit the position: what was read is stored."""
        assert self._assigned is not None
        self._consumer.commit(
            offsets=[TopicPartition(self._topic, self._assigned, self._position)], asynchronous=False
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()
