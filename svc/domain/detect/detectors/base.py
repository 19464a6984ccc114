"""What a detector is, and what it makes: observations of one trace, before anything is counted.

Owns: `Observation`, the closed list `MEASURES`, the names of subjects and who calls there; `Detector`, a row
of the table, `Tunable`, and `ObserverContext`, what an observer may know beside the trace. Each detector's
file makes a `Detector`, `table` lists them. The store tallies observations, the engines judge the sums. Pure;
never any state, never decides whether anything is wrong.

A rate has one observation for each trace and subject, failed when any of its calls failed: by call, retries
would make a false alarm of nearly every bucket. A size has one for each value.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, Protocol

import attrs
import msgspec

from svc.domain.detect.detectors.settled_trace import SettledTrace, TracedSpan
from svc.domain.detect.engine.axis import UNIT_DOLLARS, UNIT_MS, UNIT_SCORE, bin_of
from svc.domain.detect.engine.slots import SLOT_S
from svc.domain.marks.table import MarkName, TraceMark
from svc.domain.spans.values import identifier
from svc.domain.traces.agent_path import BETWEEN

MeasureName = Literal[
    "tool_error_rate",
    "model_error_rate",
    "tool_duration",
    "turn_duration",
    "turn_cost",
    "malformed_rate",
    "output_shape",
    "loop_rate",
    "cut_rate",
    "secret_high",
    "secret_low",
    "answered_model",
    "seen_release",
    "seen_prompt",
    "seen_tools",
    "seen_schema",
    "mark_args_break_schema",
    "mark_same_call_again",
    "mark_retry_of_same_failure",
    "mark_http_error_in_ok_result",
    "mark_tool_broken_inside",
    "mark_claim_without_call",
    "mark_answer_without_evidence",
    "mark_hedge_without_evidence",
    "mark_form_broken",
    "rated_low",
    "rated_high",
    "score_high_good",
    "score_low_good",
    "category_share",
    "category_bad",
]


@attrs.frozen
class Measure:
    """What is counted under a name. `unit` is the lower end of a size's first bin, None for rates.

    A measure with `details` counts each subject under as many values as it has, up to a bound.
    """

    unit: float | None = None
    details: bool = False


#: Every measure.
MEASURES: Final[dict[MeasureName, Measure]] = {
    "tool_error_rate": Measure(),
    "model_error_rate": Measure(),
    "tool_duration": Measure(unit=UNIT_MS),
    "turn_duration": Measure(unit=UNIT_MS),
    "turn_cost": Measure(unit=UNIT_DOLLARS),
    "malformed_rate": Measure(),
    "output_shape": Measure(details=True),
    "loop_rate": Measure(),
    "cut_rate": Measure(),
    "secret_high": Measure(details=True),
    "secret_low": Measure(details=True),
    "answered_model": Measure(details=True),
    "seen_release": Measure(details=True),
    "seen_prompt": Measure(details=True),
    "seen_tools": Measure(details=True),
    "seen_schema": Measure(details=True),
    "mark_args_break_schema": Measure(),
    "mark_same_call_again": Measure(),
    "mark_retry_of_same_failure": Measure(),
    "mark_http_error_in_ok_result": Measure(),
    "mark_tool_broken_inside": Measure(),
    "mark_claim_without_call": Measure(),
    "mark_answer_without_evidence": Measure(),
    "mark_hedge_without_evidence": Measure(),
    "mark_form_broken": Measure(),
    "rated_low": Measure(),
    "rated_high": Measure(),
    "score_high_good": Measure(unit=UNIT_SCORE),
    "score_low_good": Measure(unit=UNIT_SCORE),
    "category_share": Measure(),
    "category_bad": Measure(),
}

#: A call site of the subject's own, one of the agents that share it, a tool, and a call site under a name of
#: feedback.
SITE: Final = "site:"
AGENT: Final = "agent:"
TOOL: Final = "tool:"
RATED: Final = "rated:"
#: The detail of what there is no room for under its own.
OTHER: Final = '["other"]'
#: Spans that an observation names at most, the first ones by start.
WITNESSES: Final = 8

#: What one call of a tool does not share with the next: UUIDs, long hexadecimal words, long numbers.
_CHANGING: Final = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![0-9a-z])"
    r"|(?<![0-9])[0-9]{4,}(?![0-9])"
)


# A struct: built for every call site and tool of every trace, at a third of what attrs' classes take.
class Observation(msgspec.Struct, frozen=True, gc=False):
    """One thing seen of one trace: a unit of a rate, which failed or not, or a value of a size.

    `slot` is that of the first span it speaks of. `witnesses` are the spans that show the failure, at most
    `WITNESSES`, and behind them as many that led to it; `signature` says in a few words what kind it is. Both
    are empty where nothing failed.
    Values are in milliseconds, in US dollars, or scores.
    """

    measure: MeasureName
    subject: str
    slot: int
    failed: bool = False
    value: float | None = None
    detail: str = ""
    witnesses: tuple[bytes, ...] = ()
    signature: str | None = None

    @property
    def bin(self) -> int:
        """The bin of a size, 0 for anything else."""
        if self.value is None or (unit := MEASURES[self.measure].unit) is None:
            return 0
        return bin_of(self.value, unit)


def slot_of(moment: datetime) -> int:
    """The slot that an aware moment lies in."""
    # As `slot_at` has it.
    return int(moment.timestamp() // SLOT_S)


def site(call_site_id: str, path: str | None = None) -> str:
    """The subject of a call site, or of the agent with this path there."""
    return SITE + call_site_id if path is None else f"{AGENT}{call_site_id}{BETWEEN}{path}"


def rated(call_site_id: str, name: str) -> str:
    """The subject of a call site under a name of feedback."""
    return f"{RATED}{call_site_id}{BETWEEN}{name.replace(BETWEEN, ' ')}"


def rating_of(subject: str) -> str | None:
    """The name of feedback that a subject is of; None for any other."""
    return subject.rpartition(BETWEEN)[2] if subject.startswith(RATED) else None


def site_of(subject: str) -> str | None:
    """The call site of a subject; None for a tool."""
    for kind in (AGENT, RATED):
        if subject.startswith(kind):
            return subject.removeprefix(kind).rpartition(BETWEEN)[0]
    return subject.removeprefix(SITE) if subject.startswith(SITE) else None


def path_of(subject: str) -> str | None:
    """The path of a subject that is an agent's; None for any other."""
    return subject.rpartition(BETWEEN)[2] if subject.startswith(AGENT) else None


