"""`model_change`: a provider answers with another model though the same one was asked for.

Owns: which model answered which request, and when an answering model counts as new. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from svc.domain.detect.detector import Context, Detector, Tunable
from svc.domain.detect.observed import Observation, detail, site, slot_of
from svc.domain.detect.settled_trace import SettledTrace

#: Calls that must be there before a share of them means anything.
CHANGED_CALLS: Final = 50
CHANGED_SHARE: Final = 0.2


def observe(trace: SettledTrace, context: Context) -> Iterable[Observation]:
    """One unit for each call site, requested and answering model; the answering one may be unknown."""
    seen: dict[tuple[str, str], int] = {}
    for row in trace.spans:
        texts = trace.texts.get(row.span_id)
        if row.kind == "llm" and texts is not None and (texts.asked_model or texts.answered_model):
            models = detail(texts.asked_model, texts.answered_model)
            seen.setdefault((site(row.call_site_id), models), slot_of(row.started_at))
    for (subject, models), slot in seen.items():
        yield Observation("answered_model", subject, slot, detail=models)


def models_of(detail_text: str) -> tuple[str, str] | None:
    """The model asked for and the one that answered, of a detail of `answered_model`; None: one is unknown."""
    try:
        named: Any = msgspec.json.decode(detail_text)
    except msgspec.DecodeError:
        return None
    if isinstance(named, list) and len(named) == 2 and all(isinstance(one, str) for one in named):
        return named[0], named[1]
    return None


def new_answers(
    reference: Mapping[str, Mapping[str, int]], lately: Mapping[str, Mapping[str, int]], *, share: float
) -> list[tuple[str, str]]:
    """Requested and answering models that are new: asked for in the reference, and never so answered there.

    Both are units by requested, then by answering model.
    """
    return [
        (asked, answered)
        for asked, answers in sorted(lately.items())
        for answered, n in sorted(answers.items())
        if asked in reference
        and answered not in reference[asked]
        and sum(answers.values()) >= CHANGED_CALLS
        and n >= share * sum(answers.values())
    ]


MODEL_CHANGE: Final = Detector(
    name="model_change",
    sentence="Another model answers though the same one is asked for.",
    grain="span",
    engine="event",
    measures=("answered_model",),
    observe=observe,
    tuning={"share": Tunable(CHANGED_SHARE, 0.01, 0.9)},
)
