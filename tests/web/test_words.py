"""Times as people read them; quantities have a table of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from svc.web.shell import words
from svc.web.shell.ranges import TimeRange

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


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


def test_fields_have_names_for_people_and_attributes_their_own() -> None:
    assert [words.field(name) for name in ("call_site_id", "provided_model_name", "kind")] == [
        "call site",
        "provided model name",
        "kind",
    ]
    assert words.field("attr.customer_id") == "customer_id"


def test_every_unseen_character_is_marked_and_no_other_that_is_ascii() -> None:
    for code in range(0x80):
        char = chr(code)
        seen = char.isprintable() or char in "\t\n\r"
        assert words.visible(f"a{char}b") == (f"a{char}b" if seen else f"a⟨U+{code:04X}⟩b")
    assert words.visible("an invoice\u202e") == "an invoice⟨U+202E⟩"


def test_a_range_over_midnight_names_both_days_and_one_within_a_day_none_of_today() -> None:
    day, hour = timedelta(days=1), timedelta(hours=1)
    both = TimeRange(None, NOW - day, NOW, NOW)
    assert both.said(UTC) == "from 20 Nov 12:00 to 21 Nov 12:00"
    assert TimeRange(None, NOW - hour, NOW, NOW).said(UTC) == "from 11:00 to 12:00"


def test_a_cost_is_more_than_what_is_known_and_an_unknown_one_is_no_sum() -> None:
    assert [words.cost(1.5, 0), words.cost(1.5, 2), words.cost(None, 2)] == [
        "$1.50",
        "$1.50+",
        words.NOT_KNOWN,
    ]
