"""`new_signature`: a failure of a kind that its tool never had.

Owns: the signature of a failure, by which failures are of one kind, and when a kind counts as new. It judges
what `tool_error` observed, so it observes nothing itself. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

import attrs

from svc.domain.detect.detector import Detector, Tunable

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
    said = _SPACE.sub(" ", _OWN.sub("#", (message or "")[:_MESSAGE_CHARS])).strip().lower()
    kind = error_type or "error"
    return (
        f"{kind}:{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:_HASH_CHARS]}"
        if said
        else kind
    )


@attrs.frozen
class SeenFailures:
    """Failures of one signature within a day: in how many traces, of how many sessions."""

    traces: int
    sessions: int


def new_signatures(
    baseline: Mapping[str, int], last_day: Mapping[str, SeenFailures], *, share: float
) -> list[str]:
    """The signatures of the last 24 hours that are new, most frequent first.

    `baseline` are the failures of the reference by signature. Fewer than `BASELINE_FAILURES` tell nothing.
    """
    if sum(baseline.values()) < BASELINE_FAILURES:
        return []
    failures = sum(seen.traces for seen in last_day.values())
    found = [
        (-seen.traces, signature)
        for signature, seen in last_day.items()
        if signature not in baseline
        and seen.traces >= max(NEW_TRACES, share * failures)
        and seen.sessions >= NEW_SESSIONS
    ]
    return [signature for _, signature in sorted(found)]


NEW_SIGNATURE: Final = Detector(
    name="new_signature",
    sentence="A tool fails in a way that it never failed before.",
    grain="trace",
    engine="event",
    measures=("tool_error_rate",),
    tuning={"share": Tunable(NEW_SHARE, 0.05, 0.9)},
)
