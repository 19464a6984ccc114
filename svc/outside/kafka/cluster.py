"""Where the brokers are, what is ours there, and how each client of ours is set.

Links, topics, letters and rewinding take a `Kafka`; the application makes it of the settings. Speaks to
nobody.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from svc.outside.kafka.log import BoundedLog
from svc.outside.kafka.security import Security

#: A connection on which a request has no answer for so long is given up, as a member of the group would be.
ANSWER_TIMEOUT_S: Final = 6.0
#: How long a replica may be silent before another takes its partitions.
SESSION_TIMEOUT_S: Final = 6.0


@attrs.frozen
class Kafka:
    """Where the brokers are, and the names and shape of what is ours there."""

    servers: str
    security: Security = attrs.field(factory=Security)
    replication_factor: int = 1
    message_bytes: int = 65 * 1024 * 1024
    queue_bytes: int = 128 * 1024 * 1024
    partitions: int = 8
    batches: str = "svc.ingest"
    dead_letters: str = "svc.ingest.dead-letter"
    group: str = "svc.ingest"
    #: How often brokers and backlog are looked at.
    survey_every_s: float = 2.0

    def client_settings(self, bounded: BoundedLog, **overrides: Any) -> dict[str, Any]:
        """The settings of every client; underscores stand for dots, except in callbacks."""
        return {
            "bootstrap.servers": self.servers,
            **self.security.settings(),
            "client.id": "trace-svc",
            "logger": bounded,
            "reconnect.backoff.max.ms": 2000,
            "socket.connection.setup.timeout.ms": 5000,
            # A network that forgets its connections answers nothing and resets nothing: with librdkafka's
            # minute exports got 503 for 65 s after it (November 2026).
            "socket.timeout.ms": int(ANSWER_TIMEOUT_S * 1000),
            "socket.keepalive.enable": True,
            **{
                name if name.endswith("_cb") or name == "on_commit" else name.replace("_", "."): value
                for name, value in overrides.items()
            },
        }
