"""Payloads: byte for byte what came, and no larger than what is new."""

from __future__ import annotations

import hashlib
import json
import random
from datetime import date
from mmap import mmap
from tempfile import TemporaryFile
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.inflate import Unreadable
from protocol.otlp.reading import WireSpan, envelope, walk
from svc.domain.intake import packing
from svc.domain.intake.packing import (
    SEEN_BYTES,
    Frame,
    Packer,
    Parts,
    Seen,
    frames,
    pack_message,
    unpack_messages,
)
from tests.plain import plain
from tests.wire import event, request, span

DAY = date(2026, 11, 20)
TEXT = "the parcel has left the warehouse and arrives on Friday " * 5


def wire(attributes: dict[str, Any], **fields: Any) -> WireSpan:
    (found,) = walk(request(span(attributes=attributes, **fields), resource={"service.name": "shop"}))
    return found


def stored(parts: Parts) -> dict[bytes, bytes]:
    """The messages as they are stored."""
    return {digest: pack_message(text) for digest, text in parts.messages.items()}


def alone(sent: WireSpan, parts: Parts) -> bytes:
    """The frame of one span."""
    ((_, body),) = frames([(sent.span_id, parts)])
    return body


def opened(packer: Packer, sent: WireSpan, project: int = 1, day: date = DAY) -> tuple[WireSpan, int]:
    """The span after a round trip, and how many messages it refers to."""
    parts = packer.take_apart(project, day, sent)
    frame, messages = Frame(alone(sent, parts)), stored(parts)
    assert frame.needed() == frame.needed([sent.span_id]) == set(messages)
    return frame.span(sent.span_id, unpack_messages(messages)), len(messages)


def test_a_text_that_was_never_seen_stays_in_the_payload() -> None:
    sent = wire({"input.value": TEXT})
    found, messages = opened(Packer(), sent)
    assert (found.raw, found.resource.raw, messages) == (sent.raw, sent.resource.raw, 0)


def test_a_text_that_was_seen_that_day_becomes_a_message() -> None:
    packer = Packer()
    opened(packer, wire({"input.value": TEXT}))
    sent = wire({"input.value": TEXT, "more": "x"})
    found, messages = opened(packer, sent)
    assert (found.raw, messages) == (sent.raw, 1)


@pytest.mark.parametrize(("project", "day"), [(2, DAY), (1, date(2026, 11, 21))])
def test_another_project_and_another_day_share_nothing(project: int, day: date) -> None:
    packer = Packer()
    opened(packer, wire({"input.value": TEXT}))
    assert opened(packer, wire({"input.value": TEXT}), project, day)[1] == 0


def test_a_conversation_is_taken_apart_by_its_messages() -> None:
    packer = Packer()
    said = [{"role": "user", "content": f"{number} {TEXT}"} for number in range(4)]
    # From the third turn on it is known to come again, and its end is stored at once.
    for turns, expected in ((1, 0), (2, 1), (3, 3), (4, 4)):
        sent = wire({"gen_ai.input.messages": json.dumps(said[:turns])})
        found, messages = opened(packer, sent)
        assert (found.raw, messages) == (sent.raw, expected)
    # So is the answer, which the next turn sends along.
    answer = json.dumps([{"role": "assistant", "content": f"answer {TEXT}"}])
    sent = wire({"gen_ai.input.messages": json.dumps(said), "gen_ai.output.messages": answer})
    found, messages = opened(packer, sent)
    assert (found.raw, messages) == (sent.raw, 5)


def test_known_texts_elsewhere_in_the_span_do_not_make_a_history() -> None:
    packer = Packer()
    opened(packer, wire({"a": TEXT, "b": f"b {TEXT}"}))
    sent = wire({"a": TEXT, "b": f"b {TEXT}", "c": json.dumps([{"content": f"{n} {TEXT}"} for n in (1, 2)])})
    assert opened(packer, sent)[1] == 2


