"""Setting the group of the batches back to a moment: what was taken since then is read again.

Called by a restore, whose database does not have what was stored after the snapshot. Never sets it ahead:
what nobody has finished stays to be read. The group must be at rest, as it is while nothing serves.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from protocol.storage import Outage
from svc.outside.kafka.brokers import Kafka
from svc.outside.kafka.log import BoundedLog
from svc.outside.kafka.topics import settings_of

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0


def rewind(kafka: Kafka, since: datetime) -> int:
    """Have the group go on at this moment. Returns how many messages that are. Raises `Outage`. Blocks."""
    consumer = Consumer(
        settings_of(
            kafka,
            BoundedLog(log),
            group_id=kafka.group,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
        )
    )
    try:
        return _rewound(consumer, kafka.batches, round(since.timestamp() * 1000))
    except KafkaException as failure:
        raise Outage(f"the group {kafka.group} cannot be set back: {failure.args[0].str()}") from failure
    finally:
        consumer.close()


def _rewound(consumer: Consumer, topic: str, since_ms: int) -> int:
    found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is not None:
        # No topic yet, so nothing that could be read.
        return 0
    numbers = sorted(found.partitions)
    committed = {
        place.partition: place.offset
        for place in consumer.committed([TopicPartition(topic, n) for n in numbers], timeout=TIMEOUT_S)
    }
    asked = [TopicPartition(topic, n, since_ms) for n in numbers]
    places, messages = [], 0
    for place in consumer.offsets_for_times(asked, timeout=TIMEOUT_S):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, place.partition), timeout=TIMEOUT_S)
        # Nothing came since then: the end. Who never committed begins at the beginning anyway.
        at = place.offset if place.offset >= 0 else high
        at = max(low, min(at, committed[place.partition]))
        places.append(TopicPartition(topic, place.partition, at))
        messages += high - at
    consumer.commit(offsets=places, asynchronous=False)
    return messages
