"""Laws of reports on secrets: what the traces with one share is told, and nothing is compared."""

from __future__ import annotations

import random
from typing import Any

import attrs

from svc.domain.rca.report import report_of
from tests.domain.rca.cohorts import Plant, claim, cohort


def reported(plant: Plant) -> dict[str, Any]:
    before, after = cohort(plant, after=False, n=300), cohort(plant, after=True, n=100)
    return report_of(attrs.evolve(claim(after), sighting=True), before, after, ())


def leaking(share: float, user: str | None) -> Plant:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        failed = after and dice.random() < share
        return {"failed": failed, "attributes": {"user": user} if failed and user else {}}

    return plant


def test_what_all_traces_with_a_secret_share_and_few_others_have_is_told() -> None:
    told = reported(leaking(0.2, "mara"))
    assert (
        " of 100 traces hold a secret of this form, before none. All have the same user `mara`."
        in told["summary"]
    )
    # The release and the models are everybody's.
    assert "1.0" not in told["summary"]
    assert "gpt-4o" not in told["detailed_report"]


def test_one_trace_is_told_as_one() -> None:
    once = iter([True])

    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        failed = after and next(once, False)
        return {"failed": failed, "attributes": {"user": "mara"} if failed else {}}

    summary = reported(plant)["summary"]
    assert "1 of 100 traces holds a secret of this form, before none. That trace has user `mara`" in summary


def test_traces_that_share_nothing_are_counted_alone() -> None:
    assert reported(leaking(0.5, None))["summary"].endswith("a secret of this form, before none.")


def test_nothing_is_ruled_out_or_supposed_and_the_steps_say_what_to_do() -> None:
    told = reported(leaking(0.2, "mara"))
    assert (told["verdict"], told["ruled_out"], told["hypotheses"]) == ("inconclusive", [], [])
    assert told["settle"][0].startswith("Revoke it")
    assert "## What to do" in told["detailed_report"]
    assert "## Checks" not in told["detailed_report"]
