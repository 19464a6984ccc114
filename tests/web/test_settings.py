"""Settings, sessions and vitals as pages: what they change goes through the REST API's own handlers."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from svc.domain.queries.measures import MeasureName
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from svc.store.reads.questions.questions import ask
from svc.web.overview.explore_view import summed
from svc.web.shell.settings_pages import GROUPS
from tests.front.people import Replica
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.test_pages import HOSTILE, fill, heading
from tests.web.visitor import BASE, Visitor

SETTINGS = BASE + "/settings"


async def test_settings_stand_in_three_groups_and_each_of_them_opens(owner: Visitor) -> None:
    page = await owner.get(SETTINGS)
    main = page.text.partition("<main")[2].partition("<dialog")[0]
    assert re.findall("<h2[^>]*>([^<]+)</h2>", main) == ["Project", "People and access", "Operation"]
    listed = re.findall(f'href="{BASE}/([a-z/-]+)">', main)
    assert listed == [entry.path for group in GROUPS for entry in group.pages]
    for path in listed:
        opened = await owner.get(f"{BASE}/{path}")
        assert opened.status == 200
        # Each page knows which of the tabs above it is its own.
        tabs = opened.text.partition('<nav class="settings-tabs"')[2].partition("</nav>")[0]
        assert re.findall(r'href="([^"]+)"[^>]* aria-current="page"', tabs) == [f"{BASE}/{path}"]


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("retention", ["settings/project"]),
        ("WEBHOOK", ["settings/notifications"]),
        ("invit", ["settings/people"]),
        ("delete person", ["settings/masking"]),
        ("keys", ["settings/keys"]),
        ("zebra", []),
    ],
)
async def test_a_setting_is_found_by_what_people_call_it(owner: Visitor, q: str, found: list[str]) -> None:
    page = await owner.get(f"{SETTINGS}?{urlencode({'q': q})}")
    main = page.text.partition("<main")[2].partition("<dialog")[0]
    assert re.findall(f'href="{BASE}/((?:settings/|prices)[a-z-]*)">', main) == found
    assert found or heading(page) == "No setting is about “zebra”"


async def test_a_key_is_shown_once_rotated_and_revoked(here: Replica, owner: Visitor) -> None:
    made = await owner.post(SETTINGS + "/keys", {"name": "exporter", "scope": "write"})
    assert made.headers["cache-control"] == "no-store"
    key = re.search(r"svc_w_[A-Za-z0-9_-]{22}", made.text)
    assert key is not None
    page = await owner.get(SETTINGS + "/keys")
    assert heading(page) == "1 key reaches this project"
    assert key[0] not in page.text
    key_id = re.search(r'name="id" value="([^"]+)"', page.text)
    assert key_id is not None
    rotated = await owner.post(SETTINGS + "/keys/rotate", {"id": key_id[1]})
    second = re.search(r"svc_w_[A-Za-z0-9_-]{22}", rotated.text)
    assert second is not None
    assert second[0] != key[0]
    assert (await owner.post(SETTINGS + "/keys/revoke", {"id": key_id[1]})).status == 303
    assert heading(await owner.get(SETTINGS + "/keys")) == "This project has no key"
    refused = await owner.post(SETTINGS + "/keys/rotate", {"id": key_id[1]})
    assert (refused.status, "Cannot rotate a revoked key." in refused.text) == (409, True)
    audit = await owner.get(SETTINGS + "/audit")
    assert [action in audit.text for action in ("key.create", "key.rotate", "key.revoke")] == [True] * 3


async def test_people_are_invited_changed_and_removed(here: Replica, owner: Visitor) -> None:
    made = await owner.post(SETTINGS + "/people/invite", {"email": "guest@example.org", "role": "member"})
    link = re.search(r"/signup\?invitation=([A-Za-z0-9_-]+)", made.text)
    assert link is not None
    guest = Visitor.of(here)
    assert (await guest.sign_up("guest@example.org", invitation=link[1])).status == 303
    page = await owner.get(SETTINGS + "/people")
    assert heading(page) == "2 people belong to Default"
    seen_by_guest = await guest.get(SETTINGS + "/people")
    assert "Who may sign up" not in seen_by_guest.text
    assert (await guest.post(SETTINGS + "/people/policy", {"mode": "open"})).status == 403
    member = re.search(r'name="id" value="([^"]+)"> <select name="role" aria-label="Role of guest', page.text)
    assert member is not None
    changed = await owner.post(SETTINGS + "/people/change", {"id": member[1], "role": "viewer"})
    assert changed.status == 303
    assert (await guest.post(BASE + "/connect/key")).status == 403
    assert (await owner.post(SETTINGS + "/people/remove", {"id": member[1]})).status == 303
    assert (await guest.get(BASE + "/traces")).status == 404
    wrong = await owner.post(SETTINGS + "/people/policy", {"mode": "domain", "domains": "not a/domain"})
    assert wrong.status == 400
    kept = await owner.post(
        SETTINGS + "/people/policy", {"mode": "domain", "domains": "example.org, a.example"}
    )
    assert kept.status == 303
    assert 'value="example.org a.example"' in (await owner.get(SETTINGS + "/people")).text


async def test_the_last_owner_stays(owner: Visitor) -> None:
    page = await owner.get(SETTINGS + "/people")
    member = re.search(r'name="id" value="([^"]+)"', page.text)
    assert member is not None
    refused = await owner.post(SETTINGS + "/people/remove", {"id": member[1]})
    assert refused.status == 409
    assert "The last owner cannot leave" in refused.text


async def test_a_project_is_named_kept_for_a_term_and_deleted_by_its_slug(owner: Visitor) -> None:
    assert (await owner.post(SETTINGS + "/project/name", {"name": "Shop"})).status == 303
    assert (
        await owner.post(SETTINGS + "/project/retention", {"traces": "7", "detections": "", "sure": "y"})
    ).status == 303
    page = await owner.get(SETTINGS + "/project")
    assert heading(page) == "Shop keeps traces 7 days"
    assert (await owner.post(SETTINGS + "/project/retention", {"traces": "-3"})).status == 400
    made = await owner.post(SETTINGS + "/project/new", {"name": "Second one"})
    assert made.location == "/orgs/default/projects/second-one/connect"
    other = made.location.removesuffix("/connect")
    assert (await owner.get(other + "/traces")).status == 200
    assert (await owner.get("/")).location == other + "/triage"
    assert (await owner.post(other + "/settings/project/delete", {"slug": "default"})).status == 400
    assert (await owner.post(other + "/settings/project/delete", {"slug": "second-one"})).location == "/"
    assert (await owner.get(other + "/traces")).status == 404
    assert (await owner.get("/")).location == BASE + "/triage"


async def test_sources_say_that_nothing_came_and_hand_out_a_header(owner: Visitor) -> None:
    assert heading(await owner.get(SETTINGS + "/sources")).startswith("Nothing has sent spans")
    made = await owner.post(SETTINGS + "/sources/key")
    assert re.search(r"Authorization: Bearer svc_w_[A-Za-z0-9_-]{22}", made.text)
    assert made.headers["cache-control"] == "no-store"


async def test_sessions_tell_the_conversation_with_its_pauses(store: Database, owner: Visitor) -> None:
    assert "No session yet" in (await owner.get(BASE + "/sessions")).text
    await fill(store, 8)
    page = await owner.get(BASE + "/sessions")
    assert re.fullmatch(r"The latest session, s0, was active \d+ \w+ ago", heading(page))
    seen = await owner.get(BASE + "/session?id=s1")
    assert heading(seen) == "s1"
    assert seen.text.count('class="chat-turn"') == 4
    assert "at least" not in seen.text
    for other in ("", "nobody", "a%00b"):
        assert (await owner.get(BASE + "/session?id=" + other)).status in (400, 404)


async def test_the_totals_of_an_unsettled_session_are_at_least(store: Database, owner: Visitor) -> None:
    await store_of(store, Clock(now())).write(
        rows(one(1, name="ask", attributes={"session.id": "s/ß?&"}, start=now(), trace_id=b"\x01" * 16))
    )
    listed = await owner.get(BASE + "/sessions")
    link = re.search(r'href="([^"]*/session\?id=[^"]*)"', listed.text)
    assert link is not None
    seen = await owner.get(link[1].replace("&amp;", "&"))
    assert heading(seen) == "s/ß?&amp;"
    assert "at least 1" in seen.text


async def test_hostile_sessions_are_text(store: Database, owner: Visitor) -> None:
    await fill(
        store, 2, name=HOSTILE, **{"session.id": HOSTILE, "user.id": HOSTILE, "svc.call_site.id": HOSTILE}
    )
    for path in ("/sessions", "/vitals", "/vitals/models", "/vitals/tools", "/settings/sources"):
        seen = await owner.get(BASE + path)
        assert seen.status == 200
        assert "<script>alert" not in seen.text
        assert "<img src=x" not in seen.text


async def two_windows(store: Database, before: int, now_: int, **slow: Any) -> None:
    """Traces of a call site in the day before yesterday's noon and in this one; the newer take four times."""
    clock = Clock()
    clock.now = now()
    writer = store_of(store, clock)
    spans: list[Any] = []
    for at in range(before + now_):
        newer = at >= before
        start = now() - timedelta(hours=2 if newer else 30) + timedelta(seconds=at)
        spans += [
            one(
                1,
                name="ask",
                attributes={"svc.call_site.id": "support"},
                trace_id=(at + 1).to_bytes(16, "big"),
                start=start,
                took_s=4.0 if newer else 1.0,
            )
        ]
    await writer.write(rows(*spans))
    await settle_all(store)


