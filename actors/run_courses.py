"""What follows of what is seen of a run or its runner: the table of outcomes, as functions without time.

The launcher asks `of_refusal`, `of_watching` and `of_result`, and carries out the course they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from protocol.agents import ATTEMPTS, LIMITED_S, PARKED_FOR, ParkedFor
from protocol.running import FailureKind, RunnerAway, RunnerRefused, RunResult

#: After a runner was away, the run is tried again no sooner than this.
AWAY_S: Final = 5.0

_PARKING: Final[Mapping[FailureKind, ParkedFor]] = {
    "no_provider": "no_provider",
    "rejected_credential": "rejected_credential",
    "no_such_model": "no_such_model",
}
#: Failures that are no fault of the attempt, and when it is tried again.
_REFUNDED: Final[Mapping[FailureKind, float]] = {
    "provider_away": LIMITED_S,
    "rate_limited": LIMITED_S,
    "sandbox_away": AWAY_S,
    "mcp_away": AWAY_S,
}
#: The same question comes to the same end: once more, in case it was chance, and no third time.
DETERMINISTIC: Final = 2
_ATTEMPTS: Final[Mapping[FailureKind, int]] = {
    # What the cap of the run leaves to another attempt is less than this one had.
    "budget": 1,
    "provider_refused": DETERMINISTIC,
    "bad_answer": DETERMINISTIC,
    "bad_output": DETERMINISTIC,
}


@attrs.frozen
class Park:
    """Wait for people."""

    reason: ParkedFor


@attrs.frozen
class Refund:
    """Try again, with the attempt given back. `counts`: against the runner."""

    due_s: float
    why: str
    counts: bool = False


@attrs.frozen
class Spend:
    """The attempt is spent; there are so many in all."""

    why: str
    attempts: int = ATTEMPTS


@attrs.frozen
class Finish:
    """There is an answer."""

    answer: Mapping[str, Any]


@attrs.frozen
class Cancelled:
    """It ended because somebody wanted it to."""


Course = Park | Refund | Spend | Finish | Cancelled


def of_refusal(answer: RunnerRefused | RunnerAway) -> Course:
    """What follows of a runner that does not take a run."""
    if isinstance(answer, RunnerAway):
        return Refund(AWAY_S, answer.said, counts=True)
    if answer.status in (401, 403, 404):
        return Park("misconfigured_runner")
    if answer.status == 429:
        return Refund(LIMITED_S, "the runner is full")
    if answer.status >= 500:
        return Refund(AWAY_S, f"the runner answers {answer.status}", counts=True)
    return Spend(f"the runner refuses the run ({answer.status} {answer.kind[:40]})")


def of_watching(answer: RunnerRefused | RunnerAway) -> Course:
    """What follows of a runner that does not tell of a run any more."""
    if isinstance(answer, RunnerRefused) and answer.status == 404:
        return Refund(0.0, "the runner began anew", counts=True)
    return of_refusal(answer)


def of_result(result: RunResult) -> Course | None:
    """What follows of a run that is over; None: it has an answer, which is still to be checked."""
    if result.state == "cancelled":
        return Cancelled()
    if result.failure is None:
        return None if result.result is not None else Spend("broken: the runner has no answer")
    kind, detail = result.failure.kind, result.failure.detail
    if kind in _PARKING:
        return Park(_PARKING[kind])
    reason = f"{kind}: {detail}" if detail else kind
    if kind in _REFUNDED:
        return Refund(_REFUNDED[kind], reason, counts=kind == "sandbox_away")
    return Spend(reason, _ATTEMPTS.get(kind, ATTEMPTS))


PARKING_REASONS: Final[Mapping[str, ParkedFor]] = {reason: reason for reason in PARKED_FOR}
