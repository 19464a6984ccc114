"""Values as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from svc.web import words

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "said"),
    [(None, "–"), (0, "0 ms"), (0.42, "0.42 ms"), (312.4, "312 ms"), (999.6, "1.0 s"), (9_230, "9.2 s"),
     (59_960, "1 m 00 s"), (123_000, "2 m 03 s"), (12_000_000, "3 h 20 m"), (200_000_000, "2 d 7 h"),
     (-5, "-5 ms")],
)  # fmt: skip
def test_a_duration_has_two_figures_and_a_unit(ms: float | None, said: str) -> None:
    assert words.duration(ms) == said


@pytest.mark.parametrize(
    ("usd", "said"),
    [(None, "–"), (0, "$0"), (Decimal("12.4"), "$12.40"), (0.019, "$0.019"), (0.0031, "$0.0031"),
     (0.00042, "$0.00042"), (1234.5, "$1,234"), (1e-9, "<$0.0000001"), (-0.5, "-$0.50")],
)  # fmt: skip
def test_money_is_to_the_cent_and_below_it_to_two_digits(usd: float | Decimal | None, said: str) -> None:
    assert words.money(usd) == said


def test_what_nobody_sees_becomes_a_mark() -> None:
    assert words.visible("abc\u202edef\u200b") == "abc⟨U+202E⟩def⟨U+200B⟩"
    assert words.visible("plain, ünï\n\tcode 😀") == "plain, ünï\n\tcode 😀"


def test_a_clock_says_the_day_only_where_it_is_another() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert words.clock(NOW - timedelta(hours=1), UTC, NOW) == "11:00:00"
    assert words.clock(NOW - timedelta(hours=1), berlin, NOW) == "12:00:00"
    assert words.clock(NOW - timedelta(days=1), UTC, NOW) == "Fri 12:00:00"
    assert words.minute(NOW - timedelta(days=20), UTC, NOW) == "1 Nov 12:00"
    assert words.minute(NOW - timedelta(days=400), UTC, NOW) == "17 Oct 2025 12:00"
    assert words.moment("2026-11-21T11:52:07.130000Z", berlin) == "2026-11-21 12:52:07.130 CET"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "just now"), (40, "40 s ago"), (200, "3 min ago"), (7300, "2 h ago"),
                          (90_000, "25 h ago"), (500_000, "5 d ago")],
)  # fmt: skip
def test_ago_has_one_unit(seconds: int, said: str) -> None:
    assert words.ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_shares_and_sizes() -> None:
    assert [words.percent(part) for part in (None, 0, 0.0001, 0.184, 0.9999, 1)] == [
        "–", "0 %", "<0.1 %", "18.4 %", ">99.9 %", "100 %",
    ]  # fmt: skip
    assert [words.size(number) for number in (None, 812, 4200, 2_400_000)] == [
        "–",
        "812 B",
        "4.1 KiB",
        "2.3 MiB",
    ]
    assert [words.compact(number) for number in (0, 0.72, 412, 18_204, 3_100_000)] == [
        "0", "0.72", "412", "18.2 k", "3.1 M",
    ]  # fmt: skip
    assert words.counted(1, "trace") == "1 trace"
    assert words.counted(1200, "trace") == "1,200 traces"
