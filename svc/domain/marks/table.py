"""The table of marks: which facts are stated about a settled trace, and how much each is worth.

Owns: `MARKS`, `MarkKind` and `TraceMark`. The rules beside this file make marks, the store keeps them, pages,
MCP and documentation show them. A mark states a fact, never a judgement. `precision` is the share of such
marks at whose model call people saw an error in labelled traces: how much a mark says of one. Where it was
not measured it is None. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

import attrs

from svc.domain.quantities import percent

MarkName = Literal[
    "args_break_schema",
    "same_call_again",
    "retry_of_same_failure",
    "http_error_in_ok_result",
    "tool_broken_inside",
    "claim_without_call",
    "answer_without_evidence",
    "hedge_without_evidence",
    "form_broken",
]
MARK_NAMES: Final[tuple[MarkName, ...]] = get_args(MarkName)

#: Marks of answers for which no tool had returned anything: what the model was given tells.
EVIDENCE_MARKS: Final[tuple[MarkName, ...]] = (
    "claim_without_call",
    "answer_without_evidence",
    "hedge_without_evidence",
)

#: A mark of less opens no finding alone.
OPENS_FROM: Final = 0.5


@attrs.frozen
class MarkKind:
    """One kind of mark. `label` is what stands beside a span, `sentence` says the fact. `version` goes up
    when the same trace may get other marks.
    """

    name: MarkName
    version: int
    label: str
    sentence: str
    precision: float | None
    #: Whether only its rate is judged, never one trace.
    rate_only: bool = False

    @property
    def opens_finding(self) -> bool:
        """Whether it may open a finding alone."""
        return not self.rate_only and self.precision is not None and self.precision >= OPENS_FROM

    @property
    def confidence(self) -> str | None:
        """The measured precision as events have it."""
        return None if self.precision is None else str(self.precision)


@attrs.frozen
class TraceMark:
    """A mark of one trace. `cause` is the span of the model call that asked, None where nobody knows it;
    `effect` the span at which the fact shows. `detail` adds what is special about this one.
    """

    name: MarkName
    cause: bytes | None
    effect: bytes
    call_site_id: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        """The fact in words."""
        kind = MARKS[self.name]
        return f"{kind.sentence.removesuffix('.')}: {self.detail}." if self.detail else kind.sentence


def detail_of(name: MarkName, sentence: str) -> str:
    """What is special about a mark, from its sentence; nothing where that is the sentence of its kind."""
    start = MARKS[name].sentence.removesuffix(".") + ": "
    return sentence.removeprefix(start).removesuffix(".") if sentence.startswith(start) else ""


MARKS: Final[Mapping[MarkName, MarkKind]] = {
    kind.name: kind
    for kind in (
        MarkKind(
            "args_break_schema",
            1,
            "arguments break the schema",
            "The arguments of this call break the schema that the model was offered with the tool.",
            0.62,
        ),
        MarkKind(
            "same_call_again",
            1,
            "same call again",
            "The tool was called with the same arguments just before, and it returned the same.",
            0.69,
        ),
        MarkKind(
            "retry_of_same_failure",
            1,
            "same failure again",
            "The tool failed in the same way just before, and no other tool was called in between.",
            None,
        ),
        MarkKind(
            "http_error_in_ok_result",
            1,
            "HTTP error in the result",
            "The call is recorded as successful, and its result is an HTTP error.",
            0.8,
        ),
        MarkKind(
            "tool_broken_inside",
            1,
            "fault inside the tool",
            "The tool failed with an error of its own code.",
            0.62,
        ),
        MarkKind(
            "claim_without_call",
            1,
            "claim without a call",
            "The answer names a check or a source, tools were offered, and no tool had returned anything.",
            0.82,
            rate_only=True,
        ),
        MarkKind(
            "answer_without_evidence",
            1,
            "answer without evidence",
            "The model answered, tools were offered, and no tool had returned anything.",
            0.56,
            rate_only=True,
        ),
        MarkKind(
            "hedge_without_evidence",
            1,
            "assumption without evidence",
            "The answer says that it assumes or simulates something, and no tool had returned anything.",
            0.57,
            rate_only=True,
        ),
        MarkKind(
            "form_broken",
            1,
            "demanded block missing",
            "The prompt demands a block of every answer, and this answer has none.",
            0.62,
            rate_only=True,
        ),
    )
}


def marks_table() -> str:
    """The table as the documentation shows it."""
    rows = [
        f"| `{kind.name}` | {kind.sentence} | {'–' if kind.precision is None else percent(kind.precision)} |"
        for kind in MARKS.values()
    ]
    return "\n".join(("| Mark | The fact | Precision |", "|---|---|---|", *rows))
