"""What tells two sets of traces apart: those of a filter from the others, or what began since an instant.

The address is the question: `q` is the bar of those that are looked at, `base` that of those they are
compared with (blank is all others), `since` an instant that parts one bar in two.
`svc.store.reads.usage.compare` answers; filters that it does not know are named and left out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import attrs

from protocol.refusals import Refused
from protocol.rest.query import instant, timestamp
from protocol.storage import Slow
from svc.store.reads.usage.compare import CompareStore
from svc.store.reads.usage.compared_sides import Side, side_of
from svc.web.overview.population_view import headline, measure_row
from svc.web.shell.filters import Filters, read_filters
from svc.web.shell.page import PROJECT, Html, PageRoute, Visit
from svc.web.shell.ranges import PRESETS, TimeRange
from svc.web.shell.render import query
from svc.web.traces.trace_call import SPAN_FIELDS

#: The names of fields in the bar of the list of traces, where they differ.
_IN_THE_BAR: Final = {"call_site_id": "site", "model_id": "model", "user_id": "user"}
_BAR_FIELDS: Final = frozenset(
    {"kind", "environment", "release", "tenant", "tag", "agent", "tool", "service"}
)


@attrs.frozen
class ComparedSets:
    """What the address asks; `typed_since` is what stands in the field for it, which may be no time."""

    those: Filters
    others: Filters
    since: datetime | None
    typed_since: str
    range: TimeRange
    base: str

    @classmethod
    def of(cls, visit: Visit) -> ComparedSets:
        """From the address."""
        since, typed_since = _moment(visit.query.get("since", "").strip())
        return cls(
            read_filters(visit.query.get("q", "")),
            read_filters(visit.query.get("base", "")),
            since,
            typed_since,
            TimeRange.of(visit.query, visit.means.now(), default="7d"),
            visit.base,
        )

    @property
    def unread_time(self) -> str:
        """A time that was meant and cannot be read."""
        return "" if self.since else self.typed_since

    @property
    def asks(self) -> bool:
        """Whether it says which traces to look at."""
        return self.since is not None or bool(self.those.tokens and not self.unread_time)

    @property
    def wrong(self) -> list[str]:
        """What of the form was left out."""
        sentences = [*self.those.wrong, *self.others.wrong]
        if self.unread_time:
            sentences.append(f"“{self.unread_time[:60]}” is not a time such as 2026-11-21T09:30Z")
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


def _moment(text: str) -> tuple[datetime | None, str]:
    """The instant that a text says, None for none, and what the field shows of it."""
    try:
        moment = instant(text, "since")
    except Refused:
        return None, text
    return moment, timestamp(moment).replace(".000000Z", "Z")


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
        "headline": headline(answer, by_time=compared.since is not None, slow=slow, wrong=wrong),
        "measures": [] if answer is None else [measure_row(measured) for measured in answer.measures],
        "presets": PRESETS,
        "heads": ("Before", "Since") if compared.since else ("The others", "These traces"),
    }
    return Html("overview/populations", context)


PAGES: Final = (PageRoute("GET", PROJECT + "/compare", "ORG_VIEW", populations),)
