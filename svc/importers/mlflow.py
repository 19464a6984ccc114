"""MLflow Tracking: the traces of an experiment over its REST API.

Tried against MLflow 3.17. A page of traces is searched for, oldest first, then their spans are fetched in one
go; spans are OTLP in the JSON of protobuf, with ids in base64. Pages are counted off by the server, so the
window is fixed by the journal. Session and user stand beside the spans of a trace and are said by its root;
tags that people gave become attributes of the resource. Spans that MLflow keeps in its artifact store, and
not in its database, are fetched trace by trace by the route of its own pages
(`svc.importers.mlflow_artifacts`); a trace that it cannot give is counted and left out.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec

from protocol.importing import FailedQuestion, Fetch, NotThere, PageTooLarge
from protocol.operator import OperatorError
from svc.importers.mlflow_artifacts import artifact_spans
from svc.importers.mlflow_assessments import add_assessments
from svc.importers.source import (
    Identity,
    ImportPage,
    ImportWindow,
    camel,
    cursor_of,
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
_ARTIFACT: Final = "/ajax-api/2.0/mlflow/get-trace-artifact"
_EXPERIMENT: Final = "/api/2.0/mlflow/experiments/get-by-name"

_OURS: Final = "mlflow."
_USAGE: Final = "mlflow.trace.tokenUsage"
#: What is known of a trace as a whole and said by its root here.
_OF_TRACE: Final = ("mlflow.trace.session", "mlflow.trace.user")
_MOST_TAGS: Final = 64
#: Where the spans of a trace lie, and what it says of its database; nothing, or another word, is the store.
_PLACE: Final = "mlflow.trace.spansLocation"
_IN_DATABASE: Final = "TRACKING_STORE"

NOT_STORED: Final = "MLflow has the trace but not its spans"
NOT_GIVEN: Final = "MLflow fails to give the spans of the trace from its artifact store"
NOT_READ: Final = "what MLflow has of the trace in its artifact store cannot be read"
TOO_LARGE: Final = "the trace is larger than a page may be"


@attrs.define
class MlflowExperiment:
    """One experiment, by its id or its name. `service` is the name that spans get which have none."""

    fetch: Fetch
    experiment: str
    service: str
    page_traces: int = PAGE_TRACES
    name: str = "MLflow"
    leaves: tuple[str, ...] = (
        "expectations (what an answer should have been), runs, models, prompts and evaluation sets stay in"
        " MLflow",
        "attachments and artifacts of traces stay in MLflow",
    )
    _id: str | None = None
    #: Whether it fails at traces that are asked for together.
    _batches_fail: bool = False

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The traces behind a page token, oldest first."""
        answer = await self._searched(window, cursor)
        infos = [info for info in answer.get("traces") or () if isinstance(info, dict)]
        groups: list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = []
        usages: dict[Identity, int | None] = {}
        unread: Counter[str] = Counter()
        spans_of = await self._spans_by_trace(infos)
        for info in infos:
            match spans_of[str(info.get("trace_id"))]:
                case str(reason):
                    unread[reason] += 1
                case spans:
                    groups.append(self._group(info, spans, usages))
        return ImportPage(
            (("json", request_of(groups)),) if groups else (),
            cursor_of(answer.get("next_page_token")),
            usages,
            unread=dict(unread),
        )

    async def _spans_by_trace(
        self, infos: Sequence[Mapping[str, Any]]
    ) -> dict[str, list[dict[str, Any]] | str]:
        """The spans of each trace as OTLP, or why there are none."""
        stored = [str(info.get("trace_id")) for info in infos if _in_database(info)]
        spans_by_trace: dict[str, list[dict[str, Any]] | str] = {}
        for n in range(0, len(stored), _BATCH_TRACES):
            ids = stored[n : n + _BATCH_TRACES]
            if self._batches_fail:
                break
            try:
                batch = await self._spans_of(ids)
            except FailedQuestion:
                # One that it cannot give spoils them all: they are asked for one by one from here on.
                self._batches_fail = True
                break
            spans_by_trace |= {
                trace_id: [_otlp(span) for span in batch.get(trace_id, ())] or NOT_STORED for trace_id in ids
            }
        for trace_id in (str(info.get("trace_id")) for info in infos):
            if trace_id not in spans_by_trace:
                spans_by_trace[trace_id] = await self._artifact(trace_id)
        return spans_by_trace

    async def _artifact(self, trace_id: str) -> list[dict[str, Any]] | str:
        try:
            answer = await self.fetch("GET", _ARTIFACT, (("request_id", trace_id),))
            return artifact_spans(answer) or NOT_STORED
        except NotThere:
            return NOT_STORED
        except FailedQuestion:
            return NOT_GIVEN
        except PageTooLarge:
            return TOO_LARGE
        except ValueError:
            return NOT_READ

    def _group(
        self, info: Mapping[str, Any], spans: list[dict[str, Any]], usages: dict[Identity, int | None]
    ) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        metadata, tags = info.get("trace_metadata") or {}, info.get("tags") or {}
        trace_fields = {key: str(metadata[key]) for key in _OF_TRACE if metadata.get(key)}
        for span in spans:
            if not span.get("parentSpanId"):
                present = {pair["key"] for pair in span["attributes"]}
                span["attributes"] += pairs_of(
                    {key: text for key, text in trace_fields.items() if key not in present}
                )
            usages[identity(span["traceId"], span["spanId"])] = None
        add_assessments(info, spans)
        # It says what the whole trace used, and any span can stand for that.
        usages[identity(spans[0]["traceId"], spans[0]["spanId"])] = _tokens(metadata)
        tag_pairs = [(key, str(text)) for key, text in tags.items() if not key.startswith(_OURS)]
        resource = service_resource(self.service, **dict(tag_pairs[:_MOST_TAGS]))
        return resource, {"scope": {"name": "mlflow"}}, spans

    async def _searched(self, window: ImportWindow, cursor: str | None) -> dict[str, Any]:
        if self._id is None:
            self._id = await self._experiment_id()
        conditions = [f"timestamp_ms < {_ms(window.high)}"]
        if window.low is not None:
            conditions.append(f"timestamp_ms >= {_ms(window.low)}")
        search: dict[str, Any] = {
            "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._id}}],
            "filter": " AND ".join(conditions),
            "max_results": self.page_traces,
            "order_by": ["timestamp_ms ASC"],
        }
        if cursor is not None:
            search["page_token"] = cursor
        try:
            return json_of(await self.fetch("POST", _SEARCH, body=msgspec.json.encode(search)), "MLflow")
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
            answer = json_of(await self.fetch("GET", _EXPERIMENT, query), "MLflow")
        except NotThere:
            raise OperatorError(
                f"there is no experiment {self.experiment!r} in this MLflow; --source-project names one"
            ) from None
        return str(answer["experiment"]["experiment_id"])

    async def _spans_of(self, ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The spans of these traces; in halves where they are too large together."""
        try:
            answer = await self.fetch("GET", _BATCH, tuple(("trace_ids", trace_id) for trace_id in ids))
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


def _in_database(info: Mapping[str, Any]) -> bool:
    return (info.get("tags") or {}).get(_PLACE) == _IN_DATABASE


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _otlp(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span of MLflow as OTLP JSON spells it."""
    fields = {camel(key): value for key, value in span.items()}
    for key in ("traceId", "spanId", "parentSpanId"):
        fields[key] = _unbased(fields.get(key))
    fields["attributes"] = [_pair(pair) for pair in fields.get("attributes") or ()]
    fields["events"] = [
        {
            "name": event.get("name", ""),
            "timeUnixNano": str(event.get("time_unix_nano", event.get("timeUnixNano", 0))),
            "attributes": [_pair(pair) for pair in event.get("attributes") or ()],
        }
        for event in fields.get("events") or ()
    ]
    fields["links"] = [
        {**{camel(key): value for key, value in link.items()}, **_link_ids(link)}
        for link in fields.get("links") or ()
    ]
    return fields


def _link_ids(link: Mapping[str, Any]) -> dict[str, str]:
    fields = {camel(key): value for key, value in link.items()}
    return {key: _unbased(fields.get(key)) for key in ("traceId", "spanId")}


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
