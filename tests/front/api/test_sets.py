"""Sets over REST: filled, annotated, exported in each format, and emptied, by who may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest

from protocol.rest.sets import SetFormatName
from svc.domain.feedback.set_formats import FORMATS
from svc.front.api.traces.set_export import BATCH, SetExport
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from tests.front.people import PROJECT, Browser, Replica, replica
from tests.store.settling import settle_all
from tests.store.spans.test_writing import Clock, one, rows, store_of
from tests.web.one_trace import failing, trace_id

SETS = PROJECT + "/sets"
HEALTHY, FAILING = trace_id("healthy").hex(), trace_id("failing").hex()


@pytest.fixture
async def api(store: Database) -> AsyncIterator[Replica]:
    async with replica(store) as made:
        clock = Clock()
        clock.now = now()
        for story in (failing(), failing("healthy", broken=False)):
            await store_of(store, clock).write(rows(*story, resource={"service.name": "shop"}))
        await settle_all(store)
        yield made


async def filled(owner: Browser, *entries: Any) -> Any:
    entries = entries or ({"trace_id": HEALTHY}, {"trace_id": FAILING, "span_id": f"{6:016x}"})
    return (await owner.post(f"{SETS}/good%20ones/entries", {"entries": list(entries)})).data


async def test_a_set_is_made_filled_read_and_removed(api: Replica) -> None:
    owner = await api.owner()
    assert (await owner.get(SETS)).data == []
    made = await filled(owner)
    assert (made["added"], made["set"]["name"], made["set"]["made_by"]) == (
        2,
        "good ones",
        "owner@example.org",
    )
    assert (await filled(owner))["added"] == 0
    entry = f"{SETS}/{made['set']['id']}/entries/{FAILING}-{6:016x}"
    assert (await owner.put(entry, {"note": " wrong order "})).data == {"note": "wrong order"}
    opened = (await owner.get(f"{SETS}/good%20ones")).data
    assert [(item["trace_id"], item["span_id"], item["note"]) for item in opened["items"]] == [
        (HEALTHY, None, None),
        (FAILING, f"{6:016x}", "wrong order"),
    ]
    assert (await owner.delete(entry)).data == {"removed": 1}
    assert (await owner.delete(entry)).data == {"removed": 0}
    assert (await owner.put(entry, {"note": "late"})).refused[0] == 404
    assert (await owner.delete(f"{SETS}/good%20ones")).data == {"removed": 1}
    assert (await owner.get(f"{SETS}/good%20ones")).refused[0] == 404


async def test_what_cannot_be_kept_is_refused_and_says_why(api: Replica) -> None:
    owner = await api.owner()
    refused = await owner.post(f"{SETS}/{'x' * 101}/entries", {"entries": []})
    assert refused.refused[::2] == (400, "a set has a name of at most 100 characters")
    refused = await owner.post(f"{SETS}/%20/entries", {"entries": []})
    assert refused.refused[::2] == (400, "name must not be blank")
    refused = await owner.post(f"{SETS}/x/entries", {"entries": [{"trace_id": "7"}]})
    assert refused.refused[0] == 400
    await filled(owner)
    refused = await owner.put(f"{SETS}/good%20ones/entries/{HEALTHY}", {"note": "x" * 2001})
    assert refused.refused[0] == 400


async def test_who_may_only_look_changes_nothing(api: Replica) -> None:
    owner = await api.owner()
    await filled(owner)
    viewer = await api.member("viewer@example.org", "viewer", owner)
    assert len((await viewer.get(f"{SETS}/good%20ones")).data["items"]) == 2
    assert (await viewer.get(f"{SETS}/good%20ones/export")).status == 200
    assert (await viewer.post(f"{SETS}/good%20ones/entries", {"entries": []})).refused[0] == 403
    assert (await viewer.put(f"{SETS}/good%20ones/entries/{HEALTHY}", {"note": "x"})).refused[0] == 403
    assert (await viewer.delete(f"{SETS}/good%20ones/entries/{HEALTHY}")).refused[0] == 403
    assert (await viewer.delete(f"{SETS}/good%20ones")).refused[0] == 403


async def test_each_format_has_an_item_for_each_entry(api: Replica) -> None:
    owner = await api.owner()
    made = await filled(owner)
    exports = {
        name: (await owner.get(f"{SETS}/good%20ones/export?format={name}")).data
        for name in get_args(SetFormatName)
    }
    assert all(export["format"] == name for name, export in exports.items())
    lines = exports["lines"]["items"]
    assert [line["id"] for line in lines] == [HEALTHY, f"{FAILING}-{6:016x}"]
    assert lines[1]["metadata"]["span_id"] == f"{6:016x}"
    assert lines[1]["input"]
    assert lines[1]["output"]
    for sample in exports["openai_evals"]["items"]:
        assert sample.keys() == {"input", "ideal"}
        assert all(message.keys() == {"role", "content"} for message in sample["input"])
        assert isinstance(sample["ideal"], str)
    item = exports["langfuse"]["items"][1]
    assert item["id"] == f"{made['set']['id']}-{FAILING}-{6:016x}"
    assert (item["datasetName"], item["sourceTraceId"]) == ("good ones", FAILING)
    (upload,) = exports["phoenix"]["items"]
    assert (upload["action"], upload["name"]) == ("create", "good ones")
    assert {len(upload[name]) for name in ("inputs", "outputs", "metadata", "span_ids")} == {2}
    assert (await owner.get(f"{SETS}/good%20ones/export?format=csv")).refused[0] == 400


async def test_a_trace_whose_root_says_nothing_is_exported_with_what_its_calls_said(
    api: Replica, store: Database
) -> None:
    owner, turn = await api.owner(), trace_id("plain root")
    clock = Clock()
    clock.now = now()

    def call(number: int, asked: str, answered: str, operation: str = "chat") -> Any:
        sides = {"input": asked, "output": answered}
        said = {
            f"gen_ai.{side}.messages": json.dumps([{"role": "user", "parts": [{"content": text}]}])
            for side, text in sides.items()
        }
        return one(number, parent=1, trace_id=turn, attributes={"gen_ai.operation.name": operation, **said})

    tool = one(
        4,
        parent=1,
        trace_id=turn,
        attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "17"},
    )
    await store_of(store, clock).write(
        rows(one(1, trace_id=turn), call(2, "Where?", "Let me see"), call(3, "Where? 17", "Here"), tool)
    )
    await settle_all(store)
    await filled(owner, {"trace_id": turn.hex()}, {"trace_id": HEALTHY})
    (sample, _) = (await owner.get(f"{SETS}/good%20ones/export?format=openai_evals")).data["items"]
    assert sample == {"input": [{"role": "user", "content": "Where?"}], "ideal": "Here"}


async def test_an_export_is_read_in_batches_while_it_is_sent(
    api: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await api.owner()
    await filled(
        owner, {"trace_id": HEALTHY}, {"trace_id": FAILING}, {"trace_id": HEALTHY, "span_id": f"{6:016x}"}
    )
    monkeypatch.setattr("svc.front.api.traces.set_export.BATCH", 2)
    export = (await owner.get(f"{SETS}/good%20ones/export")).data
    assert len(msgspec.json.encode(export["items"])) > 100
    assert [line["id"] for line in export["items"]] == [HEALTHY, FAILING, f"{HEALTHY}-{6:016x}"]
    (upload,) = (await owner.get(f"{SETS}/good%20ones/export?format=phoenix")).data["items"]
    assert [metadata["trace_id"] for metadata in upload["metadata"]] == [HEALTHY, FAILING, HEALTHY]
    assert upload["span_ids"] == [None, None, f"{6:016x}"]
    assert {len(upload[name]) for name in ("inputs", "outputs")} == {3}


async def test_a_large_set_is_held_a_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [SimpleNamespace(key=str(number)) for number in range(3_000)]
    most_ahead = seen = read = 0

    async def lines(_call: Any, _set: Any, batch: Sequence[Any]) -> list[dict[str, Any]]:
        nonlocal read, most_ahead
        read += len(batch)
        most_ahead = max(most_ahead, read - seen)
        return [{"id": entry.key, "input": "x" * 100_000} for entry in batch]

    monkeypatch.setattr("svc.front.api.traces.set_export._lines", lines)
    trace_set: Any = SimpleNamespace(name="large")
    export = SetExport(None, trace_set, entries, FORMATS["lines"])  # type: ignore[arg-type]
    async for piece in export.file():
        seen += piece.count(b"\n")
    assert (seen, read) == (3_000, 3_000)
    assert most_ahead <= BATCH + 1
