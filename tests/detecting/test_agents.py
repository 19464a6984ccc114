"""Laws of agents that share a call site: each is watched by itself, and nothing learned before is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from svc.store.aggregates.cubes import CubeStore
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.postgres.database import Database
from svc.store.reads.questions.questions import ask
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.trace_filter import TraceFilter
from svc.store.spans import groups
from svc.store.spans.traces import PostgresTraceStore
from tests.detecting.house import House, Settings, execute, replay, write
from tests.detecting.story import MONDAY
from tests.store.as_json import JsonQueries
from tests.store.detection.counting.test_tallying import begin, tally_all
from tests.store.spans.test_writing import PROJECT, fetch
from tests.wire import span

DAY = timedelta(days=1)


@attrs.frozen
class Team:
    """Traces in which a planner and a writer call one model at one call site, from one day to another."""

    first: float
    days: float
    a_day: int = 240
    #: How much slower each agent is, and the share of its answers that are cut.
    slower: dict[str, float] = attrs.field(factory=dict)
    cut: dict[str, float] = attrs.field(factory=dict)

    def traces(self) -> Iterator[tuple[datetime, list[Any]]]:
        dice = random.Random(self.first)
        for n in range(int(self.days * self.a_day)):
            at = MONDAY + (self.first + n / self.a_day) * DAY
            yield at, list(self._spans(dice, int(self.first * 100_000) + n + 1, at))

    def _spans(self, dice: random.Random, number: int, at: datetime) -> Iterator[Any]:
        start_ns = int(at.timestamp()) * 1_000_000_000

        def made(index: int, parent: int, name: str, at_s: float, took_s: float, **more: Any) -> Any:
            return span(
                name,
                {"session.id": f"s{number // 2}", **{k.replace("__", "."): v for k, v in more.items()}},
                span_id=(number * 8 + index).to_bytes(8, "big"),
                trace_id=number.to_bytes(16, "big"),
                parent=(number * 8 + parent).to_bytes(8, "big") if parent else b"",
                start_ns=start_ns + int(at_s * 1e9),
                end_ns=start_ns + int((at_s + took_s) * 1e9),
            )

        agent = {"gen_ai__operation__name": "invoke_agent", "svc__call_site__id": "desk"}
        yield made(1, 0, "turn", 0, 60, svc__call_site__id="desk")
        for index, name in ((2, "planner"), (4, "writer")):
            took_s = 2 * dice.lognormvariate(0, 0.3) * self.slower.get(name, 1.0)
            yield made(index, 1, "invoke_agent", index, took_s + 1, gen_ai__agent__name=name, **agent)
            reason = "length" if dice.random() < self.cut.get(name, 0.01) else "stop"
            yield made(
                index + 1,
                index,
                "chat gpt-4o",
                index,
                took_s,
                gen_ai__operation__name="chat",
                gen_ai__request__model="gpt-4o",
                gen_ai__response__finish_reasons=[reason],
                svc__call_site__id="llm",
            )


async def looked(house: House, *teams: Team) -> None:
    for team in teams:
        await replay(house.database, team)
    await house.rest()
    await house.look()


async def states(house: House, detector: str) -> dict[str, Any]:
    return {
        bucket.subject: state for bucket, state in (await house.stores.states.all(PROJECT, detector)).items()
    }


async def test_of_two_agents_at_one_call_site_only_the_one_that_changes_is_reported(store: Database) -> None:
    house = House(store, Settings())
    usual, since = Team(0, 15), Team(15, 4, slower={"planner": 2.0})
    await looked(house, usual, since)
    keys = {key for (key,) in await house.told("cause_key")}
    assert keys == {"turn_duration:agent:llm › planner:slower"}
    [(title, site)] = await house.told("title", "call_site_id")
    assert title.startswith("`llm › planner` is slower: p50 ")
    assert site == "llm"


async def test_the_agents_of_a_call_site_are_a_field_of_its_calls(store: Database) -> None:
    await replay(store, Team(0, 0.05))
    reads = JsonQueries(store)
    calls = ask(PROJECT, "spans", (None, None), {"kind": "llm"})
    facets = await reads.facets(calls, "agent_path", 10)
    assert [(facet["value"], facet["count"]) for facet in facets["facets"]] == [
        ("planner", 12),
        ("writer", 12),
    ]
    of_planner = ask(PROJECT, "spans", (None, None), {"agent_path": "planner", "call_site_id": "llm"})
    assert (await reads.count(of_planner))["count"] == 12
    # Settled again, they are as they were.
    before = await fetch(store, "select span_id, facets, xmin::text from span order by 1")
    await execute(store, "insert into fold_due (project_id, trace_id) select project_id, trace_id from trace")
    await tally_all(store)
    assert await fetch(store, "select span_id, facets, xmin::text from span order by 1") == before


async def test_a_call_that_comes_with_its_agent_is_stored_with_it_and_never_written_again(
    store: Database,
) -> None:
    await begin(store)
    spans = [span for _, spans in Team(0, 0.05).traces() for span in spans]
    await write(store, *spans, came=MONDAY)
    stored = await fetch(store, "select span_id, facets, xmin::text from span order by 1")
    of_planner = ask(PROJECT, "spans", (None, None), {"agent_path": "planner"})
    assert (await JsonQueries(store).count(of_planner))["count"] == 12
    await PostgresTraceStore(store).settle(MONDAY + DAY, 1_000)
    await tally_all(store)
    assert await fetch(store, "select span_id, facets, xmin::text from span order by 1") == stored


async def test_a_call_whose_agent_comes_later_has_it_once_its_trace_is_settled(store: Database) -> None:
    await begin(store)
    spans = [span for _, spans in Team(0, 0.05).traces() for span in spans]
    await write(store, *(span for span in spans if span.name == "chat gpt-4o"), came=MONDAY)
    of_planner = ask(PROJECT, "spans", (None, None), {"agent_path": "planner"})
    await write(store, *(span for span in spans if span.name != "chat gpt-4o"), came=MONDAY)
    assert (await JsonQueries(store).count(of_planner))["count"] == 0
    for _ in range(2):
        await PostgresTraceStore(store).settle(MONDAY + DAY, 1_000)
    await tally_all(store)
    assert (await JsonQueries(store).count(of_planner))["count"] == 12


async def test_traces_that_were_counted_before_their_agents_were_known_are_found_by_these(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As releases stored them that did not look at what a call comes with.
    monkeypatch.setattr(groups, "say_paths", lambda _: None)
    await begin(store)
    spans = [span for _, spans in Team(0, 0.05).traces() for span in spans]
    # Each whole at once, and so never rolled up again.
    await write(store, *spans, came=MONDAY)
    cubes, later = CubeStore(store), MONDAY + DAY
    await PostgresTraceStore(store).settle(later, 1_000)
    await cubes.build(later, 100)

    async def of_planner() -> int:
        asked = TraceFilter(attributes=(("agent_path", "planner"),))
        return (await TraceCounts(store).histogram(PROJECT, asked, DAY, timeout_s=9, budget_s=9)).count

    assert await of_planner() == 0
    await tally_all(store)
    assert await of_planner() == 12
    await cubes.build(later, 100)
    assert not await fetch(store, "select from cube_dirty")
    assert await of_planner() == 12


async def test_an_old_project_keeps_its_baseline_until_each_agent_has_its_own(store: Database) -> None:
    await begin(store)
    await execute(store, "update project set site_grain = 'sent'")
    house = House(store, Settings())
    await looked(house, Team(0, 4))
    before = await states(house, "cut_output")
    assert set(before) == {"site:llm"}
    assert before["site:llm"].watches
    settings = DetectorSettingStore(store)
    assert await settings.part_by_agent(PROJECT, True, "ann@example.com") == "both"
    # The agents learn; what the whole call site has learned tells of an outage meanwhile.
    await looked(house, Team(4, 0.5, cut={"planner": 0.7}))
    now = await states(house, "cut_output")
    assert not any(state.watches for subject, state in now.items() if subject.startswith("agent:"))
    kept, learned = now["site:llm"].rate.reference, before["site:llm"].rate.reference
    assert (kept.first, kept.units >= learned.units) == (learned.first, True)
    assert [key for (key,) in await house.told("cause_key")] == ["cut:llm"]


async def test_once_each_agent_has_a_baseline_the_call_site_as_a_whole_is_silent(store: Database) -> None:
    await begin(store)
    await execute(store, "update project set site_grain = 'sent'")
    house = House(store, Settings())
    await looked(house, Team(0, 4))
    await DetectorSettingStore(store).part_by_agent(PROJECT, True, "ann@example.com")
    await looked(house, Team(4, 5))
    await looked(house, Team(9, 1, cut={"planner": 0.7}))
    now = await states(house, "cut_output")
    assert now["site:llm"].reported(now["site:llm"].cursor, 2.0, {}).reason == "by_agent"
    assert [key for (key,) in await house.told("cause_key")] == ["cut:llm › planner"]


async def test_it_is_the_same_however_often_it_is_asked_for_and_stands_in_the_audit_once(
    store: Database,
) -> None:
    await begin(store)
    settings = DetectorSettingStore(store)
    assert await settings.site_grain(PROJECT) == "agent"
    assert await settings.part_by_agent(PROJECT, True, "ann@example.com") == "agent"
    assert await settings.part_by_agent(PROJECT, False, "ann@example.com") == "sent"
    assert await settings.part_by_agent(PROJECT, True, "ann@example.com") == "both"
    assert await settings.part_by_agent(PROJECT, True, "ann@example.com") == "both"
    rows = await fetch(
        store, "select details from audit_row where action = 'detector.call_sites' order by id"
    )
    assert len(rows) == 2
