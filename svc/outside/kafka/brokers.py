"""The client of a Kafka-API broker: the port `Broker` on librdkafka.

Owns the producer, the consumer and the threads that poll them; the broker spool talks to it and hears from
it. It knows messages and positions, never what a batch is.

Threads: one delivers (the producer's answers), one consumes, one surveys (topics, reachability, backlog).
librdkafka calls back inside them; what they have to say enters Trio through `TrioToken.run_sync_soon`, in
order. The verbs of `Link` are called on the Trio thread and return at once.

Cancellation: leaving `opened` tells the threads to finish: deliver what was published, commit, leave
the group. They get `CLOSE_TIMEOUT_S`; then they are left to themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from protocol.broker import Arrival, Inbox, Lane, Published
from svc.outside.kafka.cluster import SESSION_TIMEOUT_S, Kafka
from svc.outside.kafka.log import BoundedLog
from svc.outside.kafka.positions import Positions
from svc.outside.kafka.topics import Survey, Topics

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
#: Messages handed to the spool at once.
TAKE: Final = 50
#: How soon after a failure the brokers are looked for again.
RETRY_S: Final = 0.5
#: How long a message may be on its way. Below the timeout of the listeners, so that they get the answer.
DELIVERY_TIMEOUT_S: Final = 6.0
FLUSH_TIMEOUT_S: Final = 3.0
CLOSE_TIMEOUT_S: Final = 5.0
#: A member waits a little longer than this for the answer to its wish to join. By itself librdkafka waits
#: five minutes, on a connection that a network may have forgotten. It polls much more often than this.
REJOIN_TIMEOUT_S: Final = 20.0
HEARTBEAT_S: Final = 1.5
#: What librdkafka fetches ahead of the spool's own budget.
FETCH_AHEAD_KIB: Final = 16 * 1024
#: What one request to a broker may hold, several messages together. A topic refuses a request above its own
#: limit as a whole, so this stays below the smallest default limit of brokers, 1 MB.
REQUEST_BYTES: Final = 256 * 1024
#: What a message weighs beside key and value.
ENVELOPE_BYTES: Final = 256


@asynccontextmanager
async def opened(kafka: Kafka, inbox: Inbox) -> AsyncIterator[Link]:
    """Hold a link. Implements the port `Connect`."""
    link = Link(kafka, inbox, trio.lowlevel.current_trio_token())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.crash)
        threads = [_Thread(work) for work in (link.survey, link.deliver, link.consume)]
        for thread in threads:
            nursery.start_soon(thread.run)
        try:
            yield link
        finally:
            link.leave()
            for thread in threads:
                thread.scope.deadline = trio.current_time() + CLOSE_TIMEOUT_S
            with trio.CancelScope(shield=True):
                for thread in threads:
                    await thread.ended.wait()
            link.shut()
        nursery.cancel_scope.cancel()


class _Thread:
    """A thread that ends by itself, or is left behind when its scope's deadline passes."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.scope = trio.CancelScope(shield=True)
        self.ended = trio.Event()

    async def run(self) -> None:
        try:
            with self.scope:
                await trio.to_thread.run_sync(
                    self._work, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
                )
            if self.scope.cancelled_caught:
                log.warning("the Kafka client did not close within %.0f s; giving up on it", CLOSE_TIMEOUT_S)
        finally:
            self.ended.set()


