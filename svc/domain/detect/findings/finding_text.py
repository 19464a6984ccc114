"""What a finding says: its key, its title and one sentence of proof, and the figures behind them.

Owns: the words of every detector, and how stretches of time and rarity are written. The judge calls it.
Pure; a text never holds what a user wrote but names of tools and call sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from protocol.detection import Cause
from svc.domain.detect.detectors.base import AGENT, RATED, SITE, TOOL, rating_of, site_of
from svc.domain.detect.engine.axis import UNIT_DOLLARS, UNIT_SCORE
from svc.domain.detect.engine.from_birth import TOLERATED
from svc.domain.detect.engine.rate_track import Proportion
from svc.domain.detect.engine.slots import SLOT_S, slot_start_s
from svc.domain.detect.findings import severity
from svc.domain.detect.findings.bucket import Watched
from svc.domain.detect.findings.changes import Change
from svc.domain.marks.detector import MARK_MEASURES
from svc.domain.marks.table import MARKS, MarkName
from svc.domain.quantities import count, counted, duration, money, percent, score, times

#: Of a mark: what more traces do, what fewer do, and what they have done from the start.
_MARKS: Final[Mapping[MarkName, tuple[str, str]]] = {
    "args_break_schema": (
        "calls tools with arguments that break their schema",
        "has called tools with arguments that break their schema",
    ),
    "same_call_again": (
        "repeats tool calls that change nothing",
        "has repeated tool calls that change nothing",
    ),
    "retry_of_same_failure": ("repeats calls that fail alike", "has repeated calls that fail alike"),
    "http_error_in_ok_result": (
        "gets HTTP errors as successful results",
        "has got HTTP errors as successful results",
    ),
    "tool_broken_inside": ("runs into faults inside its tools", "has run into faults inside its tools"),
    "claim_without_call": (
        "claims checks or sources without a tool call",
        "has claimed checks or sources without a tool call",
    ),
    "answer_without_evidence": (
        "answers before any tool has returned anything",
        "has answered before any tool had returned anything",
    ),
    "hedge_without_evidence": (
        "assumes or simulates before any tool has returned anything",
        "has assumed or simulated before any tool had returned anything",
    ),
    "form_broken": (
        "leaves out blocks that its prompt demands",
        "has left out blocks that its prompt demands",
    ),
}
#: How a rate is reported: the short name in keys, who fails, and in which way.
_RATES: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "tool_error_rate": ("tool_error_rate", "is failing more often", "is failing less often", "traces"),
    "model_error_rate": (
        "model_error_rate",
        "gets model errors more often",
        "gets model errors less often",
        "traces",
    ),
    "malformed_rate": (
        "malformed",
        "returns malformed output more often",
        "returns malformed output less often",
        "answers",
    ),
    "output_shape": (
        "malformed",
        "returns malformed output more often",
        "returns malformed output less often",
        "answers",
    ),
    "loop_rate": ("loop", "loops more often", "loops less often", "traces"),
    "cut_rate": (
        "cut",
        "returns truncated or empty output more often",
        "returns truncated or empty output less often",
        "answers",
    ),
    **{
        MARK_MEASURES[name]: (name, f"{words} more often", f"{words} less often", "traces")
        for name, (words, _) in _MARKS.items()
    },
}
_FROM_THE_START: Final[Mapping[str, str]] = {"model_error_rate": "has had model errors"} | {
    MARK_MEASURES[name]: words for name, (_, words) in _MARKS.items()
}
#: Of a measure of what answers are given: the short name in keys, and whether its failures are low numbers.
_RATED: Final[Mapping[str, tuple[str, bool]]] = {"rated_low": ("rated", True), "rated_high": ("rated", False)}
_SHARES: Final = ("category_share", "category_bad")
_SCORES: Final = ("score_high_good", "score_low_good")
#: How a size is reported: the words for more and less, and what is measured.
_SIZES: Final[Mapping[str, tuple[str, str, str]]] = {
    "turn_duration": ("slower", "faster", "turns"),
    "tool_duration": ("slower", "faster", "calls"),
    "turn_cost": ("dearer", "cheaper", "turns"),
    "score_high_good": ("higher", "lower", "scores"),
    "score_low_good": ("higher", "lower", "scores"),
}
#: Measures whose failures do harm before anybody knows what is usual.
_BAD_FROM_BIRTH: Final = frozenset(
    {"tool_error_rate", "model_error_rate"}
    | {MARK_MEASURES[name] for name, kind in MARKS.items() if kind.opens_finding}
)
#: Chance that is rarer than this is not told by the year.
_RAREST_YEARS: Final = 1_000


@attrs.frozen
class Told:
    """A change in words and figures. `severity` is 0 to 1; values are shares, milliseconds or US dollars."""

    cause: Cause
    title: str
    basis: str
    severity: float
    harmful: bool
    metric: str
    current: float | None
    baseline: float | None
    payload: Mapping[str, Any]


def subject_of(bucket: Watched) -> tuple[str, str]:
    """The kind of a bucket's subject, and its own name."""
    if bucket.subject.startswith(TOOL):
        return "tool", bucket.subject.removeprefix(TOOL)
    if bucket.subject.startswith(RATED):
        return "call_site", site_of(bucket.subject) or ""
    return "call_site", bucket.subject.removeprefix(SITE).removeprefix(AGENT)


