"""Laws of the verdicts: a planted cause is found, named, and told in words no stronger than it is."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec
import pytest

from svc.domain.rca.cohort import Mark
from svc.domain.rca.report import report_of
from tests.domain.rca.cohorts import ONSET, Plant, claim, cohort


def analysed(plant: Plant, *marks: Mark, n: int = 1000, **about: Any) -> dict[str, Any]:
    before, after = cohort(plant, after=False, n=n), cohort(plant, after=True, n=n)
    told = report_of(claim(after, **about), before, after, marks)
    assert msgspec.json.decode(msgspec.json.encode(told)) == told
    assert told["engine"] == "rule"
    assert told["settle"]
    evidence = {u.trace_id.hex() for u in after.units if u.failed or not about.get("rate", True)}
    for one in told["hypotheses"]:
        assert set(one["evidence_trace_ids"]) <= evidence
    assert ("because" in told["summary"]) <= bool(marks)
    return told


def check(told: Mapping[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in told["ruled_out"] if one["check"] == name]
    return dict(found)


def failing(dice: random.Random, rate: float) -> dict[str, Any]:
    failed = dice.random() < rate
    return {"failed": failed, "signature": "TimeoutError" if failed else None}


def test_one_tenant_that_fails_is_named_with_its_share_of_the_failures_and_of_the_traffic() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        return {
            "given": lambda attributes: failing(
                dice, 0.5 if after and attributes["tenant:tenant"] == "acme" else 0.02
            )
        }

    told = analysed(plant)
    assert told["verdict"] == "behavior_change"
    assert "`acme` holds" in told["summary"]
    assert "of the failures with" in told["summary"]
    assert told["hypotheses"][0]["evidence_trace_ids"]
    assert check(told, "who.tenant")["assessment"] == "explains"
    for name in ("release.environment", "who.session_turn", "definition.prompt", "model.answered_model"):
        assert check(told, name)["assessment"] == "ruled_out", check(told, name)
    assert check(told, "release.host")["assessment"] == "unknown"
    assert check(told, "sample")["assessment"] == "ruled_out"


def test_a_release_on_half_of_the_traffic_that_fails_is_told_as_the_reason() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        new = after and dice.random() < 0.45
        return {
            "attributes": {"release": "1.1" if new else "1.0"},
            **failing(dice, 0.4 if new else 0.02),
        }

    told = analysed(plant, Mark("release", "1.1", "desk", ONSET - 5))
    assert (told["verdict"], told["change"]) == ("behavior_change", "release_change")
    assert "because another release took over: `1.1`, first seen" in told["summary"]
    (hypothesis,) = told["hypotheses"]
    assert (hypothesis["title"], hypothesis["confidence"]) == ("Another release: `1.1`", "high")
    assert "Release `1.1` holds" in hypothesis["rationale"]
    unmarked = analysed(plant)
    assert "because" not in unmarked["summary"]
    assert "release `1.1` holds" in unmarked["summary"]


@pytest.mark.parametrize(
    ("attribute", "verdict"),
    [
        ("answered_model", "model_change"),
        ("requested_model", "model_change"),
        ("prompt", "definition_change"),
        ("tool_definitions", "definition_change"),
    ],
)
def test_what_took_over_shortly_before_the_onset_is_the_change(attribute: str, verdict: str) -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        new = after and dice.random() < 0.7
        return {
            "attributes": {attribute: "new"} if new else {},
            **failing(dice, 0.4 if new else 0.05),
        }

    told = analysed(plant, Mark(attribute, "new", "desk", ONSET - 20))
    assert told["verdict"] == verdict
    assert "because" in told["summary"]
    assert "`new`" in told["summary"]
    # First seen days before, it is none of it; what is in its place is told as a place or as nothing.
    old = analysed(plant, Mark(attribute, "new", "desk", ONSET - 2000))
    assert old["verdict"] not in ("model_change", "definition_change")


def test_what_replaced_everything_is_told_by_its_date_and_not_as_the_reason() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        return {
            "attributes": {"answered_model": "next"} if after else {},
            **failing(dice, 0.4 if after else 0.05),
        }

    told = analysed(plant, Mark("answered_model", "next", "desk", ONSET - 1))
    assert told["verdict"] == "model_change"
    assert "because" not in told["summary"]
    assert "since another answering model took over: `next`" in told["summary"]


def test_a_release_that_alone_fails_is_named_and_everywhere_is_not_claimed() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        release, rate = ("1.5.0", 0.33) if after else ("1.4.2", 0.024)
        return {"attributes": {"release": release}, **failing(dice, rate)}

    before, after = cohort(plant, after=False, n=247), cohort(plant, after=True, n=110)
    rest = attrs.evolve(after.units[0], attributes=before.units[0].attributes, failed=False)
    after = attrs.evolve(after, units=(rest, *after.units[1:]))
    told = report_of(claim(after), before, after, [Mark("release", "1.5.0", "desk", ONSET + 10)])
    assert (told["verdict"], told["change"]) == ("behavior_change", "release_change")
    assert "is failing more often since another release took over: `1.5.0`, first seen" in told["summary"]
    assert "everywhere" not in told["detailed_report"]
    assert told["hypotheses"][0]["title"] == "Another release: `1.5.0`"
    assert told["settle"][0].startswith("Bring back the previous release")
    # A release that nobody dated is not claimed to have been compared.
    undated = report_of(claim(after), before, after, ())
    assert "everywhere it could be compared: by turn of the session, size" in undated["summary"]
    assert "release" not in undated["summary"]
    assert check(undated, "release.release")["assessment"] == "unknown"
    assert "remains to compare release." in undated["hypotheses"][0]["rationale"]


def arriving(share: float, **fresh: str) -> Plant:
    """New values that come together, on a share of the traffic, and fail."""

    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        new = after and dice.random() < share
        return {"attributes": fresh if new else {}, **failing(dice, 0.33 if new else 0.03)}

    return plant


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_what_arrived_together_is_named_together_the_release_first(share: float) -> None:
    fresh = {
        "release": "1.5.0",
        "requested_model": "gpt-4.1",
        "answered_model": "gpt-4.1-2025",
        "prompt": "b",
    }
    marks = [Mark(name, value, "desk", ONSET - 5) for name, value in fresh.items()]
    told = analysed(arriving(share, **fresh), *marks)
    assert (told["verdict"], told["change"]) == ("model_change", "joint_change")
    assert (
        "since release `1.5.0`, requested model `gpt-4.1` and prompt `b` arrived together, first seen"
        in told["summary"]
    )
    assert "and cannot be told apart" in told["summary"]
    assert [one["title"] for one in told["hypotheses"]] == [
        "Another release: `1.5.0`",
        "Another requested model: `gpt-4.1`",
        "Another prompt: `b`",
    ]
    assert {one["confidence"] for one in told["hypotheses"]} == {"medium"}
    assert "cannot be told apart from requested model and prompt" in told["hypotheses"][0]["rationale"]
    assert told["settle"][0].startswith(
        "Roll back the release, which also reverts requested model and prompt,"
    )


def test_without_a_release_each_of_what_arrived_together_is_to_be_brought_back_alone() -> None:
    fresh = {"requested_model": "gpt-4.1", "prompt": "b"}
    told = analysed(
        arriving(1.0, **fresh), *(Mark(name, value, "desk", ONSET - 5) for name, value in fresh.items())
    )
    assert (told["verdict"], told["change"]) == ("model_change", "joint_change")
    assert "previous requested model, then the previous prompt, each alone" in told["settle"][0]


def test_a_prompt_that_comes_before_its_release_is_everywhere_is_told_apart_from_it() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        new = after and dice.random() < 0.6
        fresh = {"release": "1.5.0"} if after else {}
        return {
            "attributes": fresh | ({"prompt": "b"} if new else {}),
            **failing(dice, 0.33 if new else 0.03),
        }

    marks = Mark("release", "1.5.0", "desk", ONSET - 5), Mark("prompt", "b", "desk", ONSET - 5)
    told = analysed(plant, *marks)
    assert told["verdict"] == "definition_change"
    assert "because another prompt took over: `b`" in told["summary"]


def test_what_sits_in_one_tenant_is_told_beside_the_release_that_replaced_all() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        return {
            "attributes": {"release": "1.1"} if after else {},
            "given": lambda attributes: failing(
                dice, 0.5 if after and attributes["tenant:tenant"] == "acme" else 0.02
            ),
        }

    told = analysed(plant, Mark("release", "1.1", "desk", ONSET - 5))
    assert (told["verdict"], told["change"]) == ("behavior_change", "release_change")
    assert "with 100 % of the traffic; `tenant` `acme` holds" in told["summary"]
    assert [one["title"] for one in told["hypotheses"]] == ["Another release: `1.1`", "`tenant` `acme`"]


def test_traffic_that_shifted_goes_before_a_release_of_which_nothing_is_measured() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        hard = dice.random() < (0.7 if after else 0.1)
        return {
            "attributes": {"tenant:tenant": "hard" if hard else "acme", "release": "1.1" if after else "1.0"},
            **failing(dice, 0.4 if hard else 0.02),
        }

    assert analysed(plant, Mark("release", "1.1", "desk", ONSET - 5))["verdict"] == "traffic_shift"


def test_a_new_model_among_which_the_old_one_fails_as_much_is_not_the_change() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        new = after and dice.random() < 0.5
        return {
            "attributes": {"answered_model": "new"} if new else {},
            **failing(dice, 0.4 if after else 0.05),
        }

    told = analysed(plant, Mark("answered_model", "new", "desk", ONSET - 20))
    assert told["verdict"] == "behavior_change"
    assert "everywhere" in told["summary"]
    assert check(told, "model.answered_model")["assessment"] == "ruled_out"


def test_traffic_that_shifts_to_who_always_failed_is_a_shift_of_traffic() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        hard = dice.random() < (0.7 if after else 0.1)
        return {
            "attributes": {"tenant:tenant": "hard" if hard else dice.choice(("acme", "beta"))},
            **failing(dice, 0.4 if hard else 0.02),
        }

    told = analysed(plant)
    assert told["verdict"] == "traffic_shift"
    assert "moved by" in told["summary"]
    assert "because" not in told["summary"]


def test_longer_first_messages_that_cost_more_are_a_shift_of_traffic_with_the_cost_taken_apart() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        long = dice.random() < (0.8 if after else 0.1)
        tokens = (8000 if long else 1000) + dice.randrange(200)
        return {
            "attributes": {"message_size": "16k and more" if long else "under 256"},
            "size": tokens * 2.5e-6,
            "cost": tokens * 2.5e-6,
            "tokens": tokens,
            "calls": 2,
        }

    told = analysed(plant, rate=False, money=True, subject="site:desk")
    assert told["verdict"] == "traffic_shift"
    assert check(told, "parts.tokens_per_call")["assessment"] == "explains"
    assert check(told, "parts.price")["assessment"] == "ruled_out"
    assert "$" in told["summary"]


def test_a_change_that_stands_everywhere_is_a_change_of_behaviour() -> None:
    told = analysed(lambda dice, after: failing(dice, 0.3 if after else 0.03))
    assert told["verdict"] == "behavior_change"
    assert "everywhere" in told["summary"]


def test_a_new_kind_of_failure_is_named() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        fields = failing(dice, 0.3 if after else 0.03)
        return fields | ({"signature": "QuotaError:1a"} if fields["failed"] and after else {})

    told = analysed(plant)
    assert told["verdict"] == "behavior_change"
    assert "QuotaError" in told["summary"]
    assert check(told, "signatures.QuotaError:1a")["assessment"] == "explains"


def test_a_usual_kind_of_failure_that_makes_the_change_is_not_cleared_of_it() -> None:
    told = analysed(lambda dice, after: failing(dice, 0.3 if after else 0.03))
    usual = check(told, "signatures.TimeoutError")
    assert usual["assessment"] == "explains"
    assert usual["measurement"].endswith("(100 % of the change); failed so before as well")


@pytest.mark.parametrize("slots", [-5, 10])
def test_what_is_new_is_said_to_be_around_the_onset_on_either_side_of_it(slots: int) -> None:
    told = analysed(lambda dice, after: failing(dice, 0.3), Mark("release", "2", "desk", ONSET + slots))
    assert check(told, "marks")["measurement"].startswith("new around the onset: release `2` at `desk`")


def test_a_tool_that_makes_turns_slow_is_named() -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        tool = dice.lognormvariate(7.5 if after else 6, 0.3)
        model = dice.lognormvariate(7, 0.3)
        return {"size": tool + model, "tool_ms": {"search": tool, "mail": 20.0}, "model_ms": model}

    told = analysed(plant, rate=False, subject="site:desk")
    assert told["verdict"] == "behavior_change"
    assert "`search` accounts for" in told["summary"]
    assert check(told, "parts.time.models")["assessment"] == "ruled_out"


def test_fewer_than_fifty_traces_a_side_tell_nothing() -> None:
    told = analysed(lambda dice, after: failing(dice, 0.9 if after else 0.0), n=49)
    assert told["verdict"] == "inconclusive"
    assert "too few traces" in told["summary"]
    assert {one["assessment"] for one in told["ruled_out"] if one["check"].startswith("who.")} == {"unknown"}


def test_traces_without_attributes_tell_nothing() -> None:
    before, after = (
        cohort(lambda dice, late: failing(dice, 0.4 if late else 0.02), after=late) for late in (False, True)
    )
    bare = [
        attrs.evolve(side, units=tuple(attrs.evolve(u, attributes={}, signature=None) for u in side.units))
        for side in (before, after)
    ]
    told = report_of(claim(bare[1]), bare[0], bare[1], ())
    assert told["verdict"] == "inconclusive"
    assert "too few attributes" in told["summary"]
    assert {o["assessment"] for o in told["ruled_out"] if o["check"].startswith(("who", "model"))} == {
        "unknown"
    }


@pytest.mark.parametrize("seed", range(20))
def test_where_nothing_is_planted_no_place_and_no_shift_is_told(seed: int) -> None:
    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        return failing(dice, 0.12 if after else 0.03)

    before, after = (cohort(plant, after=late, seed=seed, n=400) for late in (False, True))
    told = report_of(claim(after), before, after, ())
    assert told["verdict"] in ("behavior_change", "inconclusive")
    assert not any(one["title"].startswith(("Release", "`tenant")) for one in told["hypotheses"])


def test_what_clients_wrote_cannot_leave_its_place() -> None:
    nasty = "a`b|c\n## head" + "x" * 500

    def plant(dice: random.Random, after: bool) -> dict[str, Any]:
        bad = dice.random() < 0.2
        return {
            "attributes": {"tenant:tenant": nasty if bad else "acme"},
            **failing(dice, 0.6 if after and bad else 0.02),
        }

    told = analysed(plant)
    assert len(told["summary"]) <= 600
    assert "\n" not in told["summary"]
    assert "\n## head" not in told["detailed_report"]
    assert len(told["detailed_report"]) <= 20_000
