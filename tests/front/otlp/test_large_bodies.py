"""Large bodies at the door: refused by the name of their limit, and read while others are served."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from typing import get_args

import pytest
import trio

from actors.spool.memory import MemorySpool
from protocol.otlp.limits import Limit, Limits
from protocol.refusals import over_limit
from tests import wire
from tests.amplifiers import JSON_SPAN, json_amplifiers, json_body, protobuf_amplifiers
from tests.cost import uncollected, while_dear
from tests.front.otlp.doors import Sender, http_door, intake, request

MIB = 1024 * 1024
JSON = "application/json"


async def post(door: object, body: bytes, **headers: str) -> Sender:
    sender = Sender.of([body, b""])
    sender.may_end.set()
    await door(request(**headers), sender.receive, sender.send)  # type: ignore[operator]
    return sender


def roomy(**limits: int) -> object:
    spool = MemorySpool(256 * MIB)
    return http_door(intake(spool, max_body_bytes=64 * MIB, limits=Limits(**limits)))


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("media_type", ["application/x-protobuf", JSON])
async def test_a_body_above_a_limit_is_413_and_names_the_limit_and_its_setting(
    size: str, media_type: str
) -> None:
    text = "x" * (10 if size == "small" else 700_000)
    spans = wire.request(wire.span(attributes={"t": text}), *[wire.span()] * 5)
    body = spans.SerializeToString()
    if media_type == JSON:
        body = json_body(b",".join([JSON_SPAN + b',"name":"' + text.encode() + b'"}'] * 6))
    door = roomy(spans=5)
    sender = await post(door, body, content_type=media_type)
    assert sender.status == 413
    assert json.loads(sender.body)["error"] == {
        "code": "PAYLOAD_TOO_LARGE",
        "message": "the body holds more than 5 spans; SVC_INGEST_MAX_SPANS is the limit",
        "details": {"setting": "SVC_INGEST_MAX_SPANS", "limit": 5},
    }
    assert door.intake.tally.refused == {"413": 1}  # type: ignore[attr-defined]
    assert door.intake.spool.state().reserved_bytes == 0  # type: ignore[attr-defined]


def test_each_limit_has_its_own_words() -> None:
    assert [over_limit(name, 7).message for name in get_args(Limit)] == [
        "the body holds more than 7 spans; SVC_INGEST_MAX_SPANS is the limit",
        "the body holds more than 7 resource_spans and scope_spans; SVC_INGEST_MAX_GROUPS is the limit",
        "the spans of the body hold more than 7 attributes, events and links; "
        "SVC_INGEST_MAX_ENTRIES is the limit",
        "a span of the body holds more than 7 attributes; SVC_INGEST_MAX_SPAN_ATTRIBUTES is the limit",
        "a span of the body holds more than 7 events; SVC_INGEST_MAX_SPAN_EVENTS is the limit",
        "a span of the body holds more than 7 links; SVC_INGEST_MAX_SPAN_LINKS is the limit",
        "a span of the body holds more than 7 values; SVC_INGEST_MAX_SPAN_VALUES is the limit",
        "a value of the body lies in more than 7 arrays and maps; SVC_INGEST_MAX_DEPTH is the limit",
    ]


@pytest.mark.parametrize("form", ["protobuf", "json"])
async def test_others_are_served_while_a_large_body_is_read(form: str) -> None:
    door = roomy()
    if form == "protobuf":
        honest = wire.request(*[wire.span(attributes={"t": "x" * 4000, "n": 1})] * 4000).SerializeToString()
        bodies = [honest, *protobuf_amplifiers(2_000_000, "groups beside a span").values()]
    else:
        span = JSON_SPAN + b',"attributes":[{"key":"k","value":{"stringValue":"' + b"x" * 4000 + b'"}}]}'
        bodies = [
            json_body(b",".join([span] * 4000)),
            *json_amplifiers(1_100_000, "values of brackets").values(),
        ]
    media_type = JSON if form == "json" else "application/x-protobuf"

    async def large(done: trio.Event) -> None:
        statuses = [
            (await post(door, zlib.compress(body, 1), content_type=media_type, content_encoding="deflate"))
            for body in bodies
        ]
        assert [sender.status for sender in statuses] == [200, 413]
        done.set()

    async def longest_wait_s() -> float:
        longest_s, done = 0.0, trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(large, done)
            while not done.is_set():
                started_s, busy_s = trio.current_time(), time.thread_time()
                small = await post(door, wire.request(wire.span()).SerializeToString())
                assert small.status == 200
                # What others do on the machine lets it wait as well, and takes none of this thread's time.
                waited_s = trio.current_time() - started_s
                longest_s = max(longest_s, min(waited_s, time.thread_time() - busy_s))
                await trio.sleep(0.001)
        return longest_s

    waits_s: list[float] = []
    for _ in while_dear(waits_s, 0.25, 4):
        with uncollected():
            waits_s.append(await longest_wait_s())
    assert min(waits_s) < 0.25


async def test_a_large_body_of_bad_and_good_spans_is_a_partial_success() -> None:
    door = roomy()
    text = "x" * 300_000
    good, bad = (wire.span(attributes={"t": text}, **ids) for ids in ({}, {"trace_id": b"short"}))
    sender = await post(door, wire.request(good, bad, good).SerializeToString())
    assert sender.status == 200
    assert b"1 of 3 spans refused" in sender.body
    source = json_body(b",".join([JSON_SPAN + b',"name":"' + text.encode() + b'"}', b"7"]))
    sender = await post(door, source, content_type=JSON)
    assert json.loads(sender.body)["partialSuccess"]["rejectedSpans"] == "1"
    damaged = await post(door, source[:-1], content_type=JSON)
    assert damaged.status == 400


async def test_a_bomb_holds_no_more_room_than_it_was_given() -> None:
    spool = MemorySpool(3 * MIB)
    door = http_door(intake(spool, max_body_bytes=64 * MIB))
    sender = await post(door, gzip.compress(bytes(32 * MIB)), content_encoding="gzip")
    assert sender.status == 413
    assert spool.state().reserved_bytes == 0
    assert spool.state().refused_never == 1
