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
from svc.importers.source import (
    Identity,
    ImportPage,
    ImportWindow,
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
        "scores, comments, datasets, prompts, media and users stay in Langfuse",
        "public and bookmarked marks of traces",
    )
    _keys: tuple[str, ...] = ()

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """What is behind a cursor, by the newer way where the server has it."""
        if cursor is not None and cursor.startswith(_OLD_CURSOR):
            return await self._old(window, int(cursor.removeprefix(_OLD_CURSOR)))
        try:
            answer = await self._asked(window, cursor)
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
            rows = _rows(await self._asked(window, cursor))
        behind = (answer.get("meta") or {}).get("cursor")
        return page_of(rows, self.service, behind if isinstance(behind, str) and behind else None)

    async def _asked(self, window: ImportWindow, cursor: str | None) -> dict[str, Any]:
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
        listed = _rows(answer)
        rows: list[dict[str, Any]] = []
        for trace in listed:
            rows += await self._whole(trace)
        pages = (answer.get("meta") or {}).get("totalPages")
        last = number >= pages if isinstance(pages, int) else len(listed) < PAGE_TRACES
        return page_of(rows, self.service, None if last else f"{_OLD_CURSOR}{number + 1}")

    async def _whole(self, trace: Mapping[str, Any]) -> list[dict[str, Any]]:
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


def _cut_keys(rows: Sequence[Mapping[str, Any]], known: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of metadata that have to be asked for by name, as many as a question has room for."""
    keys = dict.fromkeys(known)
    for row in rows:
        metadata = row.get("metadata")
        for key, value in metadata.items() if isinstance(metadata, dict) else ():
            if isinstance(value, str) and len(value) == _CUT_CHARS and "," not in key:
                keys[key] = None
    kept: list[str] = []
    for key in keys:
        if len(kept) < _MOST_KEYS and sum(map(len, kept)) + len(key) <= _KEYS_CHARS:
            kept.append(key)
    return tuple(kept)


def rows_of_trace(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The observations of a trace of the old way, which know what is known of their trace."""
    observations = [dict(one) for one in trace.get("observations") or () if isinstance(one, dict)]
    whole = {
        "traceName": trace.get("name"),
        "sessionId": trace.get("sessionId"),
        "userId": trace.get("userId"),
        "release": trace.get("release"),
        "environment": trace.get("environment"),
        "tags": trace.get("tags"),
    }
    for one in observations:
        one |= {key: value for key, value in whole.items() if one.get(key) is None}
        one["providedModelName"] = one.get("providedModelName") or one.get("model")
    outermost = [one for one in observations if not one.get("parentObservationId")]
    if len(outermost) == 1:
        root = outermost[0]
        for field in ("input", "output", "metadata"):
            if root.get(field) in (None, {}, ""):
                root[field] = trace.get(field)
        return observations
    times = [str(one[key]) for one in observations for key in ("startTime", "endTime") if one.get(key)]
    times += [str(trace["timestamp"])] if trace.get("timestamp") else []
    root = {
        **whole,
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
    for one in outermost:
        one["parentObservationId"] = root["id"]
    return [root, *observations]


def page_of(rows: Sequence[Mapping[str, Any]], service: str, cursor: str | None) -> ImportPage:
    """Rows as one request of OTLP."""
    spans: list[dict[str, Any]] = []
    told: dict[Identity, int | None] = {}
    unread = 0
    for row in rows:
        span = span_of(row)
        if span is None:
            unread += 1
            continue
        spans.append(span)
        told[identity(span["traceId"], span["spanId"])] = _tokens(row)
    body = request_of([(service_resource(service), {"scope": {"name": "langfuse"}}, spans)])
    return ImportPage(
        (("json", body),) if spans else (), cursor, told, unread={NO_ROW: unread} if unread else {}
    )


def span_of(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row as a span of our Langfuse dialect, in OTLP JSON; None for what is no observation."""
    started, ended = instant_of(row.get("startTime")), instant_of(row.get("endTime"))
    if not row.get("id") or not row.get("traceId") or started is None:
        return None
    failed = row.get("level") == "ERROR"
    # An event has no end: it is over when it begins.
    end = ended or started
    parent = row.get("parentObservationId")
    return {
        "traceId": hex_id(str(row["traceId"]), 16),
        "spanId": hex_id(str(row["id"]), 8),
        "parentSpanId": hex_id(str(parent), 8) if parent else "",
        "name": str(row.get("name") or row.get("type") or "observation"),
        "kind": 1,
        "startTimeUnixNano": nanoseconds(started),
        "endTimeUnixNano": nanoseconds(max(end, started)),
        "attributes": pairs_of(_attributes(row)),
        "status": {"code": _ERROR, "message": str(row.get("statusMessage") or "")} if failed else {},
    }


def _attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"langfuse.observation.type": str(row.get("type") or "span").lower()}
    for name, field in _FIELDS:
        if (value := row.get(field)) not in (None, "", {}, []):
            said[name] = json_text(value)
    if usage := _usage(row):
        said["langfuse.observation.usage_details"] = json_text(usage)
    if cost := row.get("costDetails"):
        said["langfuse.observation.cost_details"] = json_text(cost)
    if row.get("promptVersion") is not None:
        said["langfuse.observation.prompt.version"] = row["promptVersion"]
    if tags := row.get("tags"):
        said["langfuse.trace.tags"] = [str(tag) for tag in tags]
    metadata = row.get("metadata")
    if isinstance(metadata, dict):
        said |= {f"langfuse.observation.metadata.{key}": json_text(value) for key, value in metadata.items()}
    elif metadata is not None:
        said["langfuse.observation.metadata"] = json_text(metadata)
    return said


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
