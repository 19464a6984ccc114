"""`frustration` and `groundedness`: what only an encoder can see.

Owns: their rows. They read meaning, which takes a model; without one they are unavailable and say so, and
never that nothing was found. Pure.
"""

from __future__ import annotations

from typing import Final

from svc.domain.detect.detector import Detector

_REASON: Final = "needs the encoder service, which is not configured"

FRUSTRATION: Final = Detector(
    name="frustration",
    sentence="Users show that they are frustrated.",
    grain="session",
    engine="event",
    measures=(),
    needs="encoder",
    unavailable=_REASON,
)

GROUNDEDNESS: Final = Detector(
    name="groundedness",
    sentence="Answers claim what the retrieved documents do not say.",
    grain="span",
    engine="event",
    measures=(),
    needs="encoder",
    unavailable=_REASON,
)
