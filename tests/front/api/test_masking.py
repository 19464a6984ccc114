"""Masking over REST: set as a whole, by whom, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.front.people import PROJECT, Browser, Replica

MASKING = PROJECT + "/masking"
SET: dict[str, Any] = {
    "classes": ["email", "card"],
    "patterns": [{"name": "customer", "pattern": "KD-[0-9]{6}"}],
}


async def test_what_is_set_is_in_force_and_in_the_audit(owner: Browser) -> None:
    assert (await owner.get(MASKING)).data == {"classes": [], "patterns": [], "counts": {}}
    assert (await owner.put(MASKING, SET)).data == SET | {"counts": {}}
    shown = (await owner.get(MASKING)).data
    assert sorted(shown["classes"]) == ["card", "email"]
    assert shown["patterns"] == SET["patterns"]
    audit = (await owner.get(f"{PROJECT}/api-keys/audit")).data
    assert audit["rows"][0]["action"] == "masking.update"
    assert (await owner.put(MASKING, {"classes": [], "patterns": []})).data["classes"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"classes": ["nonsense"], "patterns": []},
        {"classes": [], "patterns": [{"name": "a", "pattern": "("}]},
        {"classes": [], "patterns": [{"name": "email", "pattern": "x"}]},
        {"classes": [], "patterns": [{"name": "a", "pattern": "x*"}]},
        {"classes": []},
    ],
)
async def test_what_cannot_be_is_400_and_changes_nothing(owner: Browser, body: dict[str, Any]) -> None:
    await owner.put(MASKING, SET)
    assert (await owner.put(MASKING, body)).status == 400
    assert len((await owner.get(MASKING)).data["classes"]) == 2


async def test_a_member_may_look_and_not_change(api: Replica, owner: Browser) -> None:
    member = await api.member("vera@example.com", "member", owner)
    assert (await member.get(MASKING)).status == 200
    assert (await member.put(MASKING, SET)).status == 403