class Link:
    """An open link. Verbs on the Trio thread, the rest in threads of their own."""

    def __init__(self, kafka: Kafka, inbox: Inbox, token: trio.lowlevel.TrioToken) -> None:
        self._kafka, self._inbox, self._token = kafka, inbox, token
        self._log = BoundedLog(log)
        self._leaving, self._ready = threading.Event(), threading.Event()
        self._look = threading.Event()
        self._open = True
        self._crashed = trio.Event()
        self._error: BaseException | None = None
        self._producer: Producer | None = None
        self._producer_failed = threading.Event()
        self._limits: dict[str, int] = {}
        self._positions = Positions(kafka.batches)
        self._pausing, self._held = False, set[int]()

    # On the Trio thread.

    def publish(self, lane: Lane, key: bytes, value: bytes, settled: Callable[[Published], None]) -> None:
        """Hand a message to the producer; `settled` is called once, here or later."""
        topic = self._kafka.batches if lane == "batches" else self._kafka.dead_letters
        producer = self._producer
        if producer is None or self._leaving.is_set():
            settled("full")
            return
        if len(key) + len(value) + ENVELOPE_BYTES > self._limits[topic]:
            settled("never")
            return

        def delivered(error: KafkaError | None, _: Message[Any, Any]) -> None:
            self._tell(settled, self._verdict(error))

        try:
            producer.produce(topic, key=key, value=value, on_delivery=delivered)
        except BufferError:
            settled("full")
        except KafkaException as failure:
            settled(self._verdict(failure.args[0]))

    def commit(self, partition: int, position: int) -> None:
        """Everything below `position` is done; it is committed within a second."""
        self._positions.done(partition, position)

    def pause(self) -> None:
        """Take no more messages for now."""
        self._pausing = True

    def resume(self) -> None:
        """Take messages again."""
        self._pausing = False

    def leave(self) -> None:
        """Tell the threads to finish."""
        self._leaving.set()
        self._ready.set()
        self._look.set()

    def shut(self) -> None:
        """Let nothing more through to the inbox."""
        self._open = False

    async def crash(self) -> None:
        """Raise what the inbox raised; inside a `run_sync_soon` it would end the process."""
        await self._crashed.wait()
        assert self._error is not None
        raise self._error

    def _guarded(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self._open:
            return
        try:
            call(*arguments)
        except Exception as error:
            self._error = error
            self._crashed.set()

    # In threads.

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._token.run_sync_soon(self._guarded, call, arguments)
        except trio.RunFinishedError:
            log.debug("the loop has ended before %r", call)

    def _verdict(self, error: KafkaError | None) -> Published:
        if error is None:
            return "accepted"
        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return "never"
        if error.fatal():
            self._producer_failed.set()
        if error.code() != KafkaError._PURGE_QUEUE:
            self._lost(error)
        return "full"

    def _lost(self, error: KafkaError) -> None:
        """Something did not get through: offers are refused until the brokers have been seen again."""
        if not self._leaving.is_set():
            self._tell(self._inbox.away, f"Kafka at {self._kafka.servers}: {error.str()}")
            self._look.set()

    def _noticed(self, error: KafkaError) -> None:
        if error.fatal():
            self._producer_failed.set()
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self._look.set()

    def _settings(self, **overrides: Any) -> dict[str, Any]:
        return self._kafka.client_settings(self._log, error_cb=self._noticed, **overrides)

    def survey(self) -> None:
        """Make the topics, then look at brokers and backlog every few seconds."""
        topics = Topics(self._kafka, self._settings)
        survey: Survey | None = None
        try:
            while not self._leaving.is_set():
                self._look.clear()
                try:
                    if survey is None:
                        survey = topics.ensure()
                        self._limits = dict(survey.limits)
                        self._ready.set()
                    else:
                        topics.probe()
                except KafkaException as failure:
                    survey = None
                    self._lost(failure.args[0])
                    self._leaving.wait(RETRY_S)
                    continue
                self._tell(self._inbox.back)
                try:
                    self._tell(
                        self._inbox.measured, topics.backlog(survey.partitions, self._positions.stored)
                    )
                except KafkaException as failure:
                    self._log.log(
                        logging.WARNING, "the backlog cannot be measured: %s", failure.args[0].str()
                    )
                self._look.wait(self._kafka.survey_every_s)
        finally:
            topics.close()

    def deliver(self) -> None:
        """Poll the producer for answers; make a new one when it is broken for good."""
        self._ready.wait()
        while not self._leaving.is_set():
            self._producer_failed.clear()
            producer = self._new_producer()
            self._producer = producer
            while not self._leaving.is_set() and not self._producer_failed.is_set():
                producer.poll(POLL_S)
            if self._producer_failed.is_set():
                self._producer = None
                producer.purge()
            producer.flush(FLUSH_TIMEOUT_S)
            if len(producer):
                producer.purge()
                producer.flush(POLL_S)
        self._producer = None

    def _new_producer(self) -> Producer:
        return Producer(
            self._settings(
                acks="all",
                enable_idempotence=True,
                # As Java clients partition, so that other tools find a project where they look for it.
                partitioner="murmur2_random",
                linger_ms=2,
                batch_size=REQUEST_BYTES,
                message_max_bytes=self._kafka.message_bytes,
                message_timeout_ms=int(DELIVERY_TIMEOUT_S * 1000),
                request_timeout_ms=int(DELIVERY_TIMEOUT_S * 1000) - 1000,
                queue_buffering_max_kbytes=(self._kafka.queue_bytes + self._kafka.message_bytes) // 1024 + 1,
            )
        )

    def consume(self) -> None:
        """Take messages of the partitions that the group gives us, and commit what is done."""
        self._ready.wait()
        if self._leaving.is_set():
            return
        consumer = Consumer(
            self._settings(
                on_commit=self._positions.heard,
                group_id=self._kafka.group,
                partition_assignment_strategy="cooperative-sticky",
                session_timeout_ms=int(SESSION_TIMEOUT_S * 1000),
                heartbeat_interval_ms=int(HEARTBEAT_S * 1000),
                max_poll_interval_ms=int(REJOIN_TIMEOUT_S * 1000),
                auto_offset_reset="earliest",
                # Positions are stored by us, once rows are; librdkafka sends them on, also when it leaves.
                enable_auto_offset_store=False,
                enable_auto_commit=True,
                auto_commit_interval_ms=500,
                fetch_max_bytes=max(self._kafka.message_bytes, 1024 * FETCH_AHEAD_KIB),
                receive_message_max_bytes=2 * max(self._kafka.message_bytes, 1024 * FETCH_AHEAD_KIB),
                queued_max_messages_kbytes=FETCH_AHEAD_KIB,
                fetch_queue_backoff_ms=20,
            )
        )
        try:
            consumer.subscribe([self._kafka.batches], on_assign=self._assigned, on_revoke=self._revoked)
            while not self._leaving.is_set():
                self._positions.store(consumer)
                self._hold(consumer)
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._hand_over([first, *consumer.consume(TAKE - 1, 0)])
            self._positions.store(consumer)
        finally:
            consumer.close()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        self._positions.assigned(numbers)
        self._tell(self._inbox.assigned, numbers)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        self._positions.store(consumer)
        self._positions.revoked(numbers)
        self._held.difference_update(numbers)
        self._tell(self._inbox.revoked, numbers)

    def _hold(self, consumer: Consumer) -> None:
        """Pause what is assigned now, or resume what was paused, as the spool wants it."""
        if self._pausing:
            own_partitions = {partition.partition for partition in consumer.assignment()}
            consumer.pause(
                [TopicPartition(self._kafka.batches, number) for number in own_partitions - self._held]
            )
            self._held = own_partitions
        elif self._held:
            consumer.resume([TopicPartition(self._kafka.batches, number) for number in self._held])
            self._held = set()

    def _hand_over(self, messages: list[Message[Any, Any]]) -> None:
        arrivals = []
        for message in messages:
            error = message.error()
            if error is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                arrivals.append(Arrival(partition, offset, message.value() or b""))
            elif error.fatal():
                raise KafkaException(error)
            else:
                self._log.log(logging.WARNING, "Kafka says while reading: %s", error.str())
                self._look.set()
        if arrivals:
            self._tell(self._inbox.arrived, arrivals)
