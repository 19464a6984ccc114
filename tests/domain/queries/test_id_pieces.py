"""Signatures of ids never lie, and pass over most of what lacks a piece."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from svc.domain.queries.id_pieces import ID_BYTES, MARKS, PIECE, having, marks, signature

IDS = st.lists(st.binary(min_size=ID_BYTES, max_size=ID_BYTES), min_size=1, max_size=40)
#: As of exporters that count, or fill short ids up with zeros.
ALIKE = st.lists(st.integers(0, 300).map(lambda number: number.to_bytes(ID_BYTES, "big")), min_size=1)


def may_have(pieces: bytes, part: str) -> bool:
    bits = len(pieces) * 8
    places = [mark & (bits - 1) for mark in marks(part)]
    assert len(places) == MARKS
    return all(pieces[place >> 3] >> (place & 7) & 1 for place in places)


@given(IDS | ALIKE, st.data())
def test_every_part_of_every_id_is_found(ids: list[bytes], data: st.DataObject) -> None:
    packed = b"".join(ids)
    some = data.draw(st.sampled_from(ids)).hex()
    begin = data.draw(st.integers(0, len(some) - PIECE))
    part = some[begin : data.draw(st.integers(begin + PIECE, len(some)))]
    assert may_have(signature(packed), part)
    assert set(having(packed, part)) == {each for each in ids if part in each.hex()}


@given(IDS, st.text("0123456789abcdef", min_size=PIECE, max_size=2 * ID_BYTES))
def test_what_is_passed_over_has_no_such_part(ids: list[bytes], part: str) -> None:
    packed = b"".join(ids)
    found = set(having(packed, part))
    assert found == {each for each in ids if part in each.hex()}
    if not may_have(signature(packed), part):
        assert not found


def test_most_blocks_are_passed_over_for_a_part_of_some_length() -> None:
    dice = random.Random(5)
    blocks = [signature(dice.randbytes(ID_BYTES * size)) for size in (1, 50, 700, 2_048) for _ in range(25)]
    for length, most in ((5, 0.3), (6, 0.08), (8, 0.01)):
        asked = [dice.randbytes(ID_BYTES).hex()[:length] for _ in range(40)]
        passed = sum(may_have(pieces, part) for pieces in blocks for part in asked)
        assert passed / (len(blocks) * len(asked)) < most, length