async def test_vitals_name_the_worst_mover(store: Database, owner: Visitor) -> None:
    assert heading(await owner.get(BASE + "/vitals")).startswith("Nothing ran")
    await two_windows(store, 30, 30)
    seen = await owner.get(BASE + "/vitals")
    # Quantiles are those of bins 5 % wide.
    assert re.fullmatch(
        r"support takes (3\.9|4\.\d)\d s at the median, (1\.0\d s|9\d\d ms) before", heading(seen)
    )
    assert re.search("×(3.9|4.[01])", seen.text)
    assert f'href="{BASE}/traces?q=site%3Asupport&amp;from=' in seen.text


async def test_what_comes_later_in_vitals_moves_nothing_that_is_seen(store: Database, owner: Visitor) -> None:
    await two_windows(store, 12, 30)
    assert (await owner.get(BASE + "/vitals")).text.count("data-load") == 1
    assert "data-load" in (await owner.get(BASE + "/vitals/models")).text
    assert "data-load" not in (await owner.get(BASE + "/vitals/tools")).text


async def test_vitals_compare_nothing_with_too_few(store: Database, owner: Visitor) -> None:
    await two_windows(store, 12, 30)
    seen = await owner.get(BASE + "/vitals")
    assert heading(seen).startswith("Not enough traces yet")
    assert "12 of 30 traces needed for comparison" in seen.text
    assert "×" not in seen.text
    assert (await owner.get(BASE + "/vitals?range=5y")).status == 400
    assert (await owner.get(BASE + "/vitals/nothing")).status == 404