def is_harmful(measure: str, direction: str) -> bool:
    """Whether a change in this direction does harm: of most measures a rise, of ratings it depends."""
    if measure == "category_share":
        return False
    return direction == ("down" if measure == "score_high_good" else "up")


def is_told(measure: str, direction: str) -> bool:
    """Whether a change in this direction is told at all: where one category falls, another one rises."""
    return measure != "category_share" or direction == "up"


def instant(slot: int) -> datetime:
    """The moment at which a slot begins."""
    return datetime.fromtimestamp(slot_start_s(slot), UTC)


def key_of(bucket: Watched, direction: str) -> str:
    """The key of what happened to a bucket; one finding of it is live at a time."""
    _, name = subject_of(bucket)
    if bucket.measure in _SIZES:
        rise, fall, _ = _SIZES[bucket.measure]
        return f"{bucket.reference}:{rise if direction == 'up' else fall}"
    if bucket.measure in _RATED or bucket.measure in _SHARES:
        return f"{bucket.reference}:{direction}"
    short = _RATES[bucket.measure][0]
    if short == "tool_error_rate":
        return f"{short}:{name}:{direction}"
    return f"{short}:{name}" if direction == "up" else f"{short}:{name}:down"


def told(detector: str, bucket: Watched, change: Change, reach: float) -> Told:
    """A change in words, where it touches the share `reach` of the project's traces."""
    if bucket.measure in _RATED:
        tell = _rated
    elif bucket.measure in _SHARES:
        tell = _share
    elif bucket.measure in _SCORES:
        tell = _score
    else:
        tell = _size if bucket.measure in _SIZES else _rate
    title, basis, worth, metric, current, baseline, figures = tell(bucket, change, reach)
    harmful = is_harmful(bucket.measure, change.direction) and (
        change.arm != "early" or bucket.measure in _BAD_FROM_BIRTH
    )
    payload = {
        "measure": bucket.measure,
        "subject": bucket.subject,
        "direction": change.direction,
        "arm": change.arm,
        "statistic": round(change.statistic, 3),
        "bar": round(change.bar, 3),
        "phi": round(change.phi, 3),
        "onset": [instant(slot).isoformat() for slot in (change.onset.low, change.onset.high)],
        "detected_at": instant(change.fired + 1).isoformat(),
        "severity": round(worth, 3),
        "reach": round(reach, 4),
        "chance_days": None if change.chance_days is None else round(change.chance_days, 1),
        "reference": None
        if change.usual is None
        else [instant(change.usual.first).isoformat(), instant(change.usual.end).isoformat()],
        **figures,
    }
    key = key_of(bucket, change.direction)
    if change.arm == "early" and harmful:
        payload["from_birth"] = "case" if change.confirmed else "finding"
        # A cause of its own: a rise that history shows later, and that began earlier, is no echo of it.
        key = f"{bucket.measure}:{subject_of(bucket)[1]}:birth"
    cause = Cause(detector, bucket.measure, key)
    return Told(cause, title, basis, worth, harmful, metric, current, baseline, payload)


