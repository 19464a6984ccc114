"""A bill beside what was traced, by day and model, and what explains the rest.

Owns: by which names of a model two sides mean the same, when they agree, and the words for what they do not
agree in. Called by `svc.store.reads.usage.bills`. Pure; money is decimal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Final

import attrs

from svc.domain.billing.exports import NO_MODEL, Bill, BillLine
from svc.domain.quantities import typed

#: Sides that differ by less than half of the last digit billed agree; no bill is coarser than a cent.
_COARSEST: Final = Decimal("0.01")
_FINEST: Final = Decimal("0.000000001")
_ZERO: Final = Decimal(0)
#: Tokens that differ by no more than a thousandth are taken as the same calls.
_SAME_TOKENS: Final = Decimal("0.001")

#: What stands around a model's name: who hosts it, where, its date, its version and variant.
_HOSTED: Final = re.compile(
    r"^(?:[a-z]{2,6}\.)?(?:anthropic|amazon|meta|mistral|cohere|ai21|deepseek|openai)\."
)
_DATED: Final = re.compile(r"[-@.](?:20\d{2}-?\d{2}-?\d{2})(?=$|[-:@])|-v\d+(?::\d+)?$|:[a-z]+$|-latest$")
_WORD: Final = re.compile(r"[a-z]+|\d+")

#: Providers that send bills of their own, by the name that spans have.
BILLERS: Final = frozenset({"openai", "anthropic", "openrouter", "aws"})
#: Others that a biller's calls may be named by, since they speak its interface.
_SPOKEN: Final = {"openrouter": frozenset({"openai"}), "aws": frozenset({"anthropic"})}


def model_key(name: str) -> str:
    """What names of one model have in common, whoever wrote them and in which order their words stand."""
    bare = name.lower().rpartition("/")[2]
    bare = _HOSTED.sub("", bare)
    while (shorter := _DATED.sub("", bare)) != bare:
        bare = shorter
    return " ".join(sorted(_WORD.findall(bare)))


@attrs.frozen
class TracedUse:
    """What calls of one model and call site used on a day. `unpriced` have no cost, `given` the exporter's.

    `repeated` is the cost of calls that another span tells as well, which no sum counts.
    """

    day: date
    model: str
    provider: str | None
    call_site: str
    calls: int
    cost: Decimal
    tokens: int
    unpriced: int = 0
    given: int = 0
    repeated: Decimal = _ZERO


@attrs.frozen
class SiteShare:
    """A call site's part of a row."""

    call_site: str
    calls: int
    cost: Decimal
    unpriced: int
    given: int


@attrs.frozen
class TraceShare:
    """A trace's part of a row. `cost` is None when none of its calls has one."""

    trace_id: str
    calls: int
    cost: Decimal | None


@attrs.frozen
class ReconciledDay:
    """One model on one day: billed beside ours. None where a side does not say, or has no such calls."""

    day: date
    model: str
    #: As our spans name it; several names may mean one model.
    names: tuple[str, ...]
    billed_cost: Decimal | None
    our_cost: Decimal | None
    billed_tokens: int | None
    our_tokens: int | None
    billed_calls: int | None
    our_calls: int
    agrees: bool
    reasons: tuple[str, ...]
    sites: tuple[SiteShare, ...]
    unpriced: int = 0
    traces: tuple[TraceShare, ...] = ()

    @property
    def difference(self) -> Decimal | None:
        """What was billed above what is known here; None when the bill says no cost."""
        return None if self.billed_cost is None else self.billed_cost - (self.our_cost or _ZERO)

    @property
    def weight(self) -> Decimal:
        """By how much the sides differ."""
        if self.agrees:
            return _ZERO
        return abs(self.difference) if self.difference is not None else self.our_cost or _ZERO


#: Call sites of a row.
SITES_SHOWN: Final = 5


def reconcile(bill: Bill, uses: Sequence[TracedUse]) -> list[ReconciledDay]:
    """Every day and model of either side, by day and what it cost."""
    billed: dict[tuple[date, str], list[BillLine]] = {}
    for line in bill.lines:
        billed.setdefault((line.day, model_key(line.model)), []).append(line)
    keys = {key for _, key in billed}
    has_models = any(line.model != NO_MODEL for line in bill.lines)
    ours: dict[tuple[date, str], list[TracedUse]] = {}
    for use in uses:
        key = model_key(use.model) if has_models else model_key(NO_MODEL)
        if _belongs(use.provider, bill.provider, is_billed=has_models and key in keys):
            ours.setdefault((use.day, key), []).append(use)
    rows = [
        _row(bill, day, billed.get((day, key), ()), ours.get((day, key), ()))
        for day, key in billed.keys() | ours.keys()
    ]
    return sorted(rows, key=lambda row: (row.day, -(row.billed_cost or row.our_cost or _ZERO), row.model))


