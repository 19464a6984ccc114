"""When a rule about the instance itself would have fired: its live look, replayed over kept samples."""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import datetime

from protocol.alerts import CheckResult
from protocol.samples import BackupSample, CertificateSample, DiskSample, Sample
from svc.domain.alerts.checking import saw_backup, saw_certificate, saw_disk
from svc.domain.alerts.params import BackupParams, CertificateParams, DiskParams

SampledParams = DiskParams | BackupParams | CertificateParams


def sampled_firings(params: SampledParams, samples: Iterable[tuple[datetime, Sample]]) -> list[datetime]:
    """When something began to fire, by samples in the order of their moments."""
    moments = []
    previous: Set[str] = frozenset()
    for moment, sample in samples:
        firing = _saw(params, sample, moment).firing.keys()
        if firing - previous:
            moments.append(moment)
        previous = firing
    return moments


def _saw(params: SampledParams, sample: Sample, moment: datetime) -> CheckResult:
    match params, sample:
        case DiskParams(), DiskSample():
            return saw_disk(params, sample.level, sample.used, sample.budget, sample.reached_on, moment)
        case BackupParams(), BackupSample():
            failed = "it failed" if sample.failed else None
            return saw_backup(params, sample.last_good_at, failed, sample.began_at, moment)
        case CertificateParams(), CertificateSample():
            return saw_certificate(params, (sample.ends_at - moment).total_seconds(), moment)
    raise AssertionError("a sample is of the kind of the rule that judges it")
