"""Where nothing is found, an answer says which value its field has never had, and what there is."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.refusals import Refused
from svc.domain.queries.datasets import SPANS
from svc.store.postgres.database import Database
from svc.store.reads.questions.nothing_found import TEXT_NOTE, reasons
from svc.store.reads.questions.questions import ask, checked_filters
from tests.store.as_json import JsonQueries
from tests.store.spans.test_writing import PROJECT, one, rows, store_of


async def history(store: Database, *environments: str) -> None:
    for number, environment in enumerate(environments, start=1):
        said: dict[str, Any] = {
            "deployment.environment.name": environment,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "house-llama-70b",
            "svc.call_site.id": f"site-{number}",
        }
        await store_of(store).write(rows(one(number, attributes=said)))


async def said_of(store: Database, **filters: Any) -> list[str]:
    return await reasons(store, PROJECT, SPANS, checked_filters(SPANS, filters))


async def test_few_values_are_all_named(store: Database) -> None:
    await history(store, "production", "staging")
    wanted = ["environment is never 'prod', only production, staging"]
    assert await said_of(store, environment="prod") == wanted
    assert await said_of(store, environment="staging", status="failed") == [
        "status is never 'failed', only ok, error"
    ]
    assert await said_of(store, call_site_id="site-9") == [
        "call_site_id is never 'site-9', only site-1, site-2"
    ]
    # Each door says it with its answer, where that has no rows.
    question = ask(PROJECT, "spans", (None, None), {"environment": "prod"})
    for answer in (
        await JsonQueries(store).count(question),
        await JsonQueries(store).facets(question, "name", 5),
        await JsonQueries(store).search(question, None, None, 5, None),
    ):
        assert answer["notes"] == wanted


async def test_of_many_values_the_nearest_is_named(store: Database) -> None:
    await history(store, *(f"cluster-{number}" for number in range(9)), "Production")
    assert await said_of(store, environment="prod") == [
        "environment is never 'prod'; the nearest value is Production"
    ]
    assert await said_of(store, environment="zzz") == ["environment is never 'zzz'"]


async def test_a_value_that_there_is_needs_no_word(store: Database) -> None:
    await history(store, "production")
    assert await said_of(store, environment="production", call_site_id="site-1") == []
    # Nobody has ever said a tenant, and a span without an environment is no mistake.
    assert await said_of(store, tenant="acme", environment=None) == []


async def test_a_model_without_a_price_is_found_by_its_own_name(store: Database) -> None:
    await history(store, "production")
    (note,) = await said_of(store, model_id="house-llama-70b")
    assert "provided_model_name" in note
    question = ask(PROJECT, "spans", (None, None), {"provided_model_name": "house-llama-70b"})
    assert await JsonQueries(store).count(question) == {"count": 1}


async def test_a_text_that_stands_nowhere_says_what_was_looked_into(store: Database) -> None:
    assert await reasons(store, PROJECT, SPANS, (), text="zzz") == [TEXT_NOTE]


def test_an_attribute_of_ones_own_is_told_how_it_is_written() -> None:
    with pytest.raises(Refused, match=r"for an attribute of your own, write attr\.order\.id"):
        checked_filters(SPANS, {"order.id": 5})
