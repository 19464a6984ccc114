"""Wiring of the eraser and of what not every copy runs: retention sweeper, heartbeat, lease keeper."""

from __future__ import annotations

import platform
from functools import partial
from typing import Any, Final
from uuid import uuid4

import attrs

from actors.eraser import Eraser
from actors.heartbeat import Heartbeat
from actors.leases import LeaseKeeper, Leases
from actors.supervision import Board, Loop
from actors.sweeper import RetentionSweeper, SweepTally
from protocol.release import release
from svc.application.bounds import default_terms
from svc.backup.erased import ErasedNotes
from svc.config.table import Settings
from svc.domain.heartbeat import Build, message
from svc.outside.heartbeat import HeartbeatHost
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.replicas.leases import PostgresLeaseStore
from svc.store.retention.census import CensusStore
from svc.store.retention.erasing import Erasing
from svc.store.retention.erasures import ErasureStore
from svc.store.retention.sweep import RetentionStore

#: What one copy alone does.
HEARTBEAT: Final = "heartbeat"
CERTIFICATES: Final = "certificates"
DISK: Final = "disk budget"


def leases(settings: Settings) -> Leases:
    """The duties of this copy. Beside a database of one's own there is no other."""
    return Leases((HEARTBEAT, CERTIFICATES, DISK), alone=settings.embedded)


def lease_keeper(duties: Leases, database: Database, board: Board) -> Loop:
    """Who renews them, under a name that no other copy has."""
    store = PostgresLeaseStore(database, str(uuid4()))
    return board.spare("lease-keeper", partial(LeaseKeeper, leases=duties, store=store))


def optional_loops(
    settings: Settings, database: Database, board: Board, tally: SweepTally, duties: Leases
) -> list[Loop]:
    """How to build each of them, and its vitals on the board."""
    loops = [] if settings.embedded else [lease_keeper(duties, database, board)]
    loops.append(_eraser(settings, database, board))
    if settings.retention_enabled:
        loops.append(_sweeper(RetentionStore(database, default_terms(settings)), tally, board))
    if settings.telemetry_enabled:
        loops.append(_heartbeat(CensusStore(database), HeartbeatHost(settings.telemetry_url), board, duties))
    return loops


def _eraser(settings: Settings, database: Database, board: Board) -> Loop:
    store = Erasing(database)
    write_down = partial(ErasedNotes.of(settings).write_down, ErasureStore(database), now)
    return board.spare("eraser", partial(Eraser, store=store, write_down=write_down, now=now))


def _sweeper(retention: RetentionStore, tally: SweepTally, board: Board) -> Loop:
    return board.spare(
        "retention-sweeper", partial(RetentionSweeper, retention=retention, now=now, tally=tally)
    )


def _heartbeat(census: CensusStore, host: HeartbeatHost, board: Board, duties: Leases) -> Loop:
    build = Build(release(), platform.system().lower(), platform.machine().lower())
    return board.spare(
        "heartbeat",
        partial(
            Heartbeat,
            census=census,
            compose=lambda counted, moment: message(counted, build, moment),
            deliver=host.deliver,
            now=now,
            leads=lambda: duties.held(HEARTBEAT),
        ),
    )


def retention_report(settings: Settings, tally: SweepTally) -> dict[str, Any]:
    """What health shows of retention."""
    return {
        "enabled": settings.retention_enabled,
        "default_days": attrs.asdict(default_terms(settings)),
        **tally.snapshot(),
    }
