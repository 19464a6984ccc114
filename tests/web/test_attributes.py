"""Attributes on pages: the settings that list them, and the filters, facets and questions that use them."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from svc.domain.attributes.census import PROMOTED_AFTER, KeyCensus
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.spans.attribute_keys import AttributeKeys
from tests.domain import wire
from tests.store.settling import settle_all
from tests.store.spans.test_writing import PROJECT, Clock, one, rows, store_of
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Visitor

PAGE = BASE + "/settings/attributes"
HOSTILE = "<script>alert(1)</script>"


async def shop(store: Database, number: int = 12, **attributes: Any) -> None:
    """Traces of the last minutes with a tool, every third of which fails in production."""
    writer, start = store_of(store, Clock()), now() - timedelta(minutes=30)
    spans: list[Any] = []
    for at in range(number):
        where: dict[str, Any] = {
            "trace_id": (at + 1).to_bytes(16, "big"),
            "start": start + timedelta(minutes=at),
        }
        said = {"deployment.environment.name": "production" if at % 2 else "staging", **attributes}
        call = {**said, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        spans += [
            one(1, name="answer", attributes=said, **where),
            one(2, parent=1, name="call", attributes=call, status_code=0 if at % 3 else 2, **where),
        ]
    await writer.write(rows(*spans, resource={"service.name": "shop"}))
    await settle_all(store)


async def count_keys(store: Database, **keys: tuple[Any, ...]) -> None:
    """As if spans had said these keys, each with its values in turn."""
    for _ in range(3):
        census = KeyCensus()
        for number in range(PROMOTED_AFTER):
            census.note(PROJECT, wire({key: values[number % len(values)] for key, values in keys.items()}))
        await AttributeKeys(store).add(census.take(), now())


async def test_without_spans_the_page_says_what_will_come(owner: Visitor) -> None:
    seen = await owner.get(PAGE)
    assert heading(seen) == "No attributes yet"
    assert "Attributes appear with the first spans" in seen.text
    assert "<code>environment</code>" in seen.text


async def test_fields_and_other_keys_are_listed_with_the_reason(store: Database, owner: Visitor) -> None:
    await shop(store)
    await count_keys(
        store, **{"shop.tier": ("gold", "silver"), "shop.api_token": ("a", "b"), "shop.no": (1, 2)}
    )
    seen = await owner.get(PAGE)
    assert heading(seen) == "Spans can be filtered by 5 attributes"
    for field in ("service", "environment", "tool", "operation", "attr.shop.tier"):
        assert f"<code>{field}</code>" in seen.text
    assert "may hold secrets" in seen.text
    assert "holds numbers" in seen.text
    assert 'aria-label="Make it a field attr.shop.no"' in seen.text
    assert 'aria-label="Make it a field attr.shop.api_token"' not in seen.text


async def test_a_key_is_made_a_field_and_hidden_by_hand_with_a_row_in_the_audit(
    store: Database, owner: Visitor
) -> None:
    await shop(store)
    await count_keys(store, **{"shop.no": (1, 2), "shop.api_token": ("a", "b")})
    await owner.post(PAGE + "/promote", {"field": "attr.shop.no"})
    assert 'aria-label="Hide attr.shop.no"' in (await owner.get(PAGE)).text
    await owner.post(PAGE + "/hide", {"field": "environment"})
    seen = await owner.get(PAGE)
    assert 'aria-label="Show again environment"' in seen.text
    assert "production" not in (await owner.get(BASE + "/explore?dataset=spans&field=environment")).text
    refused = await owner.post(PAGE + "/promote", {"field": "attr.shop.api_token"})
    assert refused.status == 400
    assert "are never made fields" in refused.text
    audit = (await owner.get(BASE + "/settings/audit")).text
    assert audit.count("attribute.promote") == 1
    assert audit.count("attribute.hide") == 1


async def test_a_field_is_renamed_by_hand_and_says_what_it_costs(store: Database, owner: Visitor) -> None:
    await shop(store)
    await count_keys(store, **{"shop.tier": ("gold", "silver")})
    renamed = await owner.post(PAGE + "/rename", {"field": "attr.shop.tier", "name": "plan"})
    assert renamed.status == 303
    seen = await owner.get(PAGE)
    assert "<code>attr.plan</code>" in seen.text
    assert "an attribute of yours, <code>shop.tier</code>" in seen.text
    assert re.search(r"\d B, and 1 byte a span", seen.text)
    refused = await owner.post(PAGE + "/rename", {"field": "attr.shop.tier", "name": "two words"})
    assert refused.status == 400
    assert "A name is a letter and up to 99" in refused.text
    assert (await owner.get(BASE + "/settings/audit")).text.count("attribute.rename") == 1
    await owner.post(PAGE + "/hide", {"field": "attr.shop.tier"})
    assert "<code>attr.plan</code>" not in (await owner.get(PAGE)).text


@pytest.mark.parametrize(
    ("bar", "count"),
    [
        ("environment:production", 6),
        ("-environment:production", 6),
        ("environment:production status:error", 2),
        ("tool:search status:error", 4),
        ("tool:search trace.status:error", 0),
        ("environment:nowhere", 0),
        ("service:shop tool:search environment:staging", 6),
    ],
)
async def test_the_bar_narrows_traces_by_attributes(
    store: Database, owner: Visitor, bar: str, count: int
) -> None:
    await shop(store)
    seen = await owner.get(f"{BASE}/traces?range=24h&q={bar.replace(' ', '+')}")
    assert (
        seen.text.count("data-trace=") == count
        or len(set(re.findall(r"/traces/([0-9a-f]{32})", seen.text))) == count
    )


async def test_values_are_beside_the_traces_and_completed(store: Database, owner: Visitor) -> None:
    await shop(store)
    facets = (await owner.get(BASE + "/traces/facets?range=24h")).text
    assert 'data-value="environment:production"' in facets
    # What all traces have in common tells nothing apart.
    assert 'data-value="service:shop"' not in facets
    await count_keys(store, **{"shop.tier": ("gold", "silver")})
    listed = (await owner.get(BASE + "/traces?range=24h")).text
    assert 'data-name="environment"' in listed
    assert 'data-name="attr.shop.tier"' in listed


async def test_the_view_as_a_call_asks_the_same_of_one_span(store: Database, owner: Visitor) -> None:
    await shop(store)
    seen = await owner.get(BASE + "/traces?range=24h&q=environment:production+status:error")
    assert "&#34;environment&#34;: &#34;production&#34;" in seen.text
    assert "&#34;status&#34;: &#34;error&#34;" in seen.text


async def test_hostile_values_are_text(store: Database, owner: Visitor) -> None:
    await shop(store, 4, **{"tenant": HOSTILE, "tag.tags": json.dumps([HOSTILE, "x"])})
    for path in (
        "/settings/attributes",
        "/traces/facets?range=24h",
        "/explore?dataset=spans&field=tenant&by=started_at",
        "/traces?range=24h&q=tenant:%22%3Cscript%3Ealert(1)%3C/script%3E%22",
    ):
        seen = await owner.get(BASE + path)
        assert seen.status == 200
        assert HOSTILE not in seen.text


async def test_a_key_of_the_projects_own_groups_and_filters_in_explore(
    store: Database, owner: Visitor
) -> None:
    await count_keys(store, **{"shop.tier": ("gold", "silver")})
    seen = await owner.get(BASE + "/explore?dataset=spans&field=attr.shop.tier&q=attr.shop.tier:gold")
    assert re.search(r"<option[^>]*selected[^>]*>attr\.shop\.tier<", seen.text)
    assert "is not a field of this project" not in seen.text


async def test_explore_counts_by_an_attribute_that_is_no_field_and_says_how(
    store: Database, owner: Visitor
) -> None:
    await shop(store, number=3, **{"shop.order": 7031})
    seen = await owner.get(BASE + "/explore?dataset=spans&field=tool&by=started_at&q=attr.shop.order:7031")
    assert "attr.shop.order is not a field: searched the payloads of" in seen.text
    assert re.search(r">search<", seen.text)


async def test_traces_are_filtered_by_an_attribute_that_is_no_field(store: Database, owner: Visitor) -> None:
    await shop(store, number=3, **{"shop.order": 7031})
    traces = BASE + "/traces?range=24h&q="
    seen = await owner.get(traces + "attr.shop.order:7031 tool:search")
    assert heading(seen) == "3 traces in the last 24 hours"
    assert "attr.shop.order is not a field: searched the payloads of 3 spans" in seen.text
    assert seen.text.count("<tr data-id") == 3
    seen = await owner.get(traces + "attr.shop.order:7032")
    assert heading(seen) == "No matching traces in the last 24 hours"
    part = await owner.get(BASE + "/traces/facets?range=24h&q=attr.shop.order:7031")
    assert "Values are counted only for filters on fields." in part.text


async def test_a_search_of_payloads_that_found_nothing_yet_leads_further_back(
    store: Database, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop(store, number=6, **{"shop.order": 7031})
    monkeypatch.setattr("svc.store.reads.traces.by_payload.MOST_SPANS", 2)
    seen = await owner.get(BASE + "/traces?range=24h&q=attr.shop.order:7032")
    assert heading(seen) == "No matching traces in the last 24 hours so far"
    assert "the next page goes on from there." in seen.text
    assert re.search(r'cursor=[\w-]+[^"]*">Look further back</a>', seen.text)


async def test_an_attribute_that_is_no_field_leaves_traces_out_and_is_part_of_the_api_call(
    store: Database, owner: Visitor
) -> None:
    await shop(store, number=2, **{"shop.order": 7031})
    seen = await owner.get(BASE + "/traces?range=24h&q=-attr.shop.order:7031")
    assert heading(seen) == "No matching traces in the last 24 hours"
    assert "attr.shop.order is not a field: searched the payloads of 4 spans" in seen.text
    seen = await owner.get(BASE + "/traces?range=24h&q=-attr.shop.order:7032")
    assert heading(seen) == "2 traces in the last 24 hours"
    seen = await owner.get(BASE + "/traces?range=24h&q=attr.shop.order:7031")
    assert "Spans are not asked for" not in seen.text
    assert (
        seen.text.count("attr.shop.order&#34;: &#34;7031") + seen.text.count("attr.shop.order&#34;:&#34;7031")
        >= 2
    )
