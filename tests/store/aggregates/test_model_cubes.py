"""Models and what traces hold, from the hourly cubes, say what counting the rows says, whatever is built."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from svc.domain.calendar import hour_of
from svc.store.aggregates import trace_values
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.vitals import MOST_SUBJECTS
from svc.store.postgres.database import Database
from svc.store.reads.traces.trace_counts import TraceCounts
from svc.store.reads.traces.traces import TraceFilter
from svc.store.reads.usage.models import ModelReads
from tests.store.aggregates.test_vitals import Walk, clock
from tests.store.reads.test_reads import Explaining
from tests.store.settling import settle_at
from tests.store.spans.test_writing import NOW, PROJECT, Clock, fetch, one, rows, store_of

__all__ = ["clock"]
HOUR = timedelta(hours=1)
MONDAY = datetime(1970, 1, 5, tzinfo=UTC)

FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"status": "error"},
    {"status": "ok", "model": "gpt-4o"},
    {"model": "unheard-of"},
    {"kind": "tool", "status": "error"},
    {"call_site_id": "site1"},
    {"model": "gpt-4o", "kind": "llm"},
    {"call_site_id": "site2", "without": (("model", "gpt-4o"),)},
    {"without": (("kind", "llm"), ("call_site_id", "site1"), ("user_id", "u"), ("session_id", "s"))},
    {"user_id": "nobody"},
    {"slower_than": timedelta(seconds=2), "unpriced": False},
    {"faster_than": timedelta(days=999_999_999), "cheaper_than": Decimal("0.01")},
    {"failed_spans": True, "without": (("model", "unheard-of"),)},
)


def clause(asked: dict[str, Any]) -> str:
    """What a filter says, told of each trace by itself."""
    holds = "exists (select from span s where s.trace_id = t.trace_id and ({}))"
    columns = {"model": ("model_id", "provided_model_name")}

    def held(field: str, value: str) -> str:
        of = columns.get(field, (field,))
        return holds.format(" or ".join(f"s.{column} = {value!r}" for column in of))

    said = ["project_id = 1"]
    for field, value in asked.items():
        said.append(
            {
                "status": f"status = {value!r}",
                "user_id": f"user_id = {value!r}",
                "slower_than": "ended_at - started_at >= interval '2 seconds'",
                "faster_than": "ended_at is not null",
                "cheaper_than": "total_cost <= 0.01",
                "unpriced": "(unpriced_spans > 0) = false",
                "failed_spans": "error_count > 0",
            }.get(field)
            or (held(field, value) if field != "without" else "true")
        )
    for field, value in asked.get("without", ()):
        own = field in ("user_id", "session_id")
        said.append(f"{field} is distinct from {value!r}" if own else f"not {held(field, value)}")
    return " and ".join(said)


async def traces_agree(store: Database, clock: Clock, asked: dict[str, Any], hours: int, width: int) -> None:
    """The drawing says what each trace that began in its range says, for itself."""
    low, high = clock.now - timedelta(hours=hours, minutes=7), clock.now - timedelta(minutes=3)
    told = await fetch(
        store,
        f"select started_at, status from trace t where {clause(asked)} and started_at between $1 and $2",
        low,
        high,
    )
    # Wide bars are counted by the hour, narrow ones by each trace.
    for step in (width * HOUR, timedelta(minutes=7, seconds=30)):
        drawn = await TraceCounts(store).histogram(
            1, TraceFilter(**asked, low=low, high=high), step, timeout_s=9, budget_s=9
        )
        expected: Counter[datetime] = Counter()
        failed: Counter[datetime] = Counter()
        for row in told:
            start = row["started_at"] - (row["started_at"] - MONDAY) % step
            expected[start] += 1
            failed[start] += row["status"] == "error"
        assert {one.start: one.count for one in drawn.buckets} == expected, asked
        assert {one.start: one.failed for one in drawn.buckets if one.failed} == +failed
    counted = await TraceCounts(store).facets(1, TraceFilter(**asked, low=low, high=high), timeout_s=9)
    assert counted.over == len(told)
    assert dict(counted.fields["status"]) == Counter(row["status"] for row in told)


async def models_agree(store: Database, clock: Clock, hours: int) -> None:
    since = hour_of(clock.now - timedelta(hours=hours))
    found = await ModelReads(store).used(1, since + timedelta(minutes=9), 9)
    expected = await fetch(
        store,
        "select provided_model_name as name, count(*) as calls,"
        " count(*) filter (where total_cost is null and input_tokens > 0) as unpriced,"
        " sum(coalesce(input_tokens, 0)) as tokens, sum(total_cost)::float8 as cost from span"
        " where started_at >= $1 and provided_model_name is not null and usage_repeats is null group by 1",
        since,
    )
    assert {one.name: (one.calls, one.unpriced, one.tokens, one.cost) for one in found} == {
        row["name"]: (
            row["calls"], row["unpriced"], row["tokens"],
            None if row["cost"] is None else pytest.approx(row["cost"]),
        )
        for row in expected
    }  # fmt: skip


# Seeds of walks on which a group of traces is parted.
@pytest.mark.parametrize("seed", [0, 2])
async def test_cubes_agree_with_the_rows_at_every_moment(
    store: Database, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_values, "MOST_TRACES", 3)
    dice = random.Random(seed)
    walk = Walk(store, clock, dice)
    for _ in range(30):
        await walk.step()
        # What a trace holds is as of its last roll-up.
        await settle_at(clock.now + timedelta(seconds=11), walk.traces)
        asked = dice.choice(FILTERS)
        await traces_agree(store, clock, asked, dice.choice([0, 1, 6, 30]), dice.choice([1, 3, 24]))
        await models_agree(store, clock, dice.choice([1, 6, 24]))
    assert await fetch(store, "select from trace_cube limit 1")
    assert await fetch(store, "select from trace_group where part > 0 limit 1")
    assert await fetch(store, "select from model_cube limit 1")


async def test_an_hour_of_models_that_never_come_again_keeps_the_most_called(
    store: Database, clock: Clock
) -> None:
    hour = hour_of(clock.now)
    await fetch(
        store,
        "insert into span (project_id, trace_id, span_id, kind, name, status, started_at, ended_at,"
        " created_at, call_site_id, tagged, provided_model_name, frame)"
        " select 1, decode(lpad(to_hex(n), 32, '0'), 'hex'), '\\x01', 'llm', 'ask', 'ok', $1, $1, $1, 's',"
        " true, case when n < 100 then 'often' else 'm' || n end, n from generate_series(1, 1500) n",
        hour,
    )
    await CubeStore(store).build(hour + 3 * HOUR, 100)
    kept = await fetch(store, "select name, calls from model_cube order by calls desc")
    assert len(kept) == MOST_SUBJECTS
    assert tuple(kept[0].values()) == ("often", 99)


async def test_an_hour_that_a_release_before_counted_is_counted_by_its_rows_until_it_is_built_anew(
    store: Database, clock: Clock
) -> None:
    walk = Walk(store, clock, random.Random(1))
    for _ in range(12):
        await walk.step("settle")
    await settle_at(clock.now + timedelta(seconds=11), walk.traces)
    clock.now += 3 * HOUR
    while (await CubeStore(store).build(clock.now, 100)).more:
        pass
    # As it leaves them.
    await fetch(store, "delete from trace_group")
    await fetch(store, "update trace_cube set held = null")
    await traces_agree(store, clock, {"without": (("model", "gpt-4o"),)}, 30, 1)
    assert not await fetch(store, "select from trace_group limit 1")
    while (await CubeStore(store).build(clock.now, 100)).more:
        pass
    assert await fetch(store, "select from trace_group limit 1")
    assert not await fetch(store, "select from trace_cube where held is null limit 1")
    await traces_agree(store, clock, {"without": (("model", "gpt-4o"),)}, 30, 1)


async def test_a_month_is_read_by_the_hour(store: Database, clock: Clock) -> None:
    until = hour_of(clock.now)
    for table, columns, values, many in (
        ("trace_cube", "field, value, n, failed, held", "'model', 'm' || m, 5, 1, '11111'", 40),
        (
            "trace_group",
            "part, failed, failing, unpriced, started, ids, took, cost, users, sessions, coded",
            "0, '10000', '10000', '00000', array_fill($1 - n * interval '1 hour', '{5}'),"
            " array_fill('\\x00'::bytea, '{5}'), '{1,2,3,4,5}', '{1,2,3,4,5}', array_fill('u'::text, '{5}'),"
            " array_fill('s'::text, '{5}'), true",
            1,
        ),
        (
            "trace_code",
            "field, part, most, known, planes, stride, numbers, texts",
            "(array['took', 'cost', 'user_id', 'session_id'])[m], 0, 5, '11111', '{10101,01100,00011}', 2,"
            " '{1,3,5}', '{}'",
            4,
        ),
        (
            "trace_code_page",
            "field, part, place, numbers, texts",
            "(array['took', 'cost', 'user_id', 'session_id'])[1 + m % 4], 0, m / 4,"
            " (array['{1,2}', '{3,4}', '{5}'])[1 + m / 4]::numeric[], '{}'",
            11,
        ),
        (
            "model_cube",
            "provider, name, calls, unpriced, given, tokens, cost",
            "'p', 'm' || m, 5, 1, 0, 9, 0.5",
            4,
        ),
    ):
        await fetch(
            store,
            f"insert into {table} (project_id, hour, began, {columns}) select 1 + n % 2,"
            f" $1::timestamptz - n * interval '1 hour', $1::timestamptz - n * interval '1 hour', {values}"
            f" from generate_series(1, 4000) n, generate_series(1, {many}) m",
            until,
        )
        await fetch(store, f"analyze {table}")
    await fetch(store, "insert into cube_progress values (1, 'traces', $1), (1, 'spans', $1)", until)
    explaining: Any = Explaining(store)
    month = until - timedelta(days=30)
    for more, each in (({}, 5), ({"slower_than": timedelta(microseconds=4)}, 2)):
        asked = TraceFilter(model="m3", low=month, high=until, without=(("model", "none"),), **more)
        drawn = await TraceCounts(explaining).histogram(1, asked, 12 * HOUR, timeout_s=9, budget_s=9)
        assert (drawn.count, drawn.failed) == (360 * each, 360 if each == 5 else 0)
    used = await ModelReads(explaining).used(1, month, 9)
    assert [(one.name, one.calls, one.unpriced, one.cost) for one in used][:1] == [("m1", 1800, 360, 180.0)]
    for table, index in (
        ("trace_cube", "trace_cube_value"),
        ("trace_group", "trace_group_pkey"),
        ("trace_code", "trace_code_pkey"),
        ("trace_code_page", "trace_code_page_pkey"),
        ("model_cube", "model_cube_began"),
    ):
        plan, *_ = [plan for plan in explaining.plans if f" on {table} " in plan and "lacking" not in plan]
        assert index in plan, plan
        assert f"Seq Scan on {table}" not in plan


@pytest.mark.parametrize("is_built", [False, True])
async def test_an_agent_that_names_the_model_of_its_calls_is_no_call(store: Database, is_built: bool) -> None:
    named = {"gen_ai.request.model": "gpt-4o"}
    agent = {"gen_ai.operation.name": "invoke_agent", **named}
    chat = {"gen_ai.operation.name": "chat", **named}
    await store_of(store).write(rows(one(1, attributes=agent), one(2, parent=1, attributes=chat)))
    if is_built:
        await CubeStore(store).build(NOW + 2 * HOUR, 1000)
    (used,) = await ModelReads(store).used(PROJECT, NOW - HOUR, 9)
    assert (used.name, used.calls) == ("gpt-4o", 1)