def _rate(bucket: Watched, change: Change, reach: float) -> tuple[Any, ...]:
    _, name = subject_of(bucket)
    _, rise, fall, units = _RATES[bucket.measure]
    new, old = change.now, change.was
    if new is None:
        raise ValueError("a change of a rate without a rate")
    figures: dict[str, Any] = {
        "current": {"value": new.rate, "interval": list(new.interval), "units": new.units,
                    "failures": new.failures},
    }  # fmt: skip
    if old is None:
        since_birth = _FROM_THE_START.get(bucket.measure, "has failed")
        title = f"`{name}` {since_birth} from the start: {percent(new.rate)} of {units}"
        basis = (
            f"{count(new.failures)} of {count(new.units)} {units}; surely more than {percent(TOLERATED)}. "
            f"First seen {moment(change.onset.median)}; there is no earlier traffic to compare with."
        )
        return title, basis, severity.of_rate(0, new.rate, reach), "rate", new.rate, None, figures
    figures["reference_value"] = {
        "value": old.rate, "interval": list(old.interval), "units": old.units, "failures": old.failures,
    }  # fmt: skip
    words = rise if change.direction == "up" else fall
    title = f"`{name}` {words}: {percent(old.rate)} → {percent(new.rate)} of {units}"
    basis = (
        f"{count(new.failures)} of {count(new.units)} {units} {_since(change)} against "
        f"{count(old.failures)} of {count(old.units)} {_past(change)}; {rarity(change.chance_days)}."
    )
    worth = severity.of_rate(old.rate, new.rate, reach)
    return title, basis, worth, "rate", new.rate, old.rate, figures


def _rated(bucket: Watched, change: Change, reach: float) -> tuple[Any, ...]:
    """A share of ratings, told as what was rated: helpful from 0.81 to 0.62."""
    is_low = _RATED[bucket.measure][1]
    about = f"Ratings `{rating_of(bucket.subject)}` of `{subject_of(bucket)[1]}`"
    moves = "fell" if (change.direction == "up") == is_low else "rose"

    def title(old: Proportion, new: Proportion) -> str:
        return f"{about} {moves} from {_mean(old, is_low)} to {_mean(new, is_low)}"

    return _rating_change(change, reach, "are bad", title)


def _share(bucket: Watched, change: Change, reach: float) -> tuple[Any, ...]:
    """The share of a category: “rude” from 2 % to 11 %."""
    name, _, category = (rating_of(bucket.subject) or "").partition("=")
    moves = "rose" if change.direction == "up" else "fell"

    def title(old: Proportion, new: Proportion) -> str:
        about = f"Feedback `{name}` of `{subject_of(bucket)[1]}`"
        return f"{about}: “{category}” {moves} from {percent(old.rate)} to {percent(new.rate)}"

    return _rating_change(change, reach, f"are “{category}”", title)


def _rating_change(
    change: Change, reach: float, verdict: str, title: Callable[[Proportion, Proportion], str]
) -> tuple[Any, ...]:
    new, old = change.now, change.was
    if new is None or old is None:
        raise ValueError("ratings change from what they were")
    figures: dict[str, Any] = {
        "current": {"value": new.rate, "interval": list(new.interval), "units": new.units,
                    "failures": new.failures},
    }  # fmt: skip
    figures["reference_value"] = {
        "value": old.rate, "interval": list(old.interval), "units": old.units, "failures": old.failures,
    }  # fmt: skip
    basis = (
        f"{count(new.failures)} of {counted(new.units, 'rated trace')} {_since(change)} {verdict} against "
        f"{count(old.failures)} of {count(old.units)} {_past(change)}; {rarity(change.chance_days)}."
    )
    worth = severity.of_rate(old.rate, new.rate, reach)
    return title(old, new), basis, worth, "rate", new.rate, old.rate, figures


def _mean(share: Proportion, is_low: bool) -> str:
    return score(round(1 - share.rate if is_low else share.rate, 2))


