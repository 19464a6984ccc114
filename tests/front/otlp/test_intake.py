"""Laws of the common end of both doors: what a full buffer tells an exporter."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from actors.spool.memory import MemorySpool
from protocol.refusals import SPOOL_FULL, Refusal
from protocol.storage import Batch
from svc.front.otlp.intake import Intake


def full_since(age_s: float) -> Refusal:
    """What a spool says that is full of one batch of that age."""
    batch = Batch(1, b"spans", 1, datetime(2026, 11, 1, tzinfo=UTC), received_s=0.0)
    spool = MemorySpool(batch.size_bytes, clock=lambda: age_s)
    assert spool.offer(batch).known == "accepted"
    refusal = Intake(spool, 1000, lambda: datetime.now(UTC), lambda: age_s).pressure()
    assert refusal is not None
    return refusal


@pytest.mark.parametrize(("age_s", "retry_after_s"), [(0.0, 1), (2.4, 1), (4.0, 2), (9.0, 4), (600.0, 5)])
def test_exporters_come_back_to_a_full_buffer_when_half_of_it_has_gone(
    age_s: float, retry_after_s: int
) -> None:
    refusal = full_since(age_s)
    assert (refusal.status, refusal.code, refusal.retry_after_s) == (503, SPOOL_FULL.code, retry_after_s)


def test_a_buffer_with_room_refuses_nobody() -> None:
    spool = MemorySpool(1)
    assert Intake(spool, 1000, lambda: datetime.now(UTC), lambda: 0.0).pressure() is None
