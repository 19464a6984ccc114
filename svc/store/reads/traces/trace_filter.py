"""What traces are narrowed to, and the clauses that say so over their rows. Pure.

Pages (`svc.store.reads.traces.traces`), counts (`svc.store.reads.traces.trace_counts`) and what stands behind
both (`svc.store.reads.traces.trace_search`, `svc.store.reads.traces.trace_groups`) share them, so that they
say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs

from protocol.refusals import UNKNOWN_FIELD, Refused
from protocol.rest.query import FilterValue
from svc.domain.feedback.entries import AskedFeedback
from svc.domain.marks.table import MarkName
from svc.domain.queries.datasets import SPANS
from svc.domain.spans.span import Kind, Status
from svc.store.aggregates.trace_values import HELD
from svc.store.aggregates.values import PLACED
from svc.store.postgres.clauses import Where, containing
from svc.store.postgres.keyset import Keyset
from svc.store.reads.questions.attributes import has_value, stored_attribute
from svc.store.reads.questions.questions import checked_filters, filter_text, stored_value

#: Texts and ids of a trace that `q` looks into, its own id apart, and where its spans have them.
_OWN_TEXTS: Final = ("name", "input_preview", "output_preview", "session_id", "user_id")
#: What only its failed spans say.
_ERROR_TEXTS: Final = ("error_type", "error_message")
#: Where a span has what a trace is found by.
TEXTS: Final = (*_OWN_TEXTS, *_ERROR_TEXTS)
#: The order of lists of traces.
NEWEST_TRACES: Final = Keyset("traces", (("started_at", "moment"), ("trace_id", "bytes")))


#: What no group of traces tells and an index does, as nothing is asked.
_UNGROUPED: Final[Mapping[str, Any]] = {
    "session_id": None,
    "marks": (),
    "without_marks": (),
    "feedback": (),
    "without_feedback": (),
    "set_id": None,
}


@attrs.frozen
class TraceFilter:
    """What a page of traces is narrowed to; None asks for nothing. The range is inclusive on `started_at`.

    Model, kind, call site and attributes ask for traces that hold a span of it, each of any span or, with
    `one_span`, all of one; the others are of the trace itself. A trace at a bound of duration or cost is
    within it.
    """

    model: str | None = None
    kind: Kind | None = None
    call_site_id: str | None = None
    #: Pairs of a field of `svc.domain.attributes` and its value.
    attributes: Sequence[tuple[str, str]] = ()
    #: Pairs of an attribute that is no field and its value, which only payloads tell; `by_payload` says how.
    payload_attributes: Sequence[tuple[str, str]] = ()
    #: The same of what no span of the trace may say.
    payload_without: Sequence[tuple[str, str]] = ()
    #: Pairs of a column of `SPAN_COLUMNS` and its value; only with `one_span`, as what became of it.
    span_fields: Sequence[tuple[str, str]] = ()
    span_status: Status | None = None
    one_span: bool = False
    status: Status | None = None
    low: datetime | None = None
    high: datetime | None = None
    q: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    slower_than: timedelta | None = None
    faster_than: timedelta | None = None
    dearer_than: Decimal | None = None
    cheaper_than: Decimal | None = None
    #: Whether the price of any of its spans is not known.
    unpriced: bool | None = None
    #: Whether any of its spans failed, whatever became of the trace.
    failed_spans: bool | None = None
    #: Values that are left out: pairs of a field of this class and what it is not.
    without: Sequence[tuple[str, str]] = ()
    #: Marks that the trace has, all of them, and those that it has not.
    marks: Sequence[MarkName] = ()
    without_marks: Sequence[MarkName] = ()
    #: Feedback that the trace or a span of it was given, all of it, and what it was not.
    feedback: Sequence[AskedFeedback] = ()
    without_feedback: Sequence[AskedFeedback] = ()
    #: The set of people that it, or a span of it, is in.
    set_id: UUID | None = None

    @property
    def by_payload(self) -> bool:
        """Whether payloads have to be looked into."""
        return bool(self.payload_attributes or self.payload_without)

    @property
    def by_value(self) -> bool:
        """Whether it asks for something, a text apart, that no index on traces narrows."""
        by_index = attrs.evolve(self, status=None, low=None, high=None, q=None, **_UNGROUPED)
        return by_index != TraceFilter()

    @property
    def by_index(self) -> bool:
        """Whether it asks for what no group of traces tells and an index does, such as a session."""
        return attrs.evolve(self, **_UNGROUPED) != self

    @property
    def by_span(self) -> bool:
        """Whether it asks for what spans of a trace hold, which is a look into them for each trace."""
        return bool(held_by_spans(self)) or any(field not in _OWN for field, _ in self.without)

    @property
    def conjoined(self) -> bool:
        """Whether one span must have several things, or one that no bits of a trace tell."""
        return self.one_span and (len(held_by_spans(self)) > 1 or bool(self.span_fields))


#: Fields of spans, the value that one of them has, and whether they are an attribute.
Held = tuple[Sequence[str], str, bool]


@attrs.frozen
class HeldValue:
    """A value that a span of the trace has in one of some fields, as the parameter `placeholder`.

    Of an attribute `attribute` is the parameter of its field, which is the only one.
    """

    fields: Sequence[str]
    value: str
    placeholder: str
    attribute: str | None = None

    @property
    def condition(self) -> str:
        """That a span `s` has it."""
        if self.attribute is not None:
            return has_value(self.attribute, self.placeholder)
        return " or ".join(f"s.{field} = {self.placeholder}" for field in self.fields)

    @property
    def is_placed(self) -> bool:
        """Whether it is known where its spans lie (`svc.store.aggregates.values`)."""
        return self.attribute is not None or set(self.fields) <= set(PLACED[SPANS.name])

    def alone(self, first: str, second: str) -> tuple[str, list[str]]:
        """That a span has it, as a condition with parameters of its own, and their values."""
        if self.attribute is not None:
            return has_value(first, second), [self.fields[0], self.value]
        return " or ".join(f"{field} = {first}" for field in self.fields), [self.value]

    @property
    def named(self) -> str:
        """A clause that is true and names its parameters."""
        names = [self.placeholder] if self.attribute is None else [self.attribute, self.placeholder]
        return " and ".join(f"{name}::text is not null" for name in names)


def held_clause(held: Sequence[HeldValue], *, one_span: bool, known: HeldValue | None = None) -> str:
    """That a trace `t` holds all of these, on one span or on any; what is known is not asked again."""
    if one_span and len(held) > 1:
        return holding(" and ".join(f"({value.condition})" for value in held))
    return " and ".join(value.named if value is known else holding(value.condition) for value in held)


def on_one_span(held: Sequence[HeldValue], first: int) -> tuple[str, list[str]]:
    """That a span has all of these, with parameters of its own from number `first` on, and their values."""
    conditions: list[str] = []
    values: list[str] = []
    for value in held:
        number = first + len(values)
        condition, parameters = value.alone(f"${number}", f"${number + 1}")
        conditions.append(f"({condition})")
        values += parameters
    return " and ".join(conditions), values


def holding(condition: str) -> str:
    """That a span `s` of a trace `t` of project `$1` meets a condition."""
    # `offset 0` keeps it one look into the trace's own spans instead of a join with all of them.
    return (
        "exists (select from span s where s.project_id = $1 and s.trace_id = t.trace_id"
        f" and s.started_at between t.first_started_at and t.last_started_at and ({condition}) offset 0)"
    )


def asked_for(near: Where, q: str | None, held: Iterable[Held]) -> tuple[str, list[HeldValue]]:
    """The clause that a trace `t` has the text in its name, a preview, an id or an error of one of its spans,
    and what it holds. Their parameters are added to those of `near`.
    """
    return _text_clause(near, q), [
        HeldValue(fields, value, near.value(value), near.value(fields[0]) if is_attribute else None)
        for fields, value, is_attribute in held
    ]


def _text_clause(near: Where, q: str | None) -> str:
    if q is None:
        return ""
    pattern = near.value(containing(q))
    own = (*(f"coalesce({column}, '')" for column in _OWN_TEXTS), "encode(trace_id, 'hex')")
    own_clause = " or ".join(f"{column} ilike {pattern}" for column in own)
    error = holding(" or ".join(f"s.{column} ilike {pattern}" for column in _ERROR_TEXTS))
    # Only into the spans of traces that have a failed one, and whose own texts do not tell.
    return f"({own_clause} or (error_count > 0 and {error}))"


#: The traces that a mark is stated of.
_MARKED: Final = (
    "select e.subject_trace_id from classifier_event e where e.project_id = $1"
    " and e.classifier_id = {name} and e.subject_trace_id is not null"
)


def _given(where: Where, asked: AskedFeedback) -> str:
    """The traces that were given this feedback."""
    clause = (
        "select f.trace_id from feedback f where f.project_id = $1"
        f" and f.name = {where.value(asked.name)} and f.trace_id is not null"
    )
    if asked.number is not None:
        clause += f" and f.number {asked.comparison} {where.value(asked.number)}"
    if asked.category is not None:
        clause += f" and f.category = {where.value(asked.category)}"
    return clause


def narrowed_by_index(project_id: int, asked: TraceFilter) -> Where:
    """What an index narrows: status, session, range, marks, feedback, a set."""
    where = Where.of(project_id)
    if asked.status is not None:
        # In so many words, not as a parameter, so that the index on failed traces serves.
        where.add("status = 'error'" if asked.status == "error" else "status = 'ok'")
    where.equal("session_id", asked.session_id)
    where.within("started_at", asked.low, asked.high)
    for name in asked.marks:
        where.add(f"trace_id in ({_MARKED.format(name=where.value(name))})")
    for name in asked.without_marks:
        where.add(f"trace_id not in ({_MARKED.format(name=where.value(name))})")
    for given in asked.feedback:
        where.add(f"trace_id in ({_given(where, given)})")
    for given in asked.without_feedback:
        where.add(f"trace_id not in ({_given(where, given)})")
    if asked.set_id is not None:
        where.add(
            "trace_id in (select e.trace_id from trace_set_entry e where e.project_id = $1"
            f" and e.set_id = {where.value(asked.set_id)})"
        )
    return where


def of_its_own(near: Where, asked: TraceFilter) -> str:
    """What a trace says by itself and no index narrows; its parameters are added to those of `near`."""
    own = Where([], near.values)
    own.equal("user_id", asked.user_id)
    if asked.slower_than is not None:
        own.add(f"ended_at - started_at >= {own.value(asked.slower_than)}::interval")
    if asked.faster_than is not None:
        own.add(f"ended_at - started_at <= {own.value(asked.faster_than)}::interval")
    own.within("total_cost", asked.dearer_than, asked.cheaper_than)
    if asked.unpriced is not None:
        own.add("unpriced_spans > 0" if asked.unpriced else "unpriced_spans = 0")
    if asked.failed_spans is not None:
        own.add("error_count > 0" if asked.failed_spans else "error_count = 0")
    conditions = []
    for field, value in asked.without:
        if field in HELD:
            conditions.append(HeldValue(HELD[field], value, own.value(value)).condition)
        elif field in _OWN:
            own.add(f"{_OWN[field]} is distinct from {own.value(value)}")
        else:
            value_of = HeldValue((field,), value, own.value(value), own.value(field))
            # A span without any fields has not got it.
            conditions.append(f"coalesce({value_of.condition}, false)")
    if conditions:
        # One look for all of them: to begin to look costs 2 ms over the days of a month.
        own.add(f"not {holding(' or '.join(conditions))}")
    return own.sql()


def both(*clauses: str) -> str:
    """The clauses that there are, joined."""
    return " and ".join(clause for clause in clauses if clause)


#: Columns of spans that one span is asked for beside those of `HELD`. Closed: they are named in SQL.
SPAN_COLUMNS: Final = (
    "name",
    "error_type",
    "provider",
    "model_id",
    "provided_model_name",
    "session_id",
    "user_id",
)
_NATIVE: Final = {"kind": "kind", "call_site_id": "call_site_id", "status": "span_status"}
_ASKED_OF_SPANS: Final = (*_NATIVE, *SPAN_COLUMNS)
#: Fields of a filter that ask for what the trace itself has; the others ask for what some span has.
_OWN: Final = {"session_id": "session_id", "user_id": "user_id"}


def held_by_spans(asked: TraceFilter) -> list[Held]:
    """What some span of the trace has, in which of its fields, and whether that is an attribute."""
    held: list[Held] = [
        (fields, value, False) for name, fields in HELD.items() if (value := getattr(asked, name)) is not None
    ]
    held += [((field,), value, True) for field, value in asked.attributes]
    if asked.one_span:
        held += [((field,), value, False) for field, value in asked.span_fields]
        if asked.span_status is not None:
            held.append((("status",), asked.span_status, False))
    return held


def of_one_span(filters: Mapping[str, FilterValue]) -> dict[str, Any]:
    """What of a `TraceFilter` says that one span has these values of the dataset of spans.

    Raises `Refused` for a field that is not there or cannot be asked for, and for null.
    """
    criteria: dict[str, Any] = {"one_span": True}
    attributes, others = [], []
    for field, value in checked_filters(SPANS, filters):
        if value is None:
            raise Refused(
                UNKNOWN_FIELD.saying(
                    f"traces cannot be filtered by spans without '{field.name[:120]}': give a value"
                )
            )
        if field.type != "attribute" and field.name not in _ASKED_OF_SPANS:
            raise Refused(
                UNKNOWN_FIELD.saying(
                    f"traces are not filtered by '{field.name[:120]}' of their spans",
                    allowed=[
                        *_ASKED_OF_SPANS,
                        *(each.name for each in SPANS.fields if each.type == "attribute"),
                    ],
                )
            )
        text = stored_value(field, filter_text(value))
        if field.type == "attribute":
            attributes.append((field.name, stored_attribute(text)))
        elif field.name in _NATIVE:
            criteria[_NATIVE[field.name]] = text
        else:
            others.append((field.name, text))
    return criteria | {"attributes": tuple(attributes), "span_fields": tuple(others)}
