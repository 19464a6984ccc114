"""What alert rules see of this very process: ingest, disk, nightly backup, certificate.

The watcher calls it for the kinds that a copy checks for itself, and the outage teller while the database is
away. When a rule fires is a rule of `svc.domain.alerts.checking`; nothing here is stored or sent.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, cast

import attrs

from actors.alert_outage import Standby
from actors.alerts import RuleCheck
from actors.backups import BackupTally
from actors.disk_budget import DiskTally
from protocol.alerts import AlertFacts, AlertRule, CheckResult, RuleKind
from protocol.samples import BackupSample, CertificateSample, DiskSample, Sample
from svc.application.alert_dispatcher import AlertDispatcher
from svc.config.table import Settings
from svc.domain.alerts.checking import SOON, saw_backup, saw_certificate, saw_disk, saw_down
from svc.domain.alerts.params import (
    BackupParams,
    CertificateParams,
    DiskParams,
    DownParams,
    read_params,
)
from svc.domain.quantities import duration

_AWAY: Final = "The database does not answer: spans wait in the spool while it has room."
_UNWRITTEN: Final = "what was told while the database was away is being written down"


@attrs.define(eq=False)
class OwnChecks:
    """Looks at what this process knows of itself. `ingest` is that component of its health."""

    dispatcher: AlertDispatcher
    ingest: Callable[[], Mapping[str, Any]]
    disk_tally: DiskTally | None
    backup_tally: BackupTally | None
    #: Until the certificate that is served ends; None where this process serves none.
    certificate_left_s: Callable[[], float | None]
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
        disk, backups = self.disk_tally, self.backup_tally
        samples: dict[RuleKind, Sample] = {}
        if disk is not None and disk.measured:
            samples["disk.budget"] = DiskSample(
                level=disk.level, used=disk.used, budget=disk.budget, reached_on=disk.reached_on
            )
        if backups is not None and backups.looked:
            samples["backup.old"] = BackupSample(
                began_at=self.began_at,
                last_good_at=backups.last_good_at,
                failed=backups.trouble is not None,
            )
        left_s = self.certificate_left_s()
        if left_s is not None:
            samples["certificate.expiring"] = CertificateSample(ends_at=moment + timedelta(seconds=left_s))
        return samples

    async def disk(self, rule: AlertRule, moment: datetime) -> CheckResult:
        """The disk against its budget."""
        params, tally = cast(DiskParams, read_params(rule.kind, rule.params)), self.disk_tally
        assert tally is not None, "there is a tally where there is a budget"
        if not tally.measured:
            return CheckResult(moment + SOON, trouble="the disk is not measured yet")
        return saw_disk(params, tally.level, tally.used, tally.budget, tally.reached_on, moment)

    async def backup(self, rule: AlertRule, moment: datetime) -> CheckResult:
        """The nightly backup."""
        params, tally = cast(BackupParams, read_params(rule.kind, rule.params)), self.backup_tally
        assert tally is not None, "there is a tally where there is a folder"
        if not tally.looked:
            return CheckResult(moment + SOON, trouble="the folder of backups is not read yet")
        return saw_backup(params, tally.last_good_at, tally.trouble, self.began_at, moment)

    async def certificate(self, rule: AlertRule, moment: datetime) -> CheckResult:
        """The certificate that is served."""
        params = cast(CertificateParams, read_params(rule.kind, rule.params))
        return saw_certificate(params, self.certificate_left_s(), moment)


def copy_name(settings: Settings) -> str:
    """What this copy is called: its host, and its port, by which two copies on one host differ."""
    host, port = socket.gethostname(), settings.http_bind[1]
    return f"{host}:{port}" if port else host
