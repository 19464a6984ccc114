"""The demo's weeks: the same whenever they are made, with what is planted in its place, and sent once."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from svc.commands.demo_story import StoryTrace, probe, traces_of
from svc.domain.detect.secrets.formats import FORMATS
from svc.domain.detect.secrets.search import find_secrets
from svc.store.accounts.projects import ProjectStore
from svc.wiring.open_store import Store
from tests.commands.test_detections import refused
from tests.e2e.mcp import beside
from tests.service import running

END = datetime(2026, 11, 22, tzinfo=UTC)
HIGH = {form.id for form in FORMATS if form.band == "high"}


def story(days: int = 28, ends_at: datetime = END) -> list[list[StoryTrace]]:
    return [list(traces_of(day, days, ends_at)) for day in range(days)]


def ids(days: list[list[StoryTrace]]) -> list[tuple[bytes, bytes]]:
    return [(span.trace_id, span.span_id) for day in days for trace in day for span in trace.spans]


def attribute(trace: StoryTrace, key: str) -> set[str]:
    return {a.value.string_value for span in trace.spans for a in span.attributes if a.key == key}


def test_it_is_the_same_every_time_and_each_span_has_an_id_of_its_own() -> None:
    once, again = story(), story()
    assert [t.spans for day in once for t in day] == [t.spans for day in again for t in day]
    assert len(set(ids(once))) == len(ids(once))
    assert 3_000 < sum(map(len, once)) < 6_000
    # A shorter story is the end of a longer one, and both are known by the same trace, whenever they end.
    assert set(ids(story(7))) <= set(ids(once))
    for ends_at in (END, END + timedelta(days=3)):
        assert probe(7) in {trace_id for trace_id, _ in ids(story(7, ends_at))}
    assert probe(7) == probe(28)


def test_what_is_planted_stands_in_its_place() -> None:
    days = story()
    new = [
        n for n, day in enumerate(days) for t in day if attribute(t, "error.type") & {"QuotaExceededError"}
    ]
    assert min(new) == 25
    assert len(new) >= 20
    failing = [t for day in days for t in day if attribute(t, "error.type") & {"QuotaExceededError"}]
    assert {tenant for t in failing for tenant in attribute(t, "tenant.id")} == {"northwind"}
    usual = [t for day in days[:25] for t in day if attribute(t, "error.type")]
    assert len(usual) >= 50
    slow = [
        n
        for n, day in enumerate(days)
        for t in day
        if "gpt-4o-2024-11-20" in attribute(t, "gen_ai.response.model")
    ]
    assert min(slow) == 23
    leaks = [
        found.pattern
        for day in days
        for trace in day
        for said in attribute(trace, "gen_ai.output.messages")
        for found in find_secrets(said, b"key")
    ]
    assert len(leaks) == 1
    assert set(leaks) <= HIGH
    assert {str(t.resource["service.version"]) for day in days for t in day} == {"4.2.0", "4.3.0"}


@pytest.mark.release
def test_sent_twice_it_adds_nothing() -> None:
    with running() as service:
        first = service.command("demo", "--url", service.url, "--weeks", "1")
        assert (sent := re.search(r"sent (\d+) traces with (\d+) spans", first)) is not None
        assert f"stored and queryable: {sent[2]} new spans" in first
        again = service.command("demo", "--url", service.url, "--weeks", "1")
        assert "stored and queryable: 0 new spans" in again


@pytest.mark.release
def test_the_demo_goes_into_the_project_that_is_named() -> None:
    async def shop(store: Store) -> None:
        (org,) = await store.database.fetch("select org_id from project where id = 1")
        assert await ProjectStore(store.database).create(org["org_id"], "shop", "Shop", actor="tests")

    with running() as service:
        beside(service, shop)
        shown = service.command("demo", "--url", service.url, "--project", "shop")
        assert "sent 24 traces" in shown
        counted = [
            json.loads(service.command("ask", "count", "--project", project, "--json"))["count"]
            for project in ("shop", "default")
        ]
        assert counted == [88, 0]
        assert "there is no project default/nothing" in refused(
            service, "demo", "--url", service.url, "--project", "nothing"
        )
