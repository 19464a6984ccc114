"""Payloads: byte for byte what came, and no larger than what is new."""

from __future__ import annotations

import json
import random
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.inflate import Unreadable
from protocol.otlp import WireSpan, walk
from svc.domain.packing import Packer, needed, pack_message, unpack
from tests.wire import event, request, span

DAY = date(2026, 11, 20)
TEXT = "the parcel has left the warehouse and arrives on Friday " * 5


def wire(attributes: dict[str, Any], **fields: Any) -> WireSpan:
    (found,) = walk(request(span(attributes=attributes, **fields), resource={"service.name": "shop"}))
    return found


def opened(packer: Packer, sent: WireSpan, project: int = 1, day: date = DAY) -> tuple[WireSpan, int]:
    """The span after a round trip, and how many messages it refers to."""
    packed = packer.pack(project, day, sent)
    frames = {digest: pack_message(text) for digest, text in packed.messages.items()}
    assert set(needed(packed.body)) == set(frames)
    return unpack(packed.body, frames), len(frames)


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
    for turns in range(1, 5):
        sent = wire({"gen_ai.input.messages": json.dumps(said[:turns])})
        found, messages = opened(packer, sent)
        assert (found.raw, messages) == (sent.raw, turns - 1)


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


def test_a_damaged_payload_is_unreadable_and_nothing_else() -> None:
    packer = Packer()
    opened(packer, wire({"a": TEXT}))
    packed = packer.pack(1, DAY, wire({"a": TEXT}))
    with pytest.raises(Unreadable, match="gone"):
        unpack(packed.body, {})
    for cut in range(len(packed.body)):
        with pytest.raises(Unreadable):
            unpack(packed.body[:cut], {})
    with pytest.raises(Unreadable, match="damaged"):
        unpack(packed.body, dict.fromkeys(packed.messages, b"no frame"))
    with pytest.raises(Unreadable, match="later release"):
        unpack(pack_message(b"\x93\x02\xc4\x00\x90"), {})


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
    raw = stored = 0
    kept: dict[bytes, bytes] = {}
    for _ in range(20):
        words = " ".join(f"{dice.getrandbits(24):x}" for _ in range(290))
        said.append({"role": "user", "content": words})
        sent = wire({"gen_ai.input.messages": json.dumps(said)})
        packed = packer.pack(1, DAY, sent)
        raw += len(sent.raw)
        stored += len(packed.body)
        kept |= {digest: pack_message(text) for digest, text in packed.messages.items()}
        assert unpack(packed.body, kept).raw == sent.raw
    stored += sum(map(len, kept.values()))
    assert stored <= 0.25 * raw, f"{stored} of {raw} bytes"
