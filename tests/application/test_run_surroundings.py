"""What a brief tells of the application: its traffic, and traces of either side of an onset."""

from __future__ import annotations

from datetime import timedelta

from protocol.detection import Ref
from svc.application.run_surroundings import NAMED, SPANS_SHOWN, TRACES_A_SIDE, RunSurroundings
from svc.runtime.clock import now
from svc.store.detection.cases.findings import FindingStore
from svc.store.postgres.database import Database
from tests.store.detection.detecting import fire, seen
from tests.store.spans.test_writing import Clock, one, rows, store_of

AT = now()
ONSET = AT - timedelta(hours=2)


def id_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def traced(store: Database, number: int, hours: float, *, spans: int = 1, tool: str = "search") -> None:
    """A trace that began so many hours ago: a call of a tool in each of its spans."""
    start = AT - timedelta(hours=hours)
    said = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    await store_of(store, Clock(AT)).write(
        rows(
            *(
                one(place, trace_id=id_of(number), start=start, attributes=said, name=f"execute_tool {tool}")
                for place in range(1, spans + 1)
            ),
            came=start,
        )
    )


async def test_a_finding_without_evidence_is_shown_beside_traces_of_before_and_since(store: Database) -> None:
    for number in range(1, 9):
        await traced(store, number, 10 if number <= 4 else 1)
    finding_id = await fire(store, seen(detected_at=AT, onset_at=ONSET, call_site_id=None))
    finding = await FindingStore(store).one(1, finding_id)
    assert finding is not None
    around = await RunSurroundings(store).of(1, finding)
    assert AT <= around.now <= now()
    shown = {side: {trace["trace_id"] for trace in traces} for side, traces in around.samples.items()}
    assert {side: len(ids) for side, ids in shown.items()} == {
        "before": TRACES_A_SIDE,
        "since": TRACES_A_SIDE,
    }
    assert shown["before"] <= {id_of(number).hex() for number in range(1, 5)}
    assert shown["since"] <= {id_of(number).hex() for number in range(5, 9)}
    [tool] = around.application["tools"]
    assert (tool["name"], tool["calls"], tool["failed"]) == ("search", 8, 0)


async def test_evidence_comes_first_and_a_trace_is_shown_by_its_steps_without_its_texts(
    store: Database,
) -> None:
    await traced(store, 1, 10, spans=SPANS_SHOWN + 5)
    await traced(store, 2, 10)
    await traced(store, 3, 1)
    refs = [Ref("baseline", trace_id=id_of(1)), Ref("witness", trace_id=id_of(3))]
    finding_id = await fire(store, seen(detected_at=AT, onset_at=ONSET, call_site_id=None), refs)
    finding = await FindingStore(store).one(1, finding_id)
    assert finding is not None
    samples = (await RunSurroundings(store).of(1, finding)).samples
    [before], [since] = samples["before"], samples["since"]
    assert (before["trace_id"], since["trace_id"]) == (id_of(1).hex(), id_of(3).hex())
    assert (len(before["spans"]), before["spans_left_out"]) == (SPANS_SHOWN, 5)
    [step] = since["spans"]
    assert step["name"] == "execute_tool search"
    assert not [name for name in step if "preview" in name]


async def test_only_the_busiest_are_named_and_the_rest_is_counted(store: Database) -> None:
    for number in range(1, NAMED + 4):
        await traced(store, number, 1, tool=f"tool {number}")
    finding_id = await fire(store, seen(detected_at=AT, onset_at=ONSET))
    finding = await FindingStore(store).one(1, finding_id)
    assert finding is not None
    told = (await RunSurroundings(store).of(1, finding)).application
    assert (len(told["tools"]), told["tools_left_out"]) == (NAMED, 3)
