"""What tells two sets of traces apart: those of a filter from the others, or what began since an instant.

The address is the question: `q` is the bar of those that are looked at, `base` that of those they are
compared with (blank is all others), `since` an instant that parts one bar in two. `svc.store.reads.compare`
answers; filters that it does not know are named and left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from protocol.refusals import Refused
from protocol.rest.query import instant
from protocol.storage import Slow
from svc.domain.quantities import count, duration, money, percent
from svc.store.reads.compare import CompareStore, Side, side_of
from svc.web.filters import Filters, read_filters
from svc.web.page import PROJECT, Html, PageRoute, Visit
from svc.web.ranges import PRESETS, TimeRange
from svc.web.render import query
from svc.web.trace_call import SPAN_FIELDS

#: The names of fields in the bar of the list of traces, where they differ.
_IN_THE_BAR: Final = {"call_site_id": "site", "model_id": "model", "user_id": "user"}
_BAR_FIELDS: Final = frozenset(
    {"kind", "environment", "release", "tenant", "tag", "agent", "tool", "service"}
)

MEASURES: Final = {
    "error_rate": "Traces that failed",
    "failed_spans_rate": "Traces with a failed span",
    "duration": "Duration, mean",
    "duration_p95": "Duration, 95th percentile",
    "cost": "Cost, mean",
    "tokens": "Tokens, mean",
    "spans": "Spans, mean",
}


@attrs.frozen
class ComparedSets:
    """What the address asks."""

    those: Filters
    others: Filters
    since: datetime | None
    range: TimeRange
    base: str

    @classmethod
    def of(cls, visit: Visit) -> ComparedSets:
        """From the address. Raises `Refused` for a time that cannot be read."""
        since = visit.query.get("since", "").strip()
        return cls(
            read_filters(visit.query.get("q", "")),
            read_filters(visit.query.get("base", "")),
            instant(since, "since") if since else None,
            TimeRange.of(visit.query, visit.means.now(), default="7d"),
            visit.base,
        )

    @property
    def asks(self) -> bool:
        """Whether it says which traces to look at."""
        return bool(self.those.tokens) or self.since is not None

    @property
    def wrong(self) -> list[str]:
        """What of the bars was left out."""
        sentences = [*self.those.wrong, *self.others.wrong]
        for filters in (self.those, self.others):
            names = sorted(_unknown(filters))
            if names:
                sentences.append(f"traces are not compared by {', '.join(names)}; it was left out")
        return sentences

    def sides(self) -> tuple[Side, Side]:
        """Those that they are compared with, and those that are looked at. Raises `Refused`."""
        low, high = self.range.low, self.range.high
        if self.since is None:
            return _side(self.others, low, high), _side(self.those, low, high)
        return _side(self.those, low, self.since), _side(self.those, self.since, high)

    def traces(self, field: str, value: str) -> str | None:
        """The list of those traces that have a value; None where the list has no such filter."""
        name = _IN_THE_BAR.get(field, field)
        if name == field and name not in _BAR_FIELDS and not name.startswith("attr."):
            return None
        return query(f"{self.base}/traces", q=self.those.with_(name, value), **self.range.instants)


#: What is not compared by, in the words of the bar.
_LEFT_OUT: Final = {
    "without": "what is excluded",
    "slower_than": "latency",
    "faster_than": "latency",
    "dearer_than": "cost",
    "cheaper_than": "cost",
}


def _unknown(filters: Filters) -> set[str]:
    taken = {*SPAN_FIELDS.values(), "status", "failed_spans", "attributes", "one_span"}
    names = {_LEFT_OUT.get(name, name) for name in set(filters.asked) - taken}
    return names | ({"a text"} if filters.text else set())


def _side(filters: Filters, low: datetime | None, high: datetime | None) -> Side:
    asked = filters.asked
    values = {name: asked[field] for name, field in SPAN_FIELDS.items() if field in asked}
    values |= dict(asked.get("attributes", ()))
    return side_of(low, high, values, asked.get("status"), asked.get("failed_spans"))


async def populations(visit: Visit) -> Html:
    """The page."""
    wrong, answer, slow = "", None, False
    compared = ComparedSets.of(visit)
    if compared.asks:
        try:
            baseline, comparison = compared.sides()
            answer = await CompareStore(visit.means.history).compare(visit.project.id, baseline, comparison)
        except Refused as refused:
            wrong = refused.refusal.message
        except Slow:
            slow = True
    context = {
        "compared": compared,
        "answer": answer,
        "wrong": wrong,
        "slow": slow,
        "headline": _headline(compared, answer, slow=slow, wrong=wrong),
        "measures": [] if answer is None else [_row(measured) for measured in answer["measures"]],
        "presets": PRESETS,
        "heads": ("Before", "Since") if compared.since else ("The others", "These traces"),
    }
    return Html("pages/populations", context)


def _headline(compared: ComparedSets, answer: Mapping[str, Any] | None, *, slow: bool, wrong: str) -> str:
    if wrong:
        return "These cannot be compared"
    if slow:
        return "Too many traces to compare in time"
    if answer is None:
        return "What is different about some traces?"
    if not answer["comparison"]["traces"]:
        return "There are no such traces"
    if not answer["baseline"]["traces"]:
        return "There are no others to compare them with"
    if not answer["moved"]:
        return "No value tells them apart beyond chance"
    # What they have more often says more than what they lack.
    risen = [value for value in answer["moved"] if value["comparison_share"] > value["baseline_share"]]
    first = (risen or answer["moved"])[0]
    shares = percent(first["comparison_share"]), percent(first["baseline_share"])
    others = "before" if compared.since else "of the others"
    return f"{shares[0]} have {first['field']} {first['value']}, {shares[1]} {others}"


@attrs.frozen
class MeasureRow:
    """A measure of both sides as texts, with the interval of each; `apart` where those do not meet."""

    name: str
    sides: tuple[tuple[str, str], tuple[str, str]]
    apart: bool


def _row(measured: Mapping[str, Any]) -> MeasureRow:
    name = measured["measure"]
    before, since = measured["baseline"], measured["comparison"]
    apart = False
    if None not in (before.get("low"), before.get("high"), since.get("low"), since.get("high")):
        apart = before["high"] < since["low"] or since["high"] < before["low"]
    return MeasureRow(MEASURES[name], (_shown(name, before), _shown(name, since)), apart)


def _shown(name: str, value: Mapping[str, Any]) -> tuple[str, str]:
    write = _WRITERS.get(name, _plain)
    if value["value"] is None:
        return "–", ""
    if value.get("low") is None or value.get("high") is None:
        return write(value["value"]), ""
    return write(value["value"]), f"{write(max(0.0, value['low']))} to {write(value['high'])}"


def _plain(number: float) -> str:
    return count(round(number)) if number >= 100 else f"{number:.3g}"


_WRITERS: Final = {
    "error_rate": percent,
    "failed_spans_rate": percent,
    "duration": duration,
    "duration_p95": duration,
    "cost": money,
}

PAGES: Final = (PageRoute("GET", PROJECT + "/compare", "ORG_VIEW", populations),)
