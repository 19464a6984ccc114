"""Every check of a root-cause analysis, each with its assessment and the measurement behind it.

Owns: `told`, the rows of `ruled_out`. Ids of checks are stable, `<group>.<attribute>`, `sample`, `marks`,
`parts.<name>` and `signatures`: agents go through the same list. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from svc.domain.quantities import count, duration, money, p_value, percent
from svc.domain.rca import figures
from svc.domain.rca.cohort import LEAST_UNITS, Claim, Cohort, Mark, label_of
from svc.domain.rca.parts import Factor, Portion, others, signature_shares, tool_shares
from svc.domain.rca.shares import AttributeCheck, ValueRow
from svc.domain.rca.verdict import CONTRIBUTES, EXPLAINS, Assessment, Judged, assessed, is_new_kind

#: A report lists so many parts, so many marks and so many signatures.
TOLD: Final = 5
#: A figure that moved less than this share has nothing to do with the change.
ALIKE: Final = 0.1
_FACTORS: Final = {
    "calls": "calls a turn",
    "tokens_per_call": "tokens a call",
    "uncached_share": "share of tokens not from the cache",
    "price": "dollars a million such tokens",
}
_BESIDE: Final = {
    "calls": "model calls a trace",
    "tokens_per_call": "tokens a call",
    "cached_share": "share of cached tokens",
    "repeats": "most calls of one tool a trace",
}


def told(
    claim: Claim, before: Cohort, after: Cohort, marks: Sequence[Mark], judged: Judged
) -> list[dict[str, Any]]:
    """The checks in their order."""
    n, m = len(before.units), len(after.units)
    enough = min(n, m) >= LEAST_UNITS
    entries = [
        _check(
            "sample",
            "ruled_out" if enough else "unknown",
            f"{count(n)} traces before and {count(m)} since"
            + ("" if enough else f"; at least {LEAST_UNITS} per period are needed"),
        )
    ]
    entries += [_attribute(claim, check, enough) for check in judged.checks]
    entries.append(_marks(claim, marks))
    entries += [_factor(factor) for factor in judged.factors]
    if claim.rate:
        entries += [
            _portion(
                "signatures", claim, part, "" if is_new_kind(part, before) else "; failed so before as well"
            )
            for part in signature_shares(before, after)[:TOLD]
        ]
    elif not claim.money:
        entries += [_portion("parts.time", claim, part) for part in tool_shares(before, after)[:TOLD]]
    entries += [
        _check(
            f"parts.{beside.name}",
            "ruled_out" if abs(beside.after - beside.before) <= ALIKE * abs(beside.before) else "unknown",
            f"{_BESIDE[beside.name]}: {_plain(beside.name, beside.before)}"
            f" → {_plain(beside.name, beside.after)}",
        )
        for beside in others(before, after)
        if not any(factor.name == beside.name for factor in judged.factors)
    ]
    return entries


def _check(name: str, assessment: Assessment, measurement: str) -> dict[str, Any]:
    return {"check": name, "assessment": assessment, "measurement": measurement}


def _attribute(claim: Claim, check: AttributeCheck, enough: bool) -> dict[str, Any]:
    name = f"{check.group}.{check.name.removeprefix('tenant:')}"
    if not check.usable:
        n, m = check.known
        label = label_of(check.name)
        detail = f"{label} recorded in {n} traces before and {m} since"
        return _check(name, "unknown", detail if n or m else f"no trace recorded {label}")
    values = {row.value for row in check.rows}
    if len(values) == 1:
        return _check(name, "ruled_out", f"{figures.value(values.pop())} before and since")
    movement = f"shares moved by {figures.whole(check.variation)} ({p_value(check.p_value)})"
    if check.explained is None:
        explains = "too little of the earlier traffic remains to say how much this explains"
    else:
        explains = f"this alone explains {figures.whole(check.explained)} of the change"
    parts = [movement, explains]
    if check.everywhere is not None:
        parts.append(
            "the change appears within every value"
            if check.everywhere
            else "the change appears within some values only"
        )
    if check.mark is not None:
        parts.append(f"{figures.value(check.mark.value)} was first seen {figures.moment(check.mark.slot)}")
    holder = max((row for row in check.rows if row.stands), key=_weight, default=None)
    if holder is not None and (holder.holds or holder.contribution >= CONTRIBUTES):
        parts.append(_holder(claim, holder))
    return _check(name, assessed(check) if enough else "unknown", "; ".join(parts))


def _weight(row: ValueRow) -> float:
    return row.contribution - row.share_after


def _holder(claim: Claim, row: ValueRow) -> str:
    portion = (
        f"{figures.whole(row.coverage)} of the failures"
        if claim.rate
        else f"{figures.whole(row.contribution)} of the change"
    )
    return f"{figures.value(row.value)} holds {portion} with {figures.whole(row.share_after)} of the traffic"


def _marks(claim: Claim, marks: Sequence[Mark]) -> dict[str, Any]:
    near_marks = sorted((mark for mark in marks if claim.near(mark)), key=lambda mark: -mark.slot)
    if not near_marks:
        return _check("marks", "ruled_out", "nothing new appeared in the hours before the onset")
    phrases = "; ".join(
        f"{label_of(mark.attribute)} {figures.value(mark.value)} at {figures.value(mark.call_site_id)}"
        f" {figures.moment(mark.slot)}"
        for mark in near_marks[:TOLD]
    )
    remainder = f"; and {len(near_marks) - TOLD} more" if len(near_marks) > TOLD else ""
    return _check("marks", "contributing", f"new around the onset: {phrases}{remainder}")


def _factor(factor: Factor) -> dict[str, Any]:
    return _check(
        f"parts.{factor.name}",
        _assessment(factor.share),
        f"{_FACTORS[factor.name]}: {_plain(factor.name, factor.before)} →"
        f" {_plain(factor.name, factor.after)}, {money(factor.dollars)} per turn"
        f" ({_part(factor.share)} of the change)",
    )


def _part(share: float) -> str:
    """A part of a change, which may lie beyond all of it or against it."""
    return percent(share)


def _portion(name: str, claim: Claim, part: Portion, remark: str = "") -> dict[str, Any]:
    show = percent if claim.rate else duration
    return _check(
        f"{name}.{part.name[: figures.VALUE_CHARS]}",
        _assessment(part.share),
        f"{show(part.before)} → {show(part.after)} per trace ({_part(part.share)} of the change){remark}",
    )


def _assessment(share: float) -> Assessment:
    return "explains" if share >= EXPLAINS else "contributing" if share >= CONTRIBUTES else "ruled_out"


def _plain(name: str, value: float) -> str:
    if name in ("uncached_share", "cached_share"):
        return percent(value)
    return money(value * 1e6) if name == "price" else count(value)
