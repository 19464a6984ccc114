"""Reports by rule over what a service stored: a planted cause comes back as a verdict, with its traces."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import trio

from svc.detecting.analyst import CaseAnalyst, RuleReports
from svc.domain.detect.engine.slots import block_of_week
from svc.domain.rca.cohort import Cohort
from svc.store.detection.cases.cases import CaseStore
from svc.store.detection.rca import cohorts
from svc.store.detection.rca.cohort_question import hours_like
from svc.store.detection.rca.cohorts import CohortStore
from svc.store.postgres.database import Database
from tests.detecting.planted import Story, case_of, fill
from tests.store.detection.detecting import LATER, opened, seen
from tests.store.spans.test_writing import NOW, fetch


def analyst(store: Database, counts: Counter[str] | None = None) -> CaseAnalyst:
    counts = Counter() if counts is None else counts
    return CaseAnalyst(store=RuleReports(store), now=lambda: NOW, counts=counts)


async def told(store: Database, case_id: UUID) -> dict[str, Any]:
    """The report as it stands in the case."""
    await analyst(store).round()
    found = await CaseStore(store).one(1, str(case_id), LATER)
    assert found is not None
    assert found["rca_available"], found["events"]
    report: dict[str, Any] = found["rca"]
    assert report["engine"] == "rule"
    return report


def check(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in report["ruled_out"] if one["check"] == name]
    return dict(found)


async def test_a_tool_that_fails_for_one_tenant_is_told_with_its_traces(store: Database) -> None:
    def plant(story: Story) -> None:
        bad = story.after and story.tenant == "acme"
        story.failing = story.dice.random() < (0.7 if bad else 0.03)

    stories = await fill(store, plant)
    report = await told(store, await case_of(store, stories, "tool_error_rate", "tool:search"))
    assert report["verdict"] == "behavior_change"
    assert "`acme` holds" in report["summary"]
    assert check(report, "who.tenant")["assessment"] == "explains"
    assert check(report, "definition.prompt")["assessment"] == "ruled_out"
    assert check(report, "who.session_turn")["assessment"] == "ruled_out"
    assert check(report, "who.message_size")["assessment"] == "ruled_out"
    assert check(report, "release.environment")["assessment"] == "ruled_out"
    first = report["hypotheses"][0]["evidence_trace_ids"]
    acme = {story.trace_id.hex() for story in stories if story.failing and story.tenant == "acme"}
    assert first
    assert set(first) <= acme


async def test_a_field_that_tells_them_apart_is_named_when_payloads_are_gone_too(store: Database) -> None:
    def plant(story: Story) -> None:
        story.tag = story.dice.choice(("beta", "stable", "stable"))
        bad = story.after and story.tag == "beta"
        story.failing = story.dice.random() < (0.7 if bad else 0.03)

    stories = await fill(store, plant)
    case = await case_of(store, stories, "tool_error_rate", "tool:search")
    await fetch(store, "delete from span_payload")
    report = await told(store, case)
    assert report["verdict"] == "behavior_change"
    assert "`beta` holds" in report["summary"]
    assert check(report, "who.tag")["assessment"] == "explains"
    assert check(report, "who.tenant")["assessment"] == "ruled_out"
    assert check(report, "release.environment")["assessment"] == "ruled_out"


async def test_a_release_that_fails_on_a_part_of_the_traffic_is_told_as_the_reason(store: Database) -> None:
    def plant(story: Story) -> None:
        if story.after and story.dice.random() < 0.4:
            story.release = "1.1"
        story.failing = story.dice.random() < (0.6 if story.release == "1.1" else 0.03)

    stories = await fill(store, plant)
    report = await told(store, await case_of(store, stories, "tool_error_rate", "tool:search"))
    assert (report["verdict"], report["change"]) == ("behavior_change", "release_change")
    assert "because another release took over: `1.1`" in report["summary"]
    assert check(report, "marks")["assessment"] == "contributing"


async def test_another_model_that_answers_is_a_change_of_the_model(store: Database) -> None:
    def plant(story: Story) -> None:
        if story.after and story.dice.random() < 0.7:
            story.answering = "gpt-4o-2026-11-01"
        story.took_s = 6.0 if story.answering != "gpt-4o-2024-08-06" else 2.0
        story.took_s *= story.dice.lognormvariate(0, 0.3)

    stories = await fill(store, plant)
    report = await told(
        store, await case_of(store, stories, "turn_duration", "site:desk", detector="duration_drift")
    )
    assert report["verdict"] == "model_change"
    assert "because another answering model took over: `gpt-4o-2026-11-01`" in report["summary"]
    assert check(report, "model.requested_model")["assessment"] == "ruled_out"


async def test_longer_prompts_are_a_change_of_the_definition(store: Database) -> None:
    def plant(story: Story) -> None:
        if story.after:
            story.prompt, story.tokens = "You help customers of a shop. Think in steps.", 4000
        story.tokens += story.dice.randrange(100)

    stories = await fill(store, plant)
    report = await told(store, await case_of(store, stories, "turn_cost", "site:desk", detector="cost_drift"))
    assert report["verdict"] == "definition_change"
    assert "because" not in report["summary"]
    assert check(report, "parts.tokens_per_call")["assessment"] == "explains"
    assert check(report, "parts.calls")["assessment"] == "ruled_out"


async def test_longer_questions_are_a_shift_of_traffic(store: Database) -> None:
    def plant(story: Story) -> None:
        if story.dice.random() < (0.8 if story.after else 0.1):
            story.asked, story.tokens = "why " * 3000, 5000
        story.tokens += story.dice.randrange(100)

    stories = await fill(store, plant)
    report = await told(store, await case_of(store, stories, "turn_cost", "site:desk", detector="cost_drift"))
    assert report["verdict"] == "traffic_shift"
    assert check(report, "who.message_size")["assessment"] == "explains"


async def test_more_traces_than_are_taken_are_sampled_and_it_is_said(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories = await fill(store, _failing)
    case_id = await case_of(store, stories, "tool_error_rate", "tool:search")
    whole = await CohortStore(store).of_case(1, case_id, NOW)
    assert not isinstance(whole, str)
    assert (len(whole.after.units), whole.after.total) == (240, 240)
    monkeypatch.setattr(cohorts, "UNITS", 60)
    some = [await CohortStore(store).of_case(1, case_id, NOW) for _ in range(2)]
    ids = []
    for found in some:
        assert not isinstance(found, str)
        ids.append({unit.trace_id for unit in (*found.before.units, *found.after.units)})
        assert (len(found.after.units), found.after.total) == (60, 240)
        assert found.after.noted is not None
        assert "sample" in found.after.noted
    assert ids[0] == ids[1]
    assert ids[0] <= {unit.trace_id for unit in (*whole.before.units, *whole.after.units)}


def _failing(story: Story) -> None:
    story.failing = story.dice.random() < (0.4 if story.after else 0.03)


@pytest.mark.parametrize(
    ("enough", "words"), [(20, "same hours of the week"), (100, "hours of weekdays"), (10_000, None)]
)
async def test_the_side_before_has_hours_like_those_since_where_there_were_traces_enough(
    store: Database, monkeypatch: pytest.MonkeyPatch, enough: int, words: str | None
) -> None:
    monkeypatch.setattr(cohorts, "ENOUGH", enough)
    stories = await fill(store, _failing)
    case_id = await case_of(store, stories, "tool_error_rate", "tool:search")
    found = await CohortStore(store).of_case(1, case_id, NOW)
    assert not isinstance(found, str)
    (hours,) = [h for h in hours_like(_blocks(found.after)) if words in (h.words or "")] if words else [None]
    if hours is None or words is None:
        assert found.before.noted is None
        assert len(found.before.units) > 250
    else:
        assert words in (found.before.noted or "")
        assert found.before.units
        assert _blocks(found.before) <= set(hours.blocks)


def _blocks(cohort: Cohort) -> set[int]:
    return {int(block_of_week(unit.slot)) for unit in cohort.units}


async def test_a_finding_that_tallies_know_nothing_of_is_inconclusive(store: Database) -> None:
    case_id = (await opened(store, seen())).id
    report = await told(store, case_id)
    assert (report["verdict"], report["populations"]["after"]["traces"]) == ("inconclusive", 0)


async def test_what_only_evidence_knows_is_counted_by_its_witnesses(store: Database) -> None:
    stories = await fill(store, _failing)
    case_id = await case_of(store, stories, "secret_high", "site:desk", detector="secret_leak")
    found = await CohortStore(store).of_case(1, case_id, NOW)
    assert not isinstance(found, str)
    assert found.before.failures == 0
    assert found.after.failures == min(80, sum(story.failing and story.after for story in stories))
    assert "cites" in (found.after.noted or "")


async def test_the_report_on_a_secret_says_where_it_is_and_compares_nothing(store: Database) -> None:
    stories = await fill(store, _failing)
    report = await told(
        store, await case_of(store, stories, "secret_high", "site:desk", detector="secret_leak")
    )
    assert (report["sighting"], report["ruled_out"], report["hypotheses"]) == (True, [], [])
    assert "hold a secret of this form, before none." in report["summary"]
    assert report["settle"][0].startswith("Revoke it where it was issued")
    assert "Checks" not in report["detailed_report"]


async def test_one_case_has_one_report_however_many_analysts_look(store: Database) -> None:
    stories = await fill(store, _failing, before=80, after=80)
    case_id = await case_of(store, stories, "tool_error_rate", "tool:search")
    counts = Counter[str]()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(analyst(store, counts).round)
    for _ in range(2):
        await analyst(store, counts).round()
    assert (counts["begun"], counts["reports"], counts["lost"]) == (1, 1, 0)
    found = await CaseStore(store).one(1, str(case_id), LATER)
    assert found is not None
    assert [event["kind"] for event in found["events"]] == ["opened", "rca_started", "rca_done"]


@pytest.mark.parametrize(
    "said",
    [[1, 10**9], "nonsense", ["2026-01-01", "2026-02-01"], [(NOW + timedelta(days=1)).isoformat()] * 2],
)
async def test_the_reference_is_never_read_beyond_the_onset(store: Database, said: Any) -> None:
    stories = await fill(store, _failing, before=80, after=80)
    case_id = await case_of(store, stories, "tool_error_rate", "tool:search", reference_said=said)
    found = await CohortStore(store).of_case(1, case_id, NOW)
    assert not isinstance(found, str)
    assert found.before.end <= found.after.first
    assert found.before.units
