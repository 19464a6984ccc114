"""A bill and what was traced: the same model by any name, agreement to the digit, words for the rest."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.billing.exports import NO_MODEL, Bill, BillLine
from svc.domain.billing.reconciliation import TracedUse, model_key, reconcile

DAY = date(2025, 11, 20)


def bill(*lines: BillLine, provider: str = "openai") -> Bill:
    return Bill(provider, "OpenAI costs", lines, {})


def use(cost: str, tokens: int = 100, **fields: Any) -> TracedUse:
    named = {"day": DAY, "model": "gpt-4o", "provider": "openai", "call_site": "ask", "calls": 1}
    return TracedUse(**{**named, **fields}, cost=Decimal(cost), tokens=tokens)


@pytest.mark.parametrize(
    "names",
    [
        ("gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o", "openai/gpt-4o-2024-08-06:free", "GPT-4o"),
        (
            *("claude-opus-4-5-20251101", "Claude Opus 4.5", "claude-opus-4-5", "anthropic/claude-opus-4.5"),
            *("us.anthropic.claude-opus-4-5-20251101-v1:0", "Claude4.5Opus", "claude-opus-4-5@20251101"),
        ),
        ("gemini-2.5-pro", "google/gemini-2.5-pro", "Gemini 2.5 Pro"),
    ],
)
def test_names_of_one_model_are_one(names: tuple[str, ...]) -> None:
    assert len({model_key(name) for name in names}) == 1


def test_names_of_several_models_are_several() -> None:
    names = ["gpt-4o", "gpt-4o-mini", "gpt-4", "o4-mini", "gpt-4.1", "gpt-5", "gpt-5-codex", "o1", "o3"]
    assert len({model_key(name) for name in names}) == len(names)


def test_sides_agree_to_the_last_digit_that_was_billed() -> None:
    (row,) = reconcile(bill(BillLine(DAY, "gpt-4o", Decimal("0.1300"))), [use("0.13")])
    assert (row.agrees, row.reasons, row.difference) == (True, (), 0)
    (row,) = reconcile(bill(BillLine(DAY, "gpt-4o", Decimal("0.13"))), [use("0.1349")])
    assert row.agrees
    (row,) = reconcile(bill(BillLine(DAY, "gpt-4o", Decimal("0.1300"))), [use("0.1301")])
    assert (row.agrees, row.difference) == (False, Decimal("-0.0001"))
    # A bill without a fraction is to the cent, not to the dollar.
    (row,) = reconcile(bill(BillLine(DAY, "gpt-4o", Decimal(2))), [use("1.98")])
    assert not row.agrees


def test_lines_and_call_sites_of_a_day_and_model_are_added_up() -> None:
    lines = [BillLine(DAY, "gpt-4o-2024-08-06", Decimal("0.1")) for _ in range(3)]
    (row,) = reconcile(bill(*lines), [use("0.2"), use("0.1", call_site="plan", model="gpt-4o-2024-08-06")])
    assert row.agrees
    assert (row.billed_cost, row.our_cost, row.our_calls) == (Decimal("0.3"), Decimal("0.3"), 2)
    assert [site.call_site for site in row.sites] == ["ask", "plan"]


@pytest.mark.parametrize(
    ("lines", "uses", "words"),
    [
        ([BillLine(DAY, "gpt-4o", Decimal(1))], [], "no call of this model was traced"),
        ([BillLine(DAY, "(tax)", Decimal(1))], [], "no call of a model that could be traced"),
        ([BillLine(date(2025, 11, 19), "gpt-4o", Decimal(1))], [use("1")], "the file has no line for it"),
        ([BillLine(DAY, "gpt-4o", Decimal(1))], [use("0", unpriced=1)], "1 of 1 traced calls have no price"),
        (
            [BillLine(DAY, "gpt-4o", Decimal(1))],
            [use("2", given=1)],
            "1 calls have the cost that their exporter",
        ),
        ([BillLine(DAY, "gpt-4o", Decimal(1), 150)], [use("0.5")], "50 billed tokens are in no trace"),
        ([BillLine(DAY, "gpt-4o", Decimal(1), 50)], [use("2")], "50 traced tokens are not billed"),
        ([BillLine(DAY, "gpt-4o", Decimal(1))], [use("2")], "the file has no tokens"),
        ([BillLine(DAY, "gpt-4o", None, 150)], [use("2")], "50 billed tokens are in no trace"),
        ([BillLine(DAY, "gpt-4o", Decimal(1), 100)], [use("2")], "the tokens agree, so the prices differ"),
        (
            [BillLine(DAY, "gpt-4o", Decimal(2))],
            [use("1", repeated=Decimal("1.0"))],
            "left out here: $1",
        ),
    ],
)
def test_what_explains_the_rest_is_said(lines: list[BillLine], uses: list[TracedUse], words: str) -> None:
    rows = [row for row in reconcile(bill(*lines), uses) if row.day == DAY]
    (row,) = rows
    assert not row.agrees
    assert any(words in reason for reason in row.reasons), row.reasons


def test_calls_that_somebody_else_bills_are_not_on_this_bill() -> None:
    ours = [
        use("1"),
        use("2", provider="anthropic", model="claude-opus-4-5"),
        use("3", provider="openrouter", model="openai/gpt-4o"),
        use("4", provider=None),
        use("5", provider="own-gateway", model="gpt-4o"),
        use("6", provider="own-gateway", model="llama"),
    ]
    (row,) = reconcile(bill(BillLine(DAY, "gpt-4o", Decimal(10))), ours)
    assert (row.agrees, row.our_cost) == (True, Decimal(10))
    # OpenRouter speaks OpenAI's interface: calls of it may be named so.
    (row,) = reconcile(
        bill(BillLine(DAY, "openai/gpt-4o", Decimal(4)), provider="openrouter"), ours[:1] + ours[2:3]
    )
    assert row.our_cost == Decimal(4)


def test_a_bill_without_models_is_held_against_the_whole_day() -> None:
    ours = [use("1"), use("2", model="gpt-5"), use("4", provider=None)]
    (row,) = reconcile(bill(BillLine(DAY, NO_MODEL, Decimal(3))), ours)
    assert (row.agrees, row.names) == (True, ("gpt-4o", "gpt-5"))
