"""`model_change`: a provider answers with another model though the same one was asked for.

Owns: which model answered which request, and when an answering model counts as new. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from svc.domain.detect.detectors.base import (
    Detector,
    Observation,
    ObserverContext,
    Tunable,
    detail,
    site,
    slot_of,
)
from svc.domain.detect.detectors.settled_trace import SettledTrace, TracedSpan
from svc.domain.detect.engine.slots import SLOTS_PER_DAY

#: Calls that must be there before a share of them means anything.
CHANGED_CALLS: Final = 50
CHANGED_SHARE: Final = 0.2
#: What a model usually answers is known after so long, or after so many calls and a day.
KNOWN_SLOTS: Final = 7 * SLOTS_PER_DAY
KNOWN_CALLS: Final = 500


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One unit for each call site, requested and answering model; the answering one may be unknown."""
    first_rows: dict[tuple[str, str | None, str | None], TracedSpan] = {}
    for row in trace.spans:
        if row.kind == "llm" and (texts := trace.texts.get(row.span_id)) is not None:
            first_rows.setdefault((row.call_site_id, texts.asked_model, texts.answered_model), row)
    for (call_site_id, requested, answering), row in first_rows.items():
        if requested or answering:
            yield Observation(
                "answered_model",
                site(call_site_id),
                slot_of(row.started_at),
                detail=detail(requested, answering),
            )


def models_of(detail_text: str) -> tuple[str, str] | None:
    """The model asked for and the one that answered, of a detail of `answered_model`.

    None where one of them is unknown.
    """
    try:
        models: Any = msgspec.json.decode(detail_text)
    except msgspec.DecodeError:
        return None
    if isinstance(models, list) and len(models) == 2 and all(isinstance(model, str) for model in models):
        return models[0], models[1]
    return None


def new_models(
    answers: Mapping[str, Sequence[tuple[int, int]]], least_share: float
) -> list[tuple[str, int, int, float]]:
    """Answering models that are new: name, first slot, the slot in which each counted, and its share then.

    `answers` are slots and calls of each answering model of one that was asked for.
    """
    changes: list[tuple[str, int, int, float]] = []
    everything = sorted((slot, n, model) for model, slots in answers.items() for slot, n in slots)
    if not everything:
        return []
    first = everything[0][0]
    for model, slots in sorted(answers.items()):
        start = slots[0][0]
        earlier = [(slot, n) for slot, n, other_model in everything if slot < start and other_model != model]
        has_history = start - first >= KNOWN_SLOTS or (
            start - first >= SLOTS_PER_DAY and sum(n for _, n in earlier) >= KNOWN_CALLS
        )
        if not has_history:
            continue
        calls: Counter[bool] = Counter()
        for slot, n, other_model in everything:
            if start <= slot < start + SLOTS_PER_DAY:
                calls[other_model == model] += n
                total = calls.total()
                if other_model == model and total >= CHANGED_CALLS and calls[True] >= least_share * total:
                    changes.append((model, start, slot, calls[True] / total))
                    break
    return changes


MODEL_CHANGE: Final = Detector(
    name="model_change",
    sentence="A different model answers, although the requested one is the same.",
    grain="span",
    engine="event",
    measures=("answered_model",),
    observe=observe,
    tuning={"share": Tunable(CHANGED_SHARE, 0.01, 0.9)},
)
