"""What a hostile body costs others and the process, measured on the real service."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator

import pytest

from tests import wire
from tests.amplifiers import JSON_SPAN, json_amplifiers, json_body, protobuf_amplifiers
from tests.cost import least
from tests.e2e.hostile import FULL, MIB
from tests.e2e.watch import Watch
from tests.service import Service, running, until

BUDGET = (128 if FULL else 48) * MIB


@pytest.fixture(scope="module")
def small() -> Iterator[Service]:
    """A service with little memory for bodies."""
    settings = {"SVC_INGEST_SPOOL_MAX_BYTES": str(BUDGET), "SVC_INGEST_DECODERS": "1"}
    with running(**settings) as service:
        until(lambda: service.health()["status"] == "UP")
        yield service


AMPLIFIERS = [
    *(("protobuf", name) for name in ("spans", "groups beside a span", "events", "values")),
    *(("json", name) for name in ("spans", "groups")),
]


@pytest.mark.parametrize(("form", "name"), AMPLIFIERS)
def test_a_body_that_amplifies_costs_neither_time_of_others_nor_memory(
    small: Service, form: str, name: str
) -> None:
    if form == "protobuf":
        body = protobuf_amplifiers((31 if FULL else 8) * MIB, name)[name]
    else:
        body = json_amplifiers((20 if FULL else 5) * MIB, name)[name]
    kind = "application/json" if form == "json" else "application/x-protobuf"
    packed = gzip.compress(body, 6)
    with Watch(small) as watch:
        for _ in range(2):
            answer = small.send(packed, Content_Type=kind, Content_Encoding="gzip")
            assert answer.status_code == 413, answer.text
            assert "SVC_INGEST_MAX_" in answer.text
    assert watch.statuses == {200}
    assert watch.worst_s < 0.25
    assert watch.grown_bytes < 6 * len(body)


def test_health_answers_soon_beside_large_json(small: Service) -> None:
    text = b"x" * 4000
    span = b',"attributes":[{"key":"k","value":{"stringValue":"' + text + b'"}}]}'
    spans = b",".join(JSON_SPAN.replace(b"cd" * 8, b"%016x" % number) + span for number in range(1, 4500))
    body = json_body(spans)
    assert len(body) > 16 * MIB

    def held_s() -> float:
        with Watch(small) as watch:
            assert small.send(body, Content_Type="application/json").status_code == 200
            until(lambda: small.metric("svc_spool_depth_batches") == 0)
        assert watch.statuses == {200}
        assert watch.grown_bytes < 6 * len(body)
        return watch.worst_s

    assert least(held_s, below=0.1) < 0.1


def test_eight_large_bodies_at_once_are_held_within_the_budget(small: Service) -> None:
    body = wire.request(wire.span(attributes={"t": "x" * 20 * MIB})).SerializeToString()
    statuses: list[int] = []

    def export() -> None:
        statuses.append(small.send(body).status_code)

    with Watch(small) as watch:
        exporters = [threading.Thread(target=export) for _ in range(8)]
        for exporter in exporters:
            exporter.start()
        for exporter in exporters:
            exporter.join()
    assert sorted(set(statuses)) == [200, 503]
    # Each that is held is copied once on its way to a decoder.
    assert watch.grown_bytes < 3 * BUDGET
    until(lambda: small.metric("svc_spool_depth_batches") == 0)
    assert small.metric("svc_spool_reserved_bytes") == 0