def test_processes_share_what_they_have_seen() -> None:
    with TemporaryFile() as file:
        file.truncate(SEEN_BYTES)
        here, there = (Packer(Seen(mmap(file.fileno(), SEEN_BYTES))) for _ in range(2))
    opened(here, wire({"input.value": TEXT}))
    assert opened(there, wire({"input.value": TEXT}))[1] == 1


def test_a_newer_text_may_take_the_place_of_an_older_one_and_nothing_is_lost() -> None:
    # Two slots only: nearly every text is forgotten before it comes again.
    packer = Packer(Seen(mmap(-1, 16)))
    for number in range(50):
        sent = wire({"input.value": f"{number % 25} {TEXT}"})
        assert opened(packer, sent)[0].raw == sent.raw


def test_two_texts_with_one_mark_stay_two_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc.domain.intake.packing.xxh3_64_intdigest", lambda text, seed=0: 7)
    packer = Packer()
    for number in range(4):
        sent = wire({"input.value": f"{number} {TEXT}", "more": f"{number} more {TEXT}"})
        found, messages = opened(packer, sent)
        # All but the very first are taken for seen; they are stored each by its own name.
        assert (found.raw, messages) == (sent.raw, 2 if number else 1)


def test_a_message_is_named_by_its_sha_256() -> None:
    packer = Packer()
    opened(packer, wire({"input.value": TEXT}))
    parts = packer.take_apart(1, DAY, wire({"input.value": TEXT}))
    name = hashlib.sha256(TEXT.encode()).digest()[:16]
    assert (parts.hashes, parts.messages) == (name, {name: TEXT.encode()})


def test_a_text_that_comes_again_and_again_keeps_its_name() -> None:
    packer = Packer()
    packer.take_apart(1, DAY, wire({"input.value": TEXT}))
    for _ in range(3):
        parts = packer.take_apart(1, DAY, wire({"input.value": TEXT}))
        assert parts.messages == {hashlib.sha256(TEXT.encode()).digest()[:16]: TEXT.encode()}


