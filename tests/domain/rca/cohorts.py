"""Cohorts with a planted cause, made from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from svc.domain.rca.cohort import Claim, Cohort, Unit

ONSET: Final = 5_900_000
BEFORE: Final = (ONSET - 14 * 288, ONSET)
AFTER: Final = (ONSET, ONSET + 288)

Plant = Callable[[random.Random, bool], Mapping[str, Any]]


def ordinary(dice: random.Random) -> dict[str, str]:
    """The attributes of a trace of a healthy application: one release, one model, five tenants."""
    return {
        "user": f"u{dice.randrange(40)}",
        "session_turn": dice.choice(("1", "1", "2", "3–5")),
        "message_size": dice.choice(("under 256", "256 to 1k", "1k to 4k")),
        "prompt": "aaaa",
        "tool_definitions": "dddd",
        "requested_model": "gpt-4o",
        "answered_model": "gpt-4o-2024-08-06",
        "provider": "openai",
        "release": "1.0",
        "environment": dice.choice(("production", "production", "staging")),
        "tenant:tenant": dice.choice(("acme", "beta", "beta", "corp", "dune")),
    }


def cohort(plant: Plant, *, after: bool, n: int = 1000, seed: int = 1) -> Cohort:
    """Units of one side; the plant gives each its fields, `attributes` beside the ordinary ones."""
    dice = random.Random(f"{seed} {after}")
    first, end = AFTER if after else BEFORE
    units = []
    for number in range(n):
        attributes = ordinary(dice)
        fields = dict(plant(dice, after))
        attributes |= fields.pop("attributes", {})
        if callable(planted := fields.pop("given", None)):
            fields |= planted(attributes)
        units.append(
            Unit(
                (number + 1 + 1_000_000 * after).to_bytes(16, "big"),
                dice.randrange(first, end),
                attributes=attributes,
                **fields,
            )
        )
    return Cohort(tuple(units), first, end, n)


def claim(
    after: Cohort | None = None, *, subject: str = "tool:search", rate: bool = True, money: bool = False
) -> Claim:
    """A claim whose evidence is what fails in a cohort, or the first of it."""
    units = () if after is None else after.units
    chosen = [u.trace_id for u in units if u.failed or not rate]
    return Claim(
        title="search fails more often",
        subject=subject,
        rate=rate,
        money=money,
        onset=ONSET,
        low=ONSET - 12,
        high=ONSET + 12,
        evidence={"witness": tuple(chosen[:50])},
    )
