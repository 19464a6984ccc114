"""The logarithmic axis of sizes: 320 bins, each 1.05 times as wide as the one before.

Owns its constants, and the bin of one value. Bins count from the unit, 1 ms, $0.00001 or a score of 0.001,
and reach six million times as far: 100 minutes, $60, or 6,000. What is smaller or larger lies in the first or
last bin. Whoever counts or shows sizes calls it; `histogram` has what many of them come to. Never needs
numpy, which a decoder process and most commands do without: 9 MB, and a tenth of a command's start (measured
2026-11).
"""

from __future__ import annotations

import math
from typing import Final

BINS: Final = 320
LN_RATIO: Final = math.log(1.05)
UNIT_MS: Final = 1.0
UNIT_DOLLARS: Final = 0.00001
#: What is smaller, a negative score too, lies in the first bin.
UNIT_SCORE: Final = 0.001


def bin_of(value: float, unit: float) -> int:
    """The bin of one value, as `bins_of` has it: an array of one costs seven times as much (2026-11)."""
    log = math.log(max(value, unit) / unit) / LN_RATIO
    # In bounds before it is a whole number: so much more than the unit is infinite.
    return math.floor(min(max(log + 1e-9, 0), BINS - 1))