def _score(bucket: Watched, change: Change, reach: float) -> tuple[Any, ...]:
    """Scores, told by their median, or by the end that moved more."""
    about = f"Ratings `{rating_of(bucket.subject)}` of `{subject_of(bucket)[1]}`"
    moves = "rose" if change.direction == "up" else "fell"
    sizes = change.shown
    if sizes is None:
        basis = f"{_since(change)}; {rarity(change.chance_days)}."
        return f"{about} {moves}", basis, 0.0, "ratio", None, None, {}
    p50, usual_p50, p95, usual_p95 = (
        value * UNIT_SCORE for value in (sizes.p50, sizes.usual_p50, sizes.p95, sizes.usual_p95)
    )
    title = f"{about} {moves} from {_short_score(usual_p50)} to {_short_score(p50)}"
    basis = (
        f"{count(sizes.rows)} scores {_since(change)} have the median {_short_score(p50)} against "
        f"{_short_score(usual_p50)} {_past(change)}; {rarity(change.chance_days)}."
    )
    figures = {
        "current": {"p50": p50, "p95": p95, "rows": sizes.rows},
        "reference_value": {"p50": usual_p50, "p95": usual_p95},
        "w1": sizes.w1,
        "ratio": sizes.ratio,
        "unit": "score",
    }
    return title, basis, severity.of_ratio(sizes.ratio, reach), "p50_score", p50, usual_p50, figures


def _short_score(value: float) -> str:
    # Of a score that is read off bins a third digit says nothing.
    return score(round(value, 2 if value < 1 else 1))


def _size(bucket: Watched, change: Change, reach: float) -> tuple[Any, ...]:
    _, name = subject_of(bucket)
    rise, fall, units = _SIZES[bucket.measure]
    word = rise if change.direction == "up" else fall
    sizes = change.shown
    if sizes is None:
        title = f"`{name}` is {word}"
        return title, f"{_since(change)}; {rarity(change.chance_days)}.", 0.0, "ratio", None, None, {}
    cost = bucket.measure == "turn_cost"
    write = money if cost else duration
    unit = UNIT_DOLLARS if cost else 1.0
    p50, usual_p50 = sizes.p50 * unit, sizes.usual_p50 * unit
    p95, usual_p95 = sizes.p95 * unit, sizes.usual_p95 * unit
    # A change of the tail alone moves no median: the quantile that moved more is the one to tell.
    tail = abs(p95 / usual_p95 - 1) > 2 * abs(p50 / usual_p50 - 1)
    mark, baseline, current = ("p95", usual_p95, p95) if tail else ("p50", usual_p50, p50)
    title = f"`{name}` is {word}: {mark} {write(baseline)} → {write(current)} ({times(current / baseline)})"
    basis = (
        f"{count(sizes.rows)} {units} {_since(change)} have p50 {write(p50)} and p95 {write(p95)} against "
        f"{write(usual_p50)} and {write(usual_p95)} {_past(change)}; {rarity(change.chance_days)}."
    )
    figures = {
        "current": {"p50": p50, "p95": p95, "rows": sizes.rows},
        "reference_value": {"p50": usual_p50, "p95": usual_p95},
        "w1": sizes.w1,
        "ratio": sizes.ratio,
        "unit": "usd" if cost else "ms",
    }
    metric = f"{mark}_cost" if cost else f"{mark}_ms"
    return title, basis, severity.of_ratio(sizes.ratio, reach), metric, current, baseline, figures


def _since(change: Change) -> str:
    half = (change.onset.high - change.onset.low) / 2
    return f"since {moment(change.onset.median)} (±{span(half)})"


def _past(change: Change) -> str:
    if change.usual is None:
        return "before"
    return f"in the {span(change.usual.end - change.usual.first)} before"


def moment(slot: int) -> str:
    """The start of a slot in words, UTC."""
    return f"{instant(slot):%-d %b %H:%M} UTC"


def span(slots: float) -> str:
    """A stretch of slots in its largest unit."""
    seconds = slots * SLOT_S
    if seconds >= 2 * 86_400:
        return f"{count(round(seconds / 86_400))} days"
    if seconds >= 5_400:
        return f"{count(round(seconds / 3_600))} h"
    return f"{count(round(max(seconds / 60, 5)))} min"


def rarity(days: float | None) -> str:
    """How often chance alone would do this."""
    if days is None:
        return "how often chance does this was not estimated"
    years = days / 365.25
    if years >= _RAREST_YEARS:
        often = f"less than once in {count(_RAREST_YEARS)} years"
    elif years >= 2:
        often = f"once in {count(round(years))} years"
    elif days >= 60:
        often = f"once in {count(round(days / (365.25 / 12)))} months"
    else:
        often = f"once in {count(round(max(days, 1)))} days"
    return f"expected by chance {often} of this traffic"
