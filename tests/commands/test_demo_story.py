"""The demo's weeks: the same whenever they are made, with what is planted in its place, and sent once."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from svc.application.open_store import Store
from svc.commands.demo import until_now
from svc.commands.demo_recorder import StoryTrace
from svc.commands.demo_story import probe, traces_of
from svc.domain.detect.engine.bars import LEAST_MONTHS
from svc.domain.detect.engine.rate_engine import RateSettings
from svc.domain.detect.engine.slots import slot_at
from svc.domain.detect.engine.tallies import RateTallies
from svc.domain.detect.findings.judging import judge_rate
from svc.domain.detect.secrets.formats import FORMATS
from svc.domain.detect.secrets.search import find_secrets
from svc.store.accounts.projects import ProjectStore
from tests.commands.test_detections import refused
from tests.e2e.mcp import beside
from tests.examples import first_always
from tests.service import running

END = datetime(2026, 11, 22, tzinfo=UTC)
SHOP, DESK = "shop-assistant", "report-desk"
HIGH = {form.id for form in FORMATS if form.band == "high"}


@cache
def story(days: int = 28, ends_at: datetime = END) -> list[list[StoryTrace]]:
    return [list(traces_of(day, days, ends_at)) for day in range(days)]


def ids(days: list[list[StoryTrace]]) -> list[tuple[bytes, bytes]]:
    return [(span.trace_id, span.span_id) for day in days for trace in day for span in trace.spans]


def attribute(trace: StoryTrace, key: str) -> set[str]:
    return {a.value.string_value for span in trace.spans for a in span.attributes if a.key == key}


@pytest.mark.release
def test_it_is_the_same_every_time_and_each_span_has_an_id_of_its_own() -> None:
    once, again = story(), story.__wrapped__()
    traces = [(t.spans, t.feedback) for day in once for t in day]
    assert traces == [(t.spans, t.feedback) for day in again for t in day]
    assert len(set(ids(once))) == len(ids(once))
    assert 18_000 < len(ids(once)) < 23_000
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
    assert resources(days, SHOP, "service.version") == {"4.2.0", "4.3.0"}


def resources(days: list[list[StoryTrace]], service: str, key: str) -> set[str]:
    return {str(t.resource[key]) for day in days for t in day if t.resource["service.name"] == service}


def by_service(days: list[list[StoryTrace]], key: str) -> tuple[set[str], set[str]]:
    """The values of an attribute at the shop and at the report desk."""
    shop, desk = (
        {
            value
            for day in days
            for t in day
            if t.resource["service.name"] == service
            for value in attribute(t, key)
        }
        for service in (SHOP, DESK)
    )
    return shop, desk


def lookups(days: list[list[StoryTrace]]) -> list[Span]:
    return [s for day in days for t in day for s in t.spans if s.name == "execute_tool lookup_order"]


@pytest.mark.parametrize("weekday", first_always(range(7)))
def test_on_any_weekday_the_tool_that_fails_is_dated_to_its_first_failure_and_so_is_one_case(
    weekday: int,
) -> None:
    ends_at = END + timedelta(days=weekday)
    calls = lookups(story(28, ends_at))
    slots = [slot_at(span.start_time_unix_nano / 1e9) for span in calls]
    tallies = RateTallies.of(
        (slot, 1, span.status.code == Status.STATUS_CODE_ERROR)
        for slot, span in zip(slots, calls, strict=True)
    )
    settings = RateSettings.tuned(LEAST_MONTHS, {}, 1)
    judged = judge_rate(None, min(slots), tallies, settings, slot_at(ends_at.timestamp()))
    (change,) = judged.changes
    refusals = [slot for slot, span in zip(slots, calls, strict=True) if "quota" in span.status.message]
    assert change.onset.low <= min(refusals) <= change.onset.high


@pytest.mark.parametrize(
    "key",
    [
        "user.id",
        "svc.call_site.id",
        "gen_ai.agent.name",
        "gen_ai.tool.name",
        "gen_ai.request.model",
        "session.id",
    ],
)
def test_two_applications_share_no_name_by_which_a_detector_would_take_them_for_one(key: str) -> None:
    shop, desk = by_service(story(), key)
    assert shop
    assert desk
    assert not shop & desk


def test_each_filter_has_values_to_choose_from() -> None:
    days = story()
    assert resources(days, DESK, "service.version") == {"1.8.0", "1.9.0", "1.9.1"}
    assert resources(days, DESK, "deployment.environment.name") == {"production", "staging"}
    tenants, _ = by_service(days, "tenant.id")
    _, metadata = by_service(days, "metadata")
    assert len(tenants) >= 5
    assert {json.loads(text)["tenant"] for text in metadata} & tenants
    assert len({json.loads(text)["audience"] for text in metadata}) == 3
    agents = {"supervisor", "researcher", "writer", "support"}
    assert {name for names in by_service(days, "gen_ai.agent.name") for name in names} == agents


def test_messages_hold_pictures_in_both_ways_of_sending_them() -> None:
    days = story(7)
    shop, _ = by_service(days, "gen_ai.input.messages")
    parts = [part for text in shop for message in json.loads(text) for part in message["parts"]]
    blobs = {part["content"] for part in parts if part["type"] == "blob"}
    prefix = "llm.input_messages.1.message.contents.1.message_content.image.image.url"
    addresses = by_service(days, prefix)[1]
    assert len(blobs) > 10
    assert len(addresses) == 4
    for picture in (*blobs, *(address.removeprefix("data:image/png;base64,") for address in addresses)):
        png = base64.b64decode(picture, validate=True)
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert len(png) < 600


def test_a_parent_begins_before_its_children_and_ends_with_the_last_of_them() -> None:
    for day in story(2):
        for trace in day:
            by_id = {span.span_id: span for span in trace.spans}
            for span in trace.spans[1:]:
                parent = by_id[span.parent_span_id]
                assert parent.start_time_unix_nano < span.start_time_unix_nano
                assert span.end_time_unix_nano <= parent.end_time_unix_nano


def test_people_rate_a_few_answers_and_each_entry_once() -> None:
    entries = [entry for day in story() for trace in day for entry in trace.feedback]
    assert 200 < len(entries) < 500
    assert {entry["name"] for entry in entries} == {"helpful", "stars"}
    assert len({entry["id"] for entry in entries}) == len(entries)


def test_the_day_under_way_is_told_up_to_now_and_what_was_planted_goes_on() -> None:
    today = list(traces_of(28, 28, END))
    assert not {span.trace_id for t in today for span in t.spans} & {trace_id for trace_id, _ in ids(story())}
    noon = END + timedelta(hours=12)
    begun = until_now(today, noon)
    assert 0 < len(begun) < len(today)
    assert max(t.ended_at_ns for t in begun) <= noon.timestamp() * 1e9
    assert until_now(today, END) == []
    assert "QuotaExceededError" in {kind for t in today for kind in attribute(t, "error.type")}
    assert by_service([today], "gen_ai.response.model")[0] >= {"gpt-4o-2024-11-20"}


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
