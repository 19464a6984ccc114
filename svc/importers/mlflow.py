"""MLflow Tracking: the traces of an experiment over its REST API.

Tried against MLflow 3.17. A page of traces is searched for, oldest first, then their spans are fetched in one
go; spans are OTLP in the JSON of protobuf, with ids in base64. Pages are counted off by the server, so the
window is fixed by the journal. Session and user stand beside the spans of a trace and are said by its root;
tags that people gave become attributes of the resource.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec

from protocol.importing import Fetch, NotThere, PageTooLarge
from protocol.operator import OperatorError
from svc.importers.source import (
    Identity,
    ImportPage,
    ImportWindow,
    camel,
    identity,
    json_of,
    pairs_of,
    request_of,
    service_resource,
)

PAGE_TRACES: Final = 100
#: Ids of one question: more would make an address that servers refuse.
_BATCH_TRACES: Final = 25

_SEARCH: Final = "/api/3.0/mlflow/traces/search"
_BATCH: Final = "/api/3.0/mlflow/traces/batchGet"
_EXPERIMENT: Final = "/api/2.0/mlflow/experiments/get-by-name"

_OURS: Final = "mlflow."
_USAGE: Final = "mlflow.trace.tokenUsage"
#: What is known of a trace as a whole and said by its root here.
_OF_TRACE: Final = ("mlflow.trace.session", "mlflow.trace.user")
_MOST_TAGS: Final = 64

NOT_STORED: Final = "MLflow has the trace but not its spans"


@attrs.define
class MlflowExperiment:
    """One experiment, by its id or its name. `service` is the name that spans get which have none."""

    fetch: Fetch
    experiment: str
    service: str
    page_traces: int = PAGE_TRACES
    name: str = "MLflow"
    leaves: tuple[str, ...] = (
        "assessments (feedback and expectations), runs, models, prompts and evaluation sets stay in MLflow",
        "attachments and artifacts of traces stay in MLflow",
    )
    _id: str | None = None

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The traces behind a page token, oldest first."""
        found = await self._searched(window, cursor)
        infos = [info for info in found.get("traces") or () if isinstance(info, dict)]
        groups: list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = []
        told: dict[Identity, int | None] = {}
        unread = 0
        for n in range(0, len(infos), _BATCH_TRACES):
            whole = await self._spans_of([str(info.get("trace_id")) for info in infos[n : n + _BATCH_TRACES]])
            for info in infos[n : n + _BATCH_TRACES]:
                spans = [_otlp(span) for span in whole.get(str(info.get("trace_id")), ())]
                if not spans:
                    unread += 1
                    continue
                groups.append(self._group(info, spans, told))
        behind = found.get("next_page_token")
        return ImportPage(
            (("json", request_of(groups)),) if groups else (),
            behind if isinstance(behind, str) and behind else None,
            told,
            unread={NOT_STORED: unread} if unread else {},
        )

    def _group(
        self, info: Mapping[str, Any], spans: list[dict[str, Any]], told: dict[Identity, int | None]
    ) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        metadata, tags = info.get("trace_metadata") or {}, info.get("tags") or {}
        said = {key: str(metadata[key]) for key in _OF_TRACE if metadata.get(key)}
        for span in spans:
            if not span.get("parentSpanId"):
                known = {pair["key"] for pair in span["attributes"]}
                span["attributes"] += pairs_of({key: text for key, text in said.items() if key not in known})
            told[identity(span["traceId"], span["spanId"])] = None
        # It says what the whole trace used, and any span can stand for that.
        told[identity(spans[0]["traceId"], spans[0]["spanId"])] = _tokens(metadata)
        given = [(key, str(text)) for key, text in tags.items() if not key.startswith(_OURS)]
        resource = service_resource(self.service, **dict(given[:_MOST_TAGS]))
        return resource, {"scope": {"name": "mlflow"}}, spans

    async def _searched(self, window: ImportWindow, cursor: str | None) -> dict[str, Any]:
        if self._id is None:
            self._id = await self._experiment_id()
        conditions = [f"timestamp_ms < {_ms(window.high)}"]
        if window.low is not None:
            conditions.append(f"timestamp_ms >= {_ms(window.low)}")
        asked: dict[str, Any] = {
            "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._id}}],
            "filter": " AND ".join(conditions),
            "max_results": self.page_traces,
            "order_by": ["timestamp_ms ASC"],
        }
        if cursor is not None:
            asked["page_token"] = cursor
        try:
            return json_of(await self.fetch("POST", _SEARCH, body=msgspec.json.encode(asked)), "MLflow")
        except NotThere:
            raise OperatorError(
                f"this MLflow has no experiment {self.experiment!r}, or is older than release 3.5;"
                " --source-project names one"
            ) from None

    async def _experiment_id(self) -> str:
        if self.experiment.isdecimal():
            return self.experiment
        query = (("experiment_name", self.experiment),)
        try:
            found = json_of(await self.fetch("GET", _EXPERIMENT, query), "MLflow")
        except NotThere:
            raise OperatorError(
                f"there is no experiment {self.experiment!r} in this MLflow; --source-project names one"
            ) from None
        return str(found["experiment"]["experiment_id"])

    async def _spans_of(self, ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The spans of these traces; in halves where they are too large together."""
        try:
            answer = await self.fetch("GET", _BATCH, tuple(("trace_ids", one) for one in ids))
        except PageTooLarge:
            if len(ids) == 1:
                raise OperatorError(f"the trace {ids[0]} is larger than a page may be") from None
            half = len(ids) // 2
            return {**await self._spans_of(ids[:half]), **await self._spans_of(ids[half:])}
        except NotThere:
            raise OperatorError("this MLflow is older than release 3.5, which answers whole traces") from None
        return {
            str(trace["trace_info"]["trace_id"]): trace.get("spans") or []
            for trace in json_of(answer, "MLflow").get("traces") or ()
        }


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _otlp(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span of MLflow as OTLP JSON spells it."""
    made = {camel(key): value for key, value in span.items()}
    for key in ("traceId", "spanId", "parentSpanId"):
        made[key] = _unbased(made.get(key))
    made["attributes"] = [_pair(pair) for pair in made.get("attributes") or ()]
    made["events"] = [
        {
            "name": event.get("name", ""),
            "timeUnixNano": str(event.get("time_unix_nano", event.get("timeUnixNano", 0))),
            "attributes": [_pair(pair) for pair in event.get("attributes") or ()],
        }
        for event in made.get("events") or ()
    ]
    made["links"] = [
        {**{camel(key): value for key, value in link.items()}, **_link_ids(link)}
        for link in made.get("links") or ()
    ]
    return made


def _link_ids(link: Mapping[str, Any]) -> dict[str, str]:
    named = {camel(key): value for key, value in link.items()}
    return {key: _unbased(named.get(key)) for key in ("traceId", "spanId")}


def _pair(pair: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": pair.get("key", ""), "value": _value(pair.get("value"))}


def _value(value: Any) -> Any:
    """An AnyValue of protobuf's JSON in either spelling."""
    match value:
        case dict():
            return {
                camel(arm): _value(inner) if isinstance(inner, dict | list) else inner
                for arm, inner in value.items()
            }
        case list():
            return [_value(item) for item in value]
        case _:
            return value


def _unbased(text: Any) -> str:
    """An id in hexadecimal from one in base64."""
    if not isinstance(text, str):
        return ""
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return ""


def _tokens(metadata: Mapping[str, Any]) -> int | None:
    """What MLflow says that a trace used."""
    try:
        return int(msgspec.json.decode(metadata.get(_USAGE) or "")["total_tokens"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None
