"""`/openapi.json`: the document of everything under `/api`, `/auth`, `/v1` and `/actuator`.

Made from what serves: the table of routes, the classes of bodies and answers, the table of refusals. Public,
as it says nothing about an instance. A route that is served and not described fails a test.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from protocol.release import release
from protocol.rest.answers import Buckets, Compared, Counted, Failure, FoundPage, HealthReport, Ranked
from protocol.rest.feedback import ENTRIES_MAX, FeedbackAnswer, FeedbackEntry
from protocol.rest.query import CompareBody, CountBody, FacetsBody, SearchBody, TimeseriesBody
from svc.front.api.routes import Route

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"

#: The query routes with their bodies and answers.
QUERIES: Final = (
    ("count", "How many rows match, and a measure.", CountBody, Counted),
    ("timeseries", "Counts and measures by interval, empty buckets included.", TimeseriesBody, Buckets),
    ("facets", "The values of a field, ranked by count or measure.", FacetsBody, Ranked),
    ("search", "Rows by text and filters, newest first.", SearchBody, FoundPage),
    ("compare", "Two populations of traces: what differs beyond chance.", CompareBody, Compared),
)
_QUERY_STATUSES: Final = (400, 401, 403, 413, 429, 503)
_INGEST_STATUSES: Final = (400, 401, 403, 404, 408, 413, 415, 503)

_MEANINGS: Final = {
    200: "Done.",
    201: "Made.",
    202: "Accepted; it goes on in the background.",
    303: "Go on there.",
    400: "The request cannot be used; the message names the offender.",
    401: "No living credential.",
    403: "The credential may not do this.",
    404: "It is not there.",
    408: "The body did not arrive in time.",
    409: "It conflicts with what is there.",
    413: "The body is too large.",
    415: "The content type or encoding is not taken.",
    422: "It can be read, and means nothing here.",
    429: "Too much at once; wait and try again.",
    503: "Not right now; try again.",
}

_BEARER: Final[dict[str, list[str]]] = {"key": []}
_COOKIE: Final[dict[str, list[str]]] = {"session": []}


@cache
def document(routes: tuple[Route, ...], base_path: str = "") -> bytes:
    """The whole document, OpenAPI 3.1, as JSON. Made once for a table: it takes 0.1 s (2026-11)."""
    types: list[Any] = [Failure, HealthReport, FeedbackEntry, FeedbackAnswer]
    types += [type_ for route in routes for type_ in (route.data, route.body) if type_ is not None]
    types += [type_ for _, _, body, answer in QUERIES for type_ in (body, answer)]
    unique = list({repr(type_): type_ for type_ in types}.values())
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schemas_by_type = {repr(type_): schema for type_, schema in zip(unique, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas_by_type)
    for name, summary, body, answer in QUERIES:
        paths[f"/v1/query/{name}"] = {
            "post": _query(
                name, summary, schemas_by_type[repr(body)], schemas_by_type[repr(answer)], schemas_by_type
            )
        }
    paths["/v1/feedback"] = {"post": _feedback(schemas_by_type)}
    paths["/v1/traces"] = {"post": _ingest(schemas_by_type)}
    paths |= _actuator(schemas_by_type)
    document_ = {
        "openapi": "3.1.0",
        **({"servers": [{"url": base_path}]} if base_path else {}),
        "info": {
            "title": "trace-svc",
            "version": release(),
            "description": "Takes traces of LLM applications over OTLP and answers questions about them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key, svc_w_…, q or a."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "svc_session",
                    "description": "Over HTTPS its name is `__Host-svc_session`.",
                },
            },
        },
    }
    return msgspec.json.encode(document_)


def _envelope(data: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"ok": {"const": True}, "data": data},
        "required": ["ok", "data"],
        "additionalProperties": False,
    }


def _answer(status: int, schema: Any, media_type: str = _JSON) -> dict[str, Any]:
    content = {} if schema is None else {"content": {media_type: {"schema": schema}}}
    return {"description": _MEANINGS[status], **content}


def _failures(statuses: Iterable[int], schemas: dict[str, Any]) -> dict[str, Any]:
    return {str(status): _answer(status, schemas[repr(Failure)]) for status in statuses}


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[1]],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _SEGMENT}
              for name in route.placeholders),
            *(() if route.query is None else _query_parameters(route.query)),
        ],
        "security": _security(route),
    }  # fmt: skip
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": schemas[repr(route.body)]}},
        }
    success = _answer(route.status, None if route.data is None else _envelope(schemas[repr(route.data)]))
    failures = [status for status in route.statuses() if status != route.status]
    operation["responses"] = {str(route.status): success, **_failures(failures, schemas)}
    return operation


#: One segment of a path.
_SEGMENT: Final = {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9._~-]+$"}


def _security(route: Route) -> list[dict[str, list[str]]]:
    match route.permission:
        case "PUBLIC":
            return []
        case "SIGNED_IN":
            return [_COOKIE]
        case _:
            return [_COOKIE] if route.keys is not None else [_COOKIE, _BEARER]


def _query_parameters(type_: type[msgspec.Struct]) -> Iterable[dict[str, Any]]:
    (_, components) = msgspec.json.schema_components([type_], ref_template=_REF)
    component = components[type_.__name__]
    for name, schema in component["properties"].items():
        yield {
            "name": name,
            "in": "query",
            "required": name in component.get("required", ()),
            "schema": schema,
        }


def _query(name: str, summary: str, body: Any, answer: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"post_v1_query_{name}",
        "summary": summary,
        "tags": ["query"],
        "security": [_BEARER],
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": {"200": _answer(200, _envelope(answer)), **_failures(_QUERY_STATUSES, schemas)},
    }


def _feedback(schemas: dict[str, Any]) -> dict[str, Any]:
    entries = {"type": "array", "maxItems": ENTRIES_MAX, "items": schemas[repr(FeedbackEntry)]}
    body = {"type": "object", "required": ["feedback"], "properties": {"feedback": entries}}
    return {
        "operationId": "post_v1_feedback",
        "summary": "Take what people and programs think of answers.",
        "tags": ["feedback"],
        "security": [_BEARER],
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": {
            "200": _answer(200, schemas[repr(FeedbackAnswer)]),
            **_failures(_QUERY_STATUSES, schemas),
        },
    }


def _ingest(schemas: dict[str, Any]) -> dict[str, Any]:
    content = {"content": {_JSON: {"schema": {"type": "object"}}, _PROTOBUF: {"schema": {}}}}
    return {
        "operationId": "post_v1_traces",
        "summary": "Take a batch of OTLP traces (ExportTraceServiceRequest).",
        "tags": ["ingest"],
        "security": [_BEARER],
        "requestBody": {
            "required": True,
            "content": {
                _PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
                _JSON: {"schema": {"type": "object"}},
            },
        },
        "responses": {
            "200": {"description": _MEANINGS[200], **content},
            **_failures(_INGEST_STATUSES, schemas),
        },
    }


def _actuator(schemas: dict[str, Any]) -> dict[str, Any]:
    health = schemas[repr(HealthReport)]

    def read(name: str, summary: str, *, down: bool = True) -> dict[str, Any]:
        answers = {"200": {"description": "UP.", "content": {_JSON: {"schema": health}}}}
        if down:
            answers["503"] = {"description": "DOWN.", "content": {_JSON: {"schema": health}}}
        return {
            "get": {
                "operationId": f"get_actuator_{name}",
                "summary": summary,
                "tags": ["actuator"],
                "security": [],
                "responses": answers,
            }
        }

    metrics = read("prometheus", "Metrics in the Prometheus text form.", down=False)
    text = {"text/plain": {"schema": {"type": "string"}}}
    metrics["get"]["responses"] = {"200": {"description": "The metrics.", "content": text}}
    return {
        "/actuator/health": read("health", "The whole health report."),
        "/actuator/health/liveness": read("liveness", "Whether the process is alive.", down=False),
        "/actuator/health/readiness": read("readiness", "Whether it can answer."),
        "/actuator/prometheus": metrics,
    }
