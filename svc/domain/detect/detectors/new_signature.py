"""`new_signature`: a failure of a kind that its tool never had.

Owns: the signature of a failure, by which failures are of one kind, and when a kind counts as new. It judges
what `tool_error` observed, so it observes nothing itself. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, Protocol

from svc.domain.detect.detectors.base import Detector, Tunable
from svc.domain.detect.engine.slots import SLOTS_PER_DAY

#: So much of a message is read; what it says first says what went wrong.
_MESSAGE_CHARS: Final = 240
_HASH_CHARS: Final = 12
#: What differs between two failures of one kind: texts in quotes, paths and addresses, ids, numbers.
_OWN: Final = re.compile(
    r"\"[^\"]*\"|'[^']*'|`[^`]*`|\b[a-z][a-z0-9+.-]*://\S+|(?:/[\w.-]+){2,}"
    r"|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b|[0-9]+",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(r"\s+")

#: Failures that a reference must hold before one of a kind that is not among them is new.
BASELINE_FAILURES: Final = 50
NEW_TRACES: Final = 5
NEW_SESSIONS: Final = 2
NEW_SHARE: Final = 0.2


def signature_of(error_type: str | None, message: str | None) -> str:
    """The kind of a failure: its type, then a hash of its message without what is its own.

    The message itself is not in it: it may quote what users said.
    """
    template = _SPACE.sub(" ", _OWN.sub("#", (message or "")[:_MESSAGE_CHARS])).strip().lower()
    kind = error_type or "error"
    return (
        f"{kind}:{hashlib.sha256(template.encode('utf-8', 'replace')).hexdigest()[:_HASH_CHARS]}"
        if template
        else kind
    )


class FailingTrace(Protocol):
    """A failing trace: its slot, its kind, and its session, or itself where it has none."""

    @property
    def slot(self) -> int: ...
    @property
    def trace_id(self) -> bytes: ...
    @property
    def signature(self) -> str | None: ...
    @property
    def session(self) -> str: ...


def new_since(name: str, failures: Sequence[FailingTrace], least_share: float) -> tuple[int, int] | None:
    """When a kind of failure began, and the slot in which it counted as new; None: it does not yet.

    `failures` are all failures since the reference, by slot.
    """
    start = 0
    for index, failure in enumerate(failures):
        while failures[start].slot <= failure.slot - SLOTS_PER_DAY:
            start += 1
        if failure.signature != name:
            continue
        day = failures[start : index + 1]
        matches = [s for s in day if s.signature == name]
        sessions = {s.session for s in matches}
        traces = {s.trace_id for s in matches}
        enough = len(traces) >= max(NEW_TRACES, least_share * len({s.trace_id for s in day}))
        if enough and len(sessions) >= NEW_SESSIONS:
            return matches[0].slot, failure.slot
    return None


NEW_SIGNATURE: Final = Detector(
    name="new_signature",
    sentence="A tool fails in a way that it has never failed before.",
    grain="trace",
    engine="event",
    measures=("tool_error_rate",),
    after="tool_error",
    tuning={"share": Tunable(NEW_SHARE, 0.05, 0.9)},
)
