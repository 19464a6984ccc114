"""Buckets and backtests over REST: silence has a reason, and an engine says what would have fired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
import trio

from protocol.detection import Cause
from protocol.rest.classifiers import BacktestShown, BucketPage
from svc.domain.detect.engine.rate_engine import RateSettings
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, slot_at
from svc.domain.detect.findings.bucket import BucketState, Watched
from svc.domain.detect.findings.judging import judge_rate
from svc.front.api.cases import buckets
from svc.store.detection.cases.case_states import CaseStates
from svc.store.detection.counting.tallies import TallyStore
from svc.store.detection.judging.bucket_states import write_state
from svc.store.postgres.database import Connection, Database
from tests.front.api.test_cases import documented
from tests.front.people import ORG, PROJECT, Browser, Replica
from tests.store.detection.detecting import ANN, LATER, execute, opened, seen
from tests.store.spans.test_writing import NOW, fetch

TOOL_ERROR = PROJECT + "/classifiers/tool_error"
END = slot_at(NOW.timestamp())
DAYS = 30


@pytest.fixture
def api_clock() -> Callable[[], datetime]:
    return lambda: NOW + timedelta(hours=2)


@pytest.fixture
async def owner(owner: Browser, store: Database) -> Browser:
    await execute(store, "insert into fold_state (project_id, newest_slot) values (1, $1)", END)
    return owner


async def counted(
    store: Database, name: str, *, days: float = DAYS, bad_days: int = 0, measure: str = "tool_error_rate"
) -> None:
    """A tool that is called twice in each slot, 1 % of it in vain, and half of it lately."""
    await execute(
        store,
        "insert into tally_bucket (project_id, measure, subject) values (1, $1, $2)",
        measure,
        f"tool:{name}",
    )
    await execute(
        store,
        "insert into tally (project_id, bucket_id, slot, bin, units, failures)"
        " select 1, b.id, s, 0, 2, case when s >= $4 then 1 when s % 50 = 0 then 1 else 0 end"
        " from tally_bucket b, generate_series($2::integer, $3::integer) s"
        " where b.project_id = 1 and b.subject = $1",
        f"tool:{name}",
        int(END - days * SLOTS_PER_DAY),
        END,
        END - bad_days * SLOTS_PER_DAY if bad_days else END + 1,
    )


async def judged(store: Database, name: str) -> None:
    """The bucket as its judge keeps it."""
    bucket = Watched("tool_error_rate", f"tool:{name}")
    rows = await TallyStore(store).rates(1, (bucket.measure, bucket.subject, ""), 0, END - 2)
    done = judge_rate(None, int(rows.slots[0]), rows, RateSettings(), END - 2)
    await keep(store, bucket, done.state)


async def keep(store: Database, bucket: Watched, state: BucketState, project_id: int = 1) -> None:
    async def work(connection: Connection) -> None:
        await write_state(connection, project_id, "tool_error", bucket, state, since=-1, checkpoints=())

    await store.run(work)


async def test_every_bucket_says_what_it_is_and_a_silent_one_why(api: Replica, owner: Browser) -> None:
    for name, days, bad_days in (("calm", DAYS, 0), ("new", 0.25, 0), ("ill", DAYS, 2), ("hushed", DAYS, 2)):
        await counted(api.database, name, days=days, bad_days=bad_days)
        await judged(api.database, name)
    case = await opened(api.database, seen(cause=_cause("hushed"), reference="tool_error_rate:tool:hushed"))
    await CaseStates(api.database).mute(1, case.id, ANN, LATER)
    page = (await owner.get(TOOL_ERROR + "/buckets")).data
    documented(page, BucketPage)
    rows = {row["subject"]: row for row in page["buckets"]}
    said = {name: (row["state"], row["reason"]) for name, row in rows.items()}
    assert said == {
        "tool:calm": ("quiet", "within_bar"),
        "tool:hushed": ("quiet", "muted"),
        "tool:ill": ("alarm", None),
        "tool:new": ("learning", None),
    }
    assert page["states"] == {"quiet": 2, "alarm": 1, "learning": 1}
    new, calm = rows["tool:new"], rows["tool:calm"]
    assert new["have"] > 0
    assert new["need"] in (200, 500)
    assert new["eta_days"] is not None
    assert 0 < calm["smallest"] < 0.1
    loud = (await owner.get(TOOL_ERROR + "/buckets?state=alarm")).data["buckets"]
    assert [row["subject"] for row in loud] == ["tool:ill"]
    first = (await owner.get(TOOL_ERROR + "/buckets?limit=3")).data
    second = (await owner.get(f"{TOOL_ERROR}/buckets?limit=3&cursor={first['next_cursor']}")).data
    assert [row["subject"] for row in (*first["buckets"], *second["buckets"])] == sorted(rows)
    assert second["next_cursor"] is None
    for bad in ("state=loud", "limit=0", "limit=1001"):
        assert (await owner.get(f"{TOOL_ERROR}/buckets?{bad}")).refused[0] == 400, bad


def _cause(name: str) -> Cause:
    return Cause("tool_error", "tool", name)


async def test_a_backtest_says_what_would_have_fired_and_writes_nothing(api: Replica, owner: Browser) -> None:
    await counted(api.database, "calm")
    await counted(api.database, "ill", bad_days=2)
    answer = (await owner.post(TOOL_ERROR + "/backtest", {"days": 28})).data
    documented(answer, BacktestShown)
    (alarm,) = answer["alarms"]
    assert (alarm["subject"], alarm["direction"], alarm["confirmed"]) == ("tool:ill", "up", True)
    assert "2026-11-18T12" <= alarm["fired_at"] < "2026-11-18T18"
    assert "2026-11-18T09" <= alarm["onset_at"] <= alarm["fired_at"]
    assert (answer["buckets"], answer["left_out"], answer["alarms_truncated"]) == (2, 0, False)
    assert answer["tuning"] == {"rise": 2.0}
    # What fired earlier than asked for is left out.
    assert (await owner.post(TOOL_ERROR + "/backtest", {"days": 1})).data["alarms"] == []
    for table in ("finding", "bucket_state", "classifier_event", "tally_due"):
        assert await fetch(api.database, f"select from {table}") == [], table


async def test_a_backtest_is_refused_where_it_means_nothing_and_while_another_runs(
    api: Replica, owner: Browser
) -> None:
    names = ("secret_leak", "frustration", "cut_output")
    paths = {name: f"{PROJECT}/classifiers/{name}/backtest" for name in names}
    assert (await owner.post(paths["secret_leak"], {})).refused[:2] == (422, "NO_BACKTEST")
    assert (await owner.post(paths["frustration"], {})).refused[:2] == (409, "DETECTOR_UNAVAILABLE")
    assert (await owner.post(paths["cut_output"], {"tuning": {"w": 1}})).refused[:2] == (422, "NOT_TUNABLE")
    for bad in ({"days": 0}, {"days": 36}, {"days": "many"}):
        assert (await owner.post(paths["cut_output"], bad)).refused[0] == 400
    empty = (await owner.post(paths["cut_output"], {"tuning": {"rise": 99}})).data
    assert (empty["buckets"], empty["alarms"], empty["tuning"]) == (0, [], {"rise": 10.0})
    async with buckets._backtesting:
        answer = await owner.post(paths["cut_output"], {})
    assert answer.refused[:2] == (429, "RATE_LIMITED")
    assert answer.headers["retry-after"] == "5"
    assert (await owner.post(paths["cut_output"], {})).status == 200


async def test_who_reads_a_project_sees_its_buckets_and_only_those(api: Replica, owner: Browser) -> None:
    await counted(api.database, "ill", bad_days=2)
    await judged(api.database, "ill")
    viewer = await api.member("viewer@example.org", "viewer", owner)
    query = api.browser(key=await api.token("query"), origin=None)
    for caller in (viewer, query):
        assert len((await caller.get(TOOL_ERROR + "/buckets")).data["buckets"]) == 1
        assert (await caller.post(TOOL_ERROR + "/backtest", {})).status == 403
    assert (await api.browser().get(TOOL_ERROR + "/buckets")).status == 401
    assert (await owner.post(ORG + "/projects", {"name": "Other", "slug": "other"})).status == 201
    theirs = ORG + "/projects/other/classifiers/tool_error"
    assert (await owner.get(theirs + "/buckets")).data["buckets"] == []
    assert (await owner.post(theirs + "/backtest", {})).data["buckets"] == 0
    (project,) = await fetch(api.database, "select id from project where slug = 'other'")
    key = api.browser(key=await api.token("admin", project["id"]), origin=None)
    assert (await key.get(TOOL_ERROR + "/buckets")).status == 404
    with trio.fail_after(60):
        assert (await key.post(TOOL_ERROR + "/backtest", {})).status in (403, 404)
