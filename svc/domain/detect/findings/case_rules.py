"""When a finding is confirmed, and which findings make one case.

Owns: `failing`, the conditions under which a finding is confirmed by rule without anybody looking, each with
its sentence; and `joined`, `cases` and `roles`: one outage is one case, with its causes in order and how much
they explain. The case keeper calls both with the findings of a project as they are; people and agents may
always decide otherwise. Never confirms a secret: a high-band one is at once. Never reads a trace: sets of
trace ids and shifts are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from svc.domain.detect.detectors.base import TOOL
from svc.domain.detect.engine.change_point import Onset
from svc.domain.detect.engine.slots import SLOTS_PER_DAY, block_of_week
from svc.domain.quantities import money, percent, times

Condition = Literal["direction", "rarity", "spread", "size", "reference", "explained"]

LEAST_SLOTS: Final = 3
LEAST_TRACES: Final = 5
LEAST_SESSIONS: Final = 2
#: A rate that has doubled, as it is measured: against a reference that came out high, or since an onset
#: while it was still rising. Measured 2026-11, 1,000 units a day from 4 to 8 % within three days, 60
#: buckets: 0.45 of the alarms measure twice as much or more, 0.95 this; where it rises by a half 0.15 do.
RATE_TIMES: Final = 1.8
RATE_POINTS: Final = 0.05
SIZE_TIMES: Final = 1.25
DOLLARS_A_DAY: Final = 10.0
REFERENCE_SLOTS: Final = 7 * SLOTS_PER_DAY

#: Why a finding stays withheld, (a) to (f) in order.
REASONS: Final[Mapping[Condition, str]] = {
    "direction": "it is an improvement",
    "rarity": "it is not yet ten times rarer than an alarm by chance",
    "spread": f"it has fewer than {LEAST_SLOTS} slots, {LEAST_TRACES} traces or {LEAST_SESSIONS} sessions",
    "size": f"it is smaller than {times(RATE_TIMES)} or +{percent(RATE_POINTS)} for rates, "
    f"{times(SIZE_TIMES)} for sizes, {money(DOLLARS_A_DAY)} a day for costs",
    "reference": "the reference is shorter than 7 days or lacks this part of the week",
    "explained": "a confirmed finding explains it",
}

#: Causes first: what stands earlier explains what stands later. What is not named comes last.
CAUSE_ORDER: Final = (
    "new_signature",
    "tool_error",
    "model_error",
    "malformed_output",
    "agent_loop",
    "tool_duration",
    "turn_duration",
    "cost",
)
#: The first two are of one rank: neither explains the other.
_RANKS: Final = {cause: max(rank, 1) for rank, cause in enumerate(CAUSE_ORDER)}
JOINED_SLOTS: Final = SLOTS_PER_DAY
JOINED_SHARE: Final = 0.5
EXPLAINED_SHARE: Final = 0.5


@attrs.frozen
class Evidence:
    """What the rule looks at. `rarer` is whether the engine's alarm is `confirmed`; `slots`, `traces` and
    `sessions` count witnesses. `rate` is (usual, present) of a rate, `ratio` that of a size, `dollars_a_day`
    what it costs more. `reference` is its first slot and end, `blocks` the blocks of the week in it, as bits;
    `seen_at` the newest slot of the change. `explained_by` is the key of a confirmed finding.
    """

    harmful: bool
    rarer: bool
    slots: int
    traces: int
    sessions: int
    reference: tuple[int, int]
    blocks: int
    seen_at: int
    rate: tuple[float, float] | None = None
    ratio: float | None = None
    dollars_a_day: float = 0.0
    explained_by: str | None = None


def failing(evidence: Evidence) -> tuple[Condition, ...]:
    """The conditions that do not hold, in order; none of them: confirmed by rule."""
    first, end = evidence.reference
    holds: dict[Condition, bool] = {
        "direction": evidence.harmful,
        "rarity": evidence.rarer,
        "spread": evidence.slots >= LEAST_SLOTS
        and evidence.traces >= LEAST_TRACES
        and evidence.sessions >= LEAST_SESSIONS,
        "size": _large(evidence),
        "reference": end - first >= REFERENCE_SLOTS
        and bool(evidence.blocks >> block_of_week(evidence.seen_at) & 1),
        "explained": evidence.explained_by is None,
    }
    return tuple(condition for condition, verdict in holds.items() if not verdict)


def _large(evidence: Evidence) -> bool:
    if evidence.dollars_a_day >= DOLLARS_A_DAY:
        return True
    if evidence.rate is not None:
        usual, present = evidence.rate
        # 35 % less 30 % is five points, whatever the fractions round to.
        return present >= RATE_TIMES * usual or present - usual >= RATE_POINTS - 1e-9
    return evidence.ratio is not None and evidence.ratio >= SIZE_TIMES


@attrs.frozen
class Candidate:
    """A finding that may join others. `cause` is one of `CAUSE_ORDER`, where a drift goes by what drifted,
    `secret_leak`, or any other detector. `traces` are its witnesses, or its members where it has none;
    `subjects` is what it is about: the tool, and the call sites whose traces call it.
    """

    key: str
    cause: str
    onset: Onset
    traces: frozenset[bytes]
    subjects: frozenset[str]

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """By kind of cause, then by onset; the smallest names the case.

        A new kind of failure is confirmed together with the failures of its tool, which lead: whose onset is
        put earlier by a few slots differs with the hour of the day, and the key of the failures is the one
        that comes again.
        """
        is_new_kind = self.cause == "new_signature"
        return _RANKS.get(self.cause, len(CAUSE_ORDER)), is_new_kind, self.onset.median, self.key


@attrs.frozen
class CaseRole:
    """What a finding is in its case: a cause, or the effect of `under` to this share."""

    key: str
    role: Literal["cause", "effect"]
    under: str | None = None
    explained_share: float | None = None


def joined(finding: Candidate, other: Candidate) -> bool:
    """Whether two findings are of one outage: they began together, and share traces or a subject.

    Two tools that share no more than a call site must have begun in one moment, as far as one can tell.
    Secrets never join others.
    """
    if "secret_leak" in (finding.cause, other.cause):
        return False
    distance = max(JOINED_SLOTS, *(c.onset.high - c.onset.low for c in (finding, other)))
    if abs(finding.onset.median - other.onset.median) > distance:
        return False
    if finding.subjects & other.subjects and (not _two_tools(finding, other) or _at_once(finding, other)):
        return True
    smaller = min(len(finding.traces), len(other.traces))
    return smaller > 0 and len(finding.traces & other.traces) >= JOINED_SHARE * smaller


def _two_tools(finding: Candidate, other: Candidate) -> bool:
    """Whether each is about a tool of its own: what they share is a call site, which shares many things."""
    own_tools, other_tools = ({s for s in c.subjects if s.startswith(TOOL)} for c in (finding, other))
    return bool(own_tools and other_tools) and not own_tools & other_tools


def _at_once(finding: Candidate, other: Candidate) -> bool:
    """Whether two may have begun in one moment."""
    return finding.onset.low <= other.onset.high and other.onset.low <= finding.onset.high


def cases(findings: Sequence[Candidate]) -> list[list[Candidate]]:
    """The findings by case, the first cause first in each, cases in the order of their first causes.

    Causes that join any finding of a case join the case, so the order of the findings does not matter. An
    effect brings no two cases together: it joins the one whose findings share most traces with it.
    """
    groups: list[list[Candidate]] = []
    for finding in sorted(findings, key=_rank):
        joined_groups = [group for group in groups if any(joined(finding, member) for member in group)]
        causes = [group for group in joined_groups if group[0].rank[0] < finding.rank[0]]
        if causes:
            joined_groups = [
                max(causes, key=lambda group: (_shared(finding, group), -_apart(finding, group)))
            ]
        groups = [group for group in groups if group not in joined_groups]
        groups.append(sorted((*(member for group in joined_groups for member in group), finding), key=_rank))
    return sorted(groups, key=lambda group: group[0].rank)


def _shared(finding: Candidate, group: Sequence[Candidate]) -> int:
    return max(len(finding.traces & member.traces) for member in group)


def _apart(finding: Candidate, group: Sequence[Candidate]) -> int:
    return min(abs(finding.onset.median - member.onset.median) for member in group)


def _rank(finding: Candidate) -> tuple[int, bool, int, str]:
    return finding.rank


def explained_share(shift: float, shift_without: float) -> float:
    """How much of an effect its cause explains, 0 to 1, given its shift without the cause's witnesses.

    Both are present less usual, in any one measure; 0 when nothing shifted.
    """
    return min(max(1 - shift_without / shift, 0.0), 1.0) if shift else 0.0


def explained_by_tool(tool_ms: float, turn_ms: float) -> float:
    """How much of turns that grew by `turn_ms` a tool explains that grew by `tool_ms` a trace, 0 to 1."""
    return min(max(tool_ms / turn_ms, 0.0), 1.0) if turn_ms else 0.0


def roles(case: Sequence[Candidate], shares: Mapping[tuple[str, str], float]) -> tuple[CaseRole, ...]:
    """The role of each finding of a case, in order of rank.

    `shares` holds what a cause explains of an effect by (effect, cause). An effect is listed under the
    finding of a lower rank that explains most of it, if that is half of it at least; else it is a cause too.
    """
    ordered = sorted(case, key=_rank)
    case_roles: list[CaseRole] = []
    for i, finding in enumerate(ordered):
        causes = [(shares.get((finding.key, cause.key), 0.0), cause.key) for cause in ordered[:i]]
        share, cause_key = max(causes, key=lambda candidate: candidate[0], default=(0.0, None))
        if cause_key is not None and share >= EXPLAINED_SHARE:
            case_roles.append(CaseRole(finding.key, "effect", cause_key, share))
        else:
            case_roles.append(CaseRole(finding.key, "cause"))
    return tuple(case_roles)
