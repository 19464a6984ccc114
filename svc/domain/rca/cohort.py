"""What a root-cause analysis looks at: a finding's claim, its units before and after, and marks.

Owns: `Claim`, `Unit`, `Cohort`, `Mark` and the closed list `ATTRIBUTES` with its groups. The store fills
them, the other modules of this package read them. Never decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

import attrs

from protocol.detection import EvidenceRole
from svc.domain.detect.engine.slots import SLOTS_PER_HOUR

#: The classes of attributes: who asks, how the application is defined, who answers, what runs.
Group = Literal["who", "definition", "model", "release"]
GROUPS: Final[tuple[Group, ...]] = ("who", "definition", "model", "release")

AttributeName = str
#: Every attribute but the tenant-like ones: its group, and what people call it.
ATTRIBUTES: Final[Mapping[AttributeName, tuple[Group, str]]] = {
    "user": ("who", "user"),
    "session_turn": ("who", "turn of the session"),
    "message_size": ("who", "size of the first user message"),
    "prompt": ("definition", "prompt"),
    "tool_definitions": ("definition", "tool definitions"),
    "schema": ("definition", "output schema"),
    "requested_model": ("model", "requested model"),
    "answered_model": ("model", "answering model"),
    "provider": ("model", "provider"),
    "release": ("release", "release"),
    "environment": ("release", "environment"),
    "host": ("release", "host"),
}
#: The name of an attribute that looks like a tenant begins so; behind it is its key.
TENANT: Final = "tenant:"
#: Several values of one attribute in one trace, in order.
JOINED: Final = " + "
#: Units without which nothing is said.
LEAST_UNITS: Final = 50
#: A mark counts so long before the onset, or as long as the onset is uncertain.
MARK_SLOTS: Final = 12 * SLOTS_PER_HOUR


def group_of(name: AttributeName) -> Group:
    """The class of an attribute."""
    return ATTRIBUTES[name][0] if name in ATTRIBUTES else "who"


def label_of(name: AttributeName) -> str:
    """What people call an attribute."""
    return ATTRIBUTES[name][1] if name in ATTRIBUTES else f"`{name.removeprefix(TENANT)}`"


@attrs.frozen(eq=False)
class Unit:
    """One trace. `failed` is what a rate counts; `size` is the duration in ms or the cost in US dollars of
    what the finding is about. Attributes that are not known are absent. `tool_ms` is the time in tools.
    """

    trace_id: bytes
    slot: int
    failed: bool = False
    size: float | None = None
    attributes: Mapping[AttributeName, str] = attrs.field(factory=dict)
    signature: str | None = None
    calls: int = 0
    tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    repeats: int = 0
    tool_ms: Mapping[str, float] = attrs.field(factory=dict)
    model_ms: float = 0.0

    @property
    def moved_value(self) -> float:
        """What the means are taken of: 1 for a failure, the logarithm of a size."""
        return float(self.failed) if self.size is None else math.log(max(self.size, 1e-9))


@attrs.frozen(eq=False)
class Cohort:
    """Units of the slots `[first, end)`, all of them or a sample of `total`. `noted` says in a sentence what
    else was left out.
    """

    units: tuple[Unit, ...]
    first: int
    end: int
    total: int
    noted: str | None = None

    @property
    def mean(self) -> float:
        """The mean of what moved; 0 without units."""
        return math.fsum(u.moved_value for u in self.units) / len(self.units) if self.units else 0.0

    @property
    def failures(self) -> int:
        return sum(u.failed for u in self.units)


@attrs.frozen
class Mark:
    """A value of an attribute that was first seen in a slot, though the call site had others before."""

    attribute: AttributeName
    value: str
    call_site_id: str
    slot: int


@attrs.frozen(eq=False)
class Claim:
    """What a finding says. `rate` tells a share of failures from a size; `money` whether sizes are dollars;
    `sighting` that one event is enough, as of a secret.
    `onset`, `low` and `high` are slots; `evidence` are its traces by role, in the order of the detector.
    """

    title: str
    subject: str
    rate: bool
    money: bool
    onset: int
    low: int
    high: int
    sighting: bool = False
    evidence: Mapping[EvidenceRole, tuple[bytes, ...]] = attrs.field(factory=dict)

    def near(self, mark: Mark) -> bool:
        """Whether a mark lies close enough before the onset to have to do with it."""
        reach = max(MARK_SLOTS, self.high - self.low)
        return self.onset - reach <= mark.slot <= max(self.onset, self.high)