async def test_explore_asks_what_the_query_api_is_asked(store: Database, owner: Visitor) -> None:
    await fill(store, 9)
    seen = await owner.get(BASE + "/explore?range=7d&field=status")
    assert heading(seen) == "18 spans in the last 7 days"
    assert "/v1/query/timeseries" in seen.text
    assert "&#34;by&#34;:&#34;started_at&#34;" in seen.text
    dearest = await owner.get(BASE + "/explore?range=7d&field=model_id&measure=error_rate")
    assert heading(dearest) == "Error rate 33 % · 18 spans in the last 7 days"
    by_arrival = await owner.get(BASE + "/explore?range=7d&by=created_at&measure=duration_p95")
    assert heading(by_arrival).startswith("p95 duration ")
    assert "&#34;by&#34;" not in by_arrival.text
    narrowed = re.search(r'href="([^"]*q=status%3Aerror[^"]*)"', seen.text)
    assert narrowed is not None
    assert heading(await owner.get(narrowed[1].replace("&amp;", "&"))) == "6 spans in the last 7 days"
    unknown = await owner.get(BASE + "/explore?dataset=nothing")
    assert heading(unknown).endswith("in the last 24 hours")
    assert (
        "there is no dataset “nothing”, so this is about spans. Datasets are spans, tool_calls,"
        " classifier_events, metric_rollups."
    ) in unknown.text
    assert "there is no dataset" not in seen.text
    wrong = await owner.get(BASE + "/explore?from=1990-01-01&to=2026-01-01&interval=hour")
    assert (heading(wrong), wrong.status) == ("This query is not possible", 200)
    # The newest spans may be of the bucket before the last one: a bucket begins at midnight.
    titles = re.findall(r"<title>([^<]*): (\d+)</title>", seen.text)
    assert [title.endswith(", so far") for title, _ in titles] == [False] * (len(titles) - 1) + [True]
    assert sum(int(number) for _, number in titles[-2:]) == 18
    assert seen.text.count(", in part") == 3, "in the drawing, under it and in its table"
    past = await owner.get(BASE + "/explore?from=2026-01-01T00:00Z&to=2026-01-03T00:00Z&interval=day")
    assert ", so far" not in past.text
    assert ", in part" not in past.text
    rollups = await owner.get(BASE + "/explore?dataset=metric_rollups")
    assert heading(rollups) == "54 in the sum of metric rollups in the last 24 hours"


