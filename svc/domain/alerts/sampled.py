"""When a rule about the instance itself would have fired: its live look, replayed over kept samples."""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import datetime

from protocol.alerts import RuleSightings
from protocol.samples import BackupSample, CertificateSample, DiskSample, Sample
from svc.domain.alerts.looking import saw_backup, saw_certificate, saw_disk
from svc.domain.alerts.params import BackupParams, CertificateParams, DiskParams

SampledParams = DiskParams | BackupParams | CertificateParams


def sampled_firings(params: SampledParams, samples: Iterable[tuple[datetime, Sample]]) -> list[datetime]:
    """When something began to fire, by samples in the order of their moments."""
    found = []
    before: Set[str] = frozenset()
    for at, sample in samples:
        firing = _saw(params, sample, at).firing.keys()
        if firing - before:
            found.append(at)
        before = firing
    return found


def _saw(params: SampledParams, sample: Sample, at: datetime) -> RuleSightings:
    match params, sample:
        case DiskParams(), DiskSample():
            return saw_disk(params, sample.level, sample.used, sample.budget, sample.reached_on, at)
        case BackupParams(), BackupSample():
            failed = "it failed" if sample.failed else None
            return saw_backup(params, sample.last_good_at, failed, sample.began_at, at)
        case CertificateParams(), CertificateSample():
            return saw_certificate(params, (sample.ends_at - at).total_seconds(), at)
    raise AssertionError("a sample is of the kind of the rule that judges it")
