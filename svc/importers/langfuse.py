"""Langfuse: observations of a project, over its API or from the files of a blob storage export.

Made from the API's documentation. Two ways in: `/api/public/v2/observations` where the server has it
(Langfuse Cloud, self-hosted from release 4), by a cursor; else `/api/public/traces`, page by page, and each
trace whole.
Rows become spans of our Langfuse dialect. Ids that are no hexadecimal are hashed, always to the same. A trace
of the old way that has no single outermost observation gets a root of its own, which stands for it.

The newer API cuts metadata at 200 characters unless it is told the keys: a page in which something was cut is
asked for again with its keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import attrs
import msgspec

from protocol.importing import Fetch, NotThere, PageTooLarge
from protocol.operator import OperatorError
from protocol.rest.query import timestamp
from svc.importers.evaluations import add_evaluation
from svc.importers.langfuse_scores import SCORES, event_of, fetched_scores, place_scores
from svc.importers.source import (
    Identity,
    ImportPage,
    ImportWindow,
    cursor_of,
    hex_id,
    identity,
    instant_of,
    json_of,
    json_text,
    nanoseconds,
    pairs_of,
    request_of,
    service_resource,
)

#: What a page of either API holds at most.
PAGE_ROWS: Final = 1000
PAGE_TRACES: Final = 50
#: A server that has no such group leaves it out; the last has the name, tags and release of the trace.
_GROUPS: Final = "core,basic,time,io,metadata,model,usage,prompt,metrics,trace_context"

_NEW: Final = "/api/public/v2/observations"
_OLD: Final = "/api/public/traces"
#: A cursor of the old way is this and a page number.
_OLD_CURSOR: Final = "page "

#: Metadata of this length was cut, unless by chance it is as long.
_CUT_CHARS: Final = 200
_MOST_KEYS: Final = 50
_KEYS_CHARS: Final = 2_000

NO_ROW: Final = "a row without an id, a trace or a start"

#: What an attribute is called, and the field of a row that it comes from; texts as they are, others as JSON.
_FIELDS: Final = (
    ("langfuse.observation.model.name", "providedModelName"),
    ("langfuse.observation.model.parameters", "modelParameters"),
    ("langfuse.observation.input", "input"),
    ("langfuse.observation.output", "output"),
    ("langfuse.observation.level", "level"),
    ("langfuse.observation.status_message", "statusMessage"),
    ("langfuse.observation.completion_start_time", "completionStartTime"),
    ("langfuse.observation.prompt.name", "promptName"),
    ("langfuse.version", "version"),
    ("langfuse.release", "release"),
    ("langfuse.environment", "environment"),
    ("session.id", "sessionId"),
    ("user.id", "userId"),
    ("langfuse.trace.name", "traceName"),
)
_ERROR: Final = 2


@attrs.define
class LangfuseProject:
    """The project that the keys are of. `service` is the name that its spans get."""

    fetch: Fetch
    service: str
    page_rows: int = PAGE_ROWS
    name: str = "Langfuse"
    leaves: tuple[str, ...] = (
        "comments, datasets, prompts, media and users stay in Langfuse, and so do scores of experiments,"
        " scores of sessions where the server has no /api/public/v3/scores, and those of traces where it has"
        " no older API either",
        "public and bookmarked marks of traces",
    )
    _keys: tuple[str, ...] = ()
    _has_scores: bool = True

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """What is behind a cursor, by the newer way where the server has it."""
        if cursor is not None and cursor.startswith(_OLD_CURSOR):
            return await self._old(window, int(cursor.removeprefix(_OLD_CURSOR)))
        try:
            answer = await self._request(window, cursor)
        except NotThere:
            if cursor is not None:
                raise OperatorError(
                    "this Langfuse has no newer API any more: begin anew with --again"
                ) from None
            return await self._old(window, 1)
        rows = _rows(answer)
        keys = _cut_keys(rows, self._keys)
        if keys != self._keys:
            self._keys = keys
            rows = _rows(await self._request(window, cursor))
        await self._score(rows)
        return page_of(rows, self.service, cursor_of((answer.get("meta") or {}).get("cursor")))

    async def _score(self, rows: list[dict[str, Any]]) -> None:
        """Bring the scores of these rows along, where the server has the API for them."""
        trace_ids = list(dict.fromkeys(str(row["traceId"]) for row in rows if row.get("traceId")))
        session_ids = list(dict.fromkeys(str(row["sessionId"]) for row in rows if row.get("sessionId")))
        if self._has_scores and trace_ids:
            try:
                place_scores(rows, await fetched_scores(self.fetch, trace_ids, session_ids))
            except NotThere:
                self._has_scores = False

    async def _request(self, window: ImportWindow, cursor: str | None) -> dict[str, Any]:
        while True:
            query = [
                ("fields", _GROUPS),
                ("limit", str(self.page_rows)),
                ("toStartTime", timestamp(window.high)),
            ]
            if window.low is not None:
                query.append(("fromStartTime", timestamp(window.low)))
            if self._keys:
                query.append(("expandMetadata", ",".join(self._keys)))
            if cursor is not None:
                query.append(("cursor", cursor))
            try:
                return json_of(await self.fetch("GET", _NEW, tuple(query)), "Langfuse")
            except PageTooLarge:
                if self.page_rows == 1:
                    raise OperatorError(
                        "one observation of this Langfuse is larger than a page may be"
                    ) from None
                self.page_rows = max(1, self.page_rows // 4)

    async def _old(self, window: ImportWindow, number: int) -> ImportPage:
        query = [
            ("page", str(number)),
            ("limit", str(PAGE_TRACES)),
            ("orderBy", "timestamp.asc"),
            ("toTimestamp", timestamp(window.high)),
        ]
        if window.low is not None:
            query.append(("fromTimestamp", timestamp(window.low)))
        try:
            answer = json_of(await self.fetch("GET", _OLD, tuple(query)), "Langfuse")
        except NotThere:
            raise OperatorError("what answers there is not Langfuse: it has no /api/public/traces") from None
        traces = _rows(answer)
        rows: list[dict[str, Any]] = []
        for trace in traces:
            rows += await self._observations(trace)
        pages = (answer.get("meta") or {}).get("totalPages")
        is_last = number >= pages if isinstance(pages, int) else len(traces) < PAGE_TRACES
        return page_of(rows, self.service, None if is_last else f"{_OLD_CURSOR}{number + 1}")

    async def _observations(self, trace: Mapping[str, Any]) -> list[dict[str, Any]]:
        try:
            answer = await self.fetch("GET", f"{_OLD}/{quote(str(trace.get('id')), safe='')}")
        except NotThere:
            # Deleted since the page was listed.
            return []
        except PageTooLarge:
            raise OperatorError(f"the trace {trace.get('id')!r} is larger than a page may be") from None
        return rows_of_trace(json_of(answer, "Langfuse"))


def _rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in answer.get("data") or () if isinstance(row, dict)]


def _cut_keys(rows: Sequence[Mapping[str, Any]], old_keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of metadata that have to be asked for by name, as many as a question has room for."""
    keys = dict.fromkeys(old_keys)
    for row in rows:
        metadata = row.get("metadata")
        for key, value in metadata.items() if isinstance(metadata, dict) else ():
            if isinstance(value, str) and len(value) == _CUT_CHARS and "," not in key:
                keys[key] = None
    new_keys: list[str] = []
    for key in keys:
        if len(new_keys) < _MOST_KEYS and sum(map(len, new_keys)) + len(key) <= _KEYS_CHARS:
            new_keys.append(key)
    return tuple(new_keys)


