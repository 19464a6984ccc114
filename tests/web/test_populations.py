"""The page that compares two sets of traces: by filters, before and since an instant, what it leaves out."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, quote

import pytest

from protocol.rest.answers import (
    Compared,
    ComparedExamples,
    ComparedMeasure,
    ComparedSize,
    ComparedValue,
    MovedValue,
)
from protocol.rest.query import timestamp
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.web.overview.population_view import headline
from svc.web.overview.populations import ComparedSets
from svc.web.shell.filters import read_filters
from svc.web.shell.ranges import TimeRange
from tests.web.test_attributes import shop
from tests.web.test_pages import heading
from tests.web.visitor import BASE, Visitor

COMPARE = BASE + "/compare"


async def test_without_a_question_the_page_says_what_it_can_be_asked(owner: Visitor) -> None:
    seen = await owner.get(COMPARE)
    assert heading(seen) == "What is different about some traces?"
    assert "Say which traces to look at" in seen.text
    assert 'href="/orgs/default/projects/default/compare?q=errors%3Ayes"' in seen.text


async def test_a_value_that_tells_the_filtered_traces_apart_is_the_headline(
    store: Database, owner: Visitor
) -> None:
    await shop(store, 60)
    seen = await owner.get(COMPARE + "?q=environment:production&range=24h")
    assert heading(seen) == "No significant difference"
    assert "30 traces in the last 24 hours, compared with 30 others." in seen.text
    # A third of the calls fail, and only calls have the tool.
    seen = await owner.get(COMPARE + "?q=" + quote("tool:search status:error") + "&range=24h")
    assert "20 traces in the last 24 hours, compared with 40 others." in seen.text
    assert "Traces with a failed span" in seen.text
    assert "<b>100 %</b>" in seen.text


async def test_before_and_since_are_compared_by_when_traces_began(store: Database, owner: Visitor) -> None:
    await shop(store, 60, **{"service.version": "1"})
    since = timestamp(now() - timedelta(minutes=15))
    seen = await owner.get(f"{COMPARE}?since={quote(since)}&range=24h")
    assert '<th scope="col" class="num">Before</th>' in seen.text
    assert "before." in seen.text


async def test_a_time_that_cannot_be_read_is_named_and_stays_in_the_form(
    store: Database, owner: Visitor
) -> None:
    await shop(store, 3)
    seen = await owner.get(f"{COMPARE}?q=service:shop&since=last+%3Cnight%3E")
    assert "“last &lt;night&gt;” is not a time such as 2026-11-21T09:30Z." in seen.text
    assert 'name="since" value="last &lt;night&gt;"' in seen.text
    assert "service:shop" in seen.text
    assert heading(seen) == heading(await owner.get(COMPARE))
    written = await owner.get(f"{COMPARE}?since=2026-11-21T09:00&range=24h")
    assert 'name="since" value="2026-11-21T09:00:00Z"' in written.text


async def test_nobody_on_one_side_is_said(store: Database, owner: Visitor) -> None:
    await shop(store, 3)
    assert heading(await owner.get(COMPARE + "?q=environment:nowhere")) == "No traces match"
    seen = await owner.get(COMPARE + "?q=service:shop")
    assert heading(seen) == "No other traces to compare with"


async def test_what_cannot_be_compared_by_is_named_and_left_out(store: Database, owner: Visitor) -> None:
    await shop(store, 3)
    seen = await owner.get(COMPARE + "?q=" + quote("service:shop latency:>5s refund -site:x"))
    assert "Traces are not compared by a text, latency, what is excluded; it was left out" in seen.text
    seen = await owner.get(COMPARE + "?q=attr.nope:1")
    assert heading(seen) == "This comparison is not possible"
    assert "&#39;attr.nope&#39; is not a field of this project" in seen.text


async def test_the_list_of_traces_leads_here_with_its_filter(store: Database, owner: Visitor) -> None:
    await shop(store, 3)
    seen = await owner.get(BASE + "/traces?q=environment:production")
    assert "/compare?q=environment%3Aproduction&amp;from=" in seen.text
    assert ">What is different?</a>" in seen.text
    assert "What is different?" not in (await owner.get(BASE + "/traces")).text


@pytest.mark.parametrize(
    ("by_time", "sentence"),
    [
        (True, "25 % have the provided model name gpt-4o, 12 % before"),
        (False, "25 % have the provided model name gpt-4o, 12 % of the others"),
    ],
)
def test_the_headline_names_a_field_as_people_do(by_time: bool, sentence: str) -> None:
    size = ComparedSize(traces=100, sampled=100)
    moved = MovedValue("provided_model_name", "gpt-4o", 0.12, 0.25, 2.0, [1.5, 3.0], 1e-6)
    answer = Compared(size, size, [], [moved], 0, ComparedExamples([], []), [])
    assert headline(answer, by_time=by_time, slow=False, wrong="") == sentence


def test_where_no_value_differs_a_measure_that_does_is_the_headline() -> None:
    size = ComparedSize(traces=300, sampled=300)
    same = ComparedMeasure(
        "cost", "USD", ComparedValue(0.01, 0.008, 0.012), ComparedValue(0.011, 0.009, 0.013)
    )
    failed = ComparedMeasure(
        "failed_spans_rate", None, ComparedValue(0.016, 0.007, 0.037), ComparedValue(0.11, 0.08, 0.15)
    )
    answer = Compared(size, size, [same, failed], [], 0, ComparedExamples([], []), [])
    told = headline(answer, by_time=False, slow=False, wrong="")
    assert told == "Traces with a failed span: 11 % against 1.6 % of the others"
    answer = Compared(size, size, [same], [], 0, ComparedExamples([], []), [])
    assert headline(answer, by_time=False, slow=False, wrong="") == "No significant difference"


@pytest.mark.parametrize(
    ("field", "value", "bar"),
    [
        ("tenant", "acme corp", 'kind:tool tenant:"acme corp"'),
        ("call_site_id", "desk", "kind:tool site:desk"),
        ("attr.plan", "gold", "kind:tool attr.plan:gold"),
        ("kind", "llm", "kind:llm"),
        ("error_type", "TimeoutError", None),
        ("provided_model_name", "gpt-4o-2024", None),
    ],
)
def test_a_value_leads_to_the_traces_that_have_it_where_the_list_can_ask(
    field: str, value: str, bar: str | None
) -> None:
    range_ = TimeRange.of({"from": "2026-11-01", "to": "2026-11-02"}, now())
    compared = ComparedSets(read_filters("kind:tool"), read_filters(""), None, "", range_, BASE)
    link = compared.traces(field, value)
    if bar is None:
        assert link is None
    else:
        assert link is not None
        address, _, asked = link.partition("?")
        assert address == BASE + "/traces"
        assert parse_qs(asked)["q"] == [bar]
        assert parse_qs(asked)["from"] == ["2026-11-01T00:00:00.000000Z"]
