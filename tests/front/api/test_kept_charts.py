"""Kept charts over REST: the same charts as Overview has, by the same rule, and only within the project."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from protocol.rest.kept_charts import KeptChartShown
from svc.store.accounts.kept_charts import MOST_CHARTS, TITLE_CHARS, KeptChartStore
from svc.store.postgres.database import Database
from tests.front.people import PROJECT, Browser, Replica
from tests.store.alerts.telling import project_of

CHARTS = PROJECT + "/kept-charts"
SPEND: dict[str, Any] = {
    "title": "  Spend of   acme ",
    "measure": "cost",
    "group_by": "model_id",
    "filters": {"kind": "llm", "attr.tenant.id": 'the "best" one', "session_id": None, "attr.seats": 7},
}


async def kept(owner: Browser, **more: Any) -> Any:
    answer = await owner.post(CHARTS, SPEND | more)
    assert answer.status == 201, answer.body
    assert msgspec.to_builtins(msgspec.convert(answer.data, KeptChartShown)) == answer.data
    return answer.data


async def test_a_chart_is_kept_listed_and_removed(api: Replica, store: Database) -> None:
    owner = await api.owner()
    assert (await owner.get(CHARTS)).data == []
    chart = await kept(owner)
    assert (chart["title"], chart["kept_by"]) == ("Spend of acme", "owner@example.org")
    asked = (chart["dataset"], chart["measure"], chart["group_by"], chart["by"], chart["range"])
    assert asked == ("spans", "cost", "model_id", "started_at", None)
    # Values are as their columns hold them.
    assert chart["filters"] == SPEND["filters"] | {"attr.seats": "7"}
    assert (await owner.get(CHARTS)).data == [chart]
    assert (await owner.delete(f"{CHARTS}/{chart['id']}")).status == 200
    assert (await owner.get(CHARTS)).data == []
    for gone in (chart["id"], str(uuid4()), "nonsense"):
        refused = (await owner.delete(f"{CHARTS}/{gone}")).refused
        assert refused == (404, "NOT_FOUND", "no such kept chart")
    audit = (await owner.get(PROJECT + "/api-keys/audit")).data["rows"]
    assert [row["action"] for row in audit if row["action"].startswith("chart.")] == [
        "chart.remove",
        "chart.keep",
    ]


async def test_what_is_left_out_is_as_explore_has_it(api: Replica) -> None:
    owner = await api.owner()
    plain = (await owner.post(CHARTS, {"title": "Spans"})).data
    assert plain["explore"] == "/explore?dataset=spans&field=kind&measure=count&by=started_at"
    fixed = {"from": "2026-11-01T00:00:00.000000Z", "to": "2026-11-08T00:00:00.000000Z"}
    tools = {"title": "Tools", "dataset": "tool_calls", "by": "created_at", "range": fixed}
    chart = (await owner.post(CHARTS, tools)).data
    assert (chart["group_by"], chart["by"], chart["range"]) == ("name", "created_at", fixed)


async def test_a_text_that_a_page_kept_is_listed_beside_its_filters(api: Replica, store: Database) -> None:
    owner = await api.owner()
    question = "dataset=spans&q=name%3Achat+refund+no%3Afield&field=kind&measure=count&by=started_at"
    await KeptChartStore(store).keep(await project_of(store), "Chats", question, "ann@example.org")
    [chart] = (await owner.get(CHARTS)).data
    assert (chart["filters"], chart["text"]) == ({"name": "chat"}, "refund no:field")
    assert chart["explore"] == f"/explore?{question}"


@pytest.mark.parametrize(
    ("more", "status", "told"),
    [
        ({"title": " "}, 400, "give the chart a title"),
        ({"title": "x" * (TITLE_CHARS + 1)}, 400, "a title has at most 80 characters; this one has 81"),
        ({"dataset": "nonsense"}, 400, "unknown dataset 'nonsense'"),
        ({"measure": "nonsense"}, 400, "unknown measure 'nonsense' for dataset 'spans'"),
        ({"by": "nonsense"}, 400, "unknown time 'nonsense' for dataset 'spans'"),
        ({"group_by": "trace_id"}, 400, "dataset 'spans' is filtered by 'trace_id', but not grouped by it"),
        ({"group_by": "attr.seats"}, 400, "'attr.seats' is not a field of this project"),
        ({"filters": {"nonsense": 1}}, 400, "unknown field 'nonsense' for dataset 'spans'"),
        ({"filters": {"attr.a name": 1}}, 400, "no chart is kept that filters by 'attr.a name'"),
        ({"filters": {"name": "x" * 1000}}, 400, "the filter of this chart is too long to keep; shorten it"),
        (
            {"range": {"from": "2026-11-01"}},
            400,
            "a chart covers the days of Overview or a range with both ends",
        ),
        (
            {"range": {"from": "2024-11-01", "to": "2026-11-01"}},
            400,
            "a chart of a fixed range covers at most 366 days; choose a shorter range",
        ),
        ({"range": {"from": "2026-11-02", "to": "2026-11-01"}}, 400, "'range.from' is after 'range.to'"),
        ({"colour": "red"}, 400, "unknown field `colour`"),
    ],
)
async def test_what_cannot_be_kept_is_refused_in_words(
    api: Replica, more: dict[str, Any], status: int, told: str
) -> None:
    owner = await api.owner()
    refused = (await owner.post(CHARTS, SPEND | more)).refused
    assert refused[0] == status
    assert told in refused[2]
    assert (await owner.get(CHARTS)).data == []


async def test_a_chart_is_kept_once_and_twelve_are_all(api: Replica) -> None:
    owner = await api.owner()
    for number in range(MOST_CHARTS):
        await kept(owner, filters={"name": f"n{number}"})
        again = (await owner.post(CHARTS, SPEND | {"filters": {"name": f"n{number}"}})).refused
        assert again == (409, "CONFLICT", "this chart is on Overview already")
    full = (await owner.post(CHARTS, SPEND)).refused
    assert full == (409, "CONFLICT", "Overview holds 12 charts at most; remove one there first")


async def test_viewers_see_charts_and_change_none(api: Replica) -> None:
    owner = await api.owner()
    chart = await kept(owner)
    viewer = await api.member("viewer@example.org", "viewer", owner)
    assert (await viewer.get(CHARTS)).data == [chart]
    assert (await viewer.post(CHARTS, SPEND)).status == 403
    assert (await viewer.delete(f"{CHARTS}/{chart['id']}")).status == 403
