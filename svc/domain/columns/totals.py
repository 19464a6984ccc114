"""What spans come to, in parts that add up: sums, durations by bin, distinct ids.

Columns and rows that are read row by row both come as cells; `svc.store.reads.questions.columns.answers` adds
them and shows them. Never needs numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from heapq import nsmallest
from math import ceil
from typing import Any, Final

import attrs

from svc.domain.columns.encoding import COST_REST_DIGITS, DURATION_RATIO, DURATION_UNIT_MS, TOKENS
from svc.domain.queries.measures import MeasureName

#: The first hour of a bucket, None where there is but one; the value of a group, None also where there are
#: none.
Key = tuple[int | None, str | None]

_FRACTIONS: Final[Mapping[MeasureName, float]] = {
    "duration_p50": 0.5,
    "duration_p95": 0.95,
    "duration_p99": 0.99,
}
#: Digits enough for any sum.
_WIDE: Final = Context(prec=100)


#: Distinct ids are counted one by one up to so many, and estimated from as many beyond: within 2 % in 19 of
#: 20 questions.
COUNTED_IDS: Final = 10_000
_HASHES: Final = 2**64
#: The multipliers of splitmix64, which makes numbers that follow each other look like chance.
MIX_1: Final = 0xBF58476D1CE4E5B9
MIX_2: Final = 0x94D049BB133111EB


@attrs.define(eq=True)
class DistinctIds:
    """Distinct ids by 64 bits of a hash: all of them, or the smallest so many once there are more.

    How dense the smallest ones lie says how many there are, whatever order they came in.
    """

    hashes: set[int] = attrs.field(factory=set)
    #: Hashes from here on are left out, once some were.
    limit: int = _HASHES

    @classmethod
    def of_sorted(cls, hashes: Any) -> DistinctIds:
        """Those of an array of numpy in which each is once, the smallest first."""
        if len(hashes) <= COUNTED_IDS:
            return cls(set(hashes.tolist()))
        return cls(set(hashes[:COUNTED_IDS].tolist()), int(hashes[COUNTED_IDS]))

    def add(self, hashes: Iterable[int]) -> None:
        """Add the hashes of further ids."""
        self.hashes.update(hashes if self.limit == _HASHES else (h for h in hashes if h < self.limit))
        if len(self.hashes) > 2 * COUNTED_IDS:
            self._shorten()

    def merge(self, other: DistinctIds) -> None:
        """Add another's ids, which may have left some out."""
        if other.limit < self.limit:
            self.limit = other.limit
            self.hashes = {number for number in self.hashes if number < self.limit}
        self.add(other.hashes)

    def _shorten(self) -> None:
        smallest = nsmallest(COUNTED_IDS + 1, self.hashes)
        self.limit = smallest.pop()
        self.hashes = set(smallest)

    @property
    def count(self) -> int:
        """How many there are."""
        if self.limit == _HASHES and len(self.hashes) > COUNTED_IDS:
            self._shorten()
        return len(self.hashes) if self.limit == _HASHES else round(len(self.hashes) / self.limit * _HASHES)

    @property
    def estimated(self) -> bool:
        """Whether there are too many to count."""
        return self.limit < _HASHES or len(self.hashes) > COUNTED_IDS


def text_hash(text: str) -> int:
    """The hash of an id, the same as long as this process lives."""
    return hash(text) % _HASHES


def trace_hash(half_id: str) -> int:
    """The hash of half the id of a trace, sixteen digits: how `scanning` mixes many at once."""
    digits = half_id.encode()
    number = int.from_bytes(digits[:8], "little") * MIX_1 % _HASHES ^ int.from_bytes(digits[8:], "little")
    number = (number ^ number >> 30) * MIX_1 % _HASHES
    number = (number ^ number >> 27) * MIX_2 % _HASHES
    return number ^ number >> 31


