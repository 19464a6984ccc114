"""Laws of admission: both ways of reading give the same, limits hold on both, and no body is worth more than
it weighs: in memory, and in the time that others wait."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.inflate import Unreadable
from protocol.otlp.admission import INLINE_BYTES, Form, NotHere, admit, is_small
from protocol.otlp.limits import DEFAULT_LIMITS, Limits, OverLimit
from protocol.otlp.piecewise import RUN_BYTES
from protocol.otlp.reading import read_body, read_clean, walk
from protocol.otlp.screen import Screening, screen
from tests import wire
from tests.amplifiers import (
    JSON_SPAN,
    field,
    good_span,
    json_amplifiers,
    json_body,
    protobuf_amplifiers,
    protobuf_body,
)
from tests.cost import least, taken_s, uncollected
from tests.examples import examples
from tests.protocol.otlp.test_reading import shape

MIB = 1024 * 1024


def in_pieces(body: bytes, form: Form = "protobuf", **limits: int) -> tuple[bytes, Screening]:
    return admit(body, form, attrs.evolve(DEFAULT_LIMITS, **limits), inline=False)


def at_once(body: bytes, form: Form = "protobuf", **limits: int) -> tuple[bytes, Screening]:
    return admit(body, form, attrs.evolve(DEFAULT_LIMITS, **limits), inline=True)


def spans_in(body: bytes) -> list[Any]:
    return [shape(span) for span in walk(read_clean(body))]


def large(text_bytes: int = 4000, spans: int = 300) -> bytes:
    """Longer than several runs, with spans of many sizes, some of which cannot be stored."""
    dice = random.Random(11)
    made = []
    for number in range(spans):
        size = dice.choice([0, 10, text_bytes])
        bad = {"span_id": bytes(8)} if number % 7 == 0 else {}
        parent = bytes(8) if number % 5 == 0 else b""
        made.append(wire.span(f"s{number}", {"t": "x" * size, "n": [1, {"k": 2}]}, parent=parent, **bad))
    half = len(made) // 2
    request = wire.request(*made[:half], resource={"service.name": "a"})
    request.MergeFrom(wire.request(*made[half:], resource={"service.name": "b"}, scope="other"))
    return request.SerializeToString()


# --- both ways give the same ------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([0, 5, 3000]), max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_protobuf_read_in_pieces_is_what_is_read_at_once(
    sizes: list[int], good: list[bool], as_json: bool
) -> None:
    spans = [
        wire.span(
            f"s{size}",
            {"text": "é" * size, "list": [size, "two", None]},
            events=[wire.event("e", {"k": size})],
            **({} if fine else {"trace_id": b"short"}),
        )
        for size, fine in zip(sizes, good, strict=False)
    ]
    request = wire.request(*spans, resource={"r": 1})
    body, form = request.SerializeToString(), "protobuf"
    if as_json:
        tree = MessageToDict(request)
        body, form = json.dumps(tree).encode(), "json"
    clean, screening = in_pieces(body, form)  # type: ignore[arg-type]
    expected, screened = at_once(body, form)  # type: ignore[arg-type]
    assert screening == screened
    assert spans_in(clean) == spans_in(expected)


def test_a_large_body_is_stored_as_it_came_when_nothing_is_wrong_with_it() -> None:
    body = wire.request(*[wire.span(attributes={"t": "x" * 4000}) for _ in range(300)]).SerializeToString()
    assert len(body) > 4 * RUN_BYTES
    clean, screening = in_pieces(body)
    assert clean is body
    assert screening == Screening(300, 0)


def test_spans_that_cannot_be_stored_leave_a_large_body_alone() -> None:
    body = large()
    clean, screening = in_pieces(body)
    request, _ = read_body(body)
    assert screening == screen(request)
    assert screening.rejected == 43
    assert spans_in(clean) == spans_in(request.SerializeToString())


@pytest.mark.parametrize("size", [RUN_BYTES - 200, RUN_BYTES, RUN_BYTES + 200, 3 * RUN_BYTES])
@pytest.mark.parametrize("bad", [False, True])
def test_a_span_longer_than_a_run_is_read_like_any_other(size: int, bad: bool) -> None:
    long = wire.span("long", {"t": "x" * size}, **({"span_id": b"short"} if bad else {}))
    body = wire.request(wire.span("before"), long, wire.span("after")).SerializeToString()
    clean, screening = in_pieces(body)
    assert (screening.accepted, screening.rejected) == ((2, 1) if bad else (3, 0))
    assert [span.name for span in walk(read_clean(clean))] == ["before", *([] if bad else ["long"]), "after"]


def test_texts_that_are_not_utf8_are_mended_in_their_run_alone() -> None:
    body = large().replace(b"s250", b"s\xff50")
    clean, screening = in_pieces(body)
    request, _ = read_body(body)
    assert screening == screen(request)
    assert spans_in(clean) == spans_in(request.SerializeToString())
    assert "s\ufffd50" in {span.name for span in walk(read_clean(clean))}


def test_a_text_that_would_grow_much_by_mending_is_unreadable() -> None:
    body = protobuf_body([good_span(field(9, field(1, b"k") + field(2, field(1, b"\xff" * 2 * MIB))))])
    with pytest.raises(Unreadable, match="too much text of the body is not UTF-8"):
        in_pieces(body)
    with pytest.raises(Unreadable, match="too much text of the body is not UTF-8"):
        in_pieces(json_body(JSON_SPAN + b',"name":"' + b"\xff" * 2 * MIB + b'"}'), "json")


def test_a_large_body_cut_anywhere_is_read_or_unreadable() -> None:
    body = large(spans=12)
    whole = in_pieces(body)[1].accepted
    for end in range(0, len(body), 97):
        try:
            assert in_pieces(body[:end])[1].accepted <= whole
        except Unreadable as error:
            assert str(error).startswith("the body is not an OTLP trace request in protobuf")  # noqa: PT017


def test_flipped_bits_in_a_large_body_are_read_or_unreadable() -> None:
    dice, body = random.Random(5), large(spans=12)
    for form, source in (
        ("protobuf", body),
        ("json", json.dumps(MessageToDict(read_body(body)[0])).encode()),
    ):
        for _ in range(300):
            damaged = bytearray(source)
            damaged[dice.randrange(len(source))] ^= 1 << dice.randrange(8)
            try:
                clean, screening = in_pieces(bytes(damaged), form)  # type: ignore[arg-type]
            except (Unreadable, OverLimit):
                continue
            assert len(spans_in(clean)) == screening.accepted


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b'{"resourceSpans":7}',
        b'{"resourceSpans":["x"]}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":{"a":1}}]}]}',
        b'{"resourceSpans":[]} trailing',
        b'{"resourceSpans":[}',
        b'{"resourceLogs":[{}]}',
        json_body(b'{"name":"open'),
        json_body(b'{"name":nonsense}'),
        b"[" * 5000,
    ],
)
def test_json_that_is_no_request_is_unreadable_in_pieces_too(source: bytes) -> None:
    for read in (in_pieces, at_once):
        with pytest.raises(Unreadable):
            read(source, "json")


def test_what_stands_where_spans_stand_is_told_from_a_placeholder() -> None:
    odd = b'null,7,"span",[0],"span 0",' + JSON_SPAN + b',"name":"\\"}]{[\\\\"}'
    clean, screening = in_pieces(json_body(odd), "json")
    assert (screening.accepted, screening.rejected) == (1, 5)
    assert [span.name for span in walk(read_clean(clean))] == ['"}]{[\\']


def test_long_strings_full_of_escapes_do_not_end_early() -> None:
    text = '\\"{}[],' * 20_000 + "\u00e9" * 50_000
    spans = [{"name": text}, {"name": "after"}]
    for span in spans:
        span |= {"traceId": "ab" * 16, "spanId": "cd" * 8, "startTimeUnixNano": "1"}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    clean, _ = in_pieces(body, "json")
    assert [span.name for span in walk(read_clean(clean))] == [text, "after"]


def test_captures_of_real_exporters_are_read_the_same_in_pieces() -> None:
    folder = Path(__file__).parents[4] / "shared" / "captures"
    found = sorted(folder.glob("v1-traces*.pb")) + sorted(folder.glob("v1-traces*.json"))
    if not found:
        pytest.skip("the captures are not at hand")
    for path in found:
        form: Form = "json" if path.suffix == ".json" else "protobuf"
        clean, screening = in_pieces(path.read_bytes(), form)
        expected, screened = at_once(path.read_bytes(), form)
        assert (spans_in(clean), screening) == (spans_in(expected), screened), path.name


# --- limits -----------------------------------------------------------------------------------------------

BODIES = {
    "spans": wire.request(*[wire.span() for _ in range(6)]),
    "attributes": wire.request(wire.span(attributes={str(n): n for n in range(6)})),
    "events": wire.request(wire.span(events=[wire.event("e")] * 6)),
    "links": wire.request(wire.span(links=[wire.link(b"x" * 16, b"y" * 8)] * 6)),
    "values": wire.request(wire.span(attributes={"k": list(range(5))})),
    "depth": wire.request(wire.span(attributes={"k": [[[[[[1]]]]]]})),
}
BODIES["groups"] = wire.request(wire.span())
for _ in range(2):
    BODIES["groups"].MergeFrom(wire.request(wire.span()))
BODIES["entries"] = wire.request(*[wire.span(attributes={"k": n}) for n in range(6)])


@pytest.mark.parametrize("form", ["protobuf", "json"])
@pytest.mark.parametrize("limit", BODIES)
def test_every_limit_holds_to_one(limit: Any, form: Form) -> None:
    request = BODIES[limit]
    body = request.SerializeToString() if form == "protobuf" else json.dumps(MessageToDict(request)).encode()
    assert in_pieces(body, form, **{limit: 6})[1].accepted
    with pytest.raises(OverLimit) as refused:
        in_pieces(body, form, **{limit: 5})
    assert refused.value.limit == limit


@pytest.mark.parametrize("limit", ["spans", "groups", "attributes", "events", "links"])
@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_limits_hold_in_the_loop_too_or_the_body_goes_elsewhere(limit: Any, form: Form) -> None:
    request = BODIES[limit]
    body = request.SerializeToString() if form == "protobuf" else json.dumps(MessageToDict(request)).encode()
    assert at_once(body, form, **{limit: 6})[1].accepted
    with pytest.raises(OverLimit) as refused:
        at_once(body, form, **{limit: 5})
    assert refused.value.limit == limit


def test_what_is_not_counted_in_the_loop_does_not_fit_there() -> None:
    for form in ("protobuf", "json"):
        assert is_small(2 * 1000, form, Limits(values=1000))
        assert not is_small(2 * 1000 + 1, form, Limits(values=1000))
    assert not is_small(100, "protobuf", Limits(depth=20))
    with pytest.raises(NotHere):
        at_once(b"\xff" * 100)
    with pytest.raises(NotHere):
        at_once(protobuf_body([b""] * 10_000))


@pytest.mark.parametrize("name", protobuf_amplifiers(0))
def test_empty_messages_that_amplify_are_refused_by_the_name_of_their_limit(name: str) -> None:
    with pytest.raises(OverLimit) as refused:
        in_pieces(protobuf_amplifiers(600_000, name)[name], values=50_000)
    assert refused.value.limit == name.split()[0]


@pytest.mark.parametrize("name", json_amplifiers(0))
def test_json_that_amplifies_is_refused_by_the_name_of_its_limit(name: str) -> None:
    with pytest.raises(OverLimit) as refused:
        in_pieces(json_amplifiers(220_000, name)[name], "json", values=50_000)
    assert refused.value.limit == name.split()[0]


# --- memory and time --------------------------------------------------------------------------------------

#: The worst that limits let through: as many values, as many spans, as much text as there may be.
WORST: dict[str, tuple[Form, bytes]] = {
    "values": (
        "protobuf",
        protobuf_body([good_span(field(9, field(2, field(5, b"\x0a\x00" * 490_000))))] * 4),
    ),
    "events": ("protobuf", protobuf_body([good_span(b"\x5a\x00" * 1900)] * 1000)),
    "spans": ("protobuf", protobuf_body([good_span()] * 65_000)),
    "text": ("protobuf", protobuf_body([good_span(field(9, field(2, field(1, b"x" * 32 * MIB))))])),
    "json spans": ("json", json_body(b",".join([JSON_SPAN + b"}"] * 65_000))),
    "json text": ("json", json_body(JSON_SPAN + b',"name":"' + b"x" * 32 * MIB + b'"}')),
    "json values": (
        "json",
        json_body(JSON_SPAN + b',"attributes":[{"key":"k","value":[' + b"1," * 480_000 + b"1]}]}"),
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_no_body_keeps_others_waiting_or_takes_more_than_six_bytes_for_one(name: str) -> None:
    form, body = WORST[name]

    def held_s() -> float:
        with uncollected():
            return longest_held(body, form)

    assert least(held_s, below=0.25) < 0.25


def longest_held(body: bytes, form: Form) -> float:
    """The longest that screening the body keeps another thread waiting, in seconds; bounds its memory."""
    gaps: list[float] = []
    over = threading.Event()

    def others() -> None:
        # By the time that we take, not by the clock: other processes of the machine have their share of that.
        last = time.process_time()
        while not over.is_set():
            over.wait(0.001)
            gaps.append(time.process_time() - last)
            last += gaps[-1]

    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes(status, "VmRSS")
    watcher = threading.Thread(target=others)
    watcher.start()
    try:
        clean, screening = in_pieces(body, form)
    finally:
        over.set()
        watcher.join()
    assert screening.accepted
    # What the allocator keeps for the next body is the same for a small one.
    assert (_kilobytes(status, "VmHWM") - before) * 1024 < 5 * len(body) + 64 * MIB
    del clean
    return max(gaps)


def _kilobytes(status: Path, name: str) -> int:
    [line] = [line for line in status.read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1])


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_the_worst_small_body_is_over_soon(form: Form) -> None:
    size = INLINE_BYTES[form]
    worst = (
        [
            b"\x0a\x00" * (size // 2),
            protobuf_body([b""] * 8000),
            protobuf_body([good_span(b"\x5a\x00" * 1900)] * 100),
        ]
        if form == "protobuf"
        else [json_body(b"{}," * (size // 3 - 30) + b"{}"), json_body(b'{"a":1},' * (size // 8 - 20) + b"{}")]
    )
    for body in worst:
        assert len(body) <= size

        def screened(body: bytes = body) -> None:
            with contextlib.suppress(OverLimit, NotHere):
                at_once(body, form)

        assert least(lambda: taken_s(screened), below=0.25) < 0.25