@functools.lru_cache(2048)
def tool(name: str) -> str:
    """The subject of a tool, the same over calls and deploys."""
    return TOOL + (_CHANGING.sub("#", name.strip().lower()) or "unknown")


@functools.lru_cache(2048)
def detail(*parts: str | None) -> str:
    """Several values as one detail: a JSON array, cut like any identifier."""
    return identifier(msgspec.json.encode(parts).decode())


Grain = Literal["trace", "span", "session"]
Engine = Literal["rate", "drift", "event"]


class Schema(Protocol):
    """A compiled JSON Schema."""

    def is_valid(self, instance: object) -> bool: ...


@attrs.frozen(eq=False)
class ObserverContext:
    """What an observer knows beside the trace: what call sites should answer, by id, each schema with a hash
    of its text; the key under which secrets are told apart, without which nobody looks for them; whether
    marks are stated at all, and which are not; and whether agents that share a call site are told apart, with
    it as a whole beside them or not.
    """

    schemas: Mapping[str, tuple[str, Schema]] = attrs.field(factory=dict)
    secret_key: bytes = attrs.field(default=b"", repr=False)
    marks: bool = True
    marks_off: Collection[MarkName] = ()
    agents: bool = True
    whole_sites: bool = False


@attrs.frozen
class Tunable:
    """One thing that people may set: what it is without them, and between which bounds it stays."""

    default: float
    low: float
    high: float

    def clamped(self, value: float) -> float:
        """The value within the bounds."""
        return min(max(value, self.low), self.high)


@attrs.frozen(eq=False)
class Detector:
    """One detector.

    `sentence` says to a user what it finds, `grain` what one firing is about, `engine` who judges: the rate
    engine, the drift engine, or nobody, because one event is enough. `measures` are what is judged, first of
    all, and `observe` makes the observations of a trace, those of `also` and its marks too. `after` names the
    detector by whose states this one goes, which judges a subject first. `needs` names what the install must
    have before it can run at all; `unavailable` is what is said without it. `by_agent` says that a call site
    is parted by the agents whose calls are made there.
    """

    name: str
    sentence: str
    grain: Grain
    engine: Engine
    measures: tuple[MeasureName, ...]
    observe: Callable[[SettledTrace, ObserverContext], Iterable[Observation | TraceMark]] | None = None
    also: tuple[MeasureName, ...] = ()
    after: str | None = None
    tuning: Mapping[str, Tunable] = attrs.field(factory=dict)
    needs: Literal["encoder"] | None = None
    unavailable: str | None = None
    by_agent: bool = False


#: A call site, and the path of the agent that calls there; None where no agent is known.
Caller = tuple[str, str | None]


def caller_of(trace: SettledTrace, row: TracedSpan) -> Caller:
    """Who made a call of the trace."""
    return row.call_site_id, trace.paths.get(row.span_id)


def calls_by_agent(trace: SettledTrace) -> Mapping[Caller, Sequence[TracedSpan]]:
    """The model calls of each agent, without usage that repeats another's; none where the trace is one
    agent's, so that its turn says the same.
    """
    if len(set(trace.paths.values())) < 2:
        return {}
    calls: defaultdict[Caller, list[TracedSpan]] = defaultdict(list)
    for row in trace.spans:
        if row.kind == "llm" and row.usage_repeats is None and row.span_id in trace.paths:
            calls[caller_of(trace, row)].append(row)
    return calls
