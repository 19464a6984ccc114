"""What the first look says: facts with their counts, notable traces, the month; and the counts behind them.

Owns the shapes that the store fills in, the page, the command and the tool of agents show. No words but the
headline's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import attrs

from svc.domain.marks.table import MarkName
from svc.domain.quantities import count, counted

Kind = (
    Literal[
        "tool_broken", "tool_failed", "model_broken", "model_failed", "retry",
        "no_price", "no_session", "no_user", "no_usage", "no_content", "service_name",
    ]
    | MarkName
)  # fmt: skip
#: What is broken, what failed too rarely to be sure, and what is to be changed in the setup.
Group = Literal["broken", "failed", "setup"]


@attrs.frozen
class Example:
    """A trace to open, and the span in it that shows the fact, where there is one."""

    trace_id: str
    span_id: str | None
    started_at: datetime


@attrs.frozen
class Fact:
    """One line: what is so, the counts behind it, what to do, and traces to open. `traces` of `of` show it;
    `at_least` is the lower end of the 95 % interval of that share, where it is one. `reference` is the case.
    """

    kind: Kind
    group: Group
    subject: str
    what: str
    proof: str
    action: str
    traces: int
    of: int
    at_least: float | None = None
    examples: Sequence[Example] = ()
    #: The filter of the trace list that shows them all: a name and a value.
    filter: tuple[str, str] | None = None
    reference: str | None = None


@attrs.frozen
class CallCount:
    """A tool or a model over the traces that call it, by order of appearance; `error`: how it fails most."""

    name: str
    traces: int
    failed: int
    error: str | None = None
    error_traces: int = 0
    examples: Sequence[Example] = ()
    #: It has a baseline, so that its detector speaks of it.
    has_baseline: bool = False
    reference: str | None = None
    is_model: bool = False


@attrs.frozen
class RetryCount:
    """Calls of a tool with the very arguments that had just failed in the same trace."""

    tool: str
    repeats: int
    succeeded: int
    traces: int
    examples: Sequence[Example] = ()


@attrs.frozen
class MarkCount:
    """Marks of one kind at calls of a tool, empty where no span of a tool shows them; `detail` is the
    commonest of theirs, of `detail_count`.
    """

    name: MarkName
    tool: str
    count: int
    traces: int
    detail: str = ""
    detail_count: int = 0
    examples: Sequence[Example] = ()


@attrs.frozen
class ModelCount:
    """Calls of a model. `unpriced` have usage and no cost, and `tokens` are those of them."""

    name: str
    calls: int
    unpriced: int
    tokens: int
    traces: int
    with_usage: int
    with_content: int
    examples: Sequence[Example] = ()


@attrs.frozen
class TraceCount:
    """Traces, and how many of them name what."""

    traces: int
    sessions: int
    users: int
    examples: Sequence[Example] = ()


@attrs.frozen
class Month:
    """What 30 days come to at the present pace, as 95 % intervals of dollars and of bytes on disk."""

    seconds: float
    dollars: tuple[float, float] | None
    bytes: tuple[float, float] | None


@attrs.frozen
class NotableTrace:
    """One of the dearest or slowest traces."""

    trace_id: str
    name: str
    started_at: datetime
    input_preview: str | None
    latency_ms: float | None
    total_tokens: int | None
    total_cost: float | None


@attrs.frozen
class FirstLook:
    """All of it, over the newest traces; `complete`: over all there are. `has_baseline`: of some subject."""

    traces: int
    complete: bool
    since: datetime | None
    until: datetime
    spans: int
    services: Sequence[str]
    tools: Sequence[str]
    models: Sequence[str]
    facts: Sequence[Fact]
    dearest: Sequence[NotableTrace]
    slowest: Sequence[NotableTrace]
    month: Month | None
    #: Models whose cost is missing from the month.
    unpriced: Sequence[str]
    has_baseline: bool
    open_cases: int = 0
    #: Tools that failed and are no fact, for they have a baseline, with the case that is about each.
    tools_in_cases: Mapping[str, str] = attrs.field(factory=dict)

    def group(self, name: Group) -> list[Fact]:
        """The facts of a group."""
        return [fact for fact in self.facts if fact.group == name]

    @property
    def headline(self) -> str:
        """The page in a sentence."""
        if not self.traces:
            return "First look: no trace has arrived yet"
        broken, setup = len(self.group("broken")), len(self.group("setup"))
        parts = [f"{counted(broken, 'thing is', 'things are')} broken"] if broken else []
        if setup:
            parts.append(f"{count(setup)} {'needs' if setup == 1 else 'need'} a change in your setup")
        if not parts and (self.has_baseline or self.open_cases):
            # Tools with a baseline are no longer judged here.
            return "First look is done: Triage shows what breaks from now on"
        return f"First look: {', '.join(parts) or 'nothing is broken so far'}"
