"""Questions that people kept go with whom they name, however an address writes the id, and no others do."""

from __future__ import annotations

import pytest

from svc.store.accounts.kept_charts import KeptChartStore
from svc.store.accounts.projects import ProjectStore
from svc.store.accounts.saved_views import SavedViewStore
from svc.store.postgres.database import Database
from svc.web.overview.explore_question import with_filter
from svc.web.shell.filters import Token
from svc.web.shell.render import query
from tests.store.retention.test_erasing import PROJECT, erase

ANN = "ann@example.org"


def chart(field: str, value: str) -> str:
    return query("", dataset="spans", q=with_filter("kind:llm", field, value), field="kind")[1:]


def view(field: str, value: str) -> str:
    return query("", q=f"status:error {Token(field, value)} kind:llm", range="7d")[1:]


@pytest.mark.parametrize("subject", ["u1", "an id", 'say "u"', "carla@example.org", "größe 12", "a&b+c"])
async def test_those_that_name_the_subject_go(store: Database, subject: str) -> None:
    await ProjectStore(store).make_default()
    charts, views = KeptChartStore(store), SavedViewStore(store)
    others = [("user", f"{subject[:-1]}9"), ("user", "dora"), ("name", "x")]
    await charts.keep(PROJECT, "theirs", chart("user_id", subject), ANN)
    await views.save(PROJECT, "theirs", view("user", subject), ANN)
    for number, (field, value) in enumerate(others):
        await charts.keep(PROJECT, str(number), chart(field.replace("user", "user_id"), value), ANN)
        await views.save(PROJECT, str(number), view(field, value), ANN)
    await charts.keep(PROJECT, "all", "dataset=spans&field=user_id", ANN)
    counts = await erase(store, "user", subject)
    assert [kept.title for kept in await charts.list(PROJECT)] == ["0", "1", "2", "all"]
    assert [saved.name for saved in await views.list(PROJECT)] == ["0", "1", "2"]
    assert (counts["kept_chart"], counts["saved_view"]) == (1, 1)


async def test_a_short_id_takes_no_longer_one_with_it(store: Database) -> None:
    await ProjectStore(store).make_default()
    charts = KeptChartStore(store)
    for value in ("u1", "u12", "au1"):
        await charts.keep(PROJECT, value, chart("user_id", value), ANN)
    await charts.keep(PROJECT, "a model", chart("model_id", "u1"), ANN)
    await erase(store, "user", "u1")
    assert [kept.title for kept in await charts.list(PROJECT)] == ["u12", "au1", "a model"]


async def test_a_title_that_names_somebody_goes_too(store: Database) -> None:
    await ProjectStore(store).make_default()
    charts = KeptChartStore(store)
    await charts.keep(PROJECT, "Cost of carla@example.org", "dataset=spans&field=kind", ANN)
    await erase(store, "user", "carla@example.org")
    assert list(await charts.list(PROJECT)) == []
