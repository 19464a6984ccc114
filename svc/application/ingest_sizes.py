"""How many drainers and connections an install has by its settings."""

from __future__ import annotations

import logging

from svc.config.table import Settings
from svc.store.postgres.pools import PoolSizes, pool_sizes

log = logging.getLogger(__name__)


def drainers(settings: Settings) -> int:
    """How many drainers the mode has. More than there are partitions would only hold connections."""
    if settings.spool_mode == "kafka":
        # Whoever starts decoders ahead of everything else needs no brokers' module, which loads much.
        from svc.application.brokers import kafka

        return min(settings.kafka_consumers, kafka(settings).partitions)
    # One more than there are decoder processes keeps each at work while a group is written.
    return max(settings.drainers, settings.decoders + 1)


def sizes_for(settings: Settings) -> PoolSizes:
    """How many connections each kind of work gets."""
    return pool_sizes(
        decoders=settings.decoders,
        drainers=drainers(settings),
        embedded=settings.embedded,
        small=settings.small,
    )


def warn_of_fewer_decoders(settings: Settings) -> None:
    """Say so where the database has connections for fewer decoders than are set."""
    decoders = sizes_for(settings).decoders
    if decoders < settings.decoders:
        log.warning(
            "SVC_INGEST_DECODERS is %d, but the database has connections for %d; starting that many",
            settings.decoders,
            decoders,
        )
