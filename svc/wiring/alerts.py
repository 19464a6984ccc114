"""Wiring of the actors of alerts: how each kind of rule is checked, and who gathers and delivers.

What a rule sees is a rule of the domain; here it is only said where its figures come from.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import attrs

from actors.alert_outage import OutageTeller, Standby
from actors.alerts import AlertDeliverer, AlertGatherer, AlertTally, AlertWatcher, RuleCheck
from actors.supervision import Actor, Board, Vitals
from protocol.alerts import (
    AlertChannel,
    AlertEvent,
    AlertFacts,
    AlertMessage,
    AlertPlace,
    AlertRule,
    CheckResult,
    RuleKind,
)
from protocol.samples import BackupSample, CertificateSample, DiskSample, Sample
from svc.config.table import Settings
from svc.domain.alerts.channels.table import CHANNELS
from svc.domain.alerts.checking import (
    SOON,
    saw_backup,
    saw_certificate,
    saw_disk,
    saw_down,
    subject_of_ingest,
)
from svc.domain.alerts.composing import composed
from svc.domain.alerts.params import (
    BackupParams,
    CertificateParams,
    DiskParams,
    DownParams,
    read_params,
)
from svc.domain.quantities import duration
from svc.runtime.clock import now
from svc.store.alerts.deliveries import PostgresDeliveryStore
from svc.store.alerts.gathering import GatheringStore
from svc.store.alerts.standing import PostgresStandingStore
from svc.store.alerts.watching import WatchStore
from svc.store.reads.alert_checks import StoredChecks
from svc.wiring.alert_dispatcher import AlertDispatcher
from svc.wiring.pools import Pools
from svc.wiring.safekeeping import Safekeeping
from svc.wiring.tls import Tls

Loop = tuple[Callable[[], Actor], Vitals]

#: Messages on their way at the same time; one channel takes one of them.
DELIVERERS: Final = 3
#: What every copy checks for itself.
BY_EACH_COPY: Final[frozenset[RuleKind]] = frozenset({"ingest.down"})
_AWAY: Final = "The database does not answer: spans wait in the spool while it has room."
_UNWRITTEN: Final = "what was told while the database was away is being written down"


def copy_name(settings: Settings) -> str:
    """What this copy is called: its host, and its port, by which two copies on one host differ."""
    host, port = socket.gethostname(), settings.http_bind[1]
    return f"{host}:{port}" if port else host


@attrs.define(eq=False)
class OwnChecks:
    """Looks at what this process knows of itself. `ingest` is that component of its health."""

    dispatcher: AlertDispatcher
    ingest: Callable[[], Mapping[str, Any]]
    safekeeping: Safekeeping
    tls: Tls | None
    began_at: datetime
    copy: str
    standby: Standby = attrs.field(factory=Standby)
    _down_since: datetime | None = None

    def table(self) -> dict[RuleKind, RuleCheck]:
        """One function for each kind that this copy can see."""
        checks: dict[RuleKind, RuleCheck] = {
            "ingest.down": self.down,
            "disk.budget": self.disk,
            "backup.old": self.backup,
            "certificate.expiring": self.certificate,
        }
        return {kind: check for kind, check in checks.items() if self.dispatcher.unwatched(kind) is None}

    async def down(self, rule: AlertRule, moment: datetime) -> CheckResult:
        """Whether ingest is down here, and since when."""
        if self.standby.unwritten:
            return CheckResult(moment, trouble=_UNWRITTEN)
        params = cast(DownParams, read_params(rule.kind, rule.params))
        report = self.ingest()
        self._down_since = None if report["status"] == "UP" else self._down_since or moment
        age_s = report["details"]["oldest_age_ms"] / 1000
        why = f"The oldest batch waits for {duration(age_s * 1000)}."
        return saw_down(params, self.copy, self._down_since, why, moment)

    def away(self, rule: AlertRule, since: datetime, moment: datetime) -> Mapping[str, AlertFacts]:
        """What the same rule says of a database that is away since then."""
        params = cast(DownParams, read_params(rule.kind, rule.params))
        return saw_down(params, self.copy, since, _AWAY, moment).firing

    def samples(self, moment: datetime) -> Mapping[RuleKind, Sample]:
        """What is known by now of the disk, the backup and the certificate."""
        disk, backups = self.safekeeping.disk, self.safekeeping.backups
        samples: dict[RuleKind, Sample] = {}
        if disk is not None and disk.measured:
            samples["disk.budget"] = DiskSample(
                level=disk.level, used=disk.used, budget=disk.budget, reached_on=disk.reached_on
            )
        if backups is not None and backups.looked:
            samples["backup.old"] = BackupSample(
                began_at=self.began_at,
                last_good_at=backups.last_good_at,
                failed=backups.last_error is not None,
            )
        left_s = None if self.tls is None else self.tls.left_s()
        if left_s is not None:
            samples["certificate.expiring"] = CertificateSample(ends_at=moment + timedelta(seconds=left_s))
        return samples

    async def disk(self, rule: AlertRule, moment: datetime) -> CheckResult:
        """The disk against its budget."""
        params, tally = cast(DiskParams, read_params(rule.kind, rule.params)), self.safekeeping.disk
        assert tally is not None, "there is a tally where there is a budget"
        if not tally.measured:
            return CheckResult(moment + SOON, trouble="the disk is not measured yet")
        return saw_disk(params, tally.level, tally.used, tally.budget, tally.reached_on, moment)

    async def backup(self, rule: AlertRule, moment: datetime) -> CheckResult:
        """The nightly backup."""
        params, tally = cast(BackupParams, read_params(rule.kind, rule.params)), self.safekeeping.backups
        assert tally is not None, "there is a tally where there is a folder"
        if not tally.looked:
            return CheckResult(moment + SOON, trouble="the folder of backups is not read yet")
        return saw_backup(params, tally.last_good_at, tally.last_error, self.began_at, moment)

    async def certificate(self, rule: AlertRule, moment: datetime) -> CheckResult:
        """The certificate that is served."""
        params = cast(CertificateParams, read_params(rule.kind, rule.params))
        return saw_certificate(params, None if self.tls is None else self.tls.left_s(), moment)


def alert_loops(pools: Pools, board: Board, own: OwnChecks, tally: AlertTally) -> list[Loop]:
    """How to build each of them, and its vitals on the board."""
    database, dispatcher = pools.upkeep, own.dispatcher
    gathering, deliveries = GatheringStore(database), PostgresDeliveryStore(database)
    # Figures may take long to count.
    checks: dict[RuleKind, RuleCheck] = {**own.table(), **StoredChecks(pools.questions).table()}
    watcher = board.enrol("alert-watcher", spare=True)
    gatherer = board.enrol("alert-gatherer", spare=True)
    loops: list[Loop] = [
        (
            lambda: AlertWatcher(
                watch=WatchStore(database),
                checks=checks,
                by_each_copy=BY_EACH_COPY,
                samples=own.samples,
                now=now,
                tally=tally,
                vitals=watcher,
            ),
            watcher,
        ),
        (
            lambda: AlertGatherer(
                gather=gathering.gather, queue=deliveries, now=now, tally=tally, vitals=gatherer
            ),
            gatherer,
        ),
    ]
    loops.append(_teller(pools, own, tally, board.enrol("alert-outage-teller", spare=True)))
    for number in range(1, DELIVERERS + 1):
        vitals = board.enrol(f"alert-deliverer-{number}", spare=True)
        loops.append((lambda vitals=vitals: _deliverer(deliveries, dispatcher, tally, vitals), vitals))  # type: ignore[misc]
    return loops


def _deliverer(
    deliveries: PostgresDeliveryStore, dispatcher: AlertDispatcher, tally: AlertTally, vitals: Vitals
) -> AlertDeliverer:
    return AlertDeliverer(store=deliveries, send=dispatcher.send, tally=tally, vitals=vitals)


def _teller(pools: Pools, own: OwnChecks, tally: AlertTally, vitals: Vitals) -> Loop:
    store = PostgresStandingStore(pools.upkeep, subject_of_ingest(own.copy))
    return (
        lambda: OutageTeller(
            store=store,
            check=own.away,
            compose=_composed,
            send=own.dispatcher.send,
            answered_s=pools.answered_s,
            now=now,
            standby=own.standby,
            tally=tally,
            vitals=vitals,
        ),
        vitals,
    )


def _composed(
    rule: AlertRule, location: AlertPlace, channel: AlertChannel, event: AlertEvent
) -> Sequence[AlertMessage]:
    return composed(rule, [event], location, incidents=CHANNELS[channel.kind].keeps_incidents)
