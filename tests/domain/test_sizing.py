"""Laws of sizes: figures are those that were measured, and more traffic never needs less."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.commands.size import number
from svc.domain.sizing import (
    FIGURES,
    LARGE_HISTORY,
    MEASURED,
    MOST_DAYS,
    MOST_SPAN_BYTES,
    MOST_SPANS,
    PROPORTIONAL,
    Figure,
    sized,
)

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = {"GB": 1e9, "MB": 1e6, "KB": 1e3}


def written(text: str) -> float:
    """The number that a text stands for."""
    amount, _, unit = text.partition(" ")
    words = {"two": 2, "ten million": 1e7}
    return words.get(text) or float(amount.replace(",", "")) * UNITS.get(unit, 1)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.source[1][:40])
def test_a_figure_is_the_one_that_was_measured(figure: Figure) -> None:
    file, words = figure.source
    text = " ".join((DEPLOY / file).read_text(encoding="utf-8").split())
    assert words in text
    assert figure.text in words
    assert figure.value == pytest.approx(written(figure.text))


SPANS = st.integers(1, MOST_SPANS)
BYTES = st.integers(1, MOST_SPAN_BYTES)
DAYS = st.integers(1, MOST_DAYS)


@given(SPANS, SPANS, BYTES, BYTES, DAYS, DAYS)
def test_more_never_needs_less(a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    small = sized(min(a, b), min(c, d), min(e, f))
    large = sized(max(a, b), max(c, d), max(e, f))
    for name in ("cores", "memory_bytes", "disk_low_bytes", "disk_high_bytes", "disk_bytes"):
        assert getattr(small, name) <= getattr(large, name)
    assert large.disk_low_bytes <= large.disk_high_bytes <= large.disk_bytes


@given(SPANS, BYTES, DAYS)
def test_what_no_machine_was_measured_with_is_not_called_measured(spans: int, size: int, days: int) -> None:
    instance = sized(spans, size, days)
    assert instance.rate_measured == (instance.cores == 2)
    assert instance.certainty.startswith(MEASURED if instance.rate_measured else PROPORTIONAL)
    assert instance.certainty.endswith(LARGE_HISTORY) == (spans * days > 10_000_000)
    # The peak takes no more than half of what was stored, in bytes as in spans.
    stored_s = 6388 / 2 * instance.cores
    assert instance.peak_spans_s * max(1, size / 4000) <= stored_s / 2 + 1


def test_a_million_a_day_is_a_small_machine() -> None:
    instance = sized(1_000_000, 4400, 30)
    assert (instance.cores, instance.memory_bytes) == (2, 2 << 30)
    # README says 100 GB, and the log of the database is on top.
    assert 100e9 <= instance.disk_high_bytes < 102e9


@pytest.mark.parametrize(
    ("text", "value"),
    [("2500000", 2_500_000), ("2_500_000", 2_500_000), ("2,500,000", 2_500_000), ("2.5M", 2_500_000)],
)
def test_a_number_is_read_as_people_write_it(text: str, value: int) -> None:
    assert number(MOST_SPANS)(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1e9", "0.4", "200G", "1M M", "9" * 13])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number from 1 to"):
        number(MOST_SPANS)(text)


def test_the_command_says_the_same_to_people_and_programs() -> None:
    from tests.commands.test_command_line import said

    code, text, errors = said("size", "--spans-per-day", "200M", "--days", "7", "--json")
    assert (code, errors) == (0, "")
    assert json.loads(text) == sized(200_000_000, 4400, 7).facts()
    code, text, _ = said("size", "--spans-per-day", "200M", "--days", "7")
    assert code == 0
    assert PROPORTIONAL in text
    assert said("size")[0] == 2
