"""Wiring of the actors of alerts: how each kind of rule is checked, and who gathers and delivers.

What a rule sees is a rule of the domain; here it is only said where its figures come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from actors.alert_outage import OutageTeller
from actors.alerts import AlertDeliverer, AlertGatherer, AlertTally, AlertWatcher, RuleCheck, Samples
from actors.supervision import Board, Loop
from protocol.alerts import (
    AlertChannel,
    AlertEvent,
    AlertMessage,
    AlertPlace,
    AlertRule,
    RuleKind,
)
from svc.application.alert_dispatcher import AlertDispatcher
from svc.application.own_checks import OwnChecks, copy_name
from svc.application.safekeeping import Safekeeping
from svc.config.table import Settings
from svc.domain.alerts.channels.table import CHANNELS
from svc.domain.alerts.checking import (
    subject_of_ingest,
)
from svc.domain.alerts.composing import composed
from svc.runtime.clock import now
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.gathering import GatheringStore
from svc.store.alerts.standing import PostgresStandingStore
from svc.store.alerts.watching import WatchStore
from svc.store.postgres.database import Database
from svc.store.postgres.pools import Pools
from svc.store.reads.alerts.alert_checks import StoredChecks
from svc.wiring.tls import Tls

#: Messages on their way at the same time; one channel takes one of them.
DELIVERERS: Final = 3
#: What every copy checks for itself.
BY_EACH_COPY: Final[frozenset[RuleKind]] = frozenset({"ingest.down"})


def own_checks(
    settings: Settings,
    dispatcher: AlertDispatcher,
    ingest: Callable[[], Mapping[str, Any]],
    safekeeping: Safekeeping,
    tls: Tls | None,
) -> OwnChecks:
    """What this copy checks of itself, under its name."""
    left_s = (lambda: None) if tls is None else tls.left_s
    disk, backups = safekeeping.disk, safekeeping.backups
    return OwnChecks(dispatcher, ingest, disk, backups, left_s, now(), copy_name(settings))


def alert_loops(pools: Pools, board: Board, own: OwnChecks, tally: AlertTally) -> list[Loop]:
    """How to build each of them, and its vitals on the board."""
    database, dispatcher = pools.upkeep, own.dispatcher
    gathering, deliveries = GatheringStore(database), PostgresDeliveryStore(database)
    stored = dict(StoredChecks(pools.questions).table())
    # Figures may take long to count: what is told of ingest and of this service does not wait for them.
    figures: dict[RuleKind, RuleCheck] = {"metric": stored.pop("metric")}
    return [
        _watcher(board, "alert-watcher", database, {**own.table(), **stored}, own.samples, tally),
        _watcher(board, "alert-figures", database, figures, lambda _now: {}, tally),
        board.spare(
            "alert-gatherer",
            partial(AlertGatherer, gather=gathering.gather, queue=deliveries, now=now, tally=tally),
        ),
        _teller(board, pools, own, tally),
        *(
            board.spare(
                f"alert-deliverer-{number}",
                partial(AlertDeliverer, store=deliveries, send=dispatcher.send, tally=tally),
            )
            for number in range(1, DELIVERERS + 1)
        ),
    ]


def _watcher(
    board: Board,
    name: str,
    database: Database,
    checks: Mapping[RuleKind, RuleCheck],
    samples: Samples,
    tally: AlertTally,
) -> Loop:
    return board.spare(
        name,
        partial(
            AlertWatcher,
            watch=WatchStore(database),
            checks=checks,
            by_each_copy=BY_EACH_COPY,
            samples=samples,
            now=now,
            tally=tally,
        ),
    )


def _teller(board: Board, pools: Pools, own: OwnChecks, tally: AlertTally) -> Loop:
    store = PostgresStandingStore(pools.upkeep, subject_of_ingest(own.copy))
    return board.spare(
        "alert-outage-teller",
        partial(
            OutageTeller,
            store=store,
            check=own.away,
            compose=_composed,
            send=own.dispatcher.send,
            answered_s=pools.answered_s,
            now=now,
            standby=own.standby,
            tally=tally,
        ),
    )


def _composed(
    rule: AlertRule, location: AlertPlace, channel: AlertChannel, event: AlertEvent
) -> Sequence[AlertMessage]:
    return composed(rule, [event], location, incidents=CHANNELS[channel.kind].keeps_incidents)
