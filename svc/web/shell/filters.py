"""The filter bar of the list of traces: typed tokens to what the store is asked, and back to text.

`status:error -model:gpt-4o latency:>5s "refund"`: a token is a name, a colon and a value, quoted where it
holds spaces, with a minus before it when it is excluded; what is none is the text searched for. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Any, Final, cast, get_args

import attrs

from protocol.rest.query import Q_MAX
from svc.domain.attributes.conventions import CONVENTIONS, PAYLOAD, PREFIX
from svc.domain.feedback.entries import AskedFeedback, WrongFeedback
from svc.domain.marks.table import MARK_NAMES, MARKS, MarkName
from svc.domain.quantities import count
from svc.domain.spans.span import Kind
from svc.store.reads.traces.trace_filter import SPAN_COLUMNS, TraceFilter
from svc.web.shell.ranges import TimeRange

_TOKEN: Final = re.compile(
    r'(?:(-?)(?:(attr\.[^\s:"]{1,120}|[a-z_]+(?:\.[\w.-]+)?):|(latency|cost)(?=[<>])))?("(?:[^"\\]|\\.)*"|\S+)'
)
_LATENCY: Final = re.compile(r"([<>])=?\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_COST: Final = re.compile(r"([<>])=?\s*\$?\s*(\d*\.?\d+)")
#: Values that are excluded at once: each is one more look at the spans of a trace.
MOST_EXCLUDED: Final = 10
#: What may be asked for more than once.
_SEVERAL: Final = frozenset(
    {"without", "attributes", "marks", "without_marks", "feedback", "without_feedback"}
)
_NAME_CHARS: Final = 40
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


class WrongValue(Exception):
    """A value that its filter cannot take; the text says what it takes."""


def _status(value: str) -> dict[str, Any]:
    if value not in ("ok", "error"):
        raise WrongValue("status is ok or error")
    return {"status": value}


def _either_status(value: str) -> dict[str, Any]:
    """Of the span that the other filters are about, or of the trace where there is none."""
    return {"either_status": _status(value)["status"]}


def _kind(value: str) -> dict[str, Any]:
    if value not in get_args(Kind):
        raise WrongValue(f"kind is one of {', '.join(get_args(Kind))}")
    return {"kind": cast(Kind, value)}


def _latency(value: str) -> dict[str, Any]:
    match = _LATENCY.fullmatch(value)
    if match is None:
        raise WrongValue("latency is such as >5s, <300ms or >2m")
    try:
        bound = timedelta(seconds=float(match[2]) * _UNITS_S[match[3] or "s"])
    except OverflowError:
        raise WrongValue("no trace takes that long") from None
    return {"slower_than" if match[1] == ">" else "faster_than": bound}


def _cost(value: str) -> dict[str, Any]:
    match = _COST.fullmatch(value)
    try:
        bound = Decimal(match[2]) if match and len(match[2]) <= 20 else None
    except InvalidOperation:
        bound = None
    if match is None or bound is None:
        raise WrongValue("cost is such as >0.01 or <$2")
    return {"dearer_than" if match[1] == ">" else "cheaper_than": bound}


def _mark(value: str) -> MarkName:
    if value not in MARKS:
        raise WrongValue(f"mark is one of {', '.join(MARK_NAMES)}")
    return cast(MarkName, value)


def _feedback(value: str) -> AskedFeedback:
    try:
        return AskedFeedback.of(value)
    except WrongFeedback as error:
        raise WrongValue(str(error)) from None


def _unpriced(value: str) -> dict[str, Any]:
    if value not in ("yes", "no"):
        raise WrongValue("unpriced is yes or no")
    return {"unpriced": value == "yes"}


def _errors(value: str) -> dict[str, Any]:
    if value not in ("yes", "no"):
        raise WrongValue("errors is yes or no")
    return {"failed_spans": value == "yes"}


def _payload_text(value: str) -> tuple[str, str]:
    if not value.strip():
        raise WrongValue(f"{PAYLOAD} takes the text to search for")
    return PAYLOAD, value


def _text(field: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {field: value}


def _without(read: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    return lambda value: {"without": tuple(read(value).items())}


def _other_of(
    read: Callable[[str], dict[str, Any]], first: str, second: str
) -> Callable[[str], dict[str, Any]]:
    """Of two values, not the one is the other."""

    def other(value: str) -> dict[str, Any]:
        read(value)
        return read(second if value == first else first)

    return other


@attrs.frozen
class FilterField:
    """One name of the bar: what it does, with an example, and how its value is read or left out."""

    name: str
    says: str
    example: str
    read: Callable[[str], dict[str, Any]]
    exclude: Callable[[str], dict[str, Any]] | None = None
    #: All the values it takes, where they are few.
    values: Sequence[str] = ()


def _text_field(name: str, says: str, example: str, field: str) -> FilterField:
    return FilterField(name, says, example, _text(field), _without(_text(field)))


def attribute_field(name: str, says: str) -> FilterField:
    """A field of `svc.domain.attributes`."""
    return FilterField(
        name,
        says,
        "…",
        lambda value: {"attributes": ((name, value),)},
        lambda value: {"without": ((name, value),)},
    )


FIELDS: Final = {
    field.name: field
    for field in (
        FilterField(
            *("status", "failed or not: the span that the filters are about, else the trace", "error"),
            _either_status,
            _other_of(_either_status, "ok", "error"),
            ("error", "ok"),
        ),
        FilterField(
            *("trace.status", "whether the trace itself failed", "error", _status),
            _other_of(_status, "ok", "error"),
            ("error", "ok"),
        ),
        FilterField(
            *("errors", "whether any of its spans failed", "yes", _errors),
            _other_of(_errors, "yes", "no"),
            ("yes", "no"),
        ),
        _text_field("site", "call site of a span", "support.answer", "call_site_id"),
        _text_field("model", "model of a span", "gpt-4o", "model"),
        FilterField("kind", "kind of a span", "tool", _kind, _without(_kind), get_args(Kind)),
        *(
            # A column of spans, asked for beside their attributes.
            attrs.evolve(attribute_field(name, says), example=example, exclude=None)
            for name, says, example in (
                ("error_type", "how a span failed", "TimeoutError"),
                ("name", "name of a span", "chat gpt-4o"),
                ("provider", "provider of a span's model", "openai"),
            )
        ),
        FilterField(
            *("mark", "a fact that is stated of it", "args_break_schema"),
            lambda value: {"marks": (_mark(value),)},
            lambda value: {"without_marks": (_mark(value),)},
            MARK_NAMES,
        ),
        FilterField(
            *("feedback", "what people and programs thought of it", "helpful<0.5"),
            lambda value: {"feedback": (_feedback(value),)},
            lambda value: {"without_feedback": (_feedback(value),)},
        ),
        FilterField("latency", "how long it took", ">5s", _latency),
        FilterField("cost", "what it cost, in USD", ">0.01", _cost),
        _text_field("session", "its session", "s-8841", "session_id"),
        _text_field("user", "its user", "u-17", "user_id"),
        FilterField(
            *("unpriced", "whether a price is not known", "yes", _unpriced),
            _other_of(_unpriced, "yes", "no"),
            ("yes", "no"),
        ),
        FilterField(
            *(PAYLOAD, "a text anywhere in what one of its spans said; slowly", "refund"),
            lambda value: {"attributes": (_payload_text(value),)},
            lambda value: {"without": (_payload_text(value),)},
        ),
        *(attribute_field(convention.name, convention.meaning) for convention in CONVENTIONS),
    )
}
#: What is asked of a span; all of it of one and the same.
_OF_A_SPAN: Final = ("model", "kind", "call_site_id", "attributes")


def field_of(name: str) -> FilterField | None:
    """The field of the bar of this name; any name that begins with `attr.` is one."""
    return attribute_field(name, name.removeprefix(PREFIX)) if name.startswith(PREFIX) else FIELDS.get(name)


@attrs.frozen
class Token:
    """One chip of the bar."""

    name: str
    value: str
    excluded: bool = False

    def __str__(self) -> str:
        """As it is typed."""
        return f"{'-' if self.excluded else ''}{self.name}:{quoted(self.value)}"


@attrs.frozen
class Filters:
    """What the bar says: chips, the text searched for, and what of it could not be read.

    `unknown` are sentences on what looks like a filter and is searched for as a text.
    """

    tokens: Sequence[Token]
    text: str
    asked: Mapping[str, Any]
    wrong: Sequence[str]
    unknown: Sequence[str] = attrs.field(factory=list)

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.kept} {self.typed}".strip()

    @property
    def kept(self) -> str:
        """What stands as chips."""
        return " ".join(map(str, self.tokens))

    @property
    def typed(self) -> str:
        """What stands in the bar itself."""
        return quoted(self.text) if self.text else ""

    def without(self, token: Token) -> str:
        """The bar without one chip."""
        return str(attrs.evolve(self, tokens=[chip for chip in self.tokens if chip is not token]))

    def with_(self, name: str, value: str) -> str:
        """The bar with a value of a field, in the place of an earlier one."""
        tokens = [
            token for token in self.tokens if token.name != name or (token.excluded and token.value != value)
        ]
        return str(attrs.evolve(self, tokens=[*tokens, Token(name, value)]))

    def excluding(self, name: str, value: str) -> str:
        """The bar that leaves out a value of a field."""
        tokens = [token for token in self.tokens if (token.name, token.value) != (name, value)]
        return str(attrs.evolve(self, tokens=[*tokens, Token(name, value, excluded=True)]))

    @property
    def in_payloads(self) -> str:
        """The bar with its text looked for in all that spans said."""
        return str(attrs.evolve(self, tokens=[*self.tokens, Token(PAYLOAD, self.text)], text=""))

    def over(self, range_: TimeRange) -> TraceFilter:
        """What the store is asked, over a range."""
        return self.between(range_.low, range_.high)

    def between(self, low: datetime | None, high: datetime | None) -> TraceFilter:
        """What the store is asked, between two instants."""
        fields = self.asked.get("attributes", ())
        criteria = {
            **self.asked,
            "attributes": tuple(field for field in fields if field[0] not in SPAN_COLUMNS),
            "span_fields": tuple(field for field in fields if field[0] in SPAN_COLUMNS),
        }
        return TraceFilter(low=low, high=high, q=self.text or None, **criteria)


def unknown_filter(name: str, names: Collection[str], outcome: str, *, attributes: bool = True) -> str:
    """That a name is none of these filters, what comes of it, and what may be meant."""
    nearest = next(iter(get_close_matches(name, names, n=1)), None)
    remedy = f". For an attribute of your own, write {PREFIX}{name[:_NAME_CHARS]}:…" if attributes else ""
    if nearest is not None:
        remedy = f". The nearest one is {nearest}"
    return f"there is no filter “{name[:_NAME_CHARS]}”, so {outcome}{remedy}"


def quoted(value: str) -> str:
    """A value as it is typed: in quotation marks where it needs them."""
    if value and not re.search(r'[\s"\\]|^-?(?:latency|cost)[<>]', value) and not _is_token(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_token(value: str) -> bool:
    name, colon, _ = value.partition(":")
    return bool(colon) and field_of(name.removeprefix("-")) is not None


def read_filters(typed: str) -> Filters:
    """The filters of a bar. What cannot be read is named and asks for nothing."""
    tokens: list[Token] = []
    words: list[str] = []
    criteria: dict[str, Any] = {}
    wrong: list[str] = []
    unknown: list[str] = []
    for minus, with_colon, compared, raw in _TOKEN.findall(typed[: 2 * Q_MAX]):
        name = with_colon or compared
        value = re.sub(r"\\(.)", r"\1", raw[1:-1]) if len(raw) > 1 and raw[0] == raw[-1] == '"' else raw
        field = field_of(name)
        if field is None:
            # Such as https://… or a word with a colon: text.
            words.append(f"{minus}{name}:{value}" if name else value)
            if name and not value.startswith("//"):
                unknown.append(unknown_filter(name, FIELDS, "it is searched for as text"))
            continue
        try:
            criterion = _criterion(field, value, excluded=bool(minus))
        except WrongValue as error:
            wrong.append(f"{error}; it was left out")
            continue
        if criterion.keys() & criteria.keys() - _SEVERAL:
            wrong.append(f"{name} appears twice; the last one counts")
        criteria |= criterion | {
            several: (*criteria.get(several, ()), *criterion.get(several, ()))
            for several in _SEVERAL & (criteria.keys() | criterion.keys())
        }
        tokens.append(Token(name, value, bool(minus)))
    text = " ".join(words)
    if len(text) > Q_MAX:
        wrong.append(f"a text of at most {count(Q_MAX)} characters is searched for; it was left out")
        text = ""
    if len(criteria.get("without", ())) > MOST_EXCLUDED:
        wrong.append(f"at most {MOST_EXCLUDED} values are excluded; the others count")
        criteria["without"] = criteria["without"][:MOST_EXCLUDED]
    for name in ("marks", "without_marks", "feedback", "without_feedback"):
        if name in criteria:
            # The same twice asks for no more.
            criteria[name] = tuple(dict.fromkeys(criteria[name]))
        if len(criteria.get(name, ())) > MOST_EXCLUDED:
            wrong.append(f"at most {MOST_EXCLUDED} of a kind are asked for; the others were left out")
            criteria[name] = criteria[name][:MOST_EXCLUDED]
    if len(criteria.get("attributes", ())) > MOST_EXCLUDED:
        wrong.append(f"at most {MOST_EXCLUDED} attributes are asked for; the others were left out")
        criteria["attributes"] = criteria["attributes"][:MOST_EXCLUDED]
    return Filters(tokens, text, _of_one_span(criteria, wrong), wrong, list(dict.fromkeys(unknown)))


def _of_one_span(criteria: dict[str, Any], wrong: list[str]) -> dict[str, Any]:
    """What spans are asked for is asked of one of them, and so is a status beside it."""
    either = criteria.pop("either_status", None)
    if any(name in criteria for name in _OF_A_SPAN):
        criteria["one_span"] = True
        if either is not None:
            criteria["span_status"] = either
    elif either is not None:
        if "status" in criteria:
            wrong.append("status and trace.status are both there; trace.status counts")
        criteria.setdefault("status", either)
    return criteria


def _criterion(field: FilterField, value: str, *, excluded: bool) -> dict[str, Any]:
    if not excluded:
        return field.read(value)
    if field.exclude is None:
        remedy = "; turn its sign round" if field.name in ("latency", "cost") else ""
        raise WrongValue(f"{field.name} is not excluded{remedy}")
    return field.exclude(value)
