"""The page and the route that hold a provider's bill against what was traced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from protocol.refusals import BILL_TOO_WIDE
from svc.front.api.settings import bills as routes
from svc.store.postgres.database import Database
from svc.store.reads.usage import bills
from svc.web.settings import reconcile
from tests.front.people import PROJECT, Replica, replica
from tests.web.test_pages import fill, heading
from tests.web.visitor import BASE, Visitor

ROUTE = PROJECT + "/reconcile"
PATH = BASE + "/prices/reconcile"
CALLS = 6


async def fill_now(store: Database, **more: Any) -> None:
    """Calls of the last minutes that came when they ended."""
    await fill(store, CALLS, **more)
    await store.fetch("update span set created_at = ended_at")


async def export(store: Database, factor: int = 1) -> str:
    """What OpenAI would bill for the calls that are stored, so many times."""
    rows = await store.fetch(
        "select (started_at at time zone 'UTC')::date as day, sum(total_cost) as cost from span"
        " where provided_model_name is not null group by 1"
    )
    head = "start_time_iso,amount_value,amount_currency,line_item"
    return "\n".join(
        [head]
        + [
            f'{row["day"]}T00:00:00+00:00,{row["cost"] * factor},usd,"gpt-4o-2024-08-06, input"'
            for row in rows
        ]
    )


async def test_a_bill_that_agrees_says_so_and_one_that_does_not_names_call_sites_and_traces(
    store: Database,
) -> None:
    async with replica(store) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        await fill_now(store)
        assert "Compare with a bill" in (await owner.get(BASE + "/prices")).text
        assert heading(await owner.get(PATH)) == "Compare with a provider&#39;s bill"
        seen = await owner.post(PATH, {"text": await export(store)})
        assert (seen.status, heading(seen)) == (200, "The bill agrees")
        assert "Billed $0.0015, traced $0.0015." in seen.text
        assert "What explains the rest" not in seen.text
        seen = await owner.post(PATH, {"text": await export(store, 3)})
        assert heading(seen) == "$0.003 more was billed than was traced"
        assert "The file has no tokens" in seen.text
        assert f'href="{BASE}/traces/{(1).to_bytes(16, "big").hex()}"' in seen.text
        assert ">site</a>" in seen.text


async def test_what_is_no_export_is_refused_in_words_and_kept_in_the_form(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replica(store) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        seen = await owner.post(PATH, {"text": "a,<b>\n1,2"})
        assert seen.status == 400
        assert "No export that is known has these columns: a, &lt;b&gt;" in seen.text
        assert "a,&lt;b&gt;\n1,2</textarea>" in seen.text
        monkeypatch.setattr(reconcile, "MAX_CHARS", 10)
        seen = await owner.post(PATH, {"text": "a" * 11})
        assert seen.status == 400
        assert "trace-svc reconcile" in seen.text


async def test_calls_without_a_price_come_first_with_their_traces(store: Database) -> None:
    async with replica(store) as here:
        owner = Visitor.of(here)
        await owner.sign_up()
        await fill_now(store, **{"gen_ai.request.model": "house-model"})
        rows = await store.fetch("select max((started_at at time zone 'UTC')::date) as day from span")
        head = "start_time_iso,amount_value,amount_currency,line_item"
        line = f"{rows[0]['day']}T00:00:00+00:00,1.5,usd,house-model"
        seen = await owner.post(PATH, {"text": f"{head}\n{line}"})
        assert "traced calls have no price here" in seen.text
        assert "without a price" in seen.text
        assert f'href="{BASE}/traces/{(1).to_bytes(16, "big").hex()}"' in seen.text


@pytest.fixture
async def api(store: Database) -> AsyncIterator[Replica]:
    async with replica(store) as found:
        yield found


async def test_the_route_answers_to_the_digit(api: Replica) -> None:
    owner = await api.owner()
    await fill_now(api.database)
    answer = (await owner.post(ROUTE, {"text": await export(api.database, 3)})).data
    assert (answer["provider"], answer["export"], answer["lines"]) == (
        "openai",
        "OpenAI costs",
        answer["all_rows"],
    )
    assert Decimal(answer["our_cost"]) == Decimal("0.0015")
    assert Decimal(answer["difference"]) == Decimal("0.003")
    assert Decimal(answer["billed_cost"]) == Decimal("0.0045")
    traced = [trace for row in answer["rows"] for trace in row["traces"]]
    assert {Decimal(trace["cost"]) for trace in traced} == {Decimal("0.00025")}
    assert len(traced) <= bills.TRACES_SHOWN * answer["all_rows"]


async def test_the_route_is_bounded(api: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = await api.owner()
    await fill_now(api.database)
    text = await export(api.database)
    assert (await owner.post(ROUTE, {"text": "x" * routes.BODY_BYTES})).status == 413
    refused = await owner.post(ROUTE, {"text": "x"})
    assert refused.refused == (400, "BAD_REQUEST", "the file has no rows")
    routes._comparing.acquire_on_behalf_of_nowait(api)
    try:
        assert (await owner.post(ROUTE, {"text": text})).status == 429
    finally:
        routes._comparing.release_on_behalf_of(api)
    monkeypatch.setattr(bills, "ROWS_SHOWN", 0)
    answer = (await owner.post(ROUTE, {"text": text})).data
    assert (answer["rows"], answer["all_rows"] > 0, Decimal(answer["our_cost"])) == (
        [],
        True,
        Decimal("0.0015"),
    )
    monkeypatch.setattr(bills, "MOST_GROUPS", 0)
    refused = await owner.post(ROUTE, {"text": text})
    assert refused.refused == (400, "BAD_REQUEST", BILL_TOO_WIDE.message)


async def test_a_viewer_may_compare_and_a_stranger_not(api: Replica) -> None:
    owner = await api.owner()
    viewer = await api.member("viewer@example.org", "viewer", owner)
    assert (await viewer.post(ROUTE, {"text": "x"})).status == 400
    assert (await api.browser().post(ROUTE, {"text": "x"})).status == 401
