"""Laws of the disk budget: what goes in which order, and when it will be full."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from svc.domain.retention.disk_budget import (
    PAYLOADS,
    WHOLE,
    DayBytes,
    DiskUse,
    drop_steps,
    forecast,
    level_of,
)

TODAY = date(2026, 11, 20)


def ago(days: int) -> date:
    return TODAY - timedelta(days=days)


def use(total: int, *days: DayBytes) -> DiskUse:
    return DiskUse(total, 0, 0, (), days)


def test_payloads_go_down_to_a_week_ago_then_whole_days_and_never_today() -> None:
    known = [DayBytes(ago(age), 5, 5) for age in (0, 1, 6, 7, 8)] + [DayBytes(ago(-1), 5, 5)]
    steps = [((TODAY - step.day).days, step.tables) for step in drop_steps(known, TODAY)]
    assert steps == [(8, PAYLOADS), (7, PAYLOADS), (8, WHOLE), (7, WHOLE), (6, WHOLE), (1, WHOLE)]


def test_a_day_without_payloads_gives_none() -> None:
    assert [step.what for step in drop_steps([DayBytes(ago(9), 0, 5)], TODAY)] == ["day"]


@pytest.mark.parametrize(
    ("used", "droppable", "level"),
    [
        (849, True, "ok"),
        (850, True, "tell"),
        (949, True, "tell"),
        (950, True, "drop"),
        (2000, True, "drop"),
        (999, False, "drop"),
        (1000, False, "full"),
    ],
)
def test_levels_begin_at_85_95_and_100_percent(used: int, droppable: bool, level: str) -> None:
    assert level_of(used, 1000, droppable=droppable) == level


def test_the_day_it_is_reached_follows_from_the_whole_days_of_the_last_week() -> None:
    known = [DayBytes(ago(age), 80, 20) for age in range(1, 8)] + [DayBytes(TODAY, 1, 1)]
    seen = forecast(use(1000, *known), 1500, TODAY, 0)
    assert (seen.bytes_a_day, seen.reached_on) == (100, TODAY + timedelta(days=5))
    # With a term, what expires makes room: three more days come, then as much goes.
    assert forecast(use(1000, *known), 1500, TODAY, 10).reached_on is None
    assert forecast(use(1000, *known), 1500, TODAY, 20).reached_on == TODAY + timedelta(days=5)


def test_nothing_is_foretold_of_what_does_not_grow_or_never_ends() -> None:
    assert forecast(use(5), 100, TODAY, 0).reached_on is None
    slow = DayBytes(ago(1), 1, 0)
    assert forecast(use(1, slow), 2**60, TODAY, 0).reached_on is None
