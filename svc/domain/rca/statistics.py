"""The tests of a root-cause analysis: total variation, G-test, odds ratio, Fisher, Wilson, false discovery.

Owns these functions and what each says of empty or degenerate counts. `shares` calls them. Never simulates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

#: The two-sided 95 % point of the normal distribution.
Z_95: Final = 1.959964
_STEPS: Final = 500
_TINY: Final = 1e-300


@attrs.frozen
class OddsRatio:
    """An odds ratio with ½ added to each cell, its 95 % interval, and how likely chance alone makes it."""

    ratio: float
    low: float
    high: float
    p_value: float


def total_variation(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Half the sum of absolute differences of the shares, 0 to 1; 0 when a side is empty."""
    n, m = sum(before.values()), sum(after.values())
    if not n or not m:
        return 0.0
    return sum(abs(after.get(v, 0) / m - before.get(v, 0) / n) for v in before.keys() | after.keys()) / 2


def g_test(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """How likely chance alone moves the shares so far. Values that are expected less than five times on a
    side are taken together; 1 when fewer than two are left.
    """
    n, m = sum(before.values()), sum(after.values())
    if not n or not m:
        return 1.0
    smaller = min(n, m) / (n + m)
    rows: list[tuple[int, int]] = []
    rare_before = rare_after = 0
    for value in before.keys() | after.keys():
        b, a = before.get(value, 0), after.get(value, 0)
        if (b + a) * smaller < 5:
            rare_before, rare_after = rare_before + b, rare_after + a
        else:
            rows.append((b, a))
    if rare_before + rare_after:
        rows.append((rare_before, rare_after))
    if len(rows) < 2:
        return 1.0
    g = 0.0
    for b, a in rows:
        for observed, side in ((b, n), (a, m)):
            if observed:
                g += 2 * observed * math.log(observed * (n + m) / ((b + a) * side))
    return chi2_above(max(g, 0.0), len(rows) - 1)


def chi2_above(x: float, freedom: int) -> float:
    """The share of the χ² distribution above x."""
    s, z = freedom / 2, x / 2
    if z <= 0:
        return 1.0
    front = math.exp(s * math.log(z) - z - math.lgamma(s))
    if z < s + 1:
        term = total = 1 / s
        for k in range(1, _STEPS):
            term *= z / (s + k)
            total += term
            if term < total * 1e-15:
                break
        return max(1 - front * total, 0.0)
    # The continued fraction of the upper incomplete gamma function, after Lentz.
    b = z + 1 - s
    c, d = 1 / _TINY, 1 / b
    value = d
    for k in range(1, _STEPS):
        an = -k * (k - s)
        b += 2
        d = 1 / (an * d + b or _TINY)
        c = b + an / c or _TINY
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return min(front * value, 1.0)


def normal_beyond(z: float) -> float:
    """The share of the normal distribution farther out than z, on both sides."""
    return math.erfc(abs(z) / math.sqrt(2))


def odds_ratio(failed_with: int, healthy_with: int, failed_without: int, healthy_without: int) -> OddsRatio:
    """The odds of failing with a value over those without it."""
    counts = (failed_with, healthy_with, failed_without, healthy_without)
    cells = [n + 0.5 for n in counts]
    log = math.log(cells[0] * cells[3] / (cells[1] * cells[2]))
    deviation = math.sqrt(sum(1 / n for n in cells))
    return OddsRatio(
        math.exp(log), math.exp(log - Z_95 * deviation), math.exp(log + Z_95 * deviation), fisher(*counts)
    )


def fisher(failed_with: int, healthy_with: int, failed_without: int, healthy_without: int) -> float:
    """How likely chance alone makes a table as unlikely as this one, given its sums: Fisher's exact test.

    From the logarithm of the odds and its deviation, 27 of 281 against none of 304 came to 0.003: with an
    empty cell that hardly falls, however many there are. It is 1.3e-9.
    """
    having, failed = failed_with + healthy_with, failed_with + failed_without
    neither = healthy_without - failed_with
    least, most = max(0, -neither), min(having, failed)
    lgamma = math.lgamma

    def log_weight(k: int) -> float:
        return -lgamma(k + 1) - lgamma(having - k + 1) - lgamma(failed - k + 1) - lgamma(neither + k + 1)

    total = having + failed_without + healthy_without
    log_whole = (
        lgamma(having + 1) + lgamma(total - having + 1) + lgamma(failed + 1) + lgamma(total - failed + 1)
    )
    log_whole -= lgamma(total + 1)
    mode = (having + 1) * (failed + 1) // (total + 2)
    # Tables that are as likely but for rounding count as well.
    bar = log_weight(failed_with) + 1e-7
    if log_weight(min(max(mode, least), most)) <= bar:
        return 1.0
    below = failed_with if failed_with < mode else _first(range(mode, least - 1, -1), log_weight, bar)
    above = failed_with if failed_with > mode else _first(range(mode, most + 1), log_weight, bar)
    chance = 0.0
    for start, step in ((below, -1), (above, 1)):
        if start is None:
            continue
        k, term, tail = start, math.exp(log_whole + log_weight(start)), 0.0
        while least <= k <= most and term > tail * 1e-15:
            tail += term
            if step < 0:
                term *= k * (neither + k) / ((having - k + 1) * (failed - k + 1))
            else:
                term *= (having - k) * (failed - k) / ((k + 1) * (neither + k + 1))
            k += step
        chance += tail
    return min(chance, 1.0)


def _first(numbers: range, log_weight: Callable[[int], float], bar: float) -> int | None:
    """The first of these, from the likeliest outward, that is no likelier than the bar."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if log_weight(numbers[middle]) <= bar:
            high = middle
        else:
            low = middle + 1
    return numbers[low] if low < len(numbers) else None


def wilson(failures: int, units: int) -> tuple[float, float]:
    """The 95 % interval of a proportion after Wilson; from 0 to 1 without units."""
    if not units:
        return 0.0, 1.0
    p, z2 = failures / units, Z_95 * Z_95
    middle = (p + z2 / (2 * units)) / (1 + z2 / units)
    half = Z_95 * math.sqrt(p * (1 - p) / units + z2 / (4 * units * units)) / (1 + z2 / units)
    # Rounding may leave the proportion itself just outside: 4 of 4.
    return min(max(middle - half, 0.0), p), max(min(middle + half, 1.0), p)


def benjamini_hochberg(p_values: Sequence[float], q: float) -> list[bool]:
    """Which of these stand when a share q of those that stand may be wrong."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    cutoff = 0
    for rank, i in enumerate(order, 1):
        if p_values[i] <= q * rank / len(order):
            cutoff = rank
    significant = [False] * len(p_values)
    for i in order[:cutoff]:
        significant[i] = True
    return significant
