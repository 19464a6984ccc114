"""What people and programs think of an answer: one entry of feedback, and how it is read and told. Pure.

Feedback is received, never made here: a thumb, a score or a note about a trace, a span or a session. The
doors (`svc.front`, spans as they are decoded, imports) read what came with `checked`; `svc.store.feedback`
keeps it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, Literal, cast, get_args
from uuid import UUID

import attrs

from protocol.otlp.shapes import WireSpan
from protocol.text import clean
from svc.domain.calendar import EPOCH, YEARS
from svc.domain.quantities import count, score
from svc.domain.spans.values import identifier

#: Where an entry came from. Its id is unique among those of the same source.
FeedbackSource = Literal["api", "page", "span"]
SOURCES: Final[tuple[FeedbackSource, ...]] = get_args(FeedbackSource)
#: Which end of a number is the good one.
Better = Literal["higher", "lower"]

#: Names of feedback that a project may have.
MOST_NAMES: Final = 200
NAME_CHARS: Final = 100
#: Categories of a name whose shares detectors watch, the first ones that it has: each costs every call site a
#: baseline.
WATCHED_CATEGORIES: Final = 6
CATEGORY_CHARS: Final = 200
TEXT_CHARS: Final = 10_000
#: The largest number, and the smallest with a minus: squares and sums of larger ones have no room in a float.
NUMBER_MOST: Final = 1e12
#: Entries of one span that are kept.
SPAN_ENTRIES: Final = 50
#: What a person writes beside a trace is feedback of this name.
NOTE: Final = "note"
#: What a thumb on the pages is called: 1 or 0.
THUMB: Final = "helpful"
#: What detectors' firings call feedback, before its name.
PREFIX: Final = "feedback."

#: Words of a name that say which end is the good one.
_LOWER: Final = (
    *("toxic", "hallucinat", "bias", "harm", "error", "risk", "latency", "refus", "pii", "injection"),
    *("jailbreak", "drift", "effort", "distance"),
)


class WrongFeedback(Exception):
    """An entry that cannot be kept; the text says why, and quotes nothing of it."""


@attrs.frozen
class Feedback:
    """One entry. At least one of `number`, `category` and `text` is there, and a trace or a session.

    `judged_at` is when whoever judges says it was, else None. Ids are bytes.
    """

    source: FeedbackSource
    id: str
    name: str
    trace_id: bytes | None
    span_id: bytes | None
    session_id: str | None
    number: float | None
    category: str | None
    text: str | None = attrs.field(repr=False)
    author: str | None
    judged_at: datetime | None

    @property
    def subject_kind(self) -> Literal["trace", "span", "session"]:
        """What it is about."""
        if self.trace_id is None:
            return "session"
        return "trace" if self.span_id is None else "span"

    @property
    def firing_id(self) -> UUID:
        """The id of its row among the firings: the same for the same entry."""
        digest = hashlib.sha256(f"{self.source}\0{self.id}".encode()).digest()
        return UUID(bytes=digest[:16], version=5)

    @property
    def summary(self) -> str:
        """What it says, in a line."""
        values = [] if self.number is None else [score(self.number)]
        values += [] if self.category is None else [self.category]
        # Names and categories of others may hold ends of lines.
        line = " ".join((f"{self.name}: {', '.join(values)}" if values else self.name).split())
        if self.text is None:
            return line
        start = " ".join(self.text[:400].split())
        return f"{line} “{start if len(start) <= 200 else start[:199] + '…'}”"


@attrs.frozen
class Rating:
    """A number that a trace or a span of it was given under a name, as detectors count it. `graded` says that
    the numbers of the name are more than 0 and 1, `better` which end is the good one.

    Of a name without numbers it is a category, beside those of the name that are `watched` and `bad`.
    """

    name: str
    span_id: bytes | None
    number: float | None
    better: Better
    graded: bool
    category: str | None = None
    watched: Sequence[str] = ()
    bad: Collection[str] = ()


def checked(
    *,
    source: FeedbackSource,
    name: str,
    id: str | None = None,
    trace_id: bytes | None = None,
    span_id: bytes | None = None,
    session_id: str | None = None,
    number: float | None = None,
    category: str | None = None,
    text: str | None = None,
    author: str | None = None,
    judged_at: datetime | None = None,
) -> Feedback:
    """The entry as it is kept. Raises `WrongFeedback`.

    One without an id is named by what it is about and who judges, or, where nobody says who, by all that it
    says: the same entry sent twice is one, and somebody's second thumb takes the place of the first.
    """
    name = clean(name).strip()
    if not name or len(name) > NAME_CHARS or not name.isprintable():
        raise WrongFeedback(f"a name is 1 to {NAME_CHARS} printable characters")
    if number is not None and not abs(number) <= NUMBER_MOST:
        raise WrongFeedback("a number lies between -1e12 and 1e12")
    if judged_at is not None and not YEARS[0] <= judged_at.year <= YEARS[1]:
        raise WrongFeedback(f"the time of an entry lies between the years {YEARS[0]} and {YEARS[1]}")
    category, author = _trimmed(category), _trimmed(author)
    text = _trimmed(text)
    if number is None and category is None and text is None:
        raise WrongFeedback("an entry has a number, a category or a text")
    if category is not None and len(category) > CATEGORY_CHARS:
        raise WrongFeedback(f"a category is at most {CATEGORY_CHARS} characters long")
    if text is not None and len(text) > TEXT_CHARS:
        raise WrongFeedback(f"a text is at most {count(TEXT_CHARS)} characters long")
    session_id = _trimmed(session_id)
    if trace_id is None and session_id is None:
        raise WrongFeedback("an entry names a trace_id or a session_id")
    if span_id is not None and trace_id is None:
        raise WrongFeedback("an entry with a span_id names its trace_id")
    subject = (trace_id or b"").hex(), (span_id or b"").hex(), session_id or ""
    if not (entry_id := _trimmed(id)):
        content = () if author else (str(number), category or "", text or "", str(judged_at or ""))
        facts = "\0".join((*subject, name, author or "", *content))
        entry_id = hashlib.sha256(facts.encode("utf-8", "replace")).hexdigest()[:32]
    return Feedback(
        source=source,
        id=identifier(entry_id),
        name=name,
        trace_id=trace_id,
        span_id=span_id,
        # What is about a trace has the session of that, whatever is said.
        session_id=identifier(session_id) if session_id is not None and trace_id is None else None,
        number=None if number is None else float(number),
        category=category,
        text=text,
        author=None if author is None else identifier(author),
        judged_at=judged_at,
    )


def id_of(value: str | None, size_bytes: int, name: str) -> bytes | None:
    """The bytes of an id in hexadecimal digits; None where none is given. Raises `WrongFeedback`."""
    if not value:
        return None
    try:
        id_ = bytes.fromhex(value.replace("-", ""))
    except ValueError:
        id_ = b""
    if len(id_) != size_bytes or not any(id_):
        raise WrongFeedback(f"{name} is {2 * size_bytes} hexadecimal digits, not all of them 0")
    return id_


def _trimmed(value: str | None) -> str | None:
    if value is None:
        return None
    # A lone surrogate is no text that PostgreSQL could keep.
    return clean(value.encode("utf-8", "replace").decode()).strip() or None


def guessed_better(name: str) -> Better:
    """Which end is the good one, as far as its name says."""
    lowered = name.casefold()
    return "lower" if any(word in lowered for word in _LOWER) else "higher"


Comparison = Literal["<", "<=", ">", ">=", "="]
_ASKED: Final = re.compile(r"(.+?)\s*(<=|>=|<|>|=)\s*(.+)", re.DOTALL)


@attrs.frozen
class AskedFeedback:
    """Feedback that is asked for: of a name, and perhaps with numbers within a bound, or of a category."""

    name: str
    comparison: Comparison | None = None
    number: float | None = None
    category: str | None = None

    @classmethod
    def of(cls, typed: str) -> AskedFeedback:
        """From what is typed: helpful, helpful<0.5, tone=rude. Raises `WrongFeedback`."""
        match = _ASKED.fullmatch(typed)
        name = (match[1] if match else typed).strip()
        if not name or len(name) > NAME_CHARS:
            raise WrongFeedback("feedback is such as helpful, helpful<0.5 or tone=rude")
        if match is None:
            return cls(name)
        comparison = cast(Comparison, match[2])
        try:
            number = float(match[3])
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return cls(name, comparison, number)
        if comparison != "=":
            raise WrongFeedback("feedback is compared with a number, such as helpful<0.5")
        return cls(name, comparison, category=match[3].strip())


#: The event by which OpenTelemetry's conventions for GenAI carry the results of evaluations.
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
#: What such an event says: its name, and at least one of the others.
NAME_ATTRIBUTE: Final = "gen_ai.evaluation.name"
NUMBER_ATTRIBUTE: Final = "gen_ai.evaluation.score.value"
CATEGORY_ATTRIBUTE: Final = "gen_ai.evaluation.score.label"
TEXT_ATTRIBUTE: Final = "gen_ai.evaluation.explanation"
#: From the year 2100 on an instant is a mistake.
_TOO_LATE_NS: Final = 4_102_444_800_000_000_000
#: Who judges, which the conventions have no name for; moving in says it.
AUTHOR_ATTRIBUTE: Final = "svc.feedback.author"
#: The session that it is about in the place of the span, likewise.
SESSION_ATTRIBUTE: Final = "svc.feedback.session_id"


def from_span(span: WireSpan) -> tuple[Feedback, ...]:
    """What the events of a span say of it, and what one that is such an event itself says of its parent.

    What cannot be read says nothing. Names of attributes: OpenTelemetry's semantic conventions for generative
    AI, 0.1.0.
    """
    return tuple(islice(_entries(span), SPAN_ENTRIES))


def _entries(span: WireSpan) -> Iterator[Feedback]:
    own_id = span.span_id.hex()
    results: list[tuple[dict[str, Any], int, bytes | None, str]] = [
        (event.attributes, event.time_ns, span.span_id, f"{own_id}-{event.time_ns}")
        for event in span.events
        if event.name == EVALUATION_EVENT
    ]
    if span.name == EVALUATION_EVENT:
        # Some exporters write the event as a point in time of its own, below the span that it is about.
        results.append((span.attributes, span.start_ns, span.parent_span_id or None, f"{own_id}-point"))
    for result in results:
        try:
            yield _from_attributes(span, *result)
        except WrongFeedback:
            continue


def _from_attributes(
    span: WireSpan, attributes: Mapping[str, Any], time_ns: int, about: bytes | None, place: str
) -> Feedback:
    name = _said(attributes.get(NAME_ATTRIBUTE)) or "evaluation"
    number = attributes.get(NUMBER_ATTRIBUTE)
    author, session_id = _said(attributes.get(AUTHOR_ATTRIBUTE)), _said(attributes.get(SESSION_ATTRIBUTE))
    # A span that is sent once more says the same; what is about a session comes with several of its spans.
    entry_id = f"{span.trace_id.hex()}-{place}-{name}"
    if session_id:
        facts = "\0".join((session_id, name, author or "", str(time_ns)))
        entry_id = f"session-{hashlib.sha256(facts.encode('utf-8', 'replace')).hexdigest()[:32]}"
    return checked(
        source="span",
        id=entry_id,
        name=name[:NAME_CHARS],
        trace_id=None if session_id else span.trace_id,
        span_id=None if session_id else about,
        session_id=session_id,
        number=float(number) if isinstance(number, int | float) else None,
        category=(_said(attributes.get(CATEGORY_ATTRIBUTE)) or "")[:CATEGORY_CHARS],
        text=(_said(attributes.get(TEXT_ATTRIBUTE)) or "")[:TEXT_CHARS],
        author=author,
        judged_at=EPOCH + timedelta(microseconds=time_ns // 1000) if 0 < time_ns < _TOO_LATE_NS else None,
    )


def _said(value: Any) -> str | None:
    return value if type(value) is str else None
