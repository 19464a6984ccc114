"""Wiring of the spool that the settings ask for, with the actor behind it and where its dead letters go."""

from __future__ import annotations

from functools import partial

from actors.drainer import Tally
from actors.ports import Graveyard
from actors.spool.broker import BrokerSpool
from actors.spool.disk import DiskSpool, DiskWriter
from actors.spool.letters import DeadLetterTopic
from actors.spool.link import BrokerLink
from actors.spool.memory import MemorySpool
from actors.spool.opening import Spooling
from actors.supervision import Board
from svc.application.brokers import connect
from svc.config.table import Settings
from svc.runtime.clock import now


def spooling(settings: Settings, board: Board, tally: Tally, dead_letters: Graveyard) -> Spooling:
    """The spool, closed. In kafka mode dead letters go to the brokers, else to `dead_letters`."""
    match settings.spool_mode:
        case "disk":
            disk = DiskSpool(
                settings.data_dir / "spool",
                max_bytes=settings.spool_disk_max_bytes,
                memory_bytes=settings.spool_max_bytes,
            )
            writer = board.needed("spool-writer", partial(DiskWriter, spool=disk))
            return Spooling(disk, dead_letters, now, writer)
        case "kafka":
            vitals = board.enrol("spool-broker")
            queue = BrokerSpool(settings.spool_max_bytes, vitals=vitals)
            topic = DeadLetterTopic(queue, otherwise=dead_letters, now=now)
            link = partial(BrokerLink, spool=queue, connect=connect(settings), graveyard=topic, tally=tally)
            return Spooling(queue, topic, now, (link, vitals))
        case _:
            return Spooling(MemorySpool(settings.spool_max_bytes), dead_letters, now)
