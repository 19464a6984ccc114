"""The ids that are kept are those of the smallest ends among these, whatever batches they came in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from svc.domain.queries.ids_by_end import IdsByEnd, ends_of

#: Few enough first halves and ends that some are the same.
_halves = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
_ids = st.tuples(_halves, _halves).map(lambda halves: b"".join(half.to_bytes(8) for half in halves))


@given(
    batches=st.lists(st.lists(_ids, max_size=20), max_size=8),
    most=st.integers(1, 20),
    limit=st.none() | _halves,
    among=st.none() | st.sets(_halves, max_size=6),
    data=st.data(),
)
def test_kept_are_the_smallest_of_those_that_fit(
    batches: list[list[bytes]],
    most: int,
    limit: int | None,
    among: set[int] | None,
    data: st.DataObject,
) -> None:
    # Each id is of one trace, and stands in one block.
    batches = [list(dict.fromkeys(batch)) for batch in batches]
    known: set[bytes] = set()
    for batch in batches:
        batch[:] = [each for each in batch if each not in known]
        known.update(batch)
    ends = None if among is None else ends_of([end.to_bytes(8) for end in sorted(among)])
    ids = IdsByEnd(most, limit, ends)
    for batch in batches:
        ids.add(b"".join(batch))
    below = [each for each in known if limit is None or int.from_bytes(each[8:]) < limit]
    fitting = [each for each in below if among is None or int.from_bytes(each[8:]) in among]
    assert (ids.came, ids.below, ids.fitting) == (len(known), len(below), len(fitting))
    size = data.draw(st.integers(0, most))
    ordered = sorted(fitting, key=lambda each: (each[8:], each))
    assert ids.smallest(size) == ordered[:size]
    assert ids.smallest(most) == ordered[:most]
