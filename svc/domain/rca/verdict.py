"""The verdict of a root-cause analysis: rules in order, the first that holds.

Owns: the verdicts, the assessment of each check, and `Judged`, which `report` puts into words.
Pure; it words nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs

from svc.domain.rca.cohort import GROUPS, LEAST_UNITS, Claim, Cohort, Group, Mark
from svc.domain.rca.parts import Factor, Portion, cost_factors, signature_shares, tool_shares
from svc.domain.rca.shares import STRATUM_UNITS, AttributeCheck, ValueRow, check_attributes

RcaVerdict = Literal["behavior_change", "traffic_shift", "definition_change", "model_change", "inconclusive"]
#: What no verdict has a word for: another release took over, or several things together.
RcaChange = Literal["release_change", "joint_change"]
Assessment = Literal["ruled_out", "contributing", "explains", "unknown"]

#: Shares that moved so far, with a mark, are a change of the release, the model or the definition.
REPLACED: Final = 0.3
#: The share of traces with one of two new values alone, from which the two are told apart.
APART: Final = 0.05
#: Shares that moved so far may be a shift of traffic.
SHIFTED: Final = 0.15
EXPLAINS: Final = 0.5
CONTRIBUTES: Final = 0.2
#: So much of a change inside one value is its place, when it has at most half as much of the traffic.
PLACE_SHARE: Final = 0.6
PLACE_TRAFFIC: Final = 0.5
#: Units of a place without which it is none.
PLACE_UNITS: Final = 5


@attrs.frozen
class Concentration:
    """Where most of a change sits: a value of an attribute, a tool, or a kind of failure."""

    kind: Literal["value", "tool", "signature"]
    name: str
    share: float
    attribute: AttributeCheck | None = None
    row: ValueRow | None = None
    portion: Portion | None = None


@attrs.frozen(eq=False)
class Judged:
    """What was decided, and of what. `cause` is the attribute that a verdict of its group rests on,
    `joint` what arrived with it and cannot be told apart from it, `place` where the change sits. `lacking`
    says why nothing was found.
    """

    verdict: RcaVerdict
    checks: tuple[AttributeCheck, ...]
    cause: AttributeCheck | None = None
    joint: tuple[AttributeCheck, ...] = ()
    place: Concentration | None = None
    places: tuple[Concentration, ...] = ()
    factors: tuple[Factor, ...] = ()
    lacking: Literal["sample", "attributes", "pattern"] | None = None

    @property
    def causes(self) -> tuple[AttributeCheck, ...]:
        """All that the verdict rests on."""
        return () if self.cause is None else (self.cause, *self.joint)

    @property
    def change(self) -> RcaChange | None:
        """What the verdict has no word for."""
        groups = {check.group for check in self.causes}
        if len(groups) > 1:
            return "joint_change"
        return "release_change" if groups == {"release"} else None

    @property
    def mark(self) -> Mark | None:
        """The mark that the verdict rests on."""
        if self.cause is not None:
            return self.cause.mark
        check = None if self.place is None else self.place.attribute
        return None if check is None else check.mark

    @property
    def certain(self) -> bool:
        """Whether it may be told as the reason: a mark stands before the onset, half is explained, and
        nothing else arrived with it.
        """
        if self.joint:
            return False
        check = self.cause if self.cause is not None else self.place and self.place.attribute
        return bool(check and check.mark and check.explained is not None and check.explained >= EXPLAINS)


def judge(claim: Claim, before: Cohort, after: Cohort, marks: Sequence[Mark]) -> Judged:
    """The verdict on a claim."""
    checks = check_attributes(claim, before, after, marks)
    factors = cost_factors(before, after) if claim.money else ()
    if min(len(before.units), len(after.units)) < LEAST_UNITS:
        return Judged("inconclusive", checks, factors=factors, lacking="sample")
    places = _places(claim, before, after, checks)
    base = Judged("inconclusive", checks, places=places, factors=factors)
    causes = _replacements(checks, after)
    shifts = [c for c in checks if c.group == "who" and shifts_traffic(c)]
    # Every deploy near an incident is a release that took over; a shift that explains the change goes before.
    if any(check.group != "release" for check in causes) or (causes and not shifts):
        groups = {check.group for check in causes}
        verdict = next(word for group, word in _REPLACEMENTS if group in groups)
        return attrs.evolve(base, verdict=verdict, cause=causes[0], joint=causes[1:])
    if shifts:
        return attrs.evolve(
            base, verdict="traffic_shift", cause=max(shifts, key=lambda c: c.explained or 0.0)
        )
    if places:
        return attrs.evolve(base, verdict="behavior_change", place=places[0])
    everywhere = [check.everywhere for check in checks if check.everywhere is not None]
    if len({check.group for check in checks if check.usable}) < 2:
        return attrs.evolve(base, lacking="attributes")
    if everywhere and all(everywhere):
        return attrs.evolve(base, verdict="behavior_change")
    return attrs.evolve(base, lacking="pattern")


#: In the order in which they are judged: a release only where nothing is known of what it brought along.
_REPLACEMENTS: Final[tuple[tuple[Group, RcaVerdict], ...]] = (
    ("model", "model_change"),
    ("definition", "definition_change"),
    ("release", "behavior_change"),
)
#: In the order in which they are told: a release first, for it brings along what is changed with it.
_TOLD: Final[tuple[Group, ...]] = ("release", "model", "definition")


def _replacements(checks: Sequence[AttributeCheck], after: Cohort) -> tuple[AttributeCheck, ...]:
    """The attribute that was replaced, unless the change stands among what was not, and those that cannot be
    told apart from it, in order.
    """
    candidates = [c for group in _TOLD for c in checks if c.group == group and replaced(c)]
    for group, _ in _REPLACEMENTS:
        if of_group := [c for c in candidates if c.group == group]:
            break
    else:
        return ()
    # An explained share that cannot be measured, because all is new, is no argument against it.
    cause = max(of_group, key=lambda c: (1.0 if c.explained is None else c.explained, c.variation))
    joint = [c for c in candidates if c is cause or not _told_apart(c, cause, after)]
    # A provider and an answering model go with the requested one: it speaks for them.
    followers = [c for c in joint if c.group == "model"][1:]
    return tuple(c for c in joint if c not in followers)


def _told_apart(check: AttributeCheck, other_check: AttributeCheck, after: Cohort) -> bool:
    """Whether enough traces have what is new of one attribute without what is new of the other, or too few
    have both to say that they go together.
    """
    names = (check.name, other_check.name)
    attributes = [unit.attributes for unit in after.units if unit.attributes.keys() >= set(names)]
    apart = sum((a[names[0]] in check.grown) != (a[names[1]] in other_check.grown) for a in attributes)
    return len(attributes) < STRATUM_UNITS or apart >= max(STRATUM_UNITS, APART * len(attributes))


def replaced(check: AttributeCheck) -> bool:
    """Whether another value took over, was first seen close before the onset, and is not cleared."""
    cleared = check.explained is not None and check.explained < CONTRIBUTES
    return check.moved and check.variation >= REPLACED and check.mark is not None and not cleared


def shifts_traffic(check: AttributeCheck) -> bool:
    """Whether who asks has moved, and the change follows from it."""
    return check.moved and check.variation >= SHIFTED and (check.explained or 0.0) >= EXPLAINS


def assessed(check: AttributeCheck) -> Assessment:
    """What an attribute has to do with the change."""
    if not check.usable:
        return "unknown"
    explained = check.explained or 0.0
    if check.moved and check.variation >= SHIFTED and explained >= EXPLAINS:
        return "explains"
    if any(is_place(row) for row in check.rows):
        return "explains"
    if replaced(check) or any(row.holds for row in check.rows):
        return "contributing"
    if check.moved and explained >= CONTRIBUTES:
        return "contributing"
    # What replaced everything without a date: nothing speaks for it, and nothing against it.
    return "unknown" if check.moved and check.explained is None else "ruled_out"


def is_place(row: ValueRow) -> bool:
    """Whether most of the change sits in a value with far less of the traffic."""
    return (
        row.stands
        and row.after >= PLACE_UNITS
        and row.contribution >= PLACE_SHARE
        and row.share_after <= PLACE_TRAFFIC * row.contribution
    )


def is_new_kind(part: Portion, before: Cohort) -> bool:
    """Whether a kind of failure makes more of the rise than of the failures before: else it says nothing."""
    return part.before <= PLACE_TRAFFIC * part.share * before.mean


def _places(
    claim: Claim, before: Cohort, after: Cohort, checks: Sequence[AttributeCheck]
) -> tuple[Concentration, ...]:
    """Where most of the change sits, the narrowest first: values, then tools, then signatures."""
    places = [
        Concentration("value", row.value, row.contribution, attribute=check, row=row)
        for check in checks
        for row in check.rows
        if is_place(row)
    ]
    places.sort(
        key=lambda p: (_order(p.attribute), -(p.share / max(p.row.share_after, 1e-9) if p.row else 0))
    )
    if claim.rate:
        places += [
            Concentration("signature", part.name, part.share, portion=part)
            for part in signature_shares(before, after)
            if part.share >= PLACE_SHARE and is_new_kind(part, before)
        ]
    elif not claim.money:
        places += [
            Concentration("tool", part.name, part.share, portion=part)
            for part in tool_shares(before, after)
            if part.share >= PLACE_SHARE and part.name != claim.subject.removeprefix("tool:")
        ]
    return tuple(places)


def _order(check: AttributeCheck | None) -> tuple[int, int]:
    """Those with a mark first; then releases, tenants and users, models, definitions."""
    if check is None:
        return 1, 0
    order: tuple[Group, ...] = ("release", "who", "model", "definition")
    assert set(order) == set(GROUPS)
    return (0 if check.mark else 1), order.index(check.group)
