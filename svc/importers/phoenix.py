"""Arize Phoenix: the spans of a project over its REST API, which answers them as OTLP.

Tried against Phoenix 20.26. What answers is OTLP JSON in the spelling of the .proto files, with a null in
each arm that is not there; the resource is gone, so whoever imports names the service. Pages come newest
first behind a cursor, so the window is fixed by the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote

import attrs

from protocol.importing import Fetch, NotThere, PageTooLarge
from protocol.operator import OperatorError
from protocol.rest.query import timestamp
from svc.importers.evaluations import add_evaluation, evaluation_event
from svc.importers.source import (
    Identity,
    ImportPage,
    ImportWindow,
    camel,
    cursor_of,
    hex_id,
    identity,
    instant_of,
    json_of,
    request_of,
    service_resource,
)

#: What one page holds at most (the API's own bound).
PAGE_SPANS: Final = 1000
_Subject = Literal["span", "trace", "session"]
#: Spans whose annotations are asked for in one question, and pages of them that are read.
SPANS_ASKED: Final = 100
MOST_PAGES: Final = 20

_TIMES: Final = frozenset({"startTimeUnixNano", "endTimeUnixNano", "timeUnixNano"})
_TOTAL: Final = "llm.token_count.total"
_PARTS: Final = ("llm.token_count.prompt", "llm.token_count.completion")
NOT_A_SPAN: Final = "Phoenix answered something that is no span"


@attrs.define
class PhoenixProject:
    """One project. `service` is the name that its spans get."""

    fetch: Fetch
    project: str
    service: str
    page_spans: int = PAGE_SPANS
    name: str = "Phoenix"
    leaves: tuple[str, ...] = (
        "resource attributes, instrumentation scopes and times below a microsecond: Phoenix does not keep"
        " them; spans get the service that --service names",
        "notes, annotations of documents and of traces without their outermost span, datasets, experiments,"
        " prompts and users stay in Phoenix",
        "costs that Phoenix worked out: they are worked out anew from the price book here",
    )
    #: Routes of annotations that the server does not have: those of traces and sessions came later.
    _missing: set[_Subject] = attrs.field(factory=set)
    _answered: set[_Subject] = attrs.field(factory=set)

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The spans behind a cursor, newest first."""
        answer = await self._fetched(window, cursor)
        spans, unread = [], 0
        tokens: dict[Identity, int | None] = {}
        for entry in answer.get("data") or ():
            span = _otlp(entry) if isinstance(entry, dict) else {}
            if not isinstance(span.get("traceId"), str) or not isinstance(span.get("spanId"), str):
                unread += 1
                continue
            span["traceId"], span["spanId"] = hex_id(span["traceId"], 16), hex_id(span["spanId"], 8)
            if span.get("parentSpanId"):
                span["parentSpanId"] = hex_id(span["parentSpanId"], 8)
            spans.append(span)
            tokens[identity(span["traceId"], span["spanId"])] = _tokens(span)
        await self._annotate(spans)
        body = request_of([(service_resource(self.service), {"scope": {"name": "phoenix"}}, spans)])
        return ImportPage(
            (("json", body),) if spans else (),
            cursor_of(answer.get("next_cursor")),
            tokens,
            unread={NOT_A_SPAN: unread} if unread else {},
        )

    async def _annotate(self, spans: list[dict[str, Any]]) -> None:
        """Bring the annotations of these spans, their traces and sessions along, as far as the server has an
        API for them. One of a trace is on its outermost span, one of a session on its first span here.
        """
        by_span: dict[str, list[dict[str, Any]]] = {}
        by_trace: dict[str, list[dict[str, Any]]] = {}
        by_session: dict[str, list[dict[str, Any]]] = {}
        for span in spans:
            by_span.setdefault(span["spanId"], []).append(span)
            if not span.get("parentSpanId"):
                by_trace.setdefault(span["traceId"], []).append(span)
            if session_id := _session_of(span):
                by_session.setdefault(session_id, []).append(span)
        await self._place_all("span", by_span)
        await self._place_all("trace", {key: roots[:1] for key, roots in by_trace.items()})
        await self._place_all("session", {key: of_session[:1] for key, of_session in by_session.items()})

    async def _place_all(self, kind: _Subject, by_id: Mapping[str, list[dict[str, Any]]]) -> None:
        subject_ids = list(by_id)
        path = f"/v1/projects/{quote(self.project, safe='')}/{kind}_annotations"
        for first in range(0, len(subject_ids) if kind not in self._missing else 0, SPANS_ASKED):
            ids = [(f"{kind}_ids", id_) for id_ in subject_ids[first : first + SPANS_ASKED]]
            cursor: str | None = None
            for _ in range(MOST_PAGES):
                query = [*ids, ("limit", str(PAGE_SPANS)), *([("cursor", cursor)] if cursor else [])]
                try:
                    answer = json_of(await self.fetch("GET", path, tuple(query)), "Phoenix")
                except NotThere:
                    # It says so too where none of the ids is there, which may be true of some.
                    if kind not in self._answered:
                        self._missing.add(kind)
                        return
                    break
                self._answered.add(kind)
                for annotation in answer.get("data") or ():
                    _place(kind, by_id, annotation)
                cursor = answer.get("next_cursor")
                if not isinstance(cursor, str) or not cursor:
                    break

    async def _fetched(self, window: ImportWindow, cursor: str | None) -> dict[str, Any]:
        path = f"/v1/projects/{quote(self.project, safe='')}/spans/otlpv1"
        while True:
            query = [("limit", str(self.page_spans)), ("end_time", timestamp(window.high))]
            if window.low is not None:
                query.append(("start_time", timestamp(window.low)))
            if cursor is not None:
                query.append(("cursor", cursor))
            try:
                return json_of(await self.fetch("GET", path, tuple(query)), "Phoenix")
            except NotThere:
                raise OperatorError(
                    f"there is no project {self.project!r} in this Phoenix, or it is older than release 12;"
                    " --source-project names one"
                ) from None
            except PageTooLarge:
                if self.page_spans == 1:
                    raise OperatorError("one span of this Phoenix is larger than a page may be") from None
                self.page_spans = max(1, self.page_spans // 4)


def _session_of(span: Mapping[str, Any]) -> str | None:
    for pair in span.get("attributes") or ():
        if pair.get("key") == "session.id":
            value = (pair.get("value") or {}).get("stringValue")
            return value if isinstance(value, str) else None
    return None


def _place(kind: _Subject, by_id: Mapping[str, list[dict[str, Any]]], annotation: Any) -> None:
    """Put an annotation on its span; of several spans of one id it is on none, for it names no trace."""
    if not isinstance(annotation, dict):
        return
    subject_id = str(annotation.get(f"{kind}_id"))
    spans = by_id.get(subject_id, [])
    result = annotation.get("result")
    if len(spans) != 1 or not isinstance(result, dict):
        return
    event = evaluation_event(
        annotation.get("name"),
        result.get("score"),
        label=result.get("label"),
        text=result.get("explanation"),
        author=annotation.get("user_id") or annotation.get("annotator_kind"),
        at=instant_of(annotation.get("created_at")),
        session_id=subject_id if kind == "session" else None,
    )
    add_evaluation(spans[0], event)


def _otlp(document: Any) -> Any:
    """What Phoenix answers as OTLP JSON spells it, without the arms that are null."""
    match document:
        case dict():
            fields = {camel(key): _otlp(value) for key, value in document.items() if value is not None}
            return fields | {key: _to_microseconds(fields[key]) for key in _TIMES & fields.keys()}
        case list():
            return [_otlp(item) for item in document]
        case _:
            return document


def _to_microseconds(time_ns: Any) -> Any:
    """A time to the microsecond: Phoenix keeps no more, and says the rest as a float has it."""
    return str(round(int(time_ns) / 1000) * 1000) if isinstance(time_ns, int) else time_ns


def _tokens(span: Mapping[str, Any]) -> int | None:
    """What Phoenix says that a span used."""
    counts: dict[str, int] = {}
    for pair in span.get("attributes") or ():
        if pair.get("key") in (_TOTAL, *_PARTS):
            value = pair.get("value") or {}
            number: Any = value.get("intValue", value.get("doubleValue", value.get("stringValue")))
            try:
                counts[pair["key"]] = int(float(number))
            except (TypeError, ValueError, OverflowError):
                continue
    if _TOTAL in counts:
        return counts[_TOTAL]
    parts = [counts[part] for part in _PARTS if part in counts]
    return sum(parts) if parts else None
