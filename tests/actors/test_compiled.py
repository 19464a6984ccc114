"""Laws of modules that are compiled beside the service: fresh decoders once they are there, and once only."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from actors import compiled
from actors.compiled import LOOK_EVERY_S, LOOKS, CompiledModules, awaited
from actors.decoders import Decoders


class Counting(Decoders):
    """Counts how often it is told to renew."""

    def __init__(self) -> None:
        super().__init__(())
        self.renewals = 0

    async def renew(self) -> None:
        self.renewals += 1


@pytest.fixture
def decoders() -> Counting:
    return Counting()


def at_first(monkeypatch: pytest.MonkeyPatch, *states: bool) -> None:
    """What is compiled at each look; the last goes on."""
    left = list(states)
    monkeypatch.setattr(compiled, "state", lambda: (left.pop(0) if left[1:] else left[0], "a sentence"))


async def test_decoders_are_renewed_once_when_all_modules_are_there(
    decoders: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_first(monkeypatch, False, False, True)
    modules = CompiledModules(decoders)
    assert [await modules.look() for _ in range(3)] == [LOOK_EVERY_S, LOOK_EVERY_S, inf]
    assert decoders.renewals == 1


async def test_nobody_looks_for_ever(decoders: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    at_first(monkeypatch, False)
    modules = CompiledModules(decoders)
    rests: list[Any] = [await modules.look() for _ in range(LOOKS)]
    assert set(rests[:-1]) == {LOOK_EVERY_S}
    assert rests[-1] == inf
    assert decoders.renewals == 0


def test_a_service_that_runs_compiled_or_shall_not_looks_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SVC_COMPILED_MODULES", raising=False)
    at_first(monkeypatch, True)
    assert not awaited()
    at_first(monkeypatch, False)
    assert awaited()
    monkeypatch.setenv("SVC_COMPILED_MODULES", "false")
    assert not awaited()
