"""Detectors over REST: which there are, how they are set, what they fired and measured, in one project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import attrs
import msgspec
import pytest

from protocol.detection import Cause, Firing
from protocol.rest.classifiers import (
    CallSitesShown,
    ClassifierHealth,
    ClassifierMetrics,
    ClassifiersHealth,
    ClassifierShown,
    DailyMetrics,
    EventPage,
    ToolErrorRates,
    TuningShown,
)
from svc.domain.detect.detectors.table import DETECTORS
from svc.domain.detect.engine.rate_engine import RateState
from svc.domain.detect.engine.rate_reference import Gathered, reference_of
from svc.domain.detect.engine.slots import SLOTS_PER_DAY
from svc.domain.detect.findings.bucket import BucketState
from svc.store.postgres.database import Database
from tests.front.api.test_cases import documented
from tests.front.people import ORG, PROJECT, Browser, Replica, replica
from tests.store.detection.counting.test_tallying import settle, story, tally_all, write
from tests.store.detection.detecting import execute, fire, record_firings, seen
from tests.store.spans.test_writing import NOW, fetch

CLASSIFIERS = PROJECT + "/classifiers"
TOOL_ERROR = CLASSIFIERS + "/tool_error"
SITE = "a/site?with&everything"


@pytest.fixture
def api_clock() -> Callable[[], datetime]:
    return lambda: NOW + timedelta(hours=2)


async def test_every_detector_is_listed_and_those_that_need_an_encoder_say_so(
    api: Replica, owner: Browser
) -> None:
    rows = (await owner.get(CLASSIFIERS)).data
    documented(rows, list[ClassifierShown])
    assert [row["id"] for row in rows] == list(DETECTORS)
    states = {row["id"]: (row["state"], row["reason"]) for row in rows}
    lacking = ("unavailable", "needs the encoder service, which is not configured")
    assert {name for name, state in states.items() if state == lacking} == {"frustration", "groundedness"}
    assert {state for state in states.values() if state != lacking} == {("running", None)}
    assert (await owner.get(TOOL_ERROR)).data == rows[0]


async def test_with_an_encoder_every_detector_runs(store: Database) -> None:
    async with replica(store, SVC_OBSERVER_ENCODER_URL="https://encoder.example") as api:
        owner = await api.owner()
        for row in (await owner.get(CLASSIFIERS)).data:
            assert (row["state"], row["reason"]) == ("running", None)


async def test_what_cannot_run_never_answers_that_nothing_was_found(api: Replica, owner: Browser) -> None:
    for path in ("/frustration/events", "/frustration/metrics", "/groundedness/tool-error-rates"):
        status, code, message = (await owner.get(CLASSIFIERS + path)).refused
        assert (status, code) == (409, "DETECTOR_UNAVAILABLE"), path
        assert "encoder" in message
    enabling = await owner.put(CLASSIFIERS + "/frustration/enabled", {"enabled": True})
    assert enabling.refused[1] == "DETECTOR_UNAVAILABLE"
    assert (await owner.put(CLASSIFIERS + "/frustration/enabled", {"enabled": False})).status == 200


async def test_a_detector_is_switched_off_and_on_and_its_mode_is_set(api: Replica, owner: Browser) -> None:
    off = (await owner.put(TOOL_ERROR + "/enabled", {"enabled": False})).data
    assert (off["state"], off["enabled"]) == ("disabled", False)
    assert (await owner.get(TOOL_ERROR)).data == off
    assert (await owner.put(TOOL_ERROR + "/enabled", {"enabled": True})).data["state"] == "running"
    assert (await owner.put(TOOL_ERROR + "/mode", {"mode": "tracking"})).data["mode"] == "tracking"
    for path, body in (
        ("/mode", {"mode": "silent"}),
        ("/enabled", {"enabled": "yes"}),
        ("/enabled", {}),
        ("/tuning", {"tuning": {"rise": "much"}}),
    ):
        assert (await owner.put(TOOL_ERROR + path, body)).refused[0] == 400, (path, body)
    audit = await fetch(api.database, "select action, actor, subject_id from audit_row where project_id = 1"
                        " and subject_kind = 'detector'")  # fmt: skip
    assert {tuple(row) for row in audit} == {("detector.update", "owner@example.org", "tool_error")}
    assert len(audit) == 3


async def test_agents_are_told_apart_from_the_first_trace_on_and_no_more_when_somebody_says_so(
    api: Replica, owner: Browser
) -> None:
    path = CLASSIFIERS + "/call-sites"
    found = (await owner.get(path)).data
    documented(found, CallSitesShown)
    assert found == {"call_sites": "agent"}
    assert (await owner.put(path, {"by_agent": False})).data == {"call_sites": "sent"}
    assert (await owner.put(path, {"by_agent": True})).data == {"call_sites": "both"}
    assert (await owner.get(path)).data == {"call_sites": "both"}
    assert (await owner.put(path, {"by_agent": "yes"})).refused[0] == 400
    audit = await fetch(api.database, "select actor from audit_row where action = 'detector.call_sites'")
    assert [row["actor"] for row in audit] == ["owner@example.org"] * 2


async def test_a_tuning_is_clamped_and_a_tunable_that_is_not_there_is_refused(
    api: Replica, owner: Browser
) -> None:
    found = (await owner.get(TOOL_ERROR + "/tuning")).data
    documented(found, TuningShown)
    bounds = found["tunables"]["rise"]
    assert found["tuning"] == {"rise": bounds["default"]}
    for given, kept in ((1e300, bounds["high"]), (-5, bounds["low"]), (3, 3.0)):
        tuned = (await owner.put(TOOL_ERROR + "/tuning", {"tuning": {"rise": given}})).data
        assert tuned["tuning"] == {"rise": kept}
        assert (await owner.get(TOOL_ERROR)).data["tuning"] == {"rise": kept}
    for name, tuning in (("tool_error", {"w1_floor": 0.2}), ("secret_leak", {"rise": 2}),
                         ("frustration", {"rise": 2})):  # fmt: skip
        answer = await owner.put(f"{CLASSIFIERS}/{name}/tuning", {"tuning": tuning})
        assert answer.refused[:2] == (422, "NOT_TUNABLE"), name
    many = {f"t{n}": 1.0 for n in range(21)}
    assert (await owner.put(TOOL_ERROR + "/tuning", {"tuning": many})).refused[0] == 400
    assert (await owner.put(TOOL_ERROR + "/tuning", {"tuning": {}})).data["tuning"] == {"rise": 2.0}
    assert (await owner.get(CLASSIFIERS + "/secret_leak/tuning")).data["implied_false_alarm_rate"] is None


async def test_the_implied_false_alarms_are_those_of_the_bars_that_judge_tuned_as_they_are(
    api: Replica, owner: Browser
) -> None:
    async def rates() -> dict[str, float]:
        names = ("tool_error", "cut_output")
        paths = {name: f"{CLASSIFIERS}/{name}/tuning" for name in names}
        return {n: (await owner.get(p)).data["implied_false_alarm_rate"] for n, p in paths.items()}

    assert await rates() == {"tool_error": 0.0, "cut_output": 0.0}
    busy, quiet, learning = (_state(a_day) for a_day in (5_000, 5, None))
    for first, last, body in ((1, 300, busy), (301, 350, quiet), (351, 400, learning)):
        await execute(
            api.database,
            "insert into bucket_state select 1, 'tool_error', 'tool_error_rate', n::text, 0, $3::bytea"
            " from generate_series($1::integer, $2::integer) n",
            first,
            last,
            body,
        )
    # 400 buckets count as 512, two alarms a month: each of the busy runs 256 of its own months. The quiet
    # ones have their bar for 20,000 units all the same, and who learns raises nothing.
    whole = 300 / 256 + 50 * 150 / 38_400
    assert (await rates())["tool_error"] == pytest.approx(whole, rel=0.1)
    # A bar is made for what is looked for, so that chance alone reaches it as seldom as before.
    await owner.put(TOOL_ERROR + "/tuning", {"tuning": {"rise": 6}})
    assert (await rates())["tool_error"] == pytest.approx(whole, rel=0.15)
    assert (await rates())["cut_output"] == 0.0
    await execute(api.database, "delete from bucket_state where subject <> '1'")
    # None runs for fewer than 50.
    assert (await rates())["tool_error"] == pytest.approx(0.02, rel=0.1)


def _state(a_day: int | None) -> bytes:
    """A bucket that saw so much of 2 % for three weeks, or that learns still."""
    state = RateState.start(0)
    if a_day is not None:
        units = 21 * a_day
        gathered = Gathered(units, max(units // 50, 1), 0, 21 * SLOTS_PER_DAY, 1)
        state = attrs.evolve(state, reference=reference_of(gathered, sealed=True))
    return msgspec.msgpack.encode(BucketState(0, rate=state))


FIRINGS = [
    Firing("tool_error", "high", "trace", "fails", "high", trace_id=b"\x01" * 16, call_site_id=SITE),
    Firing("secret_leak", "high", "span", "a key", "high", trace_id=b"\x01" * 16, span_id=b"\x02" * 8),
    Firing("secret_leak", "medium", "span", "perhaps a key", "low", session_id=SITE),
]


async def test_firings_are_paged_narrowed_and_read_through_the_mode(api: Replica, owner: Browser) -> None:
    for number, firing in enumerate(FIRINGS):
        await record_firings(api.database, 1, [firing], NOW + timedelta(seconds=number))
    await record_firings(api.database, 2, FIRINGS, NOW)

    async def told(path: str) -> list[str]:
        found = (await owner.get(CLASSIFIERS + path)).data
        documented(found, EventPage)
        return [row["summary"] for row in found["events"]]

    everything = ["perhaps a key", "a key", "fails"]
    assert await told("/events") == everything
    assert await told("/secret_leak/events") == everything[:2]
    assert await told("/secret_leak/events?mode=tracking") == ["a key"]
    assert await told("/events?call_site_id=a%2Fsite%3Fwith%26everything") == ["fails"]
    assert await told("/events?session_id=a%2Fsite%3Fwith%26everything") == ["perhaps a key"]
    assert await told("/events?severity=medium") == ["perhaps a key"]
    # The mode is applied when they are read: setting it changes what was, and setting it back too.
    await owner.put(CLASSIFIERS + "/secret_leak/mode", {"mode": "tracking"})
    assert await told("/events") == everything[1:]
    assert await told("/secret_leak/events") == ["a key"]
    assert await told("/secret_leak/events?mode=discovery") == everything[:2]
    await owner.put(CLASSIFIERS + "/secret_leak/mode", {"mode": "discovery"})
    first = (await owner.get(CLASSIFIERS + "/events?limit=2")).data
    assert await told(f"/events?limit=2&cursor={first['next_cursor']}") == ["fails"]
    for bad in ("limit=0", "limit=1001", "severity=worst", "mode=all"):
        assert (await owner.get(f"{CLASSIFIERS}/events?{bad}")).refused[0] == 400, bad


async def test_daily_metrics_hold_every_day_and_what_the_mode_shows(api: Replica, owner: Browser) -> None:
    store = api.database
    await record_firings(store, 1, FIRINGS, NOW)
    await record_firings(store, 1, FIRINGS[:1], NOW - timedelta(days=1))
    await record_firings(store, 2, FIRINGS, NOW)
    await execute(
        store,
        "insert into metric_rollup select 1, 'l1_evals', 'hour', $1::timestamptz - n * interval '1 hour', 10"
        " from generate_series(1, 13) n",
        NOW,
    )
    days = (await owner.get(CLASSIFIERS + "/metrics/daily?days=3")).data
    documented(days, DailyMetrics)
    assert days["days"] == [
        {"day": "2026-11-18T00:00:00.000000Z", "evaluated": 0, "events": 0,
         "by_classifier": {}, "by_severity": {}},
        {"day": "2026-11-19T00:00:00.000000Z", "evaluated": 10, "events": 1,
         "by_classifier": {"tool_error": 1}, "by_severity": {"high": 1}},
        {"day": "2026-11-20T00:00:00.000000Z", "evaluated": 120, "events": 3,
         "by_classifier": {"tool_error": 1, "secret_leak": 2}, "by_severity": {"high": 2, "medium": 1}},
    ]  # fmt: skip
    await owner.put(CLASSIFIERS + "/secret_leak/mode", {"mode": "tracking"})
    today = (await owner.get(CLASSIFIERS + "/metrics/daily?days=1")).data["days"]
    assert [day["by_classifier"] for day in today] == [{"tool_error": 1, "secret_leak": 1}]
    assert len((await owner.get(CLASSIFIERS + "/metrics/daily")).data["days"]) == 7
    for bad in ("days=0", "days=91"):
        assert (await owner.get(f"{CLASSIFIERS}/metrics/daily?{bad}")).refused[0] == 400


async def test_health_says_what_waits_and_how_far_each_detector_is(api: Replica, owner: Browser) -> None:
    store = api.database
    await fire(store, seen(cause=Cause("tool_error", "kind", "key")))
    await record_firings(store, 1, FIRINGS, NOW)
    await execute(store, "insert into fold_due (project_id, trace_id) values (1, '\\x01'), (2, '\\x02')")
    await execute(store, "insert into fold_state (project_id, newest_slot) values (1, 288)")
    await execute(
        store,
        "insert into judge_state (project_id, detector, judged_at, until_slot, failed_at, failure)"
        " values (1, 'tool_error', $1, 12, null, null), (1, 'cut_output', $1, 12, $1 + interval '1 s', 'E')",
        NOW,
    )
    await execute(store, "insert into bucket_state values (1, 'tool_error', 'm', 's', 0, '')")
    health = (await owner.get(CLASSIFIERS + "/health")).data
    documented(health, ClassifiersHealth)
    assert (health["traces_waiting"], health["newest_event_at"]) == (1, "1970-01-02T00:00:00.000000Z")
    rows = {row["id"]: msgspec.convert(row, ClassifierHealth) for row in health["classifiers"]}
    assert rows.keys() == DETECTORS.keys()
    ours = rows["tool_error"]
    assert (ours.state, ours.buckets, ours.live_findings, ours.events_last_day) == ("running", 1, 1, 1)
    assert (ours.judged_until, ours.last_event_at) == (
        "1970-01-01T01:00:00.000000Z",
        "2026-11-20T12:00:00.000000Z",
    )
    assert (rows["cut_output"].state, rows["frustration"].state) == ("failing", "unavailable")


async def test_measures_and_tool_error_rates_are_what_was_folded(api: Replica, owner: Browser) -> None:
    for number in range(1, 5):
        await write(api.database, *story(number, failing=number == 1))
    await settle(api.database)
    await tally_all(api.database)
    found = (await owner.get(TOOL_ERROR + "/tool-error-rates?days=2")).data
    documented(found, ToolErrorRates)
    (row,) = found["tools"]
    assert (row["tool"], row["traces"], row["failures"], row["rate"]) == ("look", 4, 1, 0.25)
    assert 0 < row["low"] < 0.25 < row["high"] < 1
    metrics = (await owner.get(TOOL_ERROR + "/metrics?subject=tool%3Alook")).data
    documented(metrics, ClassifierMetrics)
    (measure,) = metrics["measures"]
    assert (measure["measure"], measure["kind"]) == ("tool_error_rate", "rate")
    (day,) = measure["days"]
    assert (day["day"], day["units"], day["failures"]) == ("2026-11-20T00:00:00.000000Z", 4, 1)
    assert (await owner.get(TOOL_ERROR + "/metrics?subject=tool%3Aother")).data["measures"][0]["days"] == []
    sizes = (await owner.get(CLASSIFIERS + "/duration_drift/metrics")).data["measures"]
    assert [(size["measure"], size["kind"], size["unit"]) for size in sizes] == [
        ("turn_duration", "size", "ms"),
        ("tool_duration", "size", "ms"),
    ]
    (turns,) = sizes[0]["days"]
    assert turns["units"] == 4
    assert 0 < turns["p50"] <= turns["p95"]
    # Another detector has no rates of tools, and nobody counts before the tallies begin.
    assert (await owner.get(CLASSIFIERS + "/cut_output/tool-error-rates")).refused[:2] == (404, "NOT_FOUND")
    assert (await owner.get(TOOL_ERROR + "/metrics?days=36")).refused[0] == 400


READS = ("", "/health", "/metrics/daily", "/events", "/tool_error", "/tool_error/events",
         "/tool_error/metrics", "/tool_error/tool-error-rates", "/tool_error/tuning")  # fmt: skip
WRITES = (
    ("/tool_error/enabled", {"enabled": False}),
    ("/tool_error/mode", {"mode": "tracking"}),
    ("/tool_error/tuning", {"tuning": {"rise": 3}}),
)


async def test_viewers_and_query_keys_read_and_set_nothing(api: Replica, owner: Browser) -> None:
    viewer = await api.member("viewer@example.org", "viewer", owner)
    member = await api.member("member@example.org", "member", owner)
    keys = {
        scope: api.browser(key=await api.token(scope), origin=None) for scope in ("query", "write", "admin")
    }
    before = (await owner.get(CLASSIFIERS)).data
    for path in READS:
        statuses = [
            (await caller.get(CLASSIFIERS + path)).status
            for caller in (viewer, member, keys["query"], keys["admin"], keys["write"], api.browser())
        ]
        assert statuses == [200, 200, 200, 200, 403, 401], path
    for path, body in WRITES:
        for caller in (viewer, keys["query"], keys["write"]):
            assert (await caller.put(CLASSIFIERS + path, body)).status == 403, path
        assert (await api.browser().put(CLASSIFIERS + path, body)).status == 401, path
    assert (await owner.get(CLASSIFIERS)).data == before
    for path, body in WRITES:
        for caller in (member, keys["admin"]):
            assert (await caller.put(CLASSIFIERS + path, body)).status == 200, path


async def test_a_project_sees_and_sets_only_its_own(api: Replica, owner: Browser) -> None:
    assert (await owner.post(ORG + "/projects", {"name": "Other", "slug": "other"})).status == 201
    theirs = ORG + "/projects/other/classifiers"
    await record_firings(api.database, 1, FIRINGS, NOW)
    await write(api.database, *story(1, failing=True))
    await settle(api.database)
    await tally_all(api.database)
    await owner.put(TOOL_ERROR + "/enabled", {"enabled": False})
    assert (await owner.get(theirs + "/tool_error")).data["enabled"]
    assert (await owner.get(theirs + "/events")).data["events"] == []
    assert (await owner.get(theirs + "/tool_error/tool-error-rates")).data["tools"] == []
    assert (await owner.get(theirs + "/tool_error/metrics")).data["measures"][0]["days"] == []
    assert all(day["events"] == 0 for day in (await owner.get(theirs + "/metrics/daily")).data["days"])
    (project,) = await fetch(api.database, "select id from project where slug = 'other'")
    key = api.browser(key=await api.token("admin", project["id"]), origin=None)
    for path in READS:
        assert (await key.get(CLASSIFIERS + path)).status == 404, path
    for name in ("nothing", "TOOL_ERROR"):
        assert (await owner.get(f"{CLASSIFIERS}/{name}")).refused[:2] == (404, "NOT_FOUND")
        assert (await owner.put(f"{CLASSIFIERS}/{name}/mode", {"mode": "tracking"})).status == 404
