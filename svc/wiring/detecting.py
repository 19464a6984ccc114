"""The detecting process of the service: what it is told, and when it rests.

Owns how it is launched with this install's settings. `service` calls it; it never looks into what detects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from actors.detecting import Detecting, DetectingProcess
from actors.supervision import Board, Loop
from protocol.database_address import Address
from protocol.detecting import StartDetecting
from svc.config.table import Settings
from svc.detecting.process import detecting_process
from svc.secrets.sealing import marking_key
from svc.store.postgres.pools import DETECTING_CONNECTIONS

#: With more spans than this accepted and not stored, ingest needs the machine.
BUSY_SPANS: Final = 2_000
#: When detectors begin after a start, unless they judge more often than that.
PAUSE_S: Final = 5.0


def detecting_loop(
    settings: Settings,
    address: Address,
    detection: Detecting,
    waiting_spans: Callable[[], int],
    stirs: Callable[[], int],
    board: Board,
) -> Loop:
    """The actor that keeps the detecting process. `waiting_spans` are accepted and not stored; `stirs`
    changes with all that arrives and is asked.
    """
    start = StartDetecting(
        address=address,
        log_level=settings.log_level,
        log_format=settings.log_format,
        pool_size=DETECTING_CONNECTIONS,
        secret_key=marking_key(settings),
        interval_s=settings.detectors_interval_s,
        false_alarms_per_month=settings.false_alarms_per_month,
        encoder_url=settings.encoder_url,
        encoder_key=settings.encoder_api_key,
        alone=settings.embedded,
    )
    return board.spare(
        "detecting",
        partial(
            DetectingProcess,
            detection=detection,
            launch=detecting_process(start),
            busy=lambda: waiting_spans() > BUSY_SPANS,
            stirs=stirs,
            pause_s=min(PAUSE_S, settings.detectors_interval_s),
        ),
    )
