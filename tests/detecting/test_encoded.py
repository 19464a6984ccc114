"""Laws of the detectors that ask an encoder: each trace is asked about once, and high scores fire."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from protocol.storage import Outage
from svc.detecting.encoded import EncodedJudge
from svc.domain.detect.detectors.encoded import ENCODED
from svc.domain.detect.detectors.table import DETECTORS
from svc.outside.encoder import Encoder
from svc.store.detection.counting.tallying import PostgresTallyQueue
from svc.store.detection.judging.detector_settings import DetectorSettingStore
from svc.store.detection.judging.due import DueStore
from svc.store.detection.judging.encoding import EncodeStore
from svc.store.postgres.database import Database
from tests.detecting.house import execute
from tests.outside.encoder import EncoderService, encoder_service
from tests.store.detection.counting.test_tallying import begin, settle, tally_all, write
from tests.store.spans.test_writing import NOW, fetch, one


def trace(number: int, said: str, answered: str, documents: str | None = None) -> list[Any]:
    """A turn: an agent, perhaps a retrieval, a model."""
    trace_id = number.to_bytes(16, "big")
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "session.id": f"s{number}",
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": said}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": answered}]}],
    }
    spans = [one(1, trace_id=trace_id, name="turn", attributes={"session.id": f"s{number}"})]
    if documents is not None:
        found = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": [{"content": documents}]}
        start = NOW + timedelta(milliseconds=100)
        spans.append(one(2, trace_id=trace_id, start=start, parent=1, name="search", attributes=found))
    start = NOW + timedelta(milliseconds=300)
    return [*spans, one(3, trace_id=trace_id, start=start, parent=1, name="chat", attributes=chat)]


def judge(store: Database, service: EncoderService, name: str) -> EncodedJudge:
    return EncodedJudge(
        DETECTORS[name],
        Encoder(service.url),
        EncodeStore(store),
        DueStore(store),
        DetectorSettingStore(store),
        lambda: NOW,
        60.0,
        Counter(),
    )


async def told(store: Database) -> list[tuple[Any, ...]]:
    rows = await fetch(
        store,
        "select classifier_id, subject_kind, subject_session_id, encode(subject_trace_id, 'hex') as id"
        " from classifier_event order by 1, 4",
    )
    return [tuple(row.values()) for row in rows]


async def filled(store: Database, encoded: tuple[str, ...] = tuple(ENCODED)) -> None:
    await begin(store)
    await write(
        store,
        *trace(1, "this is useless", "I am sorry"),
        *trace(2, "thank you", "Paris is the capital", "Paris: capital of France"),
        *trace(3, "and Italy?", "Rome is the capital", "Paris: capital of France"),
    )
    await settle(store)
    await tally_all(store, PostgresTallyQueue(store, encoded=encoded))


async def test_each_trace_is_asked_about_once_and_what_scores_high_fires(store: Database) -> None:
    await filled(store)
    with encoder_service() as service:
        for name in ENCODED:
            made = judge(store, service, name)
            assert await made.round() == 0.0
            assert await made.round() == 60.0
        [texts] = [call["texts"] for call in service.calls if call["head"] == "frustration"]
        assert sorted(texts) == ["and Italy?", "thank you", "this is useless"]
        pairs = [call["pairs"] for call in service.calls if call["head"] == "groundedness"]
        assert sorted(claim for claim, _ in pairs[0]) == ["Paris is the capital", "Rome is the capital"]
        assert all("capital of France" in context for _, context in pairs[0])
    assert await told(store) == [
        ("frustration", "session", "s1", f"{1:032x}"),
        ("groundedness", "span", "s3", f"{3:032x}"),
    ]
    evals = await fetch(
        store, "select classifier_id, n from l1_eval where classifier_id = any($1)", list(ENCODED)
    )
    assert {row["classifier_id"]: row["n"] for row in evals} == {"frustration": 3, "groundedness": 3}


async def test_without_an_encoder_nothing_waits_for_one(store: Database) -> None:
    await filled(store, encoded=())
    assert await fetch(store, "select from encode_due") == []


async def test_a_service_that_is_away_is_waited_for_and_nothing_is_lost(store: Database) -> None:
    await filled(store)
    with encoder_service() as service:
        made = judge(store, service, "frustration")
        service.statuses += [500, 429]
        with pytest.raises(Outage, match="the encoder answers 500"):
            await made.round()
        assert await made.round() == 7
        assert await made.round() == 0.0
        assert made.counts == {"asked": 3, "fired": 1}
    assert len(await told(store)) == 1


async def test_a_project_that_has_switched_it_off_is_not_asked_about(store: Database) -> None:
    await filled(store)
    await execute(
        store,
        "insert into detector_setting (project_id, detector, enabled) values (1, 'frustration', false)",
    )
    with encoder_service() as service:
        assert await judge(store, service, "frustration").round() == 0.0
        assert service.calls == []
    waiting = await fetch(store, "select detector from encode_due group by 1")
    assert [row["detector"] for row in waiting] == ["groundedness"]


async def test_an_encoder_that_is_away_for_long_misses_the_oldest_only(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store)
    monkeypatch.setattr("svc.store.detection.judging.encoding.WAITING_TRACES", 1)
    await EncodeStore(store).done(1, "frustration", [], [], NOW)
    left = await fetch(store, "select trace_id from encode_due where detector = 'frustration'")
    assert len(left) == 1
