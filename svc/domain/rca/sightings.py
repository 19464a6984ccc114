"""The report on secrets that were seen: how many traces hold one, what those have in common, what to do.

One sighting is enough for a case. There is no rise to explain, so nothing is compared but what the traces
with a secret share and most others do not. `report` calls it; its shape is the one that is told there. Pure;
never says what a secret is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.domain.quantities import count
from svc.domain.rca import figures
from svc.domain.rca.cohort import ATTRIBUTES, Claim, Cohort, Unit, label_of

#: What all sightings share is told where at most so large a share of the other traces has it too.
ELSEWHERE: Final = 0.5
#: Attributes that say where a secret came from; how a prompt is worded does not.
TELLING: Final = frozenset(
    name for name, (group, _) in ATTRIBUTES.items() if group in ("who", "release") and name != "message_size"
)
TOLD: Final = 4
STEPS: Final = (
    "Revoke it where it was issued. Assume that others have known it since it was first seen.",
    "Open a trace and see who wrote it: the user, the result of a tool, or the model itself.",
    "Mask secrets of this form before they are stored: Settings, Privacy.",
)


def summary_of(claim: Claim, before: Cohort, after: Cohort) -> str:
    """How many traces hold a secret, and what those share."""
    holders = [unit for unit in after.units if unit.failed]
    other_units = [unit for unit in (*before.units, *after.units) if not unit.failed]
    verb, subject = ("holds", "That trace has") if len(holders) == 1 else ("hold", "All have the same")
    share = f"{count(len(holders))} of {count(len(after.units))} traces"
    earlier_share = f"{count(before.failures)} of {count(len(before.units))}" if before.failures else "none"
    values = _shared_values(holders, other_units)
    return (
        f"Since {figures.moment(claim.onset)} {share} {verb} a secret of this form, before {earlier_share}."
        + (f" {subject} {', '.join(values)}." if values else "")
    )


def _shared_values(holders: Sequence[Unit], other_units: Sequence[Unit]) -> list[str]:
    """The values that all holders have and few other traces, the rarest elsewhere first."""
    if not holders:
        return []
    values: list[tuple[int, str]] = []
    for name, value in holders[0].attributes.items():
        if name in ATTRIBUTES and name not in TELLING:
            continue
        if any(unit.attributes.get(name) != value for unit in holders):
            continue
        matches = sum(unit.attributes.get(name) == value for unit in other_units)
        if matches <= ELSEWHERE * len(other_units):
            values.append((matches, f"{label_of(name)} {figures.value(value)}"))
    return [text for _, text in sorted(values)[:TOLD]]
