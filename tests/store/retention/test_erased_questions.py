"""Questions that people kept go with whom they name, however an address writes the id, and no others do."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from protocol.alerts import AlertRule
from svc.domain.alerts.params import MetricParams, kept_params
from svc.store.accounts.kept_charts import KeptChartStore
from svc.store.accounts.projects import ProjectStore
from svc.store.accounts.saved_views import SavedViewStore
from svc.store.alerts.rules import AlertRuleStore
from svc.store.postgres.database import Database
from svc.web.overview.explore_question import with_filter
from svc.web.shell.filters import Token
from svc.web.shell.render import query
from tests.store.detection.detecting import execute
from tests.store.retention.test_erasing import PROJECT, erase
from tests.store.spans.test_writing import NOW, fetch

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


async def ruled(store: Database, name: str, field: str, value: str | int) -> UUID:
    """A rule that has told something of which a message waits."""
    rule_id = uuid4()
    params = kept_params(MetricParams(dataset="spans", value=1.0, filters={field: value}))
    rule = AlertRule(PROJECT, rule_id, "metric", name, params, (), NOW, NOW)
    assert await AlertRuleStore(store).put(rule, ANN) is None
    facts = '{"title": "The cost of spans"}'
    for sql in (
        "insert into alert_event (project_id, rule_id, subject, mark, state, facts, occurred_at)"
        " values (1, $1, 'metric', 'm', 'firing', $2::text::jsonb, now())",
        "insert into alert_delivery (project_id, rule_id, channel_id, message, state, due_at, made_at)"
        " values (1, $1, gen_random_uuid(), $2::text::jsonb, 'queued', now(), now())",
    ):
        await execute(store, sql, rule_id, facts)
    return rule_id


async def rules_left(store: Database) -> list[str]:
    rules = await AlertRuleStore(store).list(PROJECT)
    for table in ("alert_event", "alert_delivery"):
        rows = await fetch(store, f"select rule_id from {table} where project_id = 1")
        assert {row["rule_id"] for row in rows} == {rule.id for rule in rules}
    return [rule.name for rule in rules]


@pytest.mark.parametrize(
    "subject", ["u1", "an id", 'say "u"', "carla@example.org", "größe 12", "a&b+c", "12345678"]
)
async def test_alert_rules_that_name_the_subject_go_with_what_they_told(
    store: Database, subject: str
) -> None:
    await ProjectStore(store).make_default()
    await ruled(store, "theirs", "user_id", subject)
    await ruled(store, "another's", "user_id", f"{subject[:-1]}9")
    await ruled(store, "a kind", "kind", "llm")
    counts = await erase(store, "user", subject)
    assert await rules_left(store) == ["a kind", "another's"]
    assert counts["alert_rule"] == 1
    for row in await fetch(
        store, "select details::text as details from audit_row where action like 'alert%'"
    ):
        assert subject not in row["details"]


async def test_a_short_id_takes_rules_by_its_own_field_alone_and_a_long_one_any(store: Database) -> None:
    await ProjectStore(store).make_default()
    await ruled(store, "a longer one", "user_id", "u12")
    await ruled(store, "a model", "model_id", "u1")
    await erase(store, "user", "u1")
    assert await rules_left(store) == ["a longer one", "a model"]
    await ruled(store, "by attribute", "attr.customer.mail", "carla@example.org")
    await ruled(store, "Spend of carla@example.org", "kind", "llm")
    await ruled(store, "a number", "attr.customer.number", 12345678)
    await erase(store, "user", "carla@example.org")
    assert await rules_left(store) == ["a longer one", "a model", "a number"]
