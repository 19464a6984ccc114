"""Laws of the whole chain on labelled traffic: what breaks is a case. `make bench-detect` has all of it."""

from __future__ import annotations

import statistics
from datetime import timedelta

import attrs
import msgspec
import pytest

from svc.store.postgres.database import Database
from tests.detecting.applications import FAULTS, HEALTHY, Traffic
from tests.detecting.house import House, replay
from tests.detecting.labelled import DAY, DAYS, HOUR, MONDAY, App, Planted
from tests.detecting.scoring import Score, read
from tests.store.spans.test_writing import fetch

#: A handful of applications with their traces a day, as much as may be replayed within a test.
A_DAY = {"rarely": 60, "broken": 40, "leak": 10, "passing": 10, "dear": 60, "refused": 60, "tiny": 20}
APPS = tuple(attrs.evolve(app, a_day=A_DAY[app.name]) for app in FAULTS + HEALTHY if app.name in A_DAY)


async def watched(store: Database, *looks: timedelta) -> Score:
    """Replayed up to each of these moments and to the end, and looked at after each."""
    house, since = House(store), MONDAY
    for until in (*looks, timedelta(days=DAYS + 1)):
        await replay(store, Traffic(5, APPS), since=since, until=MONDAY + until)
        await house.rest()
        await house.look()
        since = MONDAY + until
    return Score(await read(store), APPS, DAYS)


async def test_each_planted_fault_is_one_case_and_what_is_healthy_has_none(store: Database) -> None:
    # The second look comes when the outage of the rare tool is over and cannot be told from a pause.
    score = await watched(store, 18 * DAY + 14 * HOUR, 18 * DAY + 21 * HOUR)
    told = "\n".join(score.told())
    assert score.missed == [], told
    assert score.false_alarms == [], told
    assert score.false_cases == set(), told
    assert (score.cases_an_outage, score.merged, score.given_up) == (1.0, 0, []), told
    assert statistics.median(score.onset_errors_h) <= 4, told
    low = next(f for f in score.outcome.found if f.app == "passing")
    assert (low.status, low.case) == ("withheld", None)
    over = next(f for f in score.outcome.found if f.app == "rarely")
    assert over.recovered is not None
    assert abs(over.recovered - (18 * DAY + 20 * HOUR)) < 6 * HOUR
    [row] = await fetch(store, "select evidence::text as e from finding where detector = 'cost_drift'")
    parts = {part["name"]: part["share"] for part in msgspec.json.decode(row["e"])["parts"]}
    assert parts.keys() == {"calls", "tokens_per_call", "uncached_share", "price"}
    assert parts["tokens_per_call"] > 0.9


@pytest.mark.release
async def test_a_rise_of_prose_is_told_where_a_little_of_it_is_usual_among_json(store: Database) -> None:
    def app(name: str, a_day: int, usual: float, then: float) -> App:
        planted = (
            Planted("usual", timedelta(), found=(), malformed=usual, form="wrapped"),
            Planted("rise", 18 * DAY, found=("malformed_output",), malformed=then, form="wrapped"),
        )
        return App(name, a_day, planted, json=True)

    # One in seventy is usual; of a site that answers with prose every third time nothing is learned.
    apps = (app("mostly", 120, 0.014, 0.08), app("seldom", 30, 0.35, 0.3))
    house = House(store)
    await replay(store, Traffic(3, apps), until=MONDAY + timedelta(days=DAYS + 1))
    await house.rest()
    await house.look()
    rows = await fetch(
        store,
        "select f.title, c.id is not null as is_case from finding f"
        " left join case_finding cf on cf.finding_id = f.id left join detection_case c on c.id = cf.case_id"
        " where f.detector = 'malformed_output'",
    )
    assert [row["is_case"] for row in rows] == [True]
    assert "mostly" in rows[0]["title"]
