"""Arrays as the engines hold them.

Owns: the names of their types, and what is asked of many slots at once. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from svc.domain.detect.engine.slots import block_of_week
from svc.domain.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: An array of whole numbers: slots, bins, counts.
Ints: TypeAlias = "NDArray[np.int64]"
#: An array of real numbers.
Floats: TypeAlias = "NDArray[np.float64]"
#: An array of yes and no.
Flags: TypeAlias = "NDArray[np.bool_]"


def blocks_held(slots: Ints) -> int:
    """The blocks of the week that these slots touch, as a set of bits."""
    bits = 0
    for block in np.unique(block_of_week(slots)):
        bits |= 1 << int(block)
    return bits
