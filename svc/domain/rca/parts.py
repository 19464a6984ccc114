"""A change taken apart: the factors of a cost, the tools of a duration, the signatures of failures.

Owns: `Factor`, `cost_factors`, `tool_shares`, `signature_shares` and `others`, which are figures that stand
beside any change. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import attrs

from svc.domain.rca.cohort import Cohort, Unit

FactorName = Literal["calls", "tokens_per_call", "uncached_share", "price"]
FACTORS: Final[tuple[FactorName, ...]] = ("calls", "tokens_per_call", "uncached_share", "price")


@attrs.frozen
class Factor:
    """One factor of a cost before and after, and what of the change it makes, in dollars a turn."""

    name: FactorName
    before: float
    after: float
    dollars: float
    share: float


@attrs.frozen
class Portion:
    """What makes how much of a change: a tool of a duration, or a signature of failures."""

    name: str
    before: float
    after: float
    share: float


@attrs.frozen
class Beside:
    """A figure beside the change, a mean for each trace."""

    name: str
    before: float
    after: float


def cost_factors(before: Cohort, after: Cohort) -> tuple[Factor, ...]:
    """Δ = calls × tokens a call × (1 − cached share) × price: what each factor makes of it.

    The shares follow the logarithms of the factors, so that they add up to the change whatever their order.
    Empty when a side has no priced calls.
    """
    old, new = (_cost(cohort.units) for cohort in (before, after))
    if old is None or new is None:
        return ()
    (c0, x0), (c1, x1) = old, new
    growth = math.log(c1 / c0)
    weight = (c1 - c0) / growth if abs(growth) > 1e-12 else c0
    return tuple(
        Factor(name, a, b, weight * math.log(b / a), math.log(b / a) / growth if abs(growth) > 1e-12 else 0.0)
        for name, a, b in zip(FACTORS, x0, x1, strict=True)
    )


def _cost(units: Iterable[Unit]) -> tuple[float, tuple[float, ...]] | None:
    """Dollars a turn, and the factors whose product it is."""
    priced = [unit for unit in units if unit.cost is not None and unit.calls]
    calls = sum(unit.calls for unit in priced)
    tokens = sum(unit.tokens for unit in priced)
    fresh = tokens - sum(min(unit.cached_tokens, unit.tokens) for unit in priced)
    cost = math.fsum(unit.cost or 0.0 for unit in priced)
    if not priced or not calls or not fresh or cost <= 0:
        return None
    turns = len(priced)
    return cost / turns, (calls / turns, tokens / calls, fresh / tokens, cost / fresh)


def tool_shares(before: Cohort, after: Cohort) -> tuple[Portion, ...]:
    """How much of the change of the mean duration came about in each tool and in models, the most first."""
    shift = _mean(after.units, lambda u: u.size or 0.0) - _mean(before.units, lambda u: u.size or 0.0)
    if not shift:
        return ()
    names = sorted({name for unit in (*before.units, *after.units) for name in unit.tool_ms})
    portions = []
    for name in names:
        old, new = (_mean(p.units, lambda u, n=name: u.tool_ms.get(n, 0.0)) for p in (before, after))  # type: ignore[misc]
        portions.append(Portion(name, old, new, (new - old) / shift))
    old, new = (_mean(p.units, lambda u: u.model_ms) for p in (before, after))
    portions.append(Portion("models", old, new, (new - old) / shift))
    return tuple(sorted(portions, key=lambda part: (-part.share, part.name)))


def signature_shares(before: Cohort, after: Cohort) -> tuple[Portion, ...]:
    """How much of the change of a rate each kind of failure makes, the most first."""
    shift = after.mean - before.mean
    if not shift:
        return ()
    old, new = (Counter(u.signature for u in p.units if u.failed and u.signature) for p in (before, after))
    portions = []
    for name in sorted(n for n in old.keys() | new.keys() if n is not None):
        rates = old[name] / max(len(before.units), 1), new[name] / max(len(after.units), 1)
        portions.append(Portion(name, *rates, (rates[1] - rates[0]) / shift))
    return tuple(sorted(portions, key=lambda part: (-part.share, part.name)))


def others(before: Cohort, after: Cohort) -> tuple[Beside, ...]:
    """Calls a trace, tokens a call, cached share and repeated tool calls, where they are known."""
    sides = (before.units, after.units)
    calls, tokens, cached = (
        [sum(getattr(unit, field) for unit in side) for side in sides]
        for field in ("calls", "tokens", "cached_tokens")
    )
    figures = []
    if all(sides) and any(calls):
        figures.append(Beside("calls", *(n / len(side) for n, side in zip(calls, sides, strict=True))))
    if all(calls) and any(tokens):
        figures.append(Beside("tokens_per_call", *(t / n for t, n in zip(tokens, calls, strict=True))))
    if all(tokens) and any(cached):
        figures.append(Beside("cached_share", *(c / t for c, t in zip(cached, tokens, strict=True))))
    if all(sides) and any(unit.repeats for side in sides for unit in side):
        figures.append(Beside("repeats", *(_mean(side, lambda u: float(u.repeats)) for side in sides)))
    return tuple(figures)


def _mean(units: Sequence[Unit], value: Callable[[Unit], float]) -> float:
    return math.fsum(map(value, units)) / len(units) if units else 0.0
