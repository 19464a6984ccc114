"""What an instance knows of itself at a moment, as rules about it judge it: disk, backup, certificate.

Shapes only. Live looks make them of tallies, history keeps one an hour, both are judged alike.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final

import msgspec

from protocol.alerts import RuleKind

#: How long samples are kept: longer than a backtest reaches.
SAMPLES_KEPT: Final = timedelta(days=35)


class DiskSample(msgspec.Struct, frozen=True, kw_only=True):
    """The disk against its budget, and the day on which it is reached by growth of then."""

    level: str
    used: int
    budget: int
    reached_on: date | None = None


class BackupSample(msgspec.Struct, frozen=True, kw_only=True):
    """The nightly backup; `began_at` is when the process began that would have made the first."""

    began_at: datetime
    last_good_at: datetime | None = None
    failed: bool = False


class CertificateSample(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate that was served."""

    ends_at: datetime


Sample = DiskSample | BackupSample | CertificateSample

SAMPLED: Final[dict[RuleKind, type[Sample]]] = {
    "disk.budget": DiskSample,
    "backup.old": BackupSample,
    "certificate.expiring": CertificateSample,
}
