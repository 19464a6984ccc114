"""The beta distribution without scipy: the share below a point, quantiles, and intervals of a proportion.

Owns: `share_below`, `quantile`, `interval`, `ln_beta`. The engines call it for references, intervals and
onsets. Never simulates.
"""

from __future__ import annotations

import functools
import math
from typing import Final

_TINY: Final = 1e-300


def ln_beta(a: float, b: float) -> float:
    """ln B(a, b), for a and b above 0."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def share_below(x: float, a: float, b: float) -> float:
    """The share of Beta(a, b) below x: the regularised incomplete beta function."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - ln_beta(a, b))
    # The fraction converges fast below the mean, so the other tail is taken above it.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated by Lentz's method."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    value = d
    # It takes about √max(a, b) steps.
    for m in range(1, 100 + 10 * math.isqrt(int(max(a, b)))):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value


@functools.lru_cache(4096)
def quantile(q: float, a: float, b: float) -> float:
    """The point below which the share q of Beta(a, b) lies, to 12 digits."""
    low, high = 0.0, 1.0
    x = a / (a + b)
    ln_norm = ln_beta(a, b)
    for _ in range(200):
        gap = share_below(x, a, b) - q
        low, high = (x, high) if gap < 0 else (low, x)
        ln_density = (a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - ln_norm
        step = gap * math.exp(min(-ln_density, 700.0))
        # Newton where it stays inside the bracket, else halve it: on the log axis, for points near 0.
        nearer = x - step
        if not low < nearer < high:
            nearer = math.sqrt(low * high) if low > 0 and high > 4 * low else (low + high) / 2
        if abs(nearer - x) <= 1e-13 * x:
            return nearer
        x = nearer
    return x


def interval(failures: int, units: int) -> tuple[float, float]:
    """The 95 % interval of a proportion after Jeffreys; it ends at 0 or 1 when all units agree."""
    a, b = failures + 0.5, units - failures + 0.5
    low = quantile(0.025, a, b) if failures else 0.0
    high = quantile(0.975, a, b) if failures < units else 1.0
    return low, high