@pytest.mark.parametrize("measure", ["count", "errors", "error_rate", "cost"])
@pytest.mark.parametrize(
    "filters", [{}, {"status": "error"}, {"model_id": "gpt-4o"}, {"name": "nowhere"}], ids=str
)
async def test_what_explore_adds_up_is_what_the_query_api_counts(
    store: Database, measure: MeasureName, filters: dict[str, str]
) -> None:
    await fill(store, 9)
    await fill(store, 3, **{"gen_ai.request.model": "house-llm", "gen_ai.provider.name": "in-house"})
    queries, range_ = QueryStore(store), (now() - timedelta(days=2), now())
    question = ask(1, "spans", range_, filters, by="started_at", measure=measure)
    counted = await queries.count(question)
    for interval in ("hour", "minute"):
        series = await queries.timeseries(question, interval)
        added = summed(measure, series.buckets)
        assert (added.count, added.figure(measure)) == (counted.count, counted.figure(measure))
        assert added.figure("unpriced_spans") == counted.figure("unpriced_spans")
    assert counted.count or filters == {"name": "nowhere"}


async def test_prices_name_what_has_none(store: Database, owner: Visitor) -> None:
    assert heading(await owner.get(BASE + "/prices")).startswith("No model was called")
    await fill(store, 5)
    assert heading(await owner.get(BASE + "/prices")) == "Every model that was called has a price"
    await fill(store, 3, **{"gen_ai.request.model": "house-llm", "gen_ai.provider.name": "in-house"})
    seen = await owner.get(BASE + "/prices")
    assert heading(seen) == "1 model has no price"
    assert "<b>house-llm</b>" in seen.text
    assert "$2.50" in seen.text


RULES = BASE + "/settings/project/rules"


async def test_rules_of_retention_are_added_changed_and_removed(store: Database, owner: Visitor) -> None:
    empty = await owner.get(RULES)
    assert heading(empty) == "All traces are kept for 90 days"
    assert "No span has an attribute yet" in empty.text
    resource = {"service.name": "shop", "deployment.environment": "development"}
    await store_of(store).write(rows(one(1), resource=resource))
    rule = {"field": "environment", "value": " development ", "days": "7"}
    assert (await owner.post(RULES + "/add", rule)).status == 303
    assert (await owner.post(RULES + "/add", rule | {"days": "9"})).status == 303
    seen = await owner.get(RULES)
    assert heading(seen) == "1 kind of traces goes earlier"
    assert '<td>development</td><td class="num">9 days</td>' in seen.text
    refused = await owner.post(RULES + "/add", rule | {"days": "soon", "value": "other"})
    assert refused.status == 400
    assert 'value="soon"' in refused.text
    assert (
        await owner.post(RULES + "/remove", {"field": "environment", "value": "development"})
    ).status == 303
    assert heading(await owner.get(RULES)) == "All traces are kept for 90 days"
