"""What is noted of a sandbox, so that a runner tells what one that died left behind.

Owns the names of the notes and when one is overdue. Each kind of sandbox writes them where its host keeps
notes, and ends what is overdue at its next look. Never trusts what a note says.
"""

from __future__ import annotations

import time
from typing import Any, Final

#: For which run it is, and until when.
RUN: Final = "trace-svc.run"
DEADLINE: Final = "trace-svc.deadline"
#: What a sandbox lives beyond its run.
OVERTIME_S: Final = 60.0
#: What ending one may take.
CLOSE_S: Final = 30.0


def noted(run: str, seconds: float) -> dict[str, str]:
    """The notes of a sandbox of a run that has so long."""
    return {RUN: run, DEADLINE: str(round(time.time() + seconds + OVERTIME_S))}


def overdue(notes: Any) -> bool:
    """Whether a sandbox with these notes should be gone; one without is somebody else's."""
    try:
        return float((notes or {})[DEADLINE]) < time.time()
    except (KeyError, ValueError, TypeError):
        return False
