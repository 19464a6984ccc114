"""The positions of what is done, on their way to the brokers.

Called by `brokers.py`: `done` on the Trio thread, the rest in the thread that consumes. librdkafka commits
what is stored here by itself, also when it leaves, but never a position below the one that the brokers have.
They have a higher one after a topic was made anew or lost its end: it would stand until the topic is that
long, and whoever reads then would go on behind messages that nobody has taken. So the first position of each
assignment, and one that goes back, is committed as it is.
"""

from __future__ import annotations

import queue
from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition


class Positions:
    """Of the partitions of one topic that the group gave us."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._done: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._ours = set[int]()
        self._stored: dict[int, int] = {}
        self._committing, self._committed = set[int](), set[int]()

    @property
    def stored(self) -> Mapping[int, int]:
        """The newest of each partition; the brokers may not have it yet."""
        return self._stored

    def done(self, partition: int, position: int) -> None:
        """Everything below `position` is done."""
        self._done.put((partition, position))

    def store(self, consumer: Consumer) -> None:
        """Give librdkafka what came meanwhile, and commit what it would not."""
        fresh: dict[int, int] = {}
        while not self._done.empty():
            partition, position = self._done.get()
            # Brokers would take a position of a partition that somebody else has by now, and set him back.
            if partition in self._ours:
                fresh[partition] = position
        self._committed -= {number for number, place in fresh.items() if place < self._stored.get(number, 0)}
        self._stored |= fresh
        first = self._stored.keys() - self._committed - self._committing
        try:
            if fresh:
                consumer.store_offsets(offsets=self._places(fresh))
            if first:
                consumer.commit(offsets=self._places(first), asynchronous=True)
                self._committing |= first
        except KafkaException as failure:
            # None of them is ours any more: whoever has them now repeats what was not committed.
            if failure.args[0].code() != KafkaError._STATE:
                raise

    def heard(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """What came of a commit, ours or librdkafka's; the next `store` repeats one that failed."""
        for place in partitions:
            self._committing.discard(place.partition)
            if error is None and place.error is None and place.offset >= 0:
                self._committed.add(place.partition)

    def assigned(self, partitions: Collection[int]) -> None:
        """They are ours from now on, and what was known of them no longer holds."""
        self._forget(partitions)
        self._ours.update(partitions)

    def revoked(self, partitions: Collection[int]) -> None:
        """They are given to somebody else."""
        self._forget(partitions)
        self._ours.difference_update(partitions)

    def _forget(self, partitions: Collection[int]) -> None:
        for number in partitions:
            self._stored.pop(number, None)
            self._committing.discard(number)
            self._committed.discard(number)

    def _places(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number, self._stored[number]) for number in numbers]
