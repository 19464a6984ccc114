"""The days that Overview is about, the same days before them, and the steps that its charts are drawn in.
Buckets of answers are folded into those.

Pure; written in the address. All of it is in UTC, as buckets are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

import attrs

from protocol.refusals import INVALID_RANGE, Refused
from protocol.rest.answers import Bucket, Buckets
from svc.domain.calendar import YEARS, day_of
from svc.store.accounts.kept_charts import RANGE_DAYS
from svc.web.shell import words

DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)
#: The longest range.
MOST_DAYS: Final = RANGE_DAYS
#: Steps of charts, each up to the range for which it is the right one.
_STEPS: Final = (
    (timedelta(hours=1), timedelta(days=2)),
    (timedelta(hours=4), timedelta(days=14)),
    (DAY, timedelta(days=92)),
    (WEEK, timedelta(days=MOST_DAYS)),
)
_STEP_TEXTS: Final = {_STEPS[0][0]: "an hour", _STEPS[1][0]: "4 hours", DAY: "a day", WEEK: "a week"}
#: Ranges by name, with what they are called on their buttons and in a sentence.
NAMED: Final[Mapping[str, tuple[str, str]]] = {
    "today": ("Today", "today"),
    "yesterday": ("Yesterday", "yesterday"),
    "week": ("This week", "this week"),
    "30d": ("30 days", "in 30 days"),
}
DEFAULT: Final = "week"

#: One number of a series, by step.
Steps = Sequence[float | None]


@attrs.frozen
class DayRange:
    """From `low` on and before `high`, now at the latest; `name` is None for days of one's choice.

    `drawn_in` is the step of charts, where it is not the one that suits the length.
    """

    name: str | None
    low: datetime
    high: datetime
    now: datetime
    drawn_in: timedelta | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], now: datetime) -> DayRange:
        """The days of an address. Raises `Refused` when they cannot be read."""
        if query.get("from") or query.get("to"):
            return cls._chosen(query.get("from", ""), query.get("to", ""), now)
        name, today = query.get("range", DEFAULT), day_of(now)
        starts = {
            "today": today,
            "yesterday": today - DAY,
            "week": today - today.weekday() * DAY,
            "30d": today - 29 * DAY,
        }
        if name not in starts:
            raise Refused(INVALID_RANGE.saying(f"range is one of {', '.join(starts)}"))
        return cls(name, starts[name], today if name == "yesterday" else now, now)

    @classmethod
    def _chosen(cls, first: str, last: str, now: datetime) -> DayRange:
        low, end = _day(first or last, "from"), _day(last or first, "to") + DAY
        if low >= end:
            raise Refused(INVALID_RANGE.saying("the range ends before it begins"))
        if end - low > MOST_DAYS * DAY:
            raise Refused(INVALID_RANGE.saying(f"at most {MOST_DAYS} days are shown at once"))
        return cls(None, low, max(low, min(end, now)), now)

    @property
    def parameters(self) -> dict[str, str]:
        """How it stands in an address."""
        if self.name is not None:
            return {} if self.name == DEFAULT else {"range": self.name}
        return {"from": self.first_day, "to": self.last_day}

    @property
    def first_day(self) -> str:
        """Its first day, as a date."""
        return f"{self.low:%Y-%m-%d}"

    @property
    def last_day(self) -> str:
        """Its last day, as a date."""
        return f"{max(self.low, self.high - timedelta(microseconds=1)):%Y-%m-%d}"

    @property
    def said(self) -> str:
        """In a sentence."""
        if self.name is not None:
            return NAMED[self.name][1]
        first_day, last_day = words.day(self.low, UTC), words.day(self.high - timedelta(microseconds=1), UTC)
        return f"on {first_day}" if first_day == last_day else f"from {first_day} to {last_day}"

    @cached_property
    def step(self) -> timedelta:
        """How long the step of a chart is."""
        return self.drawn_in or next(step for step, longest in _STEPS if self.high - self.low <= longest)

    @property
    def step_text(self) -> str:
        """How long that is, in words."""
        return _STEP_TEXTS[self.step]

    @cached_property
    def starts(self) -> Sequence[datetime]:
        """When each step begins; the last one may still run."""
        steps = max(1, -(-(self.high - self.low) // self.step))
        return [self.low + number * self.step for number in range(steps)]

    @property
    def before(self) -> DayRange:
        """The same stretch of whole weeks before, up to the same hour."""
        weeks = max(1, -(-(self.high - self.low) // WEEK))
        return attrs.evolve(self, low=self.low - weeks * WEEK, high=self.high - weeks * WEEK)

    @property
    def against(self) -> str:
        """What it is compared with, in words."""
        weeks = max(1, -(-(self.high - self.low) // WEEK))
        return "against a week earlier" if weeks == 1 else f"against {weeks} weeks earlier"

    def place(self, moment: datetime) -> int:
        """The step that a moment lies in."""
        return (moment - self.low) // self.step

    def end_of(self, start: datetime) -> datetime:
        """When a step ends."""
        return min(start + self.step, self.high)


def _day(text: str, name: str) -> datetime:
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise Refused(INVALID_RANGE.saying(f"'{name}' is a day like 2026-11-22")) from None
    if not YEARS[0] <= day.year < YEARS[1]:
        raise Refused(INVALID_RANGE.saying(f"'{name}' is a day from {YEARS[0]} on and before {YEARS[1]}"))
    return day


def split_steps(
    period: DayRange,
    answer: Buckets,
    figure_of: Callable[[Bucket], float | None],
    among: Sequence[str | None] = (),
) -> dict[str | None, Steps]:
    """The series of the largest values by step, and what is left of all buckets as None.

    `among` are the values that may stand apart, in their order; any may where it names none.
    """
    total = folded_steps(period, answer.buckets, figure_of)
    values = [value for value in among if value is not None]
    series = {str(line.value): line.buckets for line in answer.series or () if line.value is not None}
    apart = {
        value: folded_steps(period, series[value], figure_of) for value in values or series if value in series
    }
    remainder = [
        None if all_ is None else max(0.0, all_ - sum(steps[number] or 0.0 for steps in apart.values()))
        for number, all_ in enumerate(total)
    ]
    split: dict[str | None, Steps] = {
        value: steps for value, steps in apart.items() if any(step for step in steps)
    }
    # What floats leave over is nothing.
    if not split or any(
        (step or 0.0) > 1e-6 * (all_ or 1.0) for step, all_ in zip(remainder, total, strict=True)
    ):
        split[None] = remainder
    return split


def folded_steps(
    period: DayRange,
    buckets: Iterable[Bucket],
    figure_of: Callable[[Bucket], float | None],
) -> Steps:
    """A figure of buckets by step; None where no bucket has one."""
    steps: list[float | None] = [None] * len(period.starts)
    for bucket in buckets:
        number, value = period.place(words.parsed(bucket.bucket_start)), figure_of(bucket)
        if value is not None and 0 <= number < len(steps):
            steps[number] = (steps[number] or 0.0) + value
    return steps
