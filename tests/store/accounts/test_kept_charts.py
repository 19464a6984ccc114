"""Kept charts: at most twelve, each once, in the order that people give them, of one project alone."""

from __future__ import annotations

from uuid import uuid4

from svc.store.accounts.kept_charts import MOST_CHARTS, KeptChart, KeptChartStore
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.retention.purge import PostgresPurgeStore

ANN = "ann@example.org"


async def projects(store: Database) -> tuple[int, int]:
    org = await ProjectStore(store).the_org()
    rows = await store.fetch("select id from project where org_id = $1", org.id)
    other = await ProjectStore(store).create(org.id, "other", "Other", actor=ANN)
    assert other is not None
    return rows[0]["id"], other.id


async def titles(charts: KeptChartStore, project_id: int) -> list[str]:
    return [chart.title for chart in await charts.list(project_id)]


async def test_a_project_has_at_most_twelve_and_each_once(store: Database) -> None:
    ours, theirs = await projects(store)
    charts = KeptChartStore(store)
    for number in range(MOST_CHARTS):
        chart = await charts.keep(ours, f"Chart {number}", f"q={number}", ANN)
        assert chart == (await charts.list(ours))[-1]
        assert await charts.keep(ours, "again", f"q={number}", ANN) == "kept already"
    assert await charts.keep(ours, "one more", "q=more", ANN) == "too many"
    # Another project has room of its own.
    assert isinstance(await charts.keep(theirs, "Theirs", "q=0", ANN), KeptChart)
    assert await titles(charts, ours) == [f"Chart {number}" for number in range(MOST_CHARTS)]
    assert await titles(charts, theirs) == ["Theirs"]


async def test_charts_change_places_and_stay_at_the_ends(store: Database) -> None:
    ours, theirs = await projects(store)
    charts = KeptChartStore(store)
    for title in ("A", "B", "C", "D"):
        await charts.keep(ours, title, f"q={title}", ANN)
    ids = {chart.title: chart.id for chart in await charts.list(ours)}
    await charts.remove(ours, ids["B"], ANN)
    await charts.move(ours, ids["D"], "up")
    assert await titles(charts, ours) == ["A", "D", "C"]
    await charts.move(ours, ids["A"], "up")
    await charts.move(ours, ids["C"], "down")
    await charts.move(ours, uuid4(), "down")
    await charts.move(theirs, ids["A"], "down")
    assert await titles(charts, ours) == ["A", "D", "C"]
    await charts.move(ours, ids["A"], "down")
    await charts.move(ours, ids["A"], "down")
    assert await titles(charts, ours) == ["D", "C", "A"]
    await charts.keep(ours, "E", "q=E", ANN)
    assert await titles(charts, ours) == ["D", "C", "A", "E"]


async def test_another_project_neither_renames_nor_removes_a_chart(store: Database) -> None:
    ours, theirs = await projects(store)
    charts = KeptChartStore(store)
    await charts.keep(ours, "Ours", "q=1", ANN)
    chart_id = (await charts.list(ours))[0].id
    assert not await charts.rename(theirs, chart_id, "Mine now", ANN)
    assert not await charts.remove(theirs, chart_id, ANN)
    assert await titles(charts, ours) == ["Ours"]
    assert await charts.rename(ours, chart_id, "Ours still", ANN)
    assert await titles(charts, ours) == ["Ours still"]


async def test_changes_are_audited_without_what_may_name_a_person(store: Database) -> None:
    ours, _ = await projects(store)
    charts = KeptChartStore(store)
    await charts.keep(ours, "Cost, user eve", "q=user_id%3Aeve", ANN)
    chart_id = (await charts.list(ours))[0].id
    await charts.rename(ours, chart_id, "Cost of eve", ANN)
    await charts.remove(ours, chart_id, ANN)
    rows = await store.fetch(
        "select action, actor, subject_id, details::text as details from audit_row"
        " where subject_kind = 'kept_chart' order by id"
    )
    assert [row["action"] for row in rows] == ["chart.keep", "chart.rename", "chart.remove"]
    assert {(row["actor"], row["subject_id"], row["details"]) for row in rows} == {(ANN, str(chart_id), "{}")}


async def test_a_deleted_project_leaves_none(store: Database) -> None:
    ours, theirs = await projects(store)
    charts = KeptChartStore(store)
    for project_id in (ours, theirs):
        await charts.keep(project_id, "Chart", "q=1", ANN)
    assert await ProjectStore(store).delete(theirs, actor=ANN) is not None
    purge = PostgresPurgeStore(store)
    for table in await purge.tables():
        while await purge.purge(theirs, table, 100):
            pass
    rows = await store.fetch("select project_id from kept_chart")
    assert [row["project_id"] for row in rows] == [ours]
