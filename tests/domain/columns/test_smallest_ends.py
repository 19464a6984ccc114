"""The smallest ends are those of all that came, whatever order and batches they came in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.columns.smallest_ends import SmallestEnds

#: Some share their first half, some are the same.
_ends = st.tuples(
    st.sampled_from([0, 1, 7, 2**32 - 1]) | st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 2**32 - 1]) | st.integers(0, 2**32 - 1),
).map(lambda halves: f"{halves[0]:08x}{halves[1]:08x}")


@given(batches=st.lists(st.lists(_ends, max_size=20), max_size=8), most=st.integers(1, 30))
def test_what_is_kept_are_the_smallest_of_all_that_came(batches: list[list[str]], most: int) -> None:
    ends = SmallestEnds(most)
    for number, batch in enumerate(batches):
        if number % 2:
            ends.add_texts(batch)
        else:
            # As a segment has them: each row behind a byte of its own.
            rows = np.frombuffer("".join(f"\x00{end}" for end in batch).encode(), np.uint8)
            ends.add(rows.reshape(-1, 17)[:, 1:])
    everything = sorted({bytes.fromhex(end) for batch in batches for end in batch})
    smallest, limit = ends.smallest()
    assert smallest == everything[:most]
    assert limit == (everything[most] if len(everything) > most else None)
    assert ends.smallest() == (smallest, limit)


def test_no_more_ends_are_held_than_are_put_in_order() -> None:
    ends = SmallestEnds(10)
    for batch in range(100):
        ends.add_texts(f"{batch * 7 + number:016x}" for number in range(30))
        assert sum(map(len, ends._batches)) <= 70