def rows_of_trace(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The observations of a trace of the old way, which know what is known of their trace."""
    observations = [
        dict(observation) for observation in trace.get("observations") or () if isinstance(observation, dict)
    ]
    trace_fields = {
        "traceName": trace.get("name"),
        "sessionId": trace.get("sessionId"),
        "userId": trace.get("userId"),
        "release": trace.get("release"),
        "environment": trace.get("environment"),
        "tags": trace.get("tags"),
    }
    for observation in observations:
        observation |= {key: value for key, value in trace_fields.items() if observation.get(key) is None}
        observation["providedModelName"] = observation.get("providedModelName") or observation.get("model")
    scores = [score for score in trace.get("scores") or () if isinstance(score, dict)]
    outermost = [observation for observation in observations if not observation.get("parentObservationId")]
    if len(outermost) == 1:
        root = outermost[0]
        for field in ("input", "output", "metadata"):
            if root.get(field) in (None, {}, ""):
                root[field] = trace.get(field)
        place_scores(observations, scores)
        return observations
    times = [
        str(observation[key])
        for observation in observations
        for key in ("startTime", "endTime")
        if observation.get(key)
    ]
    times += [str(trace["timestamp"])] if trace.get("timestamp") else []
    root = {
        **trace_fields,
        "id": f"trace {trace.get('id')}",
        "traceId": trace.get("id"),
        "type": "SPAN",
        "name": trace.get("name") or "trace",
        # In one form, so that their order is that of time.
        "startTime": min(times, default=None),
        "endTime": max(times, default=None),
        "input": trace.get("input"),
        "output": trace.get("output"),
        "metadata": trace.get("metadata"),
        "version": trace.get("version"),
    }
    for observation in outermost:
        observation["parentObservationId"] = root["id"]
    place_scores([root, *observations], scores)
    return [root, *observations]


def page_of(rows: Sequence[Mapping[str, Any]], service: str, cursor: str | None) -> ImportPage:
    """Rows as one request of OTLP."""
    spans: list[dict[str, Any]] = []
    tokens: dict[Identity, int | None] = {}
    unread = 0
    for row in rows:
        span = span_of(row)
        if span is None:
            unread += 1
            continue
        for score in row.get(SCORES) or ():
            add_evaluation(span, event_of(score))
        spans.append(span)
        tokens[identity(span["traceId"], span["spanId"])] = _tokens(row)
    body = request_of([(service_resource(service), {"scope": {"name": "langfuse"}}, spans)])
    return ImportPage(
        (("json", body),) if spans else (), cursor, tokens, unread={NO_ROW: unread} if unread else {}
    )


def span_of(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row as a span of our Langfuse dialect, in OTLP JSON; None for what is no observation."""
    started_at, ended_at = instant_of(row.get("startTime")), instant_of(row.get("endTime"))
    if not row.get("id") or not row.get("traceId") or started_at is None:
        return None
    failed = row.get("level") == "ERROR"
    # An event has no end: it is over when it begins.
    end = ended_at or started_at
    parent = row.get("parentObservationId")
    return {
        "traceId": hex_id(str(row["traceId"]), 16),
        "spanId": hex_id(str(row["id"]), 8),
        "parentSpanId": hex_id(str(parent), 8) if parent else "",
        "name": str(row.get("name") or row.get("type") or "observation"),
        "kind": 1,
        "startTimeUnixNano": nanoseconds(started_at),
        "endTimeUnixNano": nanoseconds(max(end, started_at)),
        "attributes": pairs_of(_attributes(row)),
        "status": {"code": _ERROR, "message": str(row.get("statusMessage") or "")} if failed else {},
    }


def _attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {"langfuse.observation.type": str(row.get("type") or "span").lower()}
    for name, field in _FIELDS:
        if (value := row.get(field)) not in (None, "", {}, []):
            attributes[name] = json_text(value)
    if usage := _usage(row):
        attributes["langfuse.observation.usage_details"] = json_text(usage)
    if cost := row.get("costDetails"):
        attributes["langfuse.observation.cost_details"] = json_text(cost)
    if row.get("promptVersion") is not None:
        attributes["langfuse.observation.prompt.version"] = row["promptVersion"]
    if tags := row.get("tags"):
        attributes["langfuse.trace.tags"] = [str(tag) for tag in tags]
    metadata = row.get("metadata")
    if isinstance(metadata, dict):
        attributes |= {
            f"langfuse.observation.metadata.{key}": json_text(value) for key, value in metadata.items()
        }
    elif metadata is not None:
        attributes["langfuse.observation.metadata"] = json_text(metadata)
    return attributes


def _usage(row: Mapping[str, Any]) -> dict[str, Any]:
    """The usage of a row in Langfuse's own keys; rows of the oldest servers have three fixed ones."""
    details = row.get("usageDetails")
    if isinstance(details, str):
        try:
            details = msgspec.json.decode(details)
        except msgspec.DecodeError:
            details = None
    if isinstance(details, dict) and details:
        return details
    usage = row.get("usage")
    if not isinstance(usage, dict) or usage.get("unit") not in (None, "TOKENS"):
        return {}
    return {key: usage[key] for key in ("input", "output", "total") if isinstance(usage.get(key), int)}


def _tokens(row: Mapping[str, Any]) -> int | None:
    """What Langfuse says that an observation used."""
    usage = _usage(row)
    total = usage.get("total")
    if isinstance(total, int | float):
        return int(total)
    numbers = [value for value in usage.values() if isinstance(value, int | float)]
    return int(sum(numbers)) if numbers else None
