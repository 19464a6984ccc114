"""How bad a finding is: half its size, half how much of the project it touches.

Owns: `severity` of ratios and of rates, and its band. Whoever opens or renews a finding calls it. Never knows
a detector: a secret is high and an improvement is info whatever their numbers.
"""

from __future__ import annotations

import math
from typing import Final, Literal

Band = Literal["info", "low", "medium", "high"]

MEDIUM_FROM: Final = 0.33
HIGH_FROM: Final = 0.66
#: The severity of a leaked secret.
SECRET: Final = 1.0


def of_ratio(ratio: float, reach: float) -> float:
    """The severity, 0 to 1, of a size that is `ratio` times the usual one and touches the share `reach` of
    the project's traces: an eightfold size counts in full. Raises `ValueError` of a ratio not above 0.
    """
    if ratio <= 0:
        raise ValueError("a ratio lies above 0")
    return _severity(abs(math.log2(ratio)) / 3, reach)


def of_rate(before: float, after: float, reach: float) -> float:
    """The severity, 0 to 1, of a rate that went from `before` to `after`, by Cohen's h."""
    return _severity(abs(2 * math.asin(math.sqrt(after)) - 2 * math.asin(math.sqrt(before))), reach)


def _severity(size: float, reach: float) -> float:
    return min(size, 1.0) / 2 + math.sqrt(min(max(reach, 0.0), 1.0)) / 2


def band(severity: float, *, harmful: bool = True) -> Band:
    """The name of a severity; `info` where the finding does no harm."""
    if not harmful:
        return "info"
    return "low" if severity < MEDIUM_FROM else "medium" if severity < HIGH_FROM else "high"