def _belongs(provider: str | None, biller: str, *, is_billed: bool) -> bool:
    if provider == biller:
        return True
    return is_billed and (provider not in BILLERS or provider in _SPOKEN.get(biller, ()))


def _total(values: Iterable[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _row(bill: Bill, day: date, lines: Sequence[BillLine], uses: Sequence[TracedUse]) -> ReconciledDay:
    costs = [line.cost for line in lines if line.cost is not None]
    billed_cost = sum(costs, _ZERO) if costs else None
    billed_tokens = _total(line.tokens for line in lines)
    our_cost = sum((use.cost for use in uses), _ZERO) if uses else None
    our_tokens = sum(use.tokens for use in uses) if uses else None
    tolerance = sum((_half_digit(cost) for cost in costs), _ZERO)
    agrees = _agrees(billed_cost, our_cost, tolerance, billed_tokens, our_tokens)
    sites: dict[str, SiteShare] = {}
    for use in uses:
        share = sites.get(use.call_site, SiteShare(use.call_site, 0, _ZERO, 0, 0))
        sites[use.call_site] = SiteShare(
            use.call_site,
            share.calls + use.calls,
            share.cost + use.cost,
            share.unpriced + use.unpriced,
            share.given + use.given,
        )
    # Without a price first: they are what is missing.
    ranked = sorted(sites.values(), key=lambda site: (-site.unpriced, -site.cost, site.call_site))
    names = sorted({use.model for use in uses})
    row = ReconciledDay(
        day,
        (lines[0].model if lines else names[0]),
        tuple(names),
        billed_cost,
        our_cost,
        billed_tokens,
        our_tokens,
        _total(line.calls for line in lines),
        sum(use.calls for use in uses),
        agrees,
        (),
        tuple(ranked[:SITES_SHOWN]),
        sum(use.unpriced for use in uses),
    )
    return row if agrees else attrs.evolve(row, reasons=tuple(_reasons(bill, row, lines, uses)))


def _half_digit(cost: Decimal) -> Decimal:
    """Half of the last digit of an amount: what rounding may have taken from it."""
    exponent = cost.as_tuple().exponent
    digit = Decimal(1).scaleb(exponent) if isinstance(exponent, int) else _COARSEST
    return max(min(digit, _COARSEST) / 2, _FINEST)


def _agrees(
    billed_cost: Decimal | None,
    our_cost: Decimal | None,
    tolerance: Decimal,
    billed_tokens: int | None,
    our_tokens: int | None,
) -> bool:
    if billed_cost is not None:
        return abs(billed_cost - (our_cost or _ZERO)) <= tolerance
    return (billed_tokens or 0) == (our_tokens or 0)


def _reasons(
    bill: Bill, row: ReconciledDay, lines: Sequence[BillLine], uses: Sequence[TracedUse]
) -> Iterable[str]:
    """What explains a difference, the most telling first."""
    if not uses:
        if row.model.startswith("("):
            yield "this is no call of a model that could be traced"
        else:
            yield "no call of this model was traced on this day"
        return
    if not lines:
        yield f"the file has no line for it: these calls were billed elsewhere, or not by {bill.title}"
        return
    if row.unpriced:
        yield f"{row.unpriced:,} of {row.our_calls:,} traced calls have no price here"
    if row.billed_tokens is not None and row.our_tokens is not None:
        yield from _token_reasons(row, row.billed_tokens, row.our_tokens)
    elif row.billed_tokens is None:
        yield "the file has no tokens: the provider's usage export tells missing calls from other prices"
    if given_calls := sum(use.given for use in uses):
        yield f"{given_calls:,} calls have the cost that their exporter gave"
    repeated = sum((use.repeated for use in uses), _ZERO)
    if repeated and row.difference is not None and row.difference > 0:
        yield f"spans that tell a call again were left out here: ${typed(repeated)} in all"


def _token_reasons(row: ReconciledDay, billed_tokens: int, our_tokens: int) -> Iterable[str]:
    difference = billed_tokens - our_tokens
    if abs(difference) <= max(billed_tokens, our_tokens) * _SAME_TOKENS:
        if row.difference is not None and not row.unpriced:
            yield "the tokens agree, so the prices differ: a negotiated rate, a tier, or longer cache writes"
    elif difference > 0:
        yield f"{difference:,} billed tokens are in no trace: calls without spans, or spans without usage"
    else:
        yield f"{-difference:,} traced tokens are not billed: other accounts or keys, or failed calls"
