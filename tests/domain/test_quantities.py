"""Quantities as people read them: the table that pages and modules share."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain import quantities

TABLE = msgspec.json.decode((Path(__file__).parents[1] / "quantities.json").read_bytes())
QUANTITIES = sorted(TABLE.keys() - {"visible"})


@pytest.mark.parametrize("kind", QUANTITIES)
def test_each_quantity_is_written_as_the_table_says(kind: str) -> None:
    write = getattr(quantities, kind)
    assert [(value, write(value)) for value, _ in TABLE[kind]] == [tuple(case) for case in TABLE[kind]]


@given(st.floats(-1e15, 1e15))
def test_no_quantity_has_an_exponent_or_more_digits_than_a_line_has_room_for(value: float) -> None:
    for kind in QUANTITIES:
        text = getattr(quantities, kind)(value)
        assert "e" not in text
        assert len(text) < 32


@given(st.decimals(0, 100_000, places=9))
def test_money_reads_the_same_as_a_decimal_and_as_a_float(usd: Decimal) -> None:
    assert quantities.money(usd) == quantities.money(float(usd))


def test_what_was_set_keeps_all_its_digits() -> None:
    assert [quantities.setting(number) for number in (1500, 0.015, 25.0, 1e-7, Decimal("2.50"))] == [
        "1,500", "0.015", "25", "0.0000001", "2.5",
    ]  # fmt: skip
    assert [quantities.typed(number) for number in (1500, 1e6, 0.015)] == ["1500", "1000000", "0.015"]


@pytest.mark.parametrize(
    ("metric", "text"),
    [("rate", "29 %"), ("share", "29 %"), ("p95_ms", "0.29 ms"), ("p50_cost", "$0.2900"), ("ratio", "×0.29"),
     ("traces", "0.29"), (None, "0.29")],
)  # fmt: skip
def test_the_metric_of_a_finding_names_the_unit_of_its_values(metric: str | None, text: str) -> None:
    assert quantities.writer(metric)(0.29) == text


def test_counted_things_have_their_number() -> None:
    assert quantities.counted(1, "trace") == "1 trace"
    assert quantities.counted(1200, "trace") == "1,200 traces"
    assert re.fullmatch("2 queries", quantities.counted(2, "query", "queries"))
