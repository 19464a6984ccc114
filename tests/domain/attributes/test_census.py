"""Which keys are worth a field: seen often, of few values, and no id, number, text, person or secret."""

from __future__ import annotations

from typing import Any

import pytest

from svc.domain.attributes.census import (
    FIRST,
    MOST_COUNTED,
    MOST_DISTINCT,
    ONE_IN,
    PROMOTED_AFTER,
    KeyCensus,
    KeyCount,
    unfit_name,
    unfit_value,
)
from tests.domain import wire

SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"


def counted(*values: Any, name: str = "shop.tier") -> KeyCount:
    count = KeyCount(unfit=unfit_name(name))
    for value in values:
        count.note(value)
    return count


def test_few_values_seen_often_are_worth_a_field() -> None:
    assert counted(*(["gold", "silver"] * PROMOTED_AFTER)).worth_a_field
    assert counted(*([True, False] * PROMOTED_AFTER)).worth_a_field
    assert not counted(*(["gold", "silver"] * (PROMOTED_AFTER // 2 - 1))).worth_a_field
    assert not counted(*(["gold"] * 2 * PROMOTED_AFTER)).worth_a_field


def test_many_values_are_not_and_no_more_are_remembered() -> None:
    many = counted(*(f"plan {'abcdefghij'[n % 10]}{'abcdefghij'[n // 10 % 10]}{'abcdefghij'[n // 100]}"
                     for n in range(2 * MOST_DISTINCT)))  # fmt: skip
    assert (many.unfit, many.worth_a_field) == ("many", False)
    assert len(many.values) == MOST_DISTINCT + 1


@pytest.mark.parametrize(
    ("value", "unfit"),
    [
        ("gold", None), ("eu-west-1", None), ("gpt-4o-mini", None), (True, None), ("v2.11.3", None),
        (3, "number"), (0.5, "number"), ("17", "number"), ("-1.5e3", "number"),
        ("x" * 101, "text"), ("two\nlines", "text"), ("", "text"), (["a"], "text"), (None, "text"),
        ("ann@example.com", "person"), (SECRET, "secret"), (f"use {SECRET} here", "secret"),
        ("3f0b8a52-5f9e-4f7e-9a34-2b9f1d4a7c11", "id"), ("9f86d081884c7d65", "id"),
        ("usr_2Nk81hZqLw0pXy", "id"),
    ],
)  # fmt: skip
def test_a_value_tells_against_its_key(value: Any, unfit: str | None) -> None:
    assert unfit_value(value) == unfit
    assert counted(*(["gold", "silver", value] * PROMOTED_AFTER)).worth_a_field == (unfit is None)


@pytest.mark.parametrize(
    ("name", "unfit"),
    [
        ("shop.tier", None), ("metadata.plan", None), ("experiment", None),
        ("shop.api_key", "secret"), ("auth.method", "secret"), ("metadata.csrfToken", "secret"),
        ("contact.email", "person"), ("metadata.phone", "person"),
        ("order.id", "id"), ("orderId", "id"), ("metadata.request_id", "id"), ("row.hash", "id"),
        ("http.route", "plumbing"), ("db.system", "plumbing"),
    ],
)  # fmt: skip
def test_a_name_tells_against_its_key(name: str, unfit: str | None) -> None:
    assert unfit_name(name) == unfit


def test_two_counts_add_up_as_one_would_have() -> None:
    values = ["gold", "silver", "bronze"] * 50
    both = counted(*values[:70])
    both.merge(counted(*values[70:]))
    whole = counted(*values)
    assert (both.spans, both.values, both.unfit) == (whole.spans, whole.values, whole.unfit)
    spoiled = counted("gold")
    spoiled.merge(counted(SECRET))
    assert spoiled.unfit == "secret"


def test_of_many_spans_some_are_looked_into_and_no_value_is_kept() -> None:
    census = KeyCensus()
    for _ in range(FIRST + 3 * ONE_IN):
        census.note(1, wire({"shop.tier": "gold", "session.id": "s", "service.name": "x"}))
    [(project_id, counts)] = census.take().items()
    assert project_id == 1
    # Keys that are read by the mapping or by a convention are not counted.
    assert set(counts) == {"shop.tier"}
    assert FIRST <= counts["shop.tier"].spans <= FIRST + 4
    assert b"gold" not in b"".join(counts["shop.tier"].values)
    assert census.take() == {}


def test_metadata_is_counted_member_by_member_under_one_name() -> None:
    census = KeyCensus()
    census.note(1, wire({"metadata": '{"plan": "gold"}'}))
    census.note(1, wire({"langsmith.metadata.plan": "silver"}))
    assert len(census.take()[1]["metadata.plan"].values) == 2


def test_keys_of_a_project_are_counted_up_to_a_bound() -> None:
    census = KeyCensus()
    census.note(1, wire({f"k.{'x' * (n % 50)}{n}": "v" for n in range(2 * MOST_COUNTED)}))
    assert len(census.take()[1]) == MOST_COUNTED
