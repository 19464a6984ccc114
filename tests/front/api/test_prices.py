"""Prices of a project over REST: set as a whole, by whom, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.front.people import PROJECT, Browser, Replica

PRICES = PROJECT + "/prices"
PRICE: dict[str, Any] = {
    "model": "house-llm",
    "provider": "in-house",
    "input": 2.5,
    "output": 10.0,
    "cache_read": None,
    "cache_write": 0.1,
    "cache_write_1h": 0.16,
}


async def test_what_is_set_is_shown_to_the_digit_and_in_the_audit(owner: Browser) -> None:
    assert (await owner.get(PRICES)).data == {"prices": []}
    assert (await owner.put(PRICES, {"prices": [PRICE]})).data == {"prices": [PRICE]}
    assert (await owner.get(PRICES)).data == {"prices": [PRICE]}
    audit = (await owner.get(f"{PROJECT}/api-keys/audit")).data
    assert audit["rows"][0]["action"] == "prices.update"
    assert (await owner.put(PRICES, {"prices": []})).data == {"prices": []}


@pytest.mark.parametrize(
    "prices",
    [
        [PRICE, {**PRICE, "model": " House-LLM "}],
        [{**PRICE, "model": " "}],
        [{**PRICE, "input": -1}],
        [{**PRICE, "output": 2_000_000}],
        [{"model": "a", "input": 1}],
        [{**PRICE, "model": f"m{number}"} for number in range(501)],
    ],
)
async def test_what_cannot_be_is_400_and_changes_nothing(owner: Browser, prices: list[Any]) -> None:
    await owner.put(PRICES, {"prices": [PRICE]})
    assert (await owner.put(PRICES, {"prices": prices})).status == 400
    assert (await owner.get(PRICES)).data == {"prices": [PRICE]}


async def test_a_member_may_look_and_not_change(api: Replica, owner: Browser) -> None:
    member = await api.member("vera@example.com", "member", owner)
    assert (await member.get(PRICES)).status == 200
    assert (await member.put(PRICES, {"prices": [PRICE]})).status == 403
