"""The brokers of kafka mode: dead letters fetched from their topic, and batches read again after a restore.

Commands, the page of dead letters and the wiring call it. The link that drains them is an actor. What speaks
to brokers (`svc.outside.kafka`) is imported by the first call: 23 ms and 3 MB of a service that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from protocol.spooled import Unpackable, unpack_letter
from protocol.storage import Letter
from svc.config.table import Settings
from svc.runtime.clock import now
from svc.store.spans.dead_letters import DeadLetterStore

if TYPE_CHECKING:
    from actors.ports import Connect
    from svc.outside.kafka.cluster import Kafka

#: Clocks differ, and a batch waits between the broker and the database.
BEFORE_SNAPSHOT: Final = timedelta(hours=1)
#: What a message may weigh beside a body of the largest size, which may not shrink when it is packed.
MESSAGE_EXTRA_BYTES: Final = 1024 * 1024
#: The largest message that a Kafka client can be told of.
MESSAGE_MAX_BYTES: Final = 1_000_000_000


def kafka(settings: Settings) -> Kafka:
    """The brokers of kafka mode."""
    from svc.outside.kafka.cluster import Kafka
    from svc.outside.kafka.security import Security

    return Kafka(
        settings.kafka_bootstrap_servers,
        Security(
            settings.kafka_security_protocol,
            settings.kafka_sasl_mechanism,
            settings.kafka_user,
            settings.kafka_password,
            None if settings.kafka_ca_file is None else str(settings.kafka_ca_file),
        ),
        replication_factor=settings.kafka_replication_factor,
        message_bytes=min(settings.max_body_bytes + MESSAGE_EXTRA_BYTES, MESSAGE_MAX_BYTES),
        queue_bytes=settings.spool_max_bytes,
    )


def connect(settings: Settings) -> Connect:
    """How an actor gets a link to the brokers."""
    from svc.outside.kafka.brokers import opened

    return partial(opened, kafka(settings))


def described(settings: Settings) -> str:
    """Brokers and topics in a sentence, for the operator. Blocks; raises `Outage`."""
    from svc.outside.kafka import topics

    return topics.described(kafka(settings))


async def bring_home(settings: Settings, letters: DeadLetterStore) -> int:
    """In broker mode letters lie in a topic: move the new ones to the table, where they can be dealt with.

    Returns how many there were. Raises `Outage`.
    """
    from svc.outside.kafka.letters import collect

    async def take(messages: Sequence[bytes]) -> None:
        await letters.bury([_letter(message) for message in messages])

    return await collect(kafka(settings), take)


def _letter(message: bytes) -> Letter:
    try:
        return unpack_letter(message)
    except Unpackable as error:
        # Whoever wrote it: it is kept as it came.
        return Letter(0, str(error), message, now(), 1)


def set_back(settings: Settings, snapshot_at: datetime, tell: Callable[[str], object]) -> int:
    """Have a restored instance read again what came since an hour before the snapshot. Blocks.

    What is stored already is stored once. Returns how many messages that are. `tell` hears what is waited
    for. Raises `Outage`, and `OperatorError` while a service reads them.
    """
    from svc.outside.kafka.rewinding import rewind

    return rewind(kafka(settings), snapshot_at - BEFORE_SNAPSHOT, tell)