@attrs.define(eq=True)
class Cell:
    """What the spans of one bucket and group come to. `cost` is in units of 1e-24 USD, of `priced` spans.

    `tokens` are sums by kind, None where nobody reported any; `durations` are counts by bin. What a measure
    does not need stays None: there may be many cells.
    """

    spans: int = 0
    errors: int = 0
    cost: int = 0
    priced: int = 0
    unpriced: int = 0
    tokens: list[int | None] | None = None
    durations: dict[int, int] | None = None
    distinct: DistinctIds | None = None

    def add(self, other: Cell) -> None:
        """Add what further spans come to."""
        self.spans += other.spans
        self.errors += other.errors
        self.cost += other.cost
        self.priced += other.priced
        self.unpriced += other.unpriced
        if other.tokens is not None:
            self.tokens = [
                mine if theirs is None else theirs + (mine or 0)
                for mine, theirs in zip(self.tokens or [None] * len(TOKENS), other.tokens, strict=True)
            ]
        if other.durations is not None:
            self.durations = self.durations or {}
            for duration_bin, number in other.durations.items():
                self.durations[duration_bin] = self.durations.get(duration_bin, 0) + number
        if other.distinct is not None:
            self.distinct = self.distinct or DistinctIds()
            self.distinct.merge(other.distinct)

    def beside(self, other: Cell) -> Cell:
        """With what other measures of the same spans come to."""
        return attrs.evolve(
            self,
            tokens=self.tokens or other.tokens,
            durations=self.durations or other.durations,
            distinct=self.distinct or other.distinct,
        )

    @property
    def estimated(self) -> bool:
        """Whether distinct ids were too many to count."""
        return self.distinct is not None and self.distinct.estimated

    def row(self, measures: Iterable[MeasureName]) -> dict[str, Any]:
        """The count and the measures by the names that statements over rows give them."""
        row: dict[str, Any] = {"n": self.spans}
        for measure in measures:
            row |= self._measured(measure)
        return row

    def _measured(self, measure: MeasureName) -> dict[str, Any]:
        match measure:
            case "errors":
                return {"errors": self.errors}
            case "error_rate":
                return {"errors": self.errors, "error_rate": self.errors / self.spans}
            case "cost":
                # From its text, since arithmetic would round to the digits of the context.
                cost = Decimal(f"{self.cost}E-{COST_REST_DIGITS}") if self.priced else None
                return {"cost": cost, "unpriced_spans": self.unpriced}
            case "tokens":
                tokens = self.tokens or [None] * len(TOKENS)
                all_tokens = sum(number or 0 for number in tokens) or None
                return dict(zip(TOKENS, tokens, strict=True)) | {"all_tokens": all_tokens}
            case "traces" | "sessions" | "users":
                return {measure: 0 if self.distinct is None else self.distinct.count}
            case "duration_p50" | "duration_p95" | "duration_p99":
                return {measure: self._percentile(_FRACTIONS[measure])}
            case _:
                return {}

    def _percentile(self, fraction: float) -> float | None:
        """By nearest rank, the middle of the bin that it lies in."""
        durations = self.durations or {}
        rank = ceil(fraction * sum(durations.values()))
        for duration_bin, number in sorted(durations.items()):
            rank -= number
            if rank <= 0:
                return bin_middle_ms(duration_bin)
        return None


def cost_units(cost: Decimal) -> int:
    """A cost in the units of a cell; what is smaller than those is cut."""
    return int(cost.scaleb(COST_REST_DIGITS, _WIDE))


# Answers by hour have the same bins again and again; from a microsecond to a year there are 1,600.
@lru_cache(maxsize=2048)
def bin_middle_ms(duration_bin: int) -> float:
    """What stands for all durations of a bin: no more than one per cent from any of them."""
    low = DURATION_UNIT_MS * DURATION_RATIO**duration_bin
    return low * (2 * DURATION_RATIO) / (1 + DURATION_RATIO)
