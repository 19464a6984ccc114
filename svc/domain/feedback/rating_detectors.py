"""`feedback` and `feedback_drift`: what people and programs think of a call site's answers has become worse.

Owns: what of a trace is a rating, and of which call site. A name whose numbers are all 0 or 1 is a rate: a
trace has a unit of it, bad when the mean of its entries lies at the bad end. Any other name is a size, with a
value for each entry. Which end is bad is part of the measure, so that a name that somebody turns round is
learned anew. A name that has only categories is a rate of each of its first ones: a trace has a unit of each,
failed when most of its entries say that category. More of one is neither good nor bad unless somebody called
it bad. Notes are no ratings. Pure.

A rating counts in the slot of the answer that it is about, not in that in which it came: a closed hour is
told again, as it is for late spans. So a fall begins when answers became worse, whoever rates them days
later, and all that finds the traces behind a finding finds these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from svc.domain.detect.detectors.base import (
    WITNESSES,
    Detector,
    MeasureName,
    Observation,
    ObserverContext,
    rated,
    slot_of,
)
from svc.domain.detect.detectors.call_errors import RISE_TUNING
from svc.domain.detect.detectors.duration_drift import FLOOR_TUNING
from svc.domain.detect.detectors.settled_trace import SettledTrace
from svc.domain.feedback.entries import Better, Rating

#: By which end is the good one: the measure of names of 0 and 1, and of all others.
RATES: Final[Mapping[Better, MeasureName]] = {"higher": "rated_low", "lower": "rated_high"}
#: The share of a category, and of one that is bad.
SHARES: Final[tuple[MeasureName, MeasureName]] = ("category_share", "category_bad")
SIZES: Final[Mapping[Better, MeasureName]] = {"higher": "score_high_good", "lower": "score_low_good"}

_Subject = tuple[str, str, Better]


def observe(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """One unit for each call site and name; bad when those who rated it found it bad on the whole."""
    yield from _observe_categories(trace)
    for (call_site_id, name, better), ratings in _by_subject(trace, graded=False).items():
        share = fmean(rating.number or 0.0 for rating in ratings)
        is_bad = share < 0.5 if better == "higher" else share > 0.5
        yield Observation(
            RATES[better],
            rated(call_site_id, name),
            _slot(trace),
            failed=is_bad,
            witnesses=_witnesses(trace, ratings) if is_bad else (),
        )


def _observe_categories(trace: SettledTrace) -> Iterable[Observation]:
    """One unit for each call site, name and category that is watched."""
    for (call_site_id, name, _), ratings in _by_subject(trace, graded=None).items():
        # They come newest first, which decides between equals.
        [(category, _count)] = Counter(rating.category for rating in ratings).most_common(1)
        showing = [rating for rating in ratings if rating.category == category]
        for watched in ratings[0].watched:
            yield Observation(
                SHARES[watched in ratings[0].bad],
                rated(call_site_id, f"{name}={watched}"),
                _slot(trace),
                failed=watched == category,
                witnesses=_witnesses(trace, showing) if watched == category else (),
            )


def observe_scores(trace: SettledTrace, context: ObserverContext) -> Iterable[Observation]:
    """A value for each entry of a name that is more than yes and no."""
    for (call_site_id, name, better), ratings in _by_subject(trace, graded=True).items():
        for rating in ratings:
            yield Observation(SIZES[better], rated(call_site_id, name), _slot(trace), value=rating.number)


def _by_subject(trace: SettledTrace, *, graded: bool | None) -> dict[_Subject, list[Rating]]:
    """The ratings of each call site and name: scores, yes and no, or with None categories. What is about a
    span is about its call site.
    """
    if not trace.ratings:
        return {}
    sites = {row.span_id: row.call_site_id for row in trace.spans}
    subjects: defaultdict[_Subject, list[Rating]] = defaultdict(list)
    for rating in trace.ratings:
        if graded is (None if rating.number is None else rating.graded):
            call_site_id = sites.get(rating.span_id or b"", trace.call_site_id)
            subjects[call_site_id, rating.name, rating.better].append(rating)
    return subjects


def _slot(trace: SettledTrace) -> int:
    return slot_of(trace.spans[0].started_at)


def _witnesses(trace: SettledTrace, ratings: Sequence[Rating]) -> tuple[bytes, ...]:
    """The spans that were rated; of a trace as a whole its root."""
    root = trace.root
    rated_spans = (rating.span_id or (None if root is None else root.span_id) for rating in ratings)
    return tuple(dict.fromkeys(span_id for span_id in rated_spans if span_id is not None))[:WITNESSES]


FEEDBACK: Final = Detector(
    name="feedback",
    sentence="More answers of a call site are rated badly, by a name of feedback that says yes or no, or are"
    " given a category more often.",
    grain="trace",
    engine="rate",
    measures=(*RATES.values(), *SHARES),
    observe=observe,
    tuning={"rise": RISE_TUNING},
)
FEEDBACK_DRIFT: Final = Detector(
    name="feedback_drift",
    sentence="The scores that answers of a call site are given, such as stars, have become worse.",
    grain="trace",
    engine="drift",
    measures=tuple(SIZES.values()),
    observe=observe_scores,
    tuning={"w1_floor": FLOOR_TUNING},
)
