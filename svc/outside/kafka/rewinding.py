"""Setting the group of the batches back to a moment: what was taken since then is read again.

Called by a restore, whose database does not have what was stored after the snapshot. Never sets it ahead:
what nobody has finished stays to be read. The group must be at rest, as it is while nothing serves: a member
that died without leaving is waited for until the brokers give it up, and the wait is told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from protocol.operator import OperatorError
from protocol.storage import Outage
from svc.outside.kafka.cluster import SESSION_TIMEOUT_S, Kafka
from svc.outside.kafka.log import BoundedLog

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
#: How long a member that died is waited for: its session, with room for brokers that are busy.
MEMBER_PATIENCE_S: Final = 5 * SESSION_TIMEOUT_S
_PAUSE_S: Final = 1.0
#: What brokers answer to whoever commits beside members of the group.
_HAS_MEMBERS: Final = frozenset(
    {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
)


class GroupInUse(OperatorError):
    """The group has a member that lives."""


def rewind(kafka: Kafka, since: datetime, tell: Callable[[str], object]) -> int:
    """Have the group go on at this moment. Returns how many messages that are. Blocks.

    `tell` hears what is waited for. Raises `Outage`, and `GroupInUse` when a member does not go.
    """
    consumer = Consumer(
        kafka.client_settings(
            BoundedLog(log),
            group_id=kafka.group,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
        )
    )
    try:
        places, messages = _places(consumer, kafka.batches, round(since.timestamp() * 1000))
        if places:
            _commit(consumer, places, kafka.group, tell)
        return messages
    except KafkaException as failure:
        raise Outage(f"the group {kafka.group} cannot be set back: {failure.args[0].str()}") from failure
    finally:
        consumer.close()


def _places(consumer: Consumer, topic: str, since_ms: int) -> tuple[list[TopicPartition], int]:
    """Where each partition is to go on, and how many messages lie behind these places."""
    metadata = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        # No topic yet, so nothing that could be read.
        return [], 0
    numbers = sorted(metadata.partitions)
    committed = {
        partition.partition: partition.offset
        for partition in consumer.committed([TopicPartition(topic, n) for n in numbers], timeout=TIMEOUT_S)
    }
    queries = [TopicPartition(topic, n, since_ms) for n in numbers]
    places, messages = [], 0
    for partition in consumer.offsets_for_times(queries, timeout=TIMEOUT_S):
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, partition.partition), timeout=TIMEOUT_S
        )
        # Nothing came since then: the end. Who never committed begins at the beginning anyway.
        offset = partition.offset if partition.offset >= 0 else high
        offset = max(low, min(offset, committed[partition.partition]))
        places.append(TopicPartition(topic, partition.partition, offset))
        messages += high - offset
    return places, messages


def _commit(
    consumer: Consumer, places: list[TopicPartition], group: str, tell: Callable[[str], object]
) -> None:
    give_up_s = time.monotonic() + MEMBER_PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].code() not in _HAS_MEMBERS:
                raise
            left_s = give_up_s - time.monotonic()
            if left_s <= 0:
                raise GroupInUse(
                    f"the group {group} has a member that lives: stop every service that reads it, and"
                    " restore again"
                ) from None
            tell(
                f"the group {group} has a member, perhaps of a service that was killed: waiting at most"
                f" {left_s:.0f} s until the brokers give it up"
            )
            time.sleep(_PAUSE_S)
        else:
            return