def test_the_texts_remembered_with_their_names_are_bounded() -> None:
    source = plain(packing)
    packer = source.Packer()
    longest = source._NAMED_TEXT_BYTES
    for number in range(source._NAMED_BYTES // longest + 100):
        packer._name(number, f"{number:<{longest}}".encode())
        assert len(packer._named) * longest <= source._NAMED_BYTES + longest
    before = len(packer._named)
    packer._name(-1, b"x" * (longest + 1))
    assert len(packer._named) == before < 100 + 1


def test_texts_of_events_are_shared_too() -> None:
    packer = Packer()
    for expected in (0, 1):
        sent = wire({}, events=[event("gen_ai.user.message", {"content": TEXT})])
        assert opened(packer, sent)[1] == expected


def test_a_text_that_stands_twice_in_a_span_is_one_message() -> None:
    packer = Packer()
    opened(packer, wire({"a": TEXT}))
    sent = wire({"a": TEXT, "b": TEXT})
    found, messages = opened(packer, sent)
    assert (found.raw, messages) == (sent.raw, 1)


def test_spans_of_a_frame_come_back_each_by_itself() -> None:
    packer = Packer()
    sent = [wire({"a": TEXT, "n": number}, span_id=bytes([number] * 8)) for number in range(1, 4)]
    parts = [packer.take_apart(1, DAY, each) for each in sent]
    ((ids, body),) = frames(zip((each.span_id for each in sent), parts, strict=True))
    assert ids == [each.span_id for each in sent]
    frame = Frame(body)
    # The first sight of the text stays in the frame; the others refer to it.
    assert [len(frame.needed([each.span_id])) for each in sent] == [0, 1, 1]
    assert len(frame.needed()) == 1
    for each in sent:
        assert frame.span(each.span_id, unpack_messages(stored(parts[1]))).raw == each.raw
    with pytest.raises(Unreadable, match="does not hold"):
        frame.span(bytes(8), {})


def test_a_frame_is_closed_when_it_is_large() -> None:
    packer = Packer()
    sent = [wire({"a": "x" * 50_000, "n": n}, span_id=bytes([n] * 8)) for n in range(1, 8)]
    parts = [Packer().take_apart(1, DAY, each) for each in sent]
    made = list(frames(zip((each.span_id for each in sent), parts, strict=True)))
    assert [len(ids) for ids, _ in made] == [3, 3, 1]
    assert [span_id for ids, _ in made for span_id in ids] == [each.span_id for each in sent]
    assert list(frames([])) == []
    assert packer.take_apart(1, DAY, sent[0]).messages == {}


def test_payloads_of_the_first_version_are_still_read() -> None:
    sent = wire({"a": TEXT})
    frame = Frame(pack_message(msgspec.msgpack.encode([1, b"", [envelope(sent)]])))
    assert (frame.span(sent.span_id, {}).raw, frame.needed()) == (sent.raw, set())
    cut = envelope(sent).index(TEXT.encode())
    literals = [envelope(sent)[:cut], envelope(sent)[cut + len(TEXT) :]]
    frame = Frame(pack_message(msgspec.msgpack.encode([1, bytes(16), literals])))
    assert frame.needed([sent.span_id]) == {bytes(16)}
    assert frame.span(sent.span_id, {bytes(16): TEXT.encode()}).raw == sent.raw


def test_a_damaged_payload_is_unreadable_and_nothing_else() -> None:
    packer = Packer()
    sent = wire({"a": TEXT})
    opened(packer, sent)
    parts = packer.take_apart(1, DAY, sent)
    body = alone(sent, parts)
    with pytest.raises(Unreadable, match="gone"):
        Frame(body).span(sent.span_id, {})
    for cut in range(len(body)):
        with pytest.raises(Unreadable):
            Frame(body[:cut])
    # A damaged message is as good as gone.
    assert unpack_messages(dict.fromkeys(parts.messages, b"no frame")) == {}
    with pytest.raises(Unreadable, match="later release"):
        Frame(pack_message(b"\x93\x03\xc4\x00\x90"))
    for odd in (b"\x90", b"\x91\x02", b"\x92\x02\x07", b"\x92\x01\xc4\x00", b"\x07", b""):
        with pytest.raises(Unreadable, match="damaged"):
            Frame(pack_message(odd))


texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from([TEXT, TEXT[::-1], "[" + TEXT, json.dumps([TEXT, TEXT]), json.dumps([{"a": TEXT}, 1])]),
    st.text(min_size=200, max_size=300),
)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "input.value", "é"]), texts), max_size=6))
def test_every_span_comes_back_byte_for_byte(spans: list[dict[str, str]]) -> None:
    packer = Packer()
    for attributes in spans:
        sent = wire(attributes)
        found, _ = opened(packer, sent)
        assert (found.raw, found.resource.raw, found.scope.raw) == (
            sent.raw,
            sent.resource.raw,
            sent.scope.raw,
        )


def test_twenty_turns_that_resend_their_history_take_a_quarter_of_their_bytes_at_most() -> None:
    dice = random.Random(1)
    packer = Packer()
    said: list[dict[str, str]] = []
    raw = on_disk = 0
    kept: dict[bytes, bytes] = {}
    for _ in range(20):
        words = " ".join(f"{dice.getrandbits(24):x}" for _ in range(290))
        said.append({"role": "user", "content": words})
        sent = wire({"gen_ai.input.messages": json.dumps(said)})
        parts = packer.take_apart(1, DAY, sent)
        body = alone(sent, parts)
        raw += len(sent.raw)
        on_disk += len(body)
        kept |= stored(parts)
        assert Frame(body).span(sent.span_id, unpack_messages(kept)).raw == sent.raw
    on_disk += sum(map(len, kept.values()))
    assert on_disk <= 0.25 * raw, f"{on_disk} of {raw} bytes"
