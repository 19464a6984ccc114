"""Arrays as the engines hold them.

Owns: the names of their types, and what is asked of many slots at once. Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from svc.domain.detect.engine.slots import block_of_week

#: An array of whole numbers: slots, bins, counts.
Ints = NDArray[np.int64]
#: An array of real numbers.
Floats = NDArray[np.float64]
#: An array of yes and no.
Flags = NDArray[np.bool_]


def blocks_held(slots: Ints) -> int:
    """The blocks of the week that these slots touch, as a set of bits."""
    bits = 0
    for block in np.unique(block_of_week(slots)):
        bits |= 1 << int(block)
    return bits
